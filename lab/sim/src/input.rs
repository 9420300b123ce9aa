//! How a trace is read, as a person writes it: format, block size, unit; and the part of it that
//! only warms the caches. The program and the Python package read traces through this file.

use std::path::Path;
use std::str::FromStr;

use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, OpenOptions, Reader, Unit, formats, open,
};

use crate::{Error, Size};

/// Block size if neither the user nor the trace states another, in bytes.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// How a trace is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceInput {
    /// `NAME[,key=value...]`; `None`: the format is recognised.
    pub format: Option<String>,
    /// Cache block size, as `8KiB`; `None`: the one that the trace states, or 4 KiB.
    pub block: Option<String>,
    /// The numbers of the trace are addresses in units of so many bytes, at least 1; `None`: one
    /// number is one block.
    pub unit: Option<u32>,
}

impl TraceInput {
    /// Opens a trace.
    ///
    /// # Errors
    /// The format or its options are unknown ([`Error::Request`]), or the trace cannot be read.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Reader>, Error> {
        if let Some(wanted) = &self.format {
            let name = wanted.split(',').next().unwrap_or("");
            if !formats().any(|format| format.name == name) {
                let names: Vec<_> = formats().map(|format| format.name).collect();
                let names = names.join(", ");
                return Err(Error::Request(format!("no trace format '{name}'; there are {names}")));
            }
        }
        let opened = open(path, &OpenOptions { format: self.format.clone() });
        opened.map_err(|error| match error {
            // With a format given, it is its options that are wrong.
            undercroft_trace::Error::Format(what) if self.format.is_some() => Error::Request(what),
            error => error.into(),
        })
    }

    /// The block size for an open trace, in bytes.
    ///
    /// # Errors
    /// The block size is not one.
    pub fn block_bytes(&self, reader: &dyn Reader) -> Result<u32, Error> {
        let Some(text) = &self.block else {
            return Ok(reader.meta().block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES));
        };
        match text.parse() {
            Ok(Size::Bytes(bytes)) if (512..=1 << 30).contains(&bytes) => Ok(bytes as u32),
            _ => Err(Error::Request(format!("block {text}: expected 512 to 1GiB, as 8KiB"))),
        }
    }

    /// Everything that decides what is read and counted, as text: part of the key of a finished
    /// run. `evictions` says where evictions are known from.
    pub fn reading(&self, warmup: Warmup, evictions: &str) -> String {
        format!("{self:?} warmup={warmup:?} evictions={evictions}")
    }

    /// An open trace as a stream of blocks, with their size in bytes. Block size and unit in
    /// `options` are replaced.
    ///
    /// # Errors
    /// The block size is not one, or there is a unit for a trace of byte addresses.
    pub fn stream(
        &self,
        reader: Box<dyn Reader>,
        options: BlockOptions,
    ) -> Result<(BlockStream, u32), Error> {
        let block_bytes = self.block_bytes(reader.as_ref())?;
        if self.unit.is_some() && reader.meta().unit == Unit::Bytes {
            let why = format!("unit: a {} trace has byte addresses", reader.meta().format);
            return Err(Error::Request(why));
        }
        let options = BlockOptions { block_bytes, unit_bytes: self.unit, ..options };
        Ok((BlockStream::new(reader, &options)?, block_bytes))
    }
}

/// Reads a whole trace from a stream. `path` is for the error.
///
/// # Errors
/// The trace cannot be read, or it has no requests.
pub fn load(
    stream: BlockStream,
    path: &Path,
    progress: impl FnMut(u64),
) -> Result<DenseTrace, Error> {
    not_empty(DenseTrace::load(stream, progress)?, path)
}

/// A trace, if it has requests.
pub(crate) fn not_empty(trace: DenseTrace, path: &Path) -> Result<DenseTrace, Error> {
    if trace.seen().records == 0 {
        let what = format!("{}: the trace holds no requests", path.display());
        return Err(undercroft_trace::Error::Format(what).into());
    }
    Ok(trace)
}

/// The start of a trace that is not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// So many records.
    Records(u64),
    /// A share of the records in per cent.
    Percent(f64),
}

impl Warmup {
    /// In records, for a trace of so many, of which some must be left to count.
    ///
    /// # Errors
    /// None are left.
    pub fn records(self, total: u64) -> Result<u64, Error> {
        let records = match self {
            Self::Records(records) => records,
            Self::Percent(percent) => (total as f64 * percent / 100.0) as u64,
        };
        if records < total {
            return Ok(records);
        }
        let why = format!("warmup: the trace has {total} records, so nothing would be counted");
        Err(Error::Request(why))
    }
}

impl FromStr for Warmup {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = match text.strip_suffix('%') {
            None => text.parse().ok().map(Self::Records),
            Some(percent) => percent.parse().ok().map(Self::Percent),
        };
        match read {
            None => {
                let why = format!("'{text}': expected a number of records or a share, as 10%");
                Err(Error::Request(why))
            }
            Some(Self::Percent(percent)) if !(0.0..=100.0).contains(&percent) => {
                Err(Error::Request("expected a share from 0% to 100%".into()))
            }
            Some(warmup) => Ok(warmup),
        }
    }
}
