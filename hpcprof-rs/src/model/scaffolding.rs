//! Frames that are scaffolding rather than the user's program, by name.

/// Frames by which std calls a closure and catches its panic. Between a runtime and the task it
/// runs they mean nothing to the user.
pub fn is_shim(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "::call_once",
        "::call_mut",
        "::catch_unwind",
        "::panicking::try",
        "::panicking::catch_unwind",
        "__rust_try",
        "__rust_begin_short_backtrace",
        "::ops::function::Fn",
        "::panic::unwind_safe::AssertUnwindSafe",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// Frames that start a program or a thread.
pub fn is_start_up(name: &str) -> bool {
    const EXACT: [&str; 9] = [
        "_start",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "start_thread",
        "_dl_start_user",
        "pthread_create",
        "_dl_relocate_static_pie",
    ];
    const PARTS: [&str; 11] = [
        "__libc_start_",
        "std::rt::lang_start",
        "__pthread_create",
        "::thread::Thread::new::thread_start",
        "std::thread::spawn",
        "std::thread::functions::spawn",
        "std::thread::Builder::spawn",
        "std::thread::builder::Builder>::spawn",
        "std::thread::scoped::Scope::spawn",
        "std::thread::lifecycle::",
        "std::sys::thread::",
    ];
    // Versioned symbols, as in `pthread_create@@GLIBC_2.34`.
    let plain = name.split('@').next().unwrap_or(name);
    EXACT.contains(&plain) || PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaffolding_is_told_from_user_code() {
        for name in [
            "core::ops::function::FnOnce::call_once",
            "std::panicking::try::do_call",
            "<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once",
        ] {
            assert!(is_shim(name), "{name}");
        }
        assert!(!is_shim("app::try_it"));
        assert!(is_start_up("__libc_start_main@@GLIBC_2.34"));
        assert!(is_start_up("std::rt::lang_start::{{closure}}"));
        let spawn = "std::thread::scoped::<impl std::thread::builder::Builder>::spawn_scoped";
        assert!(is_start_up(spawn));
        assert!(!is_start_up("app::start"));
    }
}
