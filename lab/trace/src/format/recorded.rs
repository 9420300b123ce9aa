//! Traces recorded from running databases: `#` lines that say what was run, then the names of the
//! columns, then rows `time_us,op,file,block,blocks[,buf]`. Times are microseconds, `op` is R, W or
//! N (a block added at the end of a file: a write), `file` an id, block numbers count within the
//! file, `buf` is the client's buffer address in hexadecimal.
//!
//! Of the `#` lines two kinds are read: `block size N` (in bytes) anywhere in one, and `# file ID =
//! NAME (N records)`, which names a space. The others are comments. They stand before the rows in
//! recorded files; the writer, which learns of a file when it first appears, names it there.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use crate::format::spaces::Spaces;
use crate::format::text::{
    Fault, Fields, Lines, Parse, TextFormat, TextReader, check_request, digits, expected, hex,
    whole, without_zeros,
};
use crate::format::{Entry, Format, Options};
use crate::input::Input;
use crate::write::{Refusal, TextWrite, TextWriter, want_unit};
use crate::{Error, Meta, Op, Reader, Record, Unit};
use undercroft_recording::{Writer, space_name};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "recorded",
        about: "recorded database csv: us, R/W/N, file, block, blocks, buffer address",
        extensions: &["csv", "recorded"],
        options: "",
        writable: true,
    },
    fits: |sample| {
        let first = sample.lines().find(|line| line[0] != b'#');
        let is_header = |line: &[u8]| line.strip_suffix(b",buf").unwrap_or(line) == COLUMNS;
        first.is_some_and(is_header).into()
    },
    open,
    create: Some(create),
};

const COLUMNS: &[u8] = b"time_us,op,file,block,blocks";

/// Most file names that are remembered before their files appear.
const MAX_NAMES: usize = 1 << 20;

fn open(input: Input, _: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let mut lines = Lines::new(input);
    let mut format = Recorded::default();
    while let Some(line) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let outcome = if line[0] == b'#' { format.note(line) } else { format.columns(line) };
        let done = line[0] != b'#';
        outcome.map_err(|fault| lines.error(*fault))?;
        if done {
            break;
        }
    }
    let meta = Meta {
        format: "recorded",
        unit: Unit::Blocks,
        block_bytes: format.block_bytes,
        has_ops: true,
        has_time: true,
        has_buffers: format.has_buffers,
        has_evictions: false,
    };
    Ok(TextReader::boxed(lines, format, meta, Spaces::default()))
}

#[derive(Default)]
struct Recorded {
    block_bytes: Option<u32>,
    has_buffers: bool,
    names: HashMap<u64, String>,
}

impl Recorded {
    /// Reads a `#` line.
    fn note(&mut self, line: &[u8]) -> Parse<()> {
        if let Some(rest) = line.strip_prefix(b"# file ") {
            let name =
                digits(rest).and_then(|(id, used)| Some((id, rest[used..].strip_prefix(b" = ")?)));
            if let Some((id, name)) = name {
                if self.names.len() >= MAX_NAMES {
                    let text = format!("more than {MAX_NAMES} names of files");
                    return Err(Box::new(Fault::Limit(text)));
                }
                let name = String::from_utf8_lossy(without_count(name)).into_owned();
                self.names.insert(id, name);
            }
        } else if let Some(at) = memchr::memmem::find(line, b"block size ") {
            let rest = &line[at + b"block size ".len()..];
            let size = digits(rest).and_then(|(size, _)| u32::try_from(size).ok());
            match size {
                Some(size) if size > 0 => self.block_bytes = Some(size),
                _ => return expected("block size in bytes, from 1 to 2^32 - 1", rest),
            }
        }
        Ok(())
    }

    /// Reads the names of the columns.
    fn columns(&mut self, line: &[u8]) -> Parse<()> {
        self.has_buffers = line.strip_suffix(b",buf") == Some(COLUMNS);
        if self.has_buffers || line == COLUMNS {
            return Ok(());
        }
        expected("# lines, then time_us,op,file,block,blocks or the same with ,buf", line)
    }
}

/// A name without the ` (N records)` behind it.
fn without_count(name: &[u8]) -> &[u8] {
    let bare = name.strip_suffix(b" records)").and_then(|name| {
        let at = name.iter().rposition(|&byte| byte == b'(')?;
        whole(&name[at + 1..])?;
        name[..at].strip_suffix(b" ")
    });
    bare.unwrap_or(name)
}

impl TextFormat for Recorded {
    #[inline]
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if line[0] == b'#' {
            return self.note(line).map(|()| None);
        }
        let mut fields = Fields::split(line, b',');
        let micros = fields.number("time in us")?;
        let Some(time_ns) = micros.checked_mul(1000) else {
            return expected("a time below 2^54 us", line);
        };
        let op = match fields.text() {
            b"R" => Op::Read,
            b"W" | b"N" => Op::Write,
            other => return expected("op R, W or N", other),
        };
        let file = fields.text();
        let Some(id) = whole(file) else {
            return expected("file id, a whole number", file);
        };
        let address = fields.number("block")?;
        let length = fields.number("number of blocks")?;
        let mut buffer = None;
        if self.has_buffers {
            let field = fields.text();
            buffer = hex(field);
            if buffer.is_none() {
                return expected("buffer address, 1 to 16 hexadecimal digits", field);
            }
        }
        fields.end()?;
        check_request(Unit::Blocks, address, length)?;
        let name = || self.names.get(&id).cloned();
        let space = spaces.number_named(without_zeros(file), name)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer, client: 0 }))
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, "recorded", Unit::Blocks, meta)?;
    let mut head = Vec::new();
    if let Some(size) = meta.block_bytes {
        head.extend_from_slice(format!("# block size {size}\n").as_bytes());
    }
    head.extend_from_slice(COLUMNS);
    head.extend_from_slice(if meta.has_buffers { b",buf\n" } else { b"\n" });
    TextWriter::boxed(path, RecordedWrite { has_buffers: meta.has_buffers, named: 0 }, &head)
}

struct RecordedWrite {
    has_buffers: bool,
    /// Files that have been named.
    named: u32,
}

impl TextWrite for RecordedWrite {
    fn line(
        &mut self,
        record: &Record,
        spaces: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        while self.named <= record.space {
            let name = space_name(self.named, spaces);
            if name.contains(['\n', '\r']) {
                return Err("the name of its file has a line break in it".into());
            }
            out.extend_from_slice(format!("# file {} = {name}\n", self.named).as_bytes());
            self.named += 1;
        }
        let op = if record.op == Op::Read { 'R' } else { 'W' };
        let Record { space, address, length, .. } = record;
        let micros = record.time_ns / 1000;
        let written = match (self.has_buffers, record.buffer) {
            (false, _) => writeln!(out, "{micros},{op},{space},{address},{length}"),
            (true, Some(buffer)) => {
                writeln!(out, "{micros},{op},{space},{address},{length},{buffer:x}")
            }
            (true, None) => return Err("it has no buffer address, and others have".into()),
        };
        written.map_err(|error| error.to_string())
    }
}
