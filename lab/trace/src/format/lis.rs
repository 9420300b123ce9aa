//! `.lis`, the text format of the ARC papers: `first-block count ignored request-number`, four
//! whole numbers a line. The third is to be ignored by order of the publisher; the request number
//! is 0 on every line of some files and not looked at either. All requests are reads; no time.
//!
//! Blocks are abstract here: database pages in one file of the set, 512-byte blocks in others,
//! and nothing in a file says which.

use std::path::Path;

use crate::format::spaces::Spaces;
use crate::format::text::{Fields, Lines, Parse, TextFormat, TextReader, check_request};
use crate::format::{Entry, Format};
use crate::write::{Refusal, TextWrite, TextWriter, want_one_space, want_read, want_unit};
use crate::{Error, Meta, Op, Record, Unit};
use undercroft_recording::Writer;

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "lis",
        about: "ARC text: first block, count, ignored, request number",
        extensions: &["lis"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.parses(Lis),
    open: |input, _| {
        Ok(TextReader::boxed(Lines::new(input), Lis, bare_meta("lis"), Spaces::single()))
    },
    create: Some(create),
};

/// Facts about a format that is a list of block numbers and nothing else.
pub(crate) fn bare_meta(format: &'static str) -> Meta {
    Meta {
        format,
        unit: Unit::Blocks,
        block_bytes: None,
        has_ops: false,
        has_time: false,
        has_buffers: false,
        has_evictions: false,
    }
}

struct Lis;

impl TextFormat for Lis {
    #[inline]
    fn line(&mut self, line: &[u8], _: &mut Spaces) -> Parse<Option<Record>> {
        let mut fields = Fields::blanks(line);
        let address = fields.number("first block")?;
        let length = fields.number("number of blocks")?;
        fields.number("third field")?;
        fields.number("request number")?;
        fields.end()?;
        check_request(Unit::Blocks, address, length)?;
        Ok(Some(Record {
            time_ns: 0,
            op: Op::Read,
            space: 0,
            address,
            length,
            buffer: None,
            client: 0,
        }))
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, "lis", Unit::Blocks, meta)?;
    TextWriter::boxed(path, LisWrite { number: 0 }, b"")
}

struct LisWrite {
    number: u64,
}

impl TextWrite for LisWrite {
    fn line(&mut self, record: &Record, _: &[String], out: &mut Vec<u8>) -> Result<(), Refusal> {
        want_one_space("lis", record)?;
        want_read("lis", record)?;
        let line = format!("{} {} 0 {}\n", record.address, record.length, self.number);
        out.extend_from_slice(line.as_bytes());
        self.number += 1;
        Ok(())
    }
}
