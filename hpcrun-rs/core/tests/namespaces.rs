//! Modules of namespaces that `dlmopen` has made are in the load map.

use hpcrun_core::unwind::loadmap;

#[test]
fn modules_of_other_namespaces_are_known() {
    let refresh = || loadmap::refresh(|| true).added;
    assert!(!refresh().is_empty());
    // SAFETY: the library's constructors are those of a system library.
    let handle = unsafe { libc::dlmopen(libc::LM_ID_NEWLM, c"libm.so.6".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    let paths: Vec<String> = refresh().into_iter().map(|m| m.path).collect();
    let has = |name: &str| paths.iter().filter(|p| p.contains(name)).count();
    assert_eq!((has("libm.so.6"), has("libc.so.6"), has("ld-linux")), (1, 1, 0), "{paths:?}");
}
