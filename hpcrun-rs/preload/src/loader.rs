//! Unloading: while a module may vanish, cached information about addresses is not used.
//!
//! `dlopen` is not interposed: it uses its caller's address (RUNPATH, `$ORIGIN`), which an interposed
//! function would change. The handler finds new modules itself.

use crate::real::interpose;
use hpcrun_core::session;
use hpcrun_core::threads::with_room;
use hpcrun_core::unwind::loadmap;
use std::ffi::{c_int, c_void};

interpose! {
    dlclose(handle: *mut c_void) -> c_int: |unload| {
        if !session::is_running() {
            return unload();
        }
        // Writes the modules that samples refer to, and copies those without a file, while they are mapped.
        with_room(|| {
            session::refresh_loadmap();
            session::keep_modules();
            session::begin_unload();
            crate::openmp::forget();
        });
        let result = unload();
        with_room(session::refresh_loadmap);
        loadmap::end_unload();
        result
    };
}
