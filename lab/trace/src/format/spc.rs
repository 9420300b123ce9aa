//! `.spc`, the text format of the Storage Performance Council (UMass repository):
//! `ASU,LBA,size,opcode,timestamp[,...]`. The LBA counts 512-byte blocks within its ASU
//! (application storage unit, an address space of its own), the size is in bytes, the opcode `r`
//! or `w` in either case, the time in seconds. Further fields are to be ignored.

use std::io::Write;
use std::path::Path;

use crate::format::spaces::Spaces;
use crate::format::text::{
    Fields, Lines, Parse, SECTOR, TextFormat, TextReader, check_request, expected, sectors, whole,
    without_zeros,
};
use crate::format::{Entry, Format};
use crate::input::Input;
use crate::write::{Labels, Refusal, TextWrite, TextWriter, want_unit};
use crate::{Error, Meta, Op, Reader, Record, Unit};
use undercroft_recording::Writer;

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "spc",
        about: "SPC / UMass text: unit, 512-byte block, bytes, r or w, seconds",
        extensions: &["spc"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.parses(Spc),
    open: |input, _| open_disk(input, "spc", Spc),
    create: Some(create),
};

/// Facts about a format of timed reads and writes of bytes.
pub(crate) fn disk_meta(format: &'static str) -> Meta {
    Meta {
        format,
        unit: Unit::Bytes,
        block_bytes: None,
        has_ops: true,
        has_time: true,
        has_buffers: false,
        has_evictions: false,
    }
}

/// Reads a format of timed reads and writes of bytes, each in a line.
pub(crate) fn open_disk(
    input: Input,
    name: &'static str,
    format: impl TextFormat + 'static,
) -> Result<Box<dyn Reader>, Error> {
    Ok(TextReader::boxed(Lines::new(input), format, disk_meta(name), Spaces::default()))
}

struct Spc;

impl TextFormat for Spc {
    #[inline]
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut fields = Fields::split(line, b',');
        let unit = fields.text();
        if whole(unit).is_none() {
            return expected("storage unit, a whole number", unit);
        }
        let address = sectors(fields.number("LBA")?)?;
        let length = fields.number("size in bytes")?;
        let op = match fields.text() {
            b"r" | b"R" => Op::Read,
            b"w" | b"W" => Op::Write,
            other => return expected("opcode r, R, w or W", other),
        };
        let time_ns = fields.decimal("timestamp in seconds", 9)?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(without_zeros(unit))?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, "spc", Unit::Bytes, meta)?;
    TextWriter::boxed(path, SpcWrite::default(), b"")
}

/// Spaces that are called by a number keep it, others get a free one.
#[derive(Default)]
struct SpcWrite {
    units: Labels,
}

impl TextWrite for SpcWrite {
    fn line(
        &mut self,
        record: &Record,
        spaces: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        if record.address % SECTOR != 0 {
            return Err(format!("byte {} is not on a 512-byte boundary", record.address));
        }
        let number = |name: &str| whole(name.as_bytes()).map(|number| number.to_string());
        let unit = self.units.label(record.space, spaces, number, |free| free.to_string());
        let op = if record.op == Op::Read { 'r' } else { 'w' };
        let (lba, size) = (record.address / SECTOR, record.length);
        let (seconds, rest) = (record.time_ns / 1_000_000_000, record.time_ns % 1_000_000_000);
        let written = if rest % 1000 == 0 {
            writeln!(out, "{unit},{lba},{size},{op},{seconds}.{:06}", rest / 1000)
        } else {
            writeln!(out, "{unit},{lba},{size},{op},{seconds}.{rest:09}")
        };
        written.map_err(|error| error.to_string())
    }
}
