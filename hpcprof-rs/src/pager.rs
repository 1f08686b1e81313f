//! A pager for reports on a terminal: `$PAGER`, or `less`, which ends by itself if all fits on the screen.
//!
//! Invariant: the report is written in any case, without a pager if none can be had.

use crate::cli::{Cli, Command as Asked};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Stdout, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Where a report goes.
pub enum Output {
    Direct(Stdout),
    Paged(Child),
}

impl Output {
    /// Of what this command line prints. What is short, or goes to a file, has no pager.
    pub fn of(cli: &Cli) -> Output {
        use Asked::{Advise, BottomUp, CriticalPath, Diff, Flat, Regions, Sweep, Threads, TopDown};
        let is_report = matches!(
            cli.command,
            Some(
                TopDown(_)
                    | BottomUp(_)
                    | Flat(_)
                    | Threads(_)
                    | Regions(_)
                    | CriticalPath(_)
                    | Diff(_)
                    | Advise(_)
                    | Sweep(_)
            )
        );
        let asked = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
        let words: Vec<&str> = asked.split_whitespace().collect();
        let [program, arguments @ ..] = words.as_slice() else { return Output::Direct(io::stdout()) };
        if *program == "cat" || !is_report || !io::stdout().is_terminal() {
            return Output::Direct(io::stdout());
        }
        let mut pager = Command::new(program);
        if std::env::var_os("LESS").is_none() {
            // Ends if all fits, shows colours, leaves the text on the screen.
            pager.env("LESS", OsStr::new("FRX"));
        }
        match pager.args(arguments).stdin(Stdio::piped()).spawn() {
            Ok(child) => {
                // The pager has the keyboard: an interrupt is for what it does.
                let _ = flag::register(SIGINT, Arc::default());
                Output::Paged(child)
            }
            Err(_) => Output::Direct(io::stdout()),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Direct(stdout) => stdout.write(bytes),
            Output::Paged(child) => child.stdin.as_mut().map_or(Ok(0), |input| input.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Direct(stdout) => stdout.flush(),
            Output::Paged(_) => Ok(()),
        }
    }
}

/// Waits until the reader has read.
impl Drop for Output {
    fn drop(&mut self) {
        if let Output::Paged(child) = self {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
