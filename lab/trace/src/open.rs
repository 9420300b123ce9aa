//! Opening a trace: by the format that was asked for, or by recognising its content.

use std::path::Path;

use crate::container::refuse_containers;
use crate::format::{self, Entry, Fit, Options, Sample};
use crate::input::Input;
use crate::{Error, LeftOut, Meta, Reader, Record};

/// Bytes of the content that recognition looks at.
const SAMPLE: usize = 64 << 10;

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// `NAME[,key=value...]`, for example `spc`, `blkparse,action=D` or
    /// `csv,time=1,id=2,size=3`; none: recognise the format.
    pub format: Option<String>,
}

/// Opens a trace; `-` is standard input. zstd, gzip, bzip2 and xz are undone, by content. Where no
/// format is given, it is recognised from the content and the file name.
///
/// # Errors
/// The file cannot be read; it is an archive or the like, which is no trace; no format fits; the
/// format is unknown; or the beginning is damaged.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>, Error> {
    let mut input = Input::open(path)?;
    refuse_containers(&mut input)?;
    let Some(text) = &options.format else {
        let (entry, fit) = recognise(path, &mut input)?;
        let opened = (entry.open)(input, &mut Options::default());
        return match fit {
            Fit::Mostly(_) => {
                let guessed = |reader| Box::new(Guessed { reader, format: entry.info.name });
                let opened = opened.map_err(|error| explained(error, entry.info.name));
                opened.map(|reader| guessed(reader) as Box<dyn Reader>)
            }
            Fit::No | Fit::Whole => opened,
        };
    };
    let (name, rest) = text.split_once(',').unwrap_or((text, ""));
    let entry = format::by_name(name)?;
    let mut given = Options::parse(entry.info.name, rest)?;
    let reader = (entry.open)(input, &mut given)?;
    given.end(entry.info.options)?;
    Ok(reader)
}

/// The format of the content. The file name decides between formats that fit. Of damaged content it
/// is the format that most of the first lines fit, and of content that none fits what the file name
/// says: opening it tells what is wrong, and where.
fn recognise(path: &Path, input: &mut Input) -> Result<(&'static Entry, Fit), Error> {
    let whole = input.peek(SAMPLE)?.len() < SAMPLE;
    let bytes = input.buffered();
    let sample = Sample::new(&bytes[..bytes.len().min(SAMPLE)], whole);
    let named = format::by_ending(path).collect::<Vec<_>>();
    let fits =
        named.iter().copied().chain(format::ENTRIES).map(|entry| (entry, (entry.fits)(&sample)));
    let mut best: Option<(&Entry, Fit)> = None;
    for (entry, fit) in fits {
        if fit == Fit::Whole {
            return Ok((entry, fit));
        }
        if fit > best.map_or(Fit::No, |(_, fit)| fit) {
            best = Some((entry, fit));
        }
    }
    // A first line without a number names columns, and csv says which it does not understand.
    let has_names = sample.lines().next().is_some_and(|line| !line.iter().any(u8::is_ascii_digit));
    let by_name = named.last().map(|entry| (*entry, Fit::No));
    let found = if has_names { by_name.or(best) } else { best.or(by_name) };
    found.ok_or_else(|| {
        let names = format::formats().map(|format| format.name).collect::<Vec<_>>();
        let content = if bytes.is_empty() { "an empty file" } else { "this content" };
        Error::Format(format!(
            "{}: no known format fits {content}: name one with --format ({}); columns of any \
             table can be described, as --format csv,time=1,space=2,sector=3,bytes=4,op=5",
            input.path().display(),
            names.join(", ")
        ))
    })
}

/// Adds to the damage why the file was read as this format.
#[cold]
fn explained(error: Error, format: &str) -> Error {
    match error {
        Error::Damaged { path, place, expected, found } => {
            let found = format!(
                "{found}; it was read as {format}, which most of its first lines are (--format \
                 names another)"
            );
            Error::Damaged { path, place, expected, found }
        }
        error => error,
    }
}

/// The reader of a trace whose beginning does not fit its format wholly.
struct Guessed {
    reader: Box<dyn Reader>,
    format: &'static str,
}

impl Reader for Guessed {
    fn meta(&self) -> &Meta {
        self.reader.meta()
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        self.reader.read(records).map_err(|error| explained(error, self.format))
    }

    fn spaces(&self) -> &[String] {
        self.reader.spaces()
    }

    fn left_out(&self) -> LeftOut {
        self.reader.left_out()
    }

    fn unused(&self) -> &[String] {
        self.reader.unused()
    }
}
