//! The program as a child: passes signals on, waits for its end, and ends the same way.
//!
//! The terminal sends an interrupt to the program and to the launcher. The launcher stays, so that it can
//! report the measurement. It passes on a signal that only it received. The second interrupt kills the
//! program; the measurement is complete even then.

use crate::failure::Failure;
use crate::output;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

/// `si_code` of a signal from the kernel. The terminal's signals have it.
const SI_KERNEL: i32 = 0x80;

/// Runs the program to its end. Removes the measurement directory if the program cannot be started.
pub(crate) fn run(command: &mut Command, directory: Option<&Path>) -> Result<ExitStatus, Failure> {
    let program = PathBuf::from(command.get_program());
    let mut child = command.spawn().map_err(|error| {
        directory.map(output::remove_if_empty);
        Failure::exec(&program, &error)
    })?;
    // After the start, since a child inherits the mask. An interrupt just before this ends the launcher
    // without a report.
    let watched: SigSet = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGCHLD,
    ]
    .into_iter()
    .collect();
    let lost = |e: &dyn std::fmt::Display| Failure::own(format!("lost track of the program: {e}"));
    watched.thread_block().map_err(|e| lost(&e))?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC).map_err(|e| lost(&e))?;
    let status = watch(&mut child, &signals).map_err(|e| lost(&e));
    drop(signals);
    // Cannot fail with a valid set. A signal that is pending now concerns the report.
    let _ = watched.thread_unblock();
    status
}

/// Waits for the child's end and handles signals until then.
fn watch(child: &mut Child, signals: &SignalFd) -> std::io::Result<ExitStatus> {
    // The child is not reaped before this function returns, so its number is not reused.
    let pid = Pid::from_raw(child.id() as i32);
    let mut interrupts = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let signal = match signals.read_signal() {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else {
            continue;
        };
        if number == Signal::SIGCHLD {
            continue;
        }
        interrupts += u32::from(number == Signal::SIGINT);
        // A failure means that the child is gone; the next round sees that.
        if interrupts > 1 {
            let _ = kill(pid, Signal::SIGKILL);
        } else if signal.ssi_code != SI_KERNEL {
            let _ = kill(pid, number);
        }
    }
}

/// Ends as a child did: with its exit code, or by the signal that ended it, raised again.
pub fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let number = status.signal().unwrap_or(0);
    if let Ok(number) = Signal::try_from(number) {
        // Returns if the signal does not end this process; then the shell's convention applies.
        let _ = raise(number);
    }
    ExitCode::from(128u8.wrapping_add(number as u8))
}
