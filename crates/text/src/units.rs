//! Sizes and times: a number and a unit. Sizes may have a fraction.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units of sizes, in bytes, the largest first.
const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

/// Other units of sizes that are understood: without `i` and `B` they count by 1024, with `B` alone
/// by 1000.
const MORE_SIZES: [(&str, u64); 10] = [
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1000),
    ("kB", 1000),
];

/// Units of times, in microseconds, the largest first.
const TIMES: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1000), ("us", 1)];

/// A number of bytes: `4096`, `64KiB`, `512M`, `1.5GiB`, `1TiB` by powers of 1024, `1GB` by powers
/// of 1000; a part of a byte is cut off. It is written with the largest unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A time of whole microseconds: `200us`, `5ms`, `1s`. It is written with the largest unit that
/// divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A text that is no whole number with a known unit, or one that is too large. Callers say what
/// they expected, since they know the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAValue;

/// The number that a text names, in the smallest unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, NotAValue> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, f)| *f);
    let number = number.parse::<u64>().ok();
    number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor)).ok_or(NotAValue)
}

impl FromStr for Bytes {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Bytes, NotAValue> {
        let units: Vec<_> = SIZES.into_iter().chain(MORE_SIZES).collect();
        let Some((whole, rest)) = text.split_once('.') else {
            return parse(text, &units).map(Bytes);
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (fraction, unit) = rest.split_at(digits);
        // More than nine places are less than a byte of any size that a cache can have.
        if !(1..=9).contains(&digits) || matches!(unit.trim(), "" | "B") {
            return Err(NotAValue);
        }
        let factor = parse(&format!("1{unit}"), &units)?;
        let part: u64 = fraction.parse().map_err(|_| NotAValue)?;
        let part = u128::from(part) * u128::from(factor) / 10_u128.pow(digits as u32);
        let whole = parse(&format!("{whole}{unit}"), &units)?;
        // A part of a unit is less than the unit.
        whole.checked_add(part as u64).map(Bytes).ok_or(NotAValue)
    }
}

impl FromStr for Time {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Time, NotAValue> {
        parse(text, &TIMES).map(Duration::from_micros).map(Time)
    }
}

/// Writes a number with the largest unit that divides it; zero with `of_zero`.
fn write(
    f: &mut fmt::Formatter<'_>,
    number: u64,
    units: &[(&str, u64)],
    of_zero: (&str, u64),
) -> fmt::Result {
    let divides = |&&(_, factor): &&(&str, u64)| number > 0 && number % factor == 0;
    let (name, factor) = units.iter().find(divides).unwrap_or(&of_zero);
    write!(f, "{}{name}", number / factor)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &SIZES, ("", 1))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX), &TIMES, ("ms", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, NotAValue, Time};

    #[test]
    fn what_is_written_is_read_again() {
        for (text, bytes) in [("0", 0), ("4095", 4095), ("64KiB", 1 << 16), ("3TiB", 3 << 40)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for (text, us) in [("0ms", 0), ("200us", 200), ("5ms", 5000), ("2s", 2_000_000)] {
            let time = Time(std::time::Duration::from_micros(us));
            assert_eq!(text.parse(), Ok(time));
            assert_eq!(time.to_string(), text);
        }
        assert_eq!("1024KiB".parse(), Ok(Bytes(1 << 20)));
        assert_eq!("64 KiB".parse(), Ok(Bytes(1 << 16)));
    }

    #[test]
    fn sizes_have_other_units_and_fractions() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("1.5GiB", 3 << 29),
            ("0.25 K", 256),
            ("2.1KiB", 2150),
            ("1GB", 1_000_000_000),
            ("1.5kB", 1500),
            ("512B", 512),
            ("2T", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_values() {
        for text in ["", "x", "KiB", "1.5", "1.MiB", ".5MiB", "1.5.5MiB", "-1", "+1", "1kib"] {
            assert_eq!(text.parse::<Bytes>(), Err(NotAValue), "{text}");
        }
        for text in ["99999999TiB", "99999999.5TiB", "1.0000000001MiB", "1.5B"] {
            assert_eq!(text.parse::<Bytes>(), Err(NotAValue), "{text}");
        }
        for text in ["", "5", "5m", "1.5s", "99999999999999999s"] {
            assert_eq!(text.parse::<Time>(), Err(NotAValue), "{text}");
        }
    }
}
