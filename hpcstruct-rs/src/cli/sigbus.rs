//! What the command says when a file becomes shorter while it is read. Unsafe.
//!
//! The kernel then sends `SIGBUS`. The handler calls nothing but `write` and `_exit`.

const MESSAGE: &[u8] =
    b"hpcstruct-rs: a file became shorter while it was read: try again when it is complete\n";

/// Ends the process with a message instead of by the signal.
pub(crate) fn install() {
    // SAFETY: the handler has the signature that the system expects and touches no memory of the
    // process. Without it, should the call fail, the signal ends the process.
    let _ = unsafe { libc::signal(libc::SIGBUS, on_fault as *const () as libc::sighandler_t) };
}

extern "C" fn on_fault(_signal: libc::c_int) {
    // SAFETY: both calls are async-signal-safe; the message is a constant.
    unsafe {
        let _ = libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_file_that_becomes_shorter_ends_the_command_with_a_message() {
        const CHILD: &str = "HPCSTRUCT_TEST_SIGBUS";
        if std::env::var_os(CHILD).is_some() {
            install();
            // SAFETY: it sends the signal that the handler is for.
            unsafe { libc::raise(libc::SIGBUS) };
            return;
        }
        let own = std::env::current_exe().expect("a path");
        let test =
            "cli::sigbus::tests::a_file_that_becomes_shorter_ends_the_command_with_a_message";
        let mut child = Command::new(own);
        child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
        let output = child.output().expect("runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stderr.ends_with(MESSAGE), "{output:?}");
    }
}
