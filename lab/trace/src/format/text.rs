//! What all text formats share: lines of limited length, fields, numbers, and a reader that turns
//! lines into records one by one. What the fields mean is in the file of each format, or in
//! somebody else's crate: [`open_text`] reads a [`TextFormat`] of one's own.
//!
//! In every text format lines end in LF or CRLF, the last one may have no end, and blank lines
//! are nothing.

use std::path::Path;

use memchr::memchr;

use crate::format::numbers::decimal;
pub(crate) use crate::format::numbers::{digits, exact, fraction, hex, whole};
pub use crate::format::spaces::Spaces;
use crate::input::Input;
use crate::{Error, LeftOut, Meta, Reader, Reason, Record, Unit};

/// Longest line that is accepted, in bytes.
pub(crate) const MAX_LINE: usize = 64 << 10;

/// Records appended by one call of [`Reader::read`].
pub(crate) const BATCH: usize = 4096;

/// Bytes in a sector, in every format that counts sectors.
pub const SECTOR: u64 = 512;

/// What a line should have been.
#[derive(Debug)]
pub enum Fault {
    /// The line is not what the format promises.
    Expected {
        /// What the format wants there.
        expected: String,
        /// What is there, shortened.
        found: String,
    },
    /// A limit of this crate.
    Limit(String),
    /// The line is as the format promises, and a request that moves no data: it is counted, and
    /// the next line is read.
    LeftOut(Reason),
}

impl Fault {
    /// The damage where there must be a request that moves data.
    pub(crate) fn no_request(reason: Reason) -> Fault {
        let found = format!("one {}", reason.words());
        Fault::Expected { expected: "a request that moves data".into(), found }
    }
}

/// Outcome of parsing; boxed to keep the common way short.
pub type Parse<T> = Result<T, Box<Fault>>;

/// The error of a line in which something else was expected than what was found.
///
/// # Errors
/// Always.
#[cold]
pub fn expected<T>(expected: impl Into<String>, found: &[u8]) -> Parse<T> {
    Err(Box::new(Fault::Expected { expected: expected.into(), found: shown(found) }))
}

/// The line is a request that moves no data. Every reader counts it, and goes on.
///
/// # Errors
/// Always.
#[cold]
pub fn left_out<T>(reason: Reason) -> Parse<T> {
    Err(Box::new(Fault::LeftOut(reason)))
}

/// Input shortened and escaped for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    if bytes.is_empty() {
        return "nothing".into();
    }
    let cut = &bytes[..bytes.len().min(MOST)];
    let dots = if cut.len() < bytes.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}

/// A text format: one line in, at most one record out.
pub trait TextFormat: Send {
    /// Reads a line that is not blank. `None`: the line is no request, as a comment or a header.
    ///
    /// # Errors
    /// The line is not what the format promises; or it is a request that moves no data, which is
    /// counted and no end of the reading: [`left_out`], and [`check_request`] of a length of zero.
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>>;

    /// Looks back at the end of the trace.
    ///
    /// # Errors
    /// Something is missing.
    fn end(&self) -> Parse<()> {
        Ok(())
    }

    /// See [`Reader::unused`].
    fn unused(&self) -> &[String] {
        &[]
    }
}

/// Some programs write it at the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A text without the byte order mark at its beginning.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Cuts an input into lines.
pub(crate) struct Lines {
    input: Input,
    number: u64,
}

impl Lines {
    pub(crate) fn new(mut input: Input) -> Lines {
        // An error comes again when the first line is read.
        if input.peek(BYTE_ORDER_MARK.len()).is_ok_and(|text| text.starts_with(BYTE_ORDER_MARK)) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        Lines { input, number: 0 }
    }

