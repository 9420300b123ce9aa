//! Plain numbers: one block number a line, reads all of them. A line that begins with `#` is a
//! comment.

use std::path::Path;

use crate::format::lis::bare_meta;
use crate::format::spaces::Spaces;
use crate::format::text::{Fields, Lines, Parse, TextFormat, TextReader, check_request};
use crate::format::{Entry, Format};
use crate::write::{Refusal, TextWrite, TextWriter, want_bare, want_unit};
use crate::{Error, Meta, Op, Record, Unit};
use undercroft_recording::Writer;

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "plain",
        about: "one block number a line, # comments",
        extensions: &["txt", "num", "plain"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.parses(Plain),
    open: |input, _| {
        Ok(TextReader::boxed(Lines::new(input), Plain, bare_meta("plain"), Spaces::single()))
    },
    create: Some(create),
};

struct Plain;

impl TextFormat for Plain {
    #[inline]
    fn line(&mut self, line: &[u8], _: &mut Spaces) -> Parse<Option<Record>> {
        if line.trim_ascii_start().first() == Some(&b'#') { Ok(None) } else { block(line) }
    }
}

/// A line that is one block number.
#[inline]
pub(crate) fn block(line: &[u8]) -> Parse<Option<Record>> {
    let mut fields = Fields::blanks(line);
    let address = fields.number("block number")?;
    fields.end()?;
    check_request(Unit::Blocks, address, 1)?;
    Ok(Some(Record {
        time_ns: 0,
        op: Op::Read,
        space: 0,
        address,
        length: 1,
        buffer: None,
        client: 0,
    }))
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    create_bare(path, "plain", meta)
}

/// Writes block numbers, one a line.
pub(crate) fn create_bare(
    path: &Path,
    name: &'static str,
    meta: &Meta,
) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, name, Unit::Blocks, meta)?;
    TextWriter::boxed(path, BareWrite { name }, b"")
}

struct BareWrite {
    name: &'static str,
}

impl TextWrite for BareWrite {
    fn line(&mut self, record: &Record, _: &[String], out: &mut Vec<u8>) -> Result<(), Refusal> {
        want_bare(self.name, record)?;
        out.extend_from_slice(record.address.to_string().as_bytes());
        out.push(b'\n');
        Ok(())
    }
}
