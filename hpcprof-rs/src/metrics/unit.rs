//! Units of metrics, and of their products and quotients.

use hpc_formats::profile;
use std::fmt;
use std::ops::{Div, Mul};

/// A product of powers of the units that metrics are measured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Powers of second, count and byte.
    powers: [i32; 3],
}

/// Names by position in [`Unit::powers`]: of an amount, and of what it is divided by.
const NAMES: [(&str, &str); 3] = [("seconds", "second"), ("count", "count"), ("bytes", "byte")];

impl Unit {
    pub const SECONDS: Unit = Unit { powers: [1, 0, 0] };
    pub const COUNT: Unit = Unit { powers: [0, 1, 0] };
    pub const BYTES: Unit = Unit { powers: [0, 0, 1] };
    pub const RATIO: Unit = Unit { powers: [0, 0, 0] };

    /// The stored amount of one of it: time is stored in nanoseconds.
    pub fn stored(self) -> f64 {
        1e9_f64.powi(self.powers[0])
    }
}

impl From<profile::Unit> for Unit {
    fn from(unit: profile::Unit) -> Unit {
        match unit {
            profile::Unit::Seconds => Unit::SECONDS,
            profile::Unit::SquareSeconds => Unit::SECONDS * Unit::SECONDS,
            profile::Unit::Count => Unit::COUNT,
            profile::Unit::Bytes => Unit::BYTES,
            profile::Unit::Ratio => Unit::RATIO,
        }
    }
}

impl Mul for Unit {
    type Output = Unit;

    fn mul(self, other: Unit) -> Unit {
        let power = |i| i32::saturating_add(self.powers[i], other.powers[i]);
        Unit { powers: [power(0), power(1), power(2)] }
    }
}

impl Div for Unit {
    type Output = Unit;

    fn div(self, other: Unit) -> Unit {
        let power = |i| i32::saturating_sub(self.powers[i], other.powers[i]);
        Unit { powers: [power(0), power(1), power(2)] }
    }
}

impl fmt::Display for Unit {
    /// `seconds`, `ratio`, `count/second`, `seconds^2*bytes`, `1/second`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = |name: &str, power: i32| match power.unsigned_abs() {
            1 => name.to_owned(),
            n => format!("{name}^{n}"),
        };
        let all = || NAMES.into_iter().zip(self.powers);
        let above = all().filter(|(_, n)| *n > 0);
        let above: Vec<String> = above.map(|((name, _), n)| power(name, n)).collect();
        let below: String =
            all().filter(|(_, n)| *n < 0).map(|((_, name), n)| format!("/{}", power(name, n))).collect();
        match (above.is_empty(), below.is_empty()) {
            (true, true) => f.write_str("ratio"),
            (true, false) => write!(f, "1{below}"),
            (false, _) => write!(f, "{}{below}", above.join("*")),
        }
    }
}
