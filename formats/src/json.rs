//! Values as JSON.

pub use crate::{members, object};
use std::fmt::{self, Display, Write};

/// Whether a character breaks a line or steers a terminal.
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// [`object`](crate::json::object()) of members that are written as `"name": value`.
#[macro_export]
macro_rules! object {
    ($($name:literal: $value:expr),*) => { $crate::json::object(&[$(($name, &$value)),*]) };
}

/// [`members`](crate::json::members()) that are written as `"name": value`.
#[macro_export]
macro_rules! members {
    ($($name:literal: $value:expr),*) => { $crate::json::members(&[$(($name, &$value)),*]) };
}

/// A string, in which whatever would steer a terminal is escaped.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if steers(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A number that readers take for a float, whatever its value.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f64);

impl Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Nanoseconds as seconds, with all decimals that they have.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:09}", self.0 % 1_000_000_000);
        let decimals = match digits.trim_end_matches('0') {
            "" => "0",
            decimals => decimals,
        };
        write!(f, "{}.{decimals}", self.0 / 1_000_000_000)
    }
}

/// A value, or null.
#[derive(Clone, Copy, Debug)]
pub struct OrNull<T>(pub Option<T>);

impl<T: Display> Display for OrNull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("null"),
            Some(value) => value.fmt(f),
        }
    }
}

/// The members of an object, without its braces.
pub fn members(of: &[(&str, &dyn Display)]) -> String {
    joined(of.iter().map(|(name, value)| format!("{}:{value}", Text(name))))
}

/// An object of any members.
pub fn map<K: AsRef<str>, V: Display>(of: impl IntoIterator<Item = (K, V)>) -> String {
    let of = of.into_iter();
    format!("{{{}}}", joined(of.map(|(name, value)| format!("{}:{value}", Text(name.as_ref())))))
}

/// An array on one line.
pub fn array<V: Display>(of: impl IntoIterator<Item = V>) -> String {
    format!("[{}]", joined(of.into_iter().map(|value| value.to_string())))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

pub fn object(of: &[(&str, &dyn Display)]) -> String {
    format!("{{{}}}", members(of))
}

/// An array, with each element on a line.
pub fn list(elements: impl IntoIterator<Item = String>) -> String {
    let elements: Vec<String> = elements.into_iter().collect();
    format!("\n[{}]", elements.join(",\n"))
}
