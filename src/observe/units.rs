//! Numbers for people.

use std::time::Duration;

/// A count with its thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the decimal unit that fits: `1.2 MB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if number < 1_000 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1_000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A rate that is not negative.
pub fn per_second(rate: f64) -> u64 {
    if rate.is_finite() && rate > 0.0 { rate.round() as u64 } else { 0 }
}

/// A time in hours, minutes and seconds: `2 h 05 min`, `3 min 07 s`, `12 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in
            [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (999_960, "1.0 MB"), (u64::MAX, "18446.7 PB")]
        {
            assert_eq!(bytes(number), text);
        }
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (187, "3 min 07 s"), (7_500, "2 h 05 min")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!([f64::NAN, -1.0, 2.6, f64::INFINITY].map(per_second), [0, 0, 3, 0]);
    }
}
