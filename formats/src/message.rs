//! What the tools tell the user on standard error.

/// As `eprintln!`, but where nobody reads it the tool goes on: its work and its exit status are worth more.
#[macro_export]
macro_rules! message {
    ($($part:tt)*) => { $crate::message::print(&::std::format!($($part)*)) };
}

/// Prints a line. `eprintln!` panics where it fails, but only what it prints is captured in tests.
pub fn print(line: &str) {
    let _ = std::panic::catch_unwind(|| eprintln!("{line}"));
}
