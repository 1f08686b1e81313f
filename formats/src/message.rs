//! What the tools tell the user on standard error.

/// Writes a line to standard error, formatted as by `eprintln!`, which panics where nobody reads it. A tool
/// then goes on: its work and its exit status are worth more than its messages.
#[macro_export]
macro_rules! message {
    ($($part:tt)*) => {{
        let line = ::std::format!($($part)*) + "\n";
        let _ = ::std::io::Write::write_all(&mut ::std::io::stderr(), line.as_bytes());
    }};
}
