//! The table of formats, one file each, and what they share in being chosen and configured.
//!
//! A new format is one file here and one line in the list of `formats!`:
//! `docs/developer/add-a-trace-format.md` shows it.

mod numbers;
mod packed;
mod spaces;
pub mod text;

#[cfg(test)]
mod tests;

use std::path::Path;

use undercroft_text::{pair, words};

use crate::input::Input;
use crate::{Error, Meta, Reader};
use spaces::Spaces;
use text::{Fault, TextFormat};
use undercroft_recording::Writer;

/// A trace format, as help texts and the guide show it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Format {
    /// Name, as `--format` takes it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Endings of file names that suggest it, before that of a compression.
    pub extensions: &'static [&'static str],
    /// Its options, as `key=value`, separated by commas; empty if it has none.
    pub options: &'static str,
    /// Whether it can be written too.
    pub writable: bool,
}

/// Every format, the more distinctive ones first.
pub fn formats() -> impl Iterator<Item = &'static Format> {
    ENTRIES.iter().map(|entry| &entry.info)
}

type Open = fn(Input, &mut Options) -> Result<Box<dyn Reader>, Error>;
type Create = fn(&Path, &Meta) -> Result<Box<dyn Writer>, Error>;

/// What a format can do.
pub(crate) struct Entry {
    pub(crate) info: Format,
    /// How well a beginning of a trace fits this format.
    pub(crate) fits: fn(&Sample) -> Fit,
    pub(crate) open: Open,
    pub(crate) create: Option<Create>,
}

/// Declares the modules of the formats, and the table of their entries. `cargo fmt` does not see
/// modules that a macro declares: `make test` formats every file.
macro_rules! formats {
    ($($module:ident)*) => {
        $(mod $module;)*
        pub(crate) static ENTRIES: &[Entry] = &[$($module::ENTRY),*];
    };
}

// Recognition asks in this order: the more distinctive formats first.
formats! {
    uct
    vscsi
    lcs
    oraclegeneral
    recorded
    msr
    alibaba
    tencent
    spc
    blkparse
    iolog
    biosnoop
    fiu
    disksim
    lis
    plain
    trc
    csv
}

/// The format of that name.
pub(crate) fn by_name(name: &str) -> Result<&'static Entry, Error> {
    ENTRIES.iter().find(|entry| entry.info.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names = formats().map(|format| format.name).collect::<Vec<_>>().join(", ");
        Error::Format(format!("unknown trace format \"{name}\": the formats are {names}"))
    })
}

/// The formats that the ending of a file name suggests; where several share one, the most general
/// is the last.
pub(crate) fn by_ending(path: &Path) -> impl Iterator<Item = &'static Entry> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("").to_lowercase();
    let packed =
        [".zst", ".zstd", ".gz", ".bz2", ".xz"].iter().find_map(|ending| name.strip_suffix(ending));
    let bare = packed.unwrap_or(&name).to_owned();
    ENTRIES.iter().filter(move |entry| {
        entry.info.extensions.iter().any(|extension| {
            let stem = bare.strip_suffix(&extension.to_lowercase());
            stem.is_some_and(|stem| stem.ends_with('.'))
        })
    })
}

/// Lines of a text that recognition looks at.
pub(crate) const FIRST_LINES: usize = 20;

/// The beginning of a trace, for recognition.
pub(crate) struct Sample<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether this is all of it.
    pub(crate) whole: bool,
}

impl<'a> Sample<'a> {
    pub(crate) fn new(bytes: &'a [u8], whole: bool) -> Sample<'a> {
        Sample { bytes: text::without_mark(bytes), whole }
    }

    /// The complete lines that are not blank.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let end = if self.whole {
            self.bytes.len()
        } else {
            self.bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0)
        };
        let lines = self.bytes[..end].split(|&byte| byte == b'\n');
        lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    }

    /// How many of the first lines parse. Lines that are no requests do not count.
    pub(crate) fn parses(&self, mut format: impl TextFormat) -> Fit {
        let mut spaces = Spaces::default();
        Fit::of(self.lines().take(FIRST_LINES).filter_map(|line| {
            match format.line(line, &mut spaces) {
                Ok(None) => None,
                Ok(Some(_)) => Some(true),
                Err(fault) => Some(matches!(*fault, Fault::LeftOut(_))),
            }
        }))
    }
}

/// How well the beginning of a trace fits a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// Half of its first lines or more are no lines of the format.
    No,
    /// Most of its first lines are lines of the format; how many.
    Mostly(usize),
    /// All of its first lines are lines of the format.
    Whole,
}

impl Fit {
    /// Of lines that fit or do not; none: it does not.
    fn of(lines: impl Iterator<Item = bool>) -> Fit {
        let (mut good, mut bad) = (0, 0);
        lines.for_each(|fits| if fits { good += 1 } else { bad += 1 });
        match bad {
            0 if good > 0 => Fit::Whole,
            _ if good > bad => Fit::Mostly(good),
            _ => Fit::No,
        }
    }
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Fit {
        if fits { Fit::Whole } else { Fit::No }
    }
}

/// Options of a format: `key=value`, each to be taken once.
#[derive(Default)]
pub(crate) struct Options {
    format: &'static str,
    pairs: Vec<(String, String)>,
}

impl Options {
    /// Splits `key=value,key=value`.
    pub(crate) fn parse(format: &'static str, text: &str) -> Result<Options, Error> {
        let mut pairs = Vec::new();
        for item in words(text).filter(|item| !item.is_empty()) {
            let (key, Some(value)) = pair(item) else {
                return Err(Error::Format(format!(
                    "option \"{item}\" of format {format}: expected key=value"
                )));
            };
            pairs.push((key.to_lowercase(), value.to_owned()));
        }
        Ok(Options { format, pairs })
    }

    /// The value of an option.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(name, _)| name == key)?;
        Some(self.pairs.remove(at).1)
    }

    /// All options that are left.
    pub(crate) fn take_all(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.pairs)
    }

    /// A value that is none of the allowed ones.
    pub(crate) fn wrong(&self, key: &str, value: &str, allowed: &str) -> Error {
        let format = self.format;
        Error::Format(format!(
            "option {key} of format {format}: expected {allowed}, found \"{value}\""
        ))
    }

    /// Every option must have been taken.
    pub(crate) fn end(self, known: &str) -> Result<(), Error> {
        let Some((key, _)) = self.pairs.first() else { return Ok(()) };
        let known = if known.is_empty() { "there are none" } else { known };
        Err(Error::Format(format!("format {} has no option {key}: {known}", self.format)))
    }
}
