//! Opening a trace: by the format that was asked for, or by recognising its content.

use std::path::Path;

use crate::format::{self, Entry, Options, Sample};
use crate::input::Input;
use crate::{Error, Reader};

/// Bytes of the content that recognition looks at.
const SAMPLE: usize = 64 << 10;

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// `NAME[,key=value...]`, for example `spc`, `blkparse,action=D` or
    /// `csv,time=1,id=2,size=3`; none: recognise the format.
    pub format: Option<String>,
}

/// Opens a trace; `-` is standard input. zstd and gzip are undone, by content. Where no format is
/// given, it is recognised from the content and the file name.
///
/// # Errors
/// The file cannot be read; no format fits; the format is unknown; or the beginning is damaged.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>, Error> {
    let mut input = Input::open(path)?;
    let (entry, mut given) = match &options.format {
        Some(text) => {
            let (name, rest) = text.split_once(',').unwrap_or((text, ""));
            let entry = format::by_name(name)?;
            (entry, Options::parse(entry.info.name, rest)?)
        }
        None => (recognise(path, &mut input)?, Options::default()),
    };
    let reader = (entry.open)(input, &mut given)?;
    given.end(entry.info.options)?;
    Ok(reader)
}

/// The format of the content. The file name decides between formats that fit, and says what a
/// content should be that fits none: then opening it will tell what is wrong with it, and where.
fn recognise(path: &Path, input: &mut Input) -> Result<&'static Entry, Error> {
    let whole = input.peek(SAMPLE)?.len() < SAMPLE;
    let bytes = input.buffered();
    let sample = Sample::new(&bytes[..bytes.len().min(SAMPLE)], whole);
    let named = || format::by_ending(path);
    let fits = |entry: &&Entry| (entry.fits)(&sample);
    named()
        .find(fits)
        .or_else(|| format::ENTRIES.iter().find(fits))
        .or_else(|| named().last())
        .ok_or_else(|| {
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
