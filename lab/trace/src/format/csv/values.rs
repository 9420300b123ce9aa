//! What the values of a csv mean: operations in words or codes, numbers, and times.

use undercroft_random::fibonacci;

use super::columns::Clock;
use crate::Op;
use crate::Reason;
use crate::format::blkparse::direction;
use crate::format::text::{Parse, exact, expected, fraction, hex, left_out, whole};

/// How the operations of a trace are written.
pub(super) enum Ops {
    /// In words. `flags`: 0 is a read and 1 a write, too.
    Words { flags: bool },
    /// In the codes of the options `op-read`, `op-write` and `op-none`.
    Codes { reads: Codes, writes: Codes, others: Codes },
}

/// Codes that mean the same.
pub(super) type Codes = Vec<String>;

/// Words for what reads.
const READS: &[&str] = &["r", "read", "get", "gets", "rest.get.object"];
/// Words for what writes.
const WRITES: &[&str] = &[
    "w",
    "write",
    "set",
    "put",
    "add",
    "cas",
    "replace",
    "append",
    "prepend",
    "incr",
    "decr",
    "update",
    "rest.put.object",
];
/// Words for what moves no data.
const OTHERS: &[&str] = &[
    "discard",
    "trim",
    "unmap",
    "flush",
    "fsync",
    "fdatasync",
    "sync",
    "delete",
    "head",
    "rest.delete.object",
    "rest.head.object",
    "rest.copy.object",
];
/// SCSI's codes of reads and writes, which no other numbering has.
const SCSI_READS: &[&str] = &["28", "0x28", "88", "0x88"];
const SCSI_WRITES: &[&str] = &["2a", "0x2a", "8a", "0x8a"];

impl Ops {
    /// Read or write.
    ///
    /// # Errors
    /// Neither: a request that moves no data, or damage.
    #[inline]
    pub(super) fn op(&self, field: &[u8]) -> Parse<Op> {
        if let (Ops::Words { .. }, [letter]) = (self, field) {
            match letter {
                b'r' | b'R' => return Ok(Op::Read),
                b'w' | b'W' => return Ok(Op::Write),
                _ => {}
            }
        }
        self.other_op(field)
    }

    fn other_op(&self, field: &[u8]) -> Parse<Op> {
        let found = match self {
            _ if field.is_empty() => return left_out(Reason::Unmarked),
            Ops::Codes { reads, writes, others } => {
                let is = |codes: &Codes| codes.iter().any(|code| same(field, code));
                match (is(reads), is(writes), is(others)) {
                    (true, ..) => Some(Some(Op::Read)),
                    (_, true, _) => Some(Some(Op::Write)),
                    (.., is_other) => is_other.then_some(None),
                }
            }
            Ops::Words { flags } => word(field, *flags),
        };
        match found {
            Some(Some(op)) => Ok(op),
            Some(None) => left_out(Reason::Operation),
            None => self.unknown(field),
        }
    }

    #[cold]
    fn unknown(&self, field: &[u8]) -> Parse<Op> {
        let wish = match self {
            Ops::Codes { .. } => {
                "an operation that one of the options op-read, op-write and op-none names, as \
                 op-none=100"
            }
            Ops::Words { .. } if field.iter().all(u8::is_ascii_digit) => {
                "an operation in words; say what the codes mean, as --format \
                 csv,...,op-read=1/2/5,op-write=3/4/6,op-none=100"
            }
            Ops::Words { .. } => {
                "op r, w, read, write, get, set, put, or rwbs as WS (or options that say what it \
                 means, as op-read=x,op-write=y/z)"
            }
        };
        expected(wish, field)
    }
}

fn same(field: &[u8], word: &str) -> bool {
    field.eq_ignore_ascii_case(word.as_bytes())
}

/// Read or write, or inside `None` what moves no data; `None`: no operation that is known.
fn word(field: &[u8], flags: bool) -> Option<Option<Op>> {
    if !flags && matches!(field, b"0" | b"1") {
        return None;
    }
    let is = |words: &[&str]| words.iter().any(|word| same(field, word));
    let begins =
        |word: &[u8]| field.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if is(READS) || is(SCSI_READS) || is(&["0", "false"]) || begins(b"getchunkdata.") {
        Some(Some(Op::Read))
    } else if is(WRITES) || is(SCSI_WRITES) || is(&["1", "true"]) || begins(b"putchunk.") {
        Some(Some(Op::Write))
    } else if is(OTHERS) {
        Some(None)
    } else {
        direction(&field.to_ascii_uppercase())
    }
}

/// Whether a value is a word for an operation, and no mere flag.
pub(super) fn is_word_of_op(value: &str) -> bool {
    let is_flag = ["true", "false"].iter().any(|flag| value.eq_ignore_ascii_case(flag));
    value.starts_with(|c: char| c.is_alphabetic())
        && !is_flag
        && word(value.as_bytes(), false).is_some()
}

/// A whole number, decimal (also as `4096.0` or `1e6`) or with 0x.
#[inline]
pub(super) fn number(field: &[u8], what: &str) -> Parse<u64> {
    let value = match field {
        [b'0', b'x' | b'X', digits @ ..] => hex(digits),
        _ => whole(field).or_else(|| exact(field)),
    };
    match value {
        Some(value) => Ok(value),
        None => expected(format!("{what}, a whole number below 2^64"), field),
    }
}

/// What times count, as the first one tells: numbers since 1970 are told by their size.
pub(super) fn clock_of(field: &[u8]) -> Clock {
    let digits = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let has_exponent = field[digits..].iter().any(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let digits = match fraction(field, 0) {
        Some(whole) if has_exponent => whole.checked_ilog10().unwrap_or(0) as usize + 1,
        _ => digits,
    };
    match digits {
        4 if field.get(4) == Some(&b'-') => Clock::Calendar,
        0..=11 => Clock::Decimal(9),
        12..=14 => Clock::Decimal(6),
        15..=17 => Clock::Decimal(3),
        18 => Clock::Filetime,
        _ => Clock::Decimal(0),
    }
}

/// Nanoseconds.
#[inline]
pub(super) fn time(clock: Clock, field: &[u8]) -> Parse<u64> {
    let (time, wish) = match clock {
        Clock::Decimal(places) => (fraction(field, places), "time, a decimal number in range"),
        Clock::Unknown => (fraction(field, 9), "time, a decimal number in range"),
        Clock::Filetime => {
            let time = whole(field).or_else(|| exact(field));
            (time.and_then(|time| time.checked_mul(100)), "time, a FILETIME before 2185")
        }
        Clock::Calendar => (calendar(field), "time in UTC, as 2026-01-31T12:00:00.5Z"),
    };
    time.map_or_else(|| expected(wish, field), Ok)
}

/// Nanoseconds since 1970 of a date and time in UTC.
fn calendar(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// FNV-1a, and a last mix since its high bits change little. The largest value, which would end a
/// request beyond 2^64, is given away.
pub(super) fn hash(text: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let hash = fibonacci(hash ^ (hash >> 32));
    (hash ^ (hash >> 29)) >> 1
}
