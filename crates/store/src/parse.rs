//! Parses the text of a store in parts that know their position, so that errors can point at it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use undercroft_text::{Bytes, Time, outside_quotes, unquoted};

/// An error in a text, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{text}` at character {}: expected {expected}", at + 1)]
pub struct SpecError {
    /// The whole text, cut if it is very long.
    pub text: String,
    /// Index of the first character that is wrong, counted from 0.
    pub at: usize,
    /// What is expected there.
    pub expected: String,
}

/// Longest time that a text may give.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(3600);

/// A parsed value, or the error.
pub type Parsed<T> = Result<T, SpecError>;

/// A part of a text.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

/// One option: its name (or all of it), and its value if it has one.
pub type Setting<'a> = (Text<'a>, Option<Text<'a>>);

impl<'a> Text<'a> {
    pub(crate) fn new(whole: &'a str) -> Text<'a> {
        Text { whole, start: 0, end: whole.len() }
    }

    /// The characters.
    pub fn text(self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    /// An error at the start of this part.
    ///
    /// # Errors
    /// Always.
    pub fn fail<T>(self, expected: &str) -> Parsed<T> {
        let mut text: String = self.whole.chars().take(200).collect();
        if text.len() < self.whole.len() {
            text.push_str("...");
        }
        let at = self.whole[..self.start].chars().count();
        Err(SpecError { text, at, expected: expected.to_owned() })
    }

    /// A sub-part, by byte offsets from the start of this part.
    pub(crate) fn range(self, start: usize, end: usize) -> Text<'a> {
        Text { start: self.start + start, end: self.start + end, ..self }
    }

    /// The empty part at the end of this one.
    pub fn end(self) -> Text<'a> {
        Text { start: self.end, ..self }
    }

    /// The text behind a prefix, if it starts with that.
    pub fn after(self, prefix: &str) -> Option<Text<'a>> {
        self.text().starts_with(prefix).then(|| Text { start: self.start + prefix.len(), ..self })
    }

    /// The texts before and behind the first separator.
    pub fn split(self, separator: &str) -> (Text<'a>, Option<Text<'a>>) {
        match self.text().find(separator) {
            Some(at) => {
                let after = self.range(at + separator.len(), self.text().len());
                (self.range(0, at), Some(after))
            }
            None => (self, None),
        }
    }

    /// The parts between separators outside of parentheses.
    pub fn list(self, separator: char) -> Vec<Text<'a>> {
        let mut start = 0;
        let part = |piece: &str| {
            let part = self.range(start, start + piece.len());
            start += piece.len() + separator.len_utf8();
            part
        };
        undercroft_text::list(self.text(), separator).into_iter().map(part).collect()
    }

    /// The comma-separated options; none in an empty text.
    pub fn options(self) -> Vec<Setting<'a>> {
        if self.text().is_empty() {
            return Vec::new();
        }
        self.list(',').into_iter().map(|option| option.split("=")).collect()
    }

    /// The text in the parentheses at the start, if there are any, and the text behind them.
    pub(crate) fn parentheses(self) -> Parsed<(Option<Text<'a>>, Text<'a>)> {
        if !self.text().starts_with('(') {
            return Ok((None, self));
        }
        let mut depth = 0;
        for (at, c) in outside_quotes(self.text()) {
            match c {
                '(' => depth += 1,
                ')' if depth == 1 => {
                    return Ok((Some(self.range(1, at)), self.range(at + 1, self.text().len())));
                }
                ')' => depth -= 1,
                _ => {}
            }
        }
        self.end().fail("`)`")
    }

    /// A path, which must not be empty; without the double quotes around it, if there are any.
    ///
    /// # Errors
    /// It is empty, or a quote is not closed.
    pub fn path(self) -> Parsed<&'a str> {
        match unquoted(self.text()) {
            "" => self.fail("a path"),
            path if path.starts_with('"') => self.fail("`\"` before the path and behind it"),
            path => Ok(path),
        }
    }

    /// A number of bytes from 1 to 2^63 - 1.
    ///
    /// # Errors
    /// It is not such a number.
    pub fn size(self) -> Parsed<u64> {
        match self.text().parse() {
            Ok(Bytes(bytes)) if (1..=i64::MAX as u64).contains(&bytes) => Ok(bytes),
            _ => self.fail("a size, such as 4096, 64KiB or 2GiB"),
        }
    }

    /// A time of at most an hour.
    ///
    /// # Errors
    /// It is not such a time.
    pub fn time(self) -> Parsed<Duration> {
        match self.text().parse() {
            Ok(Time(time)) if time <= TIME_MAX => Ok(time),
            _ => self.fail("a time of at most an hour, such as 5ms, 200us or 1s"),
        }
    }

    /// A number from `least` to `most`.
    ///
    /// # Errors
    /// It is not such a number; the error says `expected`.
    pub fn number(self, least: u64, most: u64, expected: &str) -> Parsed<u64> {
        match self.text().parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.fail(expected),
        }
    }
}

/// Writes options in parentheses, or nothing if there are none.
pub fn write_options(
    f: &mut fmt::Formatter<'_>,
    options: impl IntoIterator<Item = Option<String>>,
) -> fmt::Result {
    let all: Vec<String> = options.into_iter().flatten().collect();
    if all.is_empty() { Ok(()) } else { write!(f, "({})", all.join(",")) }
}

/// Writes a path, in double quotes if it has characters that separate.
pub(crate) fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    let path = path.display().to_string();
    let quotes = path.contains([',', ';', '(', ')']) && !path.contains('"');
    if quotes { write!(f, "\"{path}\"") } else { f.write_str(&path) }
}

/// The name of a value in a table.
pub(crate) fn name_of<T: PartialEq>(all: &[(T, &'static str)], value: &T) -> &'static str {
    all.iter().find(|(one, _)| one == value).map_or("", |(_, name)| name)
}
