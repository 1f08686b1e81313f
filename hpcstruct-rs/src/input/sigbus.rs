//! What a command says when a file becomes shorter while it is read. Unsafe.
//!
//! The kernel then sends `SIGBUS`. The handler calls nothing but `write` and `_exit`. A library must not
//! install handlers by itself, so each command asks for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static COMMAND: OnceLock<&str> = OnceLock::new();
const MESSAGE: &str = ": a file became shorter while it was read: try again when it is complete\n";

/// Ends the process with a message that begins with the command's name, instead of by the signal.
pub fn end_with_message(command: &'static str) {
    COMMAND.get_or_init(|| command);
    // SAFETY: the handler has the signature that the system expects and touches no memory that changes.
    // Without it, should the call fail, the signal ends the process.
    let _ = unsafe { libc::signal(libc::SIGBUS, on_fault as *const () as libc::sighandler_t) };
}

extern "C" fn on_fault(_signal: libc::c_int) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // Threads that read the same file meet its end together. The first one ends the process.
    while IS_TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: async-signal-safe.
        unsafe { libc::pause() };
    }
    for text in [COMMAND.get().copied().unwrap_or(""), MESSAGE] {
        // SAFETY: `write` is async-signal-safe; both texts are constants.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_file_that_becomes_shorter_ends_the_command_with_a_message() {
        const CHILD: &str = "HPCSTRUCT_TEST_SIGBUS";
        if std::env::var_os(CHILD).is_some() {
            end_with_message("some-command");
            // SAFETY: it sends the signal that the handler is for.
            unsafe { libc::raise(libc::SIGBUS) };
            return;
        }
        let own = std::env::current_exe().expect("a path");
        let test = "input::sigbus::tests::a_file_that_becomes_shorter_ends_the_command_with_a_message";
        let mut child = Command::new(own);
        child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
        let output = child.output().expect("runs");
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("some-command{MESSAGE}");
        assert!(output.stderr.ends_with(expected.as_bytes()), "{output:?}");
    }
}
