//! Numbers in texts: whole, with decimals, with an exponent, in hexadecimal. None of them is
//! negative, infinite or no number.

/// The number that `bytes` begin with, and the count of its digits.
#[inline]
pub(crate) fn digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    let mut used = 0;
    while let Some(digit) = bytes.get(used).map(|byte| byte.wrapping_sub(b'0')) {
        if digit > 9 {
            break;
        }
        // Nineteen digits always fit: only longer numbers need the checks.
        value = if used < 19 {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        used += 1;
    }
    (used > 0).then_some((value, used))
}

/// The decimal fraction that `bytes` begin with, in units of 10^-`places`, and its length.
#[inline]
pub(crate) fn decimal(bytes: &[u8], places: u32) -> Option<(u64, usize)> {
    let (whole, mut used) = digits(bytes)?;
    let mut value = whole.checked_mul(POWERS[places as usize])?;
    if bytes.get(used) == Some(&b'.') {
        used += 1;
        let fraction = &bytes[used..];
        let count = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let kept = count.min(places as usize);
        if let Some((part, _)) = digits(&fraction[..kept]) {
            value = value.checked_add(part * POWERS[places as usize - kept])?;
        }
        used += count;
    }
    Some((value, used))
}

/// Powers of ten, as many as there are decimal places in a nanosecond.
const POWERS: [u64; 10] =
    [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// A whole number field on its own.
#[inline]
pub(crate) fn whole(field: &[u8]) -> Option<u64> {
    digits(field).filter(|&(_, used)| used == field.len()).map(|(value, _)| value)
}

/// A decimal field on its own, in units of 10^-`places`; further decimals are cut off. It may have
/// an exponent, as `1.5e-05`.
#[inline]
pub(crate) fn fraction(field: &[u8], places: u32) -> Option<u64> {
    match decimal(field, places) {
        Some((value, used)) if used == field.len() => Some(value),
        _ => scientific(field, places).map(|(value, _)| value),
    }
}

/// A whole number field on its own that is written as a fraction or with an exponent: `4096.0`,
/// `1e6`.
pub(crate) fn exact(field: &[u8]) -> Option<u64> {
    scientific(field, 0).filter(|&(_, is_exact)| is_exact).map(|(value, _)| value)
}

/// A number with decimals and an exponent, in units of 10^-`places`, and whether nothing was cut
/// off.
#[cold]
fn scientific(field: &[u8], places: u32) -> Option<(u64, bool)> {
    let at = field.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let (number, exponent) = match at {
        Some(at) => (&field[..at], std::str::from_utf8(&field[at + 1..]).ok()?.parse().ok()?),
        None => (field, 0_i16),
    };
    let point = number.iter().position(|&byte| byte == b'.');
    let (whole, decimals) = match point {
        Some(point) => (&number[..point], number[point + 1..].trim_ascii_end()),
        None => (number, &b""[..]),
    };
    let zeros = decimals.iter().rev().take_while(|&&byte| byte == b'0').count();
    let decimals = &decimals[..decimals.len() - zeros];
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u128::from(byte - b'0'));
    let number = whole
        .iter()
        .chain(decimals)
        .try_fold(0_u128, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))?;
    if whole.is_empty() || number == 0 {
        return (!whole.is_empty()).then_some((0, true));
    }
    let shift = i64::from(exponent) + i64::from(places) - i64::try_from(decimals.len()).ok()?;
    let power =
        u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10_u128.checked_pow(shift));
    let (number, is_exact) = match (shift < 0, power) {
        (false, power) => (number.checked_mul(power?)?, true),
        (true, Some(power)) => (number / power, number % power == 0),
        (true, None) => (0, false),
    };
    Some((u64::try_from(number).ok()?, is_exact))
}

/// A hexadecimal field on its own, without prefix.
#[inline]
pub(crate) fn hex(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stop_at_64_bits() {
        assert_eq!(digits(b"18446744073709551615,"), Some((u64::MAX, 20)));
        assert_eq!(digits(b"18446744073709551616"), None);
        assert_eq!(digits(b"000000000000000000000000007"), Some((7, 27)));
        assert_eq!(digits(b""), None);
        assert_eq!(digits(b"-1"), None);
    }

    #[test]
    fn decimals_are_cut_not_rounded() {
        assert_eq!(fraction(b"259.602049", 9), Some(259_602_049_000));
        assert_eq!(fraction(b"1.9999999999", 9), Some(1_999_999_999));
        assert_eq!(fraction(b"7", 3), Some(7_000));
        assert_eq!(fraction(b"7.", 3), Some(7_000));
        assert_eq!(fraction(b"1e3", 3), Some(1_000_000));
        assert_eq!(fraction(b"18446744073709551615", 9), None);
    }
}
