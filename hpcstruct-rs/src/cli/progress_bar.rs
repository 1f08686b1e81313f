//! A progress bar on the terminal for long analyses.
//!
//! Invariants: only a terminal gets it, and only after half a second; it is gone when the analysis
//! ends.

use hpcstruct_rs::Options;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two states of the line.
const STEP: Duration = Duration::from_millis(100);
/// Characters of the bar.
const WIDTH: u64 = 30;

/// Runs `work` and says meanwhile how far it is.
pub(crate) fn watch<T>(options: &Options, work: impl FnOnce() -> T) -> T {
    let Some(progress) = options
        .progress
        .as_deref()
        .filter(|_| stderr().is_terminal())
    else {
        return work();
    };
    std::thread::scope(|scope| {
        // Dropped with the work, also when that panics: the line then ends.
        let (over, until_over) = channel::<()>();
        scope.spawn(move || {
            let mut wait = PATIENCE;
            let mut shown = false;
            while until_over.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let (done, total) = progress.bytes();
                // Best effort: an analysis does not fail because its terminal is gone.
                let _ = write!(stderr(), "\r{}", bar(done, total));
                shown = true;
                wait = STEP;
            }
            if shown {
                let _ = write!(stderr(), "\r{:w$}\r", "", w = WIDTH as usize + 40);
            }
        });
        let _over = over;
        work()
    })
}

fn bar(done: u64, total: u64) -> String {
    if total == 0 {
        return "reading …".to_owned();
    }
    let part =
        |of: u64| (u128::from(done.min(total)) * u128::from(of) / u128::from(total)) as usize;
    let filled = part(WIDTH);
    format!(
        "[{}{}] {:3} % of {} MB",
        "#".repeat(filled),
        " ".repeat(WIDTH as usize - filled),
        part(100),
        total.div_ceil(1_000_000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 0), "reading …");
        assert!(bar(0, 10).starts_with(&format!("[{}]   0 % of 1 MB", " ".repeat(30))));
        assert!(bar(5_000_000, 10_000_000).contains(&format!(
            "[{}{}]  50 % of 10 MB",
            "#".repeat(15),
            " ".repeat(15)
        )));
        assert!(bar(99, 10).contains("100 %"));
    }
}
