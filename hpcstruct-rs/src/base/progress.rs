//! How far a long piece of work is, and a line on the terminal that says so.
//!
//! Invariants: only a terminal gets the line, and only after half a second; it is gone when the work ends.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two states of the line.
const STEP: Duration = Duration::from_millis(100);
/// Characters of the bar.
const WIDTH: u64 = 30;

/// Bytes that are done so far, and all; shared by whoever works and whoever waits.
#[derive(Debug, Default)]
pub struct Progress {
    // Relaxed: numbers to look at; nothing else is published by them.
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Sets how many bytes there are; before that, nobody knows.
    pub fn begin(&self, total: u64) {
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
    }

    /// So many more bytes are done.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Relaxed);
    }

    /// Does the work and says meanwhile, in a line that begins with `what`, how far it is.
    pub fn watch<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        if !stderr().is_terminal() {
            return work();
        }
        let start = Instant::now();
        std::thread::scope(|scope| {
            // Dropped with the work, also when that panics: the line then ends.
            let (over, until_over) = channel::<()>();
            scope.spawn(move || {
                let (mut wait, mut width) = (PATIENCE, 0);
                while until_over.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
                    let bar = bar(done, total, start.elapsed());
                    // Best effort: work does not fail because its terminal is gone.
                    let _ = write!(stderr(), "\r{what} {bar:width$}");
                    (wait, width) = (STEP, bar.chars().count());
                }
                if width > 0 {
                    let _ = write!(stderr(), "\r{:w$}\r", "", w = what.len() + 1 + width);
                }
            });
            let _over = over;
            work()
        })
    }
}

fn bar(done: u64, total: u64, elapsed: Duration) -> String {
    if total == 0 {
        return "…".to_owned();
    }
    let share = done.min(total) as f64 / total as f64;
    let filled = (share * WIDTH as f64) as usize;
    let left = elapsed.as_secs_f64() * (1.0 / share - 1.0);
    let left = match left.is_finite() {
        true => format!(", {left:.0} s left"),
        false => String::new(),
    };
    format!(
        "[{}{}] {:3.0} % of {} MB{left}",
        "#".repeat(filled),
        " ".repeat(WIDTH as usize - filled),
        (100.0 * share).floor(),
        total.div_ceil(1_000_000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let elapsed = Duration::from_secs(6);
        assert_eq!(bar(0, 0, elapsed), "…");
        let empty = format!("[{}]   0 % of 1 MB", " ".repeat(30));
        assert_eq!(bar(0, 10, elapsed), empty);
        let (half, gap) = ("#".repeat(15), " ".repeat(15));
        let middle = format!("[{half}{gap}]  50 % of 10 MB, 6 s left");
        assert_eq!(bar(5_000_000, 10_000_000, elapsed), middle);
        assert!(bar(99, 10, elapsed).ends_with("100 % of 1 MB, 0 s left"));
    }
}
