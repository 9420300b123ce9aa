//! Writing traces: the choice of the format, and the writer that all formats of one text line a
//! record share. How a record looks is in the file of each format.
//!
//! A writer refuses what its format cannot carry where it would change a simulation: directions,
//! address spaces, lengths, units, evictions. Times and buffer addresses are left away where a
//! format has no column for them, and times are rounded down to its resolution.

use std::path::Path;

use undercroft_recording::{Output, Writer, refused, space_name};

use crate::format::{self, Format};
use crate::{Error, Meta, Op, Record, Unit};

/// Begins to write a trace with the properties `meta` to `path` (`-`: standard output), in the
/// format of that name, or in the one that the ending of the file name stands for. An ending
/// `.zst` or `.gz` compresses.
///
/// # Errors
/// The system refuses, the format is unknown, cannot be written, or cannot carry such a trace.
pub fn create(path: &Path, format: Option<&str>, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    let entry = match format {
        Some(name) => format::by_name(name)?,
        None => format::by_ending(path).filter(|entry| entry.create.is_some()).last().ok_or_else(
            || {
                let names = writable().map(|format| format.name).collect::<Vec<_>>().join(", ");
                Error::Format(format!(
                    "{}: the name does not tell which format to write: name one of {names}",
                    path.display()
                ))
            },
        )?,
    };
    let name = entry.info.name;
    let Some(create) = entry.create else {
        let names = writable().map(|format| format.name).collect::<Vec<_>>().join(", ");
        return Err(Error::Format(format!("{name} can only be read; written are {names}")));
    };
    if meta.has_evictions && name != "uct" {
        return Err(Error::Format(format!(
            "{}: {name} cannot hold the evictions of this trace; uct can",
            path.display()
        )));
    }
    create(path, meta)
}

fn writable() -> impl Iterator<Item = &'static Format> {
    format::formats().filter(|format| format.writable)
}

/// Why a format cannot carry a record.
pub(crate) type Refusal = String;

/// A text format that can be written, one line a record.
pub(crate) trait TextWrite: Send {
    /// Appends the line of a record, with its end.
    fn line(
        &mut self,
        record: &Record,
        spaces: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal>;
}

/// The writer of every text format.
pub(crate) struct TextWriter<F> {
    output: Output,
    format: F,
    buffer: Vec<u8>,
    count: u64,
}

impl<F: TextWrite + 'static> TextWriter<F> {
    pub(crate) fn boxed(path: &Path, format: F, head: &[u8]) -> Result<Box<dyn Writer>, Error> {
        let mut output = Output::create(path)?;
        output.write(head)?;
        Ok(Box::new(TextWriter { output, format, buffer: Vec::new(), count: 0 }))
    }
}

impl<F: TextWrite> Writer for TextWriter<F> {
    fn write(&mut self, records: &[Record], spaces: &[String]) -> Result<(), Error> {
        for record in records {
            self.count += 1;
            if record.op == Op::Evict {
                return Err(refused(self.output.path(), self.count, "it is an eviction"));
            }
            if let Err(reason) = self.format.line(record, spaces, &mut self.buffer) {
                return Err(refused(self.output.path(), self.count, &reason));
            }
            if self.buffer.len() >= 1 << 16 {
                self.output.write(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.output.write(&self.buffer)?;
        self.output.finish()
    }
}

/// Refuses a trace whose unit the format does not have.
pub(crate) fn want_unit(path: &Path, name: &str, unit: Unit, meta: &Meta) -> Result<(), Error> {
    if meta.unit == unit {
        return Ok(());
    }
    let (has, is, how) = match unit {
        Unit::Blocks => ("block numbers", "byte addresses", "split it into blocks first"),
        Unit::Bytes => ("byte addresses", "block numbers", "give its numbers a unit first"),
    };
    let path = path.display();
    Err(Error::Format(format!("{path}: {name} holds {has}, this trace has {is}: {how}")))
}

/// For formats that are a bare list of block numbers: one block, read, of the only space.
pub(crate) fn want_bare(name: &str, record: &Record) -> Result<(), Refusal> {
    want_one_space(name, record)?;
    want_read(name, record)?;
    if record.length != 1 {
        let length = record.length;
        return Err(format!("{name} holds one block a record, this one has {length}"));
    }
    Ok(())
}

/// For formats without address spaces.
pub(crate) fn want_one_space(name: &str, record: &Record) -> Result<(), Refusal> {
    if record.space == 0 {
        return Ok(());
    }
    Err(format!("{name} cannot tell several devices or files apart"))
}

/// For formats that hold reads only.
pub(crate) fn want_read(name: &str, record: &Record) -> Result<(), Refusal> {
    if record.op == Op::Read { Ok(()) } else { Err(format!("{name} cannot mark a write")) }
}

/// Gives each space a label that fits the format, and never the same to two.
#[derive(Default)]
pub(crate) struct Labels {
    labels: Vec<Option<String>>,
    taken: std::collections::HashSet<String>,
}

impl Labels {
    /// The label of a space: its name as `fit` makes it, or else the first free one of `spare(n)`
    /// from the number of the space upwards.
    pub(crate) fn label(
        &mut self,
        space: u32,
        spaces: &[String],
        fit: impl Fn(&str) -> Option<String>,
        spare: impl Fn(u64) -> String,
    ) -> &str {
        let index = space as usize;
        if self.labels.len() <= index {
            self.labels.resize(index + 1, None);
        }
        if self.labels[index].is_none() {
            let own = fit(&space_name(space, spaces)).filter(|label| !self.taken.contains(label));
            let label = own.unwrap_or_else(|| {
                let mut free = (u64::from(space)..).map(spare);
                free.find(|label| !self.taken.contains(label)).expect("2^63 labels, 2^32 spaces")
            });
            self.taken.insert(label.clone());
            self.labels[index] = Some(label);
        }
        self.labels[index].as_deref().expect("set above")
    }
}
