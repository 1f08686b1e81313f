//! Amounts as they are printed.

use hpc_formats::json::Seconds;

/// Seconds, with three decimals unless they are many.
pub fn seconds(nanoseconds: i64) -> String {
    let value = nanoseconds as f64 / 1e9;
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A value in any unit, to read.
pub fn derived(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if !(0.0005..1e7).contains(&v) => format!("{value:.2e}"),
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Seconds with all nine decimals that they have.
pub fn exact_seconds(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    format!("{sign}{}", Seconds(nanoseconds.unsigned_abs()))
}

pub fn percent(part: i64, whole: i64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

/// A number with its thousands apart.
pub fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A time with two significant digits and its unit.
pub fn duration(nanoseconds: i64) -> String {
    let (value, unit) = match nanoseconds.max(0) as f64 {
        v if v >= 1e9 => (v / 1e9, "s"),
        v if v >= 1e6 => (v / 1e6, "ms"),
        v if v >= 1e3 => (v / 1e3, "us"),
        v => (v, "ns"),
    };
    match value {
        v if v >= 10.0 => format!("{v:.0} {unit}"),
        v => format!("{v:.1} {unit}"),
    }
}

/// Reads a percentage that a user gives.
pub fn percentage(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        Ok(_) => Err("not between 0 and 100".to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(exact_seconds(0), "0.0");
        assert_eq!(exact_seconds(5_000_000), "0.005");
        assert_eq!(exact_seconds(12_345_678_901), "12.345678901");
        assert_eq!(exact_seconds(-1), "-0.000000001");
        assert_eq!(exact_seconds(i64::MIN), "-9223372036.854775808");
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(1_000_000), "1,000,000");
        assert_eq!(grouped(7), "7");
    }
}
