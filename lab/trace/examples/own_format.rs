//! A trace format of one's own, in one file: reads the log of an imaginary array and writes it as a
//! trace that the program reads.
//!
//!     cargo run --example own_format -- array.log array.uct
//!
//! A line is `seconds;disk;R or W;sector;sectors`. A file of `src/format/` has its entry in the
//! table, too: `docs/developer/add-a-trace-format.md`.

use std::path::Path;

use undercroft_trace::text::{
    Fields, Parse, Spaces, TextFormat, check_request, expected, open_text, sectors,
};
use undercroft_trace::{Error, Meta, Op, Reader, Record, Unit, create};

/// The format: it remembers nothing from line to line.
struct ArrayLog;

impl TextFormat for ArrayLog {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut fields = Fields::split(line, b';');
        let time_ns = fields.decimal("time in seconds", 9)?;
        let disk = fields.text();
        let op = match fields.text() {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => return expected("R or W", other),
        };
        let address = sectors(fields.number("first sector")?)?;
        let length = sectors(fields.number("number of sectors")?)?;
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        Ok(Some(Record {
            time_ns,
            op,
            space: spaces.number(disk)?,
            address,
            length,
            buffer: None,
            client: 0,
        }))
    }
}

/// Opens such a log, which may be compressed.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Reader>, Error> {
    let meta = Meta {
        format: "array-log",
        unit: Unit::Bytes,
        block_bytes: None,
        has_ops: true,
        has_time: true,
        has_buffers: false,
        has_evictions: false,
    };
    open_text(path, ArrayLog, meta)
}

/// Writes it as a trace in the format that the name of `to` stands for.
pub(crate) fn convert(from: &Path, to: &Path) -> Result<(), Error> {
    let mut reader = open(from)?;
    let mut writer = create(to, None, reader.meta())?;
    let mut records = Vec::new();
    loop {
        records.clear();
        reader.read(&mut records)?;
        if records.is_empty() {
            return writer.finish();
        }
        writer.write(&records, reader.spaces())?;
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else {
        eprintln!("own_format LOG TRACE");
        std::process::exit(2);
    };
    convert(Path::new(from), Path::new(to))
}
