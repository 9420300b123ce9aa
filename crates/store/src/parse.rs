//! The text of a store in parts that know where they are, so that an error points at its place.

use std::fmt;

use undercroft_text::{Bytes, Time};

/// What is wrong with a text, where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{text}` at character {}: expected {expected}", at + 1)]
pub struct SpecError {
    /// The whole text, cut if very long.
    pub text: String,
    /// The character that begins what was not understood, from 0.
    pub at: usize,
    /// What could stand there.
    pub expected: String,
}

/// What a part of a text means, or why it means nothing.
pub type Parsed<T> = Result<T, SpecError>;

/// A part of the text to parse.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

/// One option: its name (or the whole of it), and its value if it has one.
pub type Setting<'a> = (Text<'a>, Option<Text<'a>>);

impl<'a> Text<'a> {
    pub(crate) fn new(whole: &'a str) -> Text<'a> {
        Text { whole, start: 0, end: whole.len() }
    }

    /// The characters.
    pub fn text(self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    /// The error at the beginning of this part.
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

    /// A part of this part, by bytes from its start.
    pub(crate) fn range(self, start: usize, end: usize) -> Text<'a> {
        Text { start: self.start + start, end: self.start + end, ..self }
    }

    /// The empty part at its end.
    pub fn end(self) -> Text<'a> {
        Text { start: self.end, ..self }
    }

    /// What follows a prefix, if it has it.
    pub fn after(self, prefix: &str) -> Option<Text<'a>> {
        self.text().starts_with(prefix).then(|| Text { start: self.start + prefix.len(), ..self })
    }

    /// What is before and after the first of these texts.
    pub fn split(self, separator: &str) -> (Text<'a>, Option<Text<'a>>) {
        match self.text().find(separator) {
            Some(at) => {
                let after = self.range(at + separator.len(), self.text().len());
                (self.range(0, at), Some(after))
            }
            None => (self, None),
        }
    }

    /// The parts between separators that are outside of parentheses.
    pub fn list(self, separator: char) -> Vec<Text<'a>> {
        let mut start = 0;
        let part = |piece: &str| {
            let part = self.range(start, start + piece.len());
            start += piece.len() + separator.len_utf8();
            part
        };
        undercroft_text::list(self.text(), separator).into_iter().map(part).collect()
    }

    /// The options between commas; none in an empty text.
    pub fn options(self) -> Vec<Setting<'a>> {
        if self.text().is_empty() {
            return Vec::new();
        }
        self.list(',').into_iter().map(|option| option.split("=")).collect()
    }

    /// What stands in the parentheses at its beginning, and what follows them.
    pub(crate) fn parentheses(self) -> Parsed<(Option<Text<'a>>, Text<'a>)> {
        if !self.text().starts_with('(') {
            return Ok((None, self));
        }
        let mut depth = 0;
        for (at, c) in self.text().char_indices() {
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

    /// A path, which must not be empty.
    ///
    /// # Errors
    /// It is.
    pub fn path(self) -> Parsed<&'a str> {
        if self.text().is_empty() { self.fail("a path") } else { Ok(self.text()) }
    }

    /// A number of bytes from 1 to 2^63 - 1.
    ///
    /// # Errors
    /// It is none.
    pub fn size(self) -> Parsed<u64> {
        match self.text().parse() {
            Ok(Bytes(bytes)) if (1..=i64::MAX as u64).contains(&bytes) => Ok(bytes),
            _ => self.fail("a size, such as 4096, 64KiB or 2GiB"),
        }
    }

    /// A time of at most an hour.
    ///
    /// # Errors
    /// It is none.
    pub fn time(self) -> Parsed<std::time::Duration> {
        match self.text().parse() {
            Ok(Time(time)) if time <= crate::Delay::MAX => Ok(time),
            _ => self.fail("a time of at most an hour, such as 5ms, 200us or 1s"),
        }
    }

    /// A number in a range, ends included.
    ///
    /// # Errors
    /// It is none; the error says `expected`.
    pub fn number(self, least: u64, most: u64, expected: &str) -> Parsed<u64> {
        match self.text().parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.fail(expected),
        }
    }
}

/// Writes options in their parentheses; nothing if there are none.
pub fn write_options(
    f: &mut fmt::Formatter<'_>,
    options: impl IntoIterator<Item = Option<String>>,
) -> fmt::Result {
    let all: Vec<String> = options.into_iter().flatten().collect();
    if all.is_empty() { Ok(()) } else { write!(f, "({})", all.join(",")) }
}

/// The name that belongs to a value.
pub(crate) fn name_of<T: PartialEq>(all: &[(T, &'static str)], value: &T) -> &'static str {
    all.iter().find(|(one, _)| one == value).map_or("", |(_, name)| name)
}