    /// The next line, without its end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        self.number += 1;
        match self.find()? {
            Some((length, count)) => Ok(Some(self.input.take(length, count))),
            None => Ok(None),
        }
    }

    /// The next line, which stays the next.
    pub(crate) fn peek(&mut self) -> Result<Option<&[u8]>, Error> {
        let found = self.find()?;
        Ok(found.map(|(length, _)| &self.input.buffered()[..length]))
    }

    /// At least `wanted` bytes of what follows, if there is so much.
    pub(crate) fn look_ahead(&mut self, wanted: usize) -> Result<&[u8], Error> {
        self.input.peek(wanted)
    }

    /// Length of the next line without and with its end.
    #[inline]
    fn find(&mut self) -> Result<Option<(usize, usize)>, Error> {
        let mut seen = 0;
        let (line, count) = loop {
            let data = self.input.buffered();
            if let Some(at) = memchr(b'\n', &data[seen..]) {
                break (seen + at, seen + at + 1);
            }
            seen = data.len();
            if seen > MAX_LINE || !self.input.more()? {
                break (seen, seen);
            }
        };
        if line > MAX_LINE {
            let start = shown(&self.input.buffered()[..MAX_LINE]);
            let expected = format!("a line of at most {MAX_LINE} bytes");
            let fault = Fault::Expected { expected, found: format!("one that begins {start}") };
            return Err(self.error(fault));
        }
        if count == 0 {
            return Ok(None);
        }
        let crlf = line > 0 && self.input.buffered()[line - 1] == b'\r';
        Ok(Some((line - usize::from(crlf), count)))
    }

    /// Says where the fault is: in the line that was taken last.
    #[cold]
    pub(crate) fn error(&self, fault: Fault) -> Error {
        let path = self.input.path();
        match fault {
            Fault::Expected { expected, found } => Error::Damaged {
                path: path.to_owned(),
                place: format!("line {}", self.number.max(1)),
                expected,
                found,
            },
            Fault::Limit(text) => Error::Limit(format!("{}: {text}", path.display())),
            Fault::LeftOut(reason) => self.error(Fault::no_request(reason)),
        }
    }

    /// The input cannot be read as its format with what was told about it.
    pub(crate) fn unfit(&self, reason: &str) -> Error {
        Error::Format(format!("{}: {reason}", self.input.path().display()))
    }
}

/// The reader of every text format.
pub(crate) struct TextReader<F> {
    lines: Lines,
    format: F,
    meta: Meta,
    spaces: Spaces,
    left_out: LeftOut,
}

impl<F: TextFormat + 'static> TextReader<F> {
    pub(crate) fn boxed(lines: Lines, format: F, meta: Meta, spaces: Spaces) -> Box<dyn Reader> {
        Box::new(TextReader { lines, format, meta, spaces, left_out: LeftOut::default() })
    }
}

impl<F: TextFormat> Reader for TextReader<F> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let full = records.len() + BATCH;
        while records.len() < full {
            let Some(line) = self.lines.next()? else {
                return self.format.end().map_err(|fault| self.lines.error(*fault));
            };
            if line.first().is_none_or(|&byte| is_space(byte)) && is_blank(line) {
                continue;
            }
            match self.format.line(line, &mut self.spaces) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(fault) => match *fault {
                    Fault::LeftOut(reason) => self.left_out.count(reason, 1),
                    fault => return Err(self.lines.error(fault)),
                },
            }
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.spaces.names()
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn unused(&self) -> &[String] {
        self.format.unused()
    }
}

/// Opens a trace in a text format of one's own; `-` is standard input. zstd, gzip, bzip2 and
/// xz are undone.
///
/// # Errors
/// The file cannot be read.
pub fn open_text(
    path: &Path,
    format: impl TextFormat + 'static,
    meta: Meta,
) -> Result<Box<dyn Reader>, Error> {
    Ok(TextReader::boxed(Lines::new(Input::open(path)?), format, meta, Spaces::default()))
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Checks a request of `unit`: not absurdly long, within 64 bits, and not of length zero.
///
/// # Errors
/// It is not; a length of zero is [`Fault::LeftOut`].
#[inline]
pub fn check_request(unit: Unit, address: u64, length: u64) -> Parse<()> {
    let most = unit.longest();
    if length == 0 {
        return left_out(Reason::Empty);
    }
    if length > most {
        let unit = if unit == Unit::Bytes { "bytes" } else { "blocks" };
        return expected(format!("a length of 1 to {most} {unit}"), length.to_string().as_bytes());
    }
    if address.checked_add(length).is_none() {
        let found = format!("{address} + {length}");
        return expected("a request that ends below 2^64", found.as_bytes());
    }
    Ok(())
}

/// Turns sectors into bytes.
///
/// # Errors
/// They are 2^64 bytes or more.
#[inline]
pub fn sectors(count: u64) -> Parse<u64> {
    match count.checked_mul(SECTOR) {
        Some(bytes) => Ok(bytes),
        None => expected("a sector below 2^55", count.to_string().as_bytes()),
    }
}

/// The fields of a line, taken one after another.
pub struct Fields<'a> {
    rest: &'a [u8],
    /// Delimiter; a blank stands for any run of blanks and tabs.
    delimiter: u8,
}

