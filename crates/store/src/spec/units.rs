//! Sizes and times as text: `64KiB`, `1000`, `5ms`.

use std::fmt;
use std::time::Duration;

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

/// In microseconds.
const TIMES: [(&str, u64); 3] = [("us", 1), ("ms", 1000), ("s", 1_000_000)];

/// Bytes.
pub(super) struct Bytes(pub(super) u64);

/// A time of whole microseconds.
pub(super) struct Time(pub(super) Duration);

pub(super) fn bytes(text: &str) -> Option<u64> {
    with_unit(text, &SIZES)
}

pub(super) fn time(text: &str) -> Option<Duration> {
    with_unit(text, &TIMES).map(Duration::from_micros)
}

/// A whole number and a unit, as a multiple of the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |factor: u64| self.0 >= factor && self.0 % factor == 0;
        let unit = SIZES.iter().find(|(_, factor)| fits(*factor));
        let (name, factor) = unit.unwrap_or(&("", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        let unit = TIMES.iter().rev().find(|(_, factor)| us > 0 && us % u128::from(*factor) == 0);
        let (name, factor) = unit.unwrap_or(&("ms", 1));
        write!(f, "{}{name}", us / u128::from(*factor))
    }
}
