//! Processes that MPI starts (`MPI_Comm_spawn` of C programs): a daemon starts them, without this process's
//! environment. They are started by `env` with what the sampler needs, and are measured like this process.

use crate::call::Call;
use crate::library::{at, pmpi};
use crate::messages::unknown;
use hpc_formats::preload;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// (command, arguments, processes, info, root, communicator, new communicator, errors)
pub(crate) fn run(call: &Call<'_>) -> c_int {
    let mut rank: c_int = 0;
    pmpi!(Comm_rank(call.arguments[5].get(), at(&mut rank)));
    // What others than the root pass means nothing.
    if call.fortran || rank != call.arguments[4].get() as c_int {
        return unknown(call);
    }
    let pointer = |place: usize| ptr::with_exposed_provenance::<c_char>(call.arguments[place].get());
    let list = pointer(1).cast::<*const c_char>();
    // SAFETY: the root's command, and null or its list of arguments, which ends with a null pointer.
    let (command, own) = unsafe {
        let nth = |i: usize| Some(*list.add(i)).filter(|argument| !argument.is_null());
        let own = (0..).take_while(|_| !list.is_null()).map_while(nth);
        (CStr::from_ptr(pointer(0)), own.collect::<Vec<_>>())
    };
    let Some(settings) = settings(command) else {
        return unknown(call);
    };
    let settings = settings.iter().map(|setting| setting.as_ptr());
    let arguments = settings.chain([command.as_ptr()]).chain(own).chain([ptr::null()]);
    let arguments: Vec<*const c_char> = arguments.collect();
    // Both outlive the call.
    call.arguments[0].set(c"/usr/bin/env".as_ptr().expose_provenance());
    call.arguments[1].set(arguments.as_ptr().expose_provenance());
    unknown(call)
}

/// The settings, if the program can be profiled, and `env` finds it as MPI would.
fn settings(command: &CStr) -> Option<Vec<CString>> {
    let name = OsStr::from_bytes(command.to_bytes());
    let search = std::env::var_os("PATH").unwrap_or_else(|| preload::DEFAULT_PATH.into());
    let path = match command.to_bytes().contains(&b'/') {
        true => name.into(),
        false => preload::find(name, &search)?,
    };
    if preload::obstacle(&path, &search).is_some() || command.to_bytes().contains(&b'=') {
        return None;
    }
    let is_ours = |name: &OsStr| name == "LD_PRELOAD" || name.as_bytes().starts_with(b"HPCRUN_RS_");
    let ours = std::env::vars_os().filter(|(name, _)| is_ours(name));
    ours.map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()).collect()
}