impl<'a> Fields<'a> {
    /// Fields between blanks and tabs.
    #[inline]
    pub fn blanks(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, delimiter: b' ' }
    }

    /// Fields between single delimiters, blanks around them not counted.
    #[inline]
    pub fn split(line: &'a [u8], delimiter: u8) -> Fields<'a> {
        Fields { rest: line, delimiter }
    }

    /// What has not been taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// A decimal number; `what` names the field in an error.
    ///
    /// # Errors
    /// The field is none below 2^64.
    #[inline(always)]
    pub fn number(&mut self, what: &str) -> Parse<u64> {
        self.skip_blanks();
        match digits(self.rest) {
            Some((value, used)) if self.ends_at(used) => {
                self.pass(used);
                Ok(value)
            }
            _ => self.other_number(what),
        }
    }

    /// A decimal fraction in units of 10^-`places`; further decimals are cut off. `what` names
    /// the field in an error.
    ///
    /// # Errors
    /// The field is none in range.
    ///
    /// # Panics
    /// More than nine places are asked for.
    #[inline(always)]
    pub fn decimal(&mut self, what: &str, places: u32) -> Parse<u64> {
        self.skip_blanks();
        match decimal(self.rest, places) {
            Some((value, used)) if self.ends_at(used) => {
                self.pass(used);
                Ok(value)
            }
            _ => self.other_decimal(what, places),
        }
    }

    /// A whole number that is written otherwise, as `4096.0`.
    #[cold]
    fn other_number(&mut self, what: &str) -> Parse<u64> {
        let field = self.text();
        let wish = || expected(format!("{what}, a whole number below 2^64"), field);
        exact(field).map_or_else(wish, Ok)
    }

    /// A decimal fraction that is written otherwise, as `1.5e-05`.
    #[cold]
    fn other_decimal(&mut self, what: &str, places: u32) -> Parse<u64> {
        let field = self.text();
        let wish = || expected(format!("{what}, a decimal number in range"), field);
        fraction(field, places).map_or_else(wish, Ok)
    }

    /// A field as it stands, without blanks around it; empty at the end of the line.
    #[inline]
    pub fn text(&mut self) -> &'a [u8] {
        self.skip_blanks();
        // Fields are too short for a search with vectors to be worth its start.
        let end = if self.delimiter == b' ' {
            self.rest.iter().position(|&byte| is_space(byte))
        } else {
            self.rest.iter().position(|&byte| byte == self.delimiter)
        };
        let end = end.unwrap_or(self.rest.len());
        let field = &self.rest[..end];
        self.pass(end);
        if self.delimiter == b' ' { field } else { field.trim_ascii_end() }
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// There are more fields.
    #[inline]
    pub fn end(&self) -> Parse<()> {
        if is_blank(self.rest) { Ok(()) } else { expected("the end of the line", self.rest) }
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while let [first, rest @ ..] = self.rest {
            if !is_space(*first) || *first == self.delimiter && self.delimiter != b' ' {
                break;
            }
            self.rest = rest;
        }
    }

    /// Whether a field that was read up to `used` is over there.
    #[inline]
    fn ends_at(&self, used: usize) -> bool {
        match self.rest.get(used) {
            None => true,
            Some(&byte) if byte == self.delimiter => true,
            Some(&byte) if !is_space(byte) => false,
            Some(_) if self.delimiter == b' ' => true,
            Some(_) => {
                let tail = self.rest[used..].iter().find(|&&byte| !is_space(byte));
                tail.is_none_or(|&byte| byte == self.delimiter)
            }
        }
    }

    /// Moves behind the field that ends at `used` and its delimiter.
    #[inline]
    fn pass(&mut self, used: usize) {
        self.rest = &self.rest[used..];
        if self.delimiter != b' ' {
            self.skip_blanks();
        }
        if let [_, rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

#[inline]
fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Leading zeros are no part of a device number: `08` and `8` are one device.
pub(crate) fn without_zeros(field: &[u8]) -> &[u8] {
    let zeros = field.iter().take_while(|&&byte| byte == b'0').count();
    &field[zeros.min(field.len().saturating_sub(1))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_forgive_blanks_and_nothing_else() {
        let mut fields = Fields::split(b" 1 ,2, x y ,,5", b',');
        assert_eq!(fields.number("a").unwrap(), 1);
        assert_eq!(fields.number("b").unwrap(), 2);
        assert_eq!(fields.text(), b"x y");
        assert_eq!(fields.text(), b"");
        assert_eq!(fields.decimal("c", 0).unwrap(), 5);
        assert!(fields.end().is_ok());
        assert!(Fields::split(b"1 2,3", b',').number("a").is_err());
        assert!(Fields::blanks(b"1x 2").number("a").is_err());
        let mut fields = Fields::blanks(b"\t 1 \t 2 ");
        assert_eq!((fields.number("a").unwrap(), fields.number("b").unwrap()), (1, 2));
        assert!(fields.end().is_ok());
        let mut tabs = Fields::split(b"\t2", b'\t');
        assert_eq!(tabs.text(), b"");
        assert_eq!(tabs.number("b").unwrap(), 2);
    }

    #[test]
    fn messages_are_short_and_printable() {
        assert_eq!(shown(b"a\x00\n\"\xff"), "\"a\\x00\\n\\\"\\xff\"");
        assert_eq!(shown(&[b'x'; 100]).len(), 2 + 40 + 3);
    }
}
