//! `.uct`, our own binary format: small, written and read at memory speed, and damage is noticed.
//! Here is its layout and how it is written; `lab/trace/src/format/uct.rs` reads it, and
//! `docs/developer/file-formats.md` says what is in which byte.

use std::path::Path;

use crate::{Error, Meta, Op, Output, Record, Unit, Writer, refused, space_name};

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"\x93UCT\r\n\x1a\n";
/// The version of recordings without evictions.
pub const VERSION: u16 = 1;
/// The version of recordings with evictions, so that a program that does not know these refuses it.
pub const VERSION_WITH_EVICTIONS: u16 = 2;

/// A mark of a record: a write.
pub const WRITE: u64 = 1;
/// A mark of a record: the address of its buffer is known.
pub const BUFFER: u64 = 2;
/// A mark of a record: an eviction.
pub const EVICTION: u64 = 4;

/// Columns of a chunk.
pub const COLUMNS: usize = 7;
/// The column of clients, the last one, which only recordings with evictions have.
pub const CLIENT: usize = 6;

/// Records that are written as one chunk, and bytes of new names that end it early.
const CHUNK_RECORDS: usize = 4096;
const CHUNK_NAMES: usize = 128 << 10;

/// Begins to write a recording with the properties `meta` to `path`.
///
/// # Errors
/// The system refuses, or the name ends in `.bz2` or `.xz`, which are not written.
pub fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    let mut output = Output::create(path)?;
    let mut header = MAGIC.to_vec();
    let version = if meta.has_evictions { VERSION_WITH_EVICTIONS } else { VERSION };
    header.extend_from_slice(&version.to_le_bytes());
    header.push(u8::from(meta.unit == Unit::Bytes));
    let flags = [meta.has_ops, meta.has_time, meta.has_buffers];
    header.push(flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag)));
    header.extend_from_slice(&meta.block_bytes.unwrap_or(0).to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    output.write(&header)?;
    let (unit, has_evictions) = (meta.unit, meta.has_evictions);
    let (pending, names) = (Vec::with_capacity(CHUNK_RECORDS), Vec::new());
    let (new_names, known, count) = (0, 0, 0);
    Ok(Box::new(UctWriter { output, unit, has_evictions, pending, names, new_names, known, count }))
}

struct UctWriter {
    output: Output,
    unit: Unit,
    has_evictions: bool,
    pending: Vec<Record>,
    /// Names of the new spaces as they will stand in the chunk, and how many they are.
    names: Vec<u8>,
    new_names: u32,
    /// Spaces that have been named, in this chunk or before.
    known: u32,
    count: u64,
}

impl Writer for UctWriter {
    fn write(&mut self, records: &[Record], spaces: &[String]) -> Result<(), Error> {
        for record in records {
            self.count += 1;
            if !self.unit.holds(record.address, record.length) {
                let Record { address, length, .. } = record;
                let reason = format!("address {address}, length {length} is out of range");
                return Err(refused(self.output.path(), self.count, &reason));
            }
            if record.op == Op::Evict && !self.has_evictions {
                return Err(refused(self.output.path(), self.count, "it is an eviction"));
            }
            while self.known <= record.space {
                self.name(spaces)?;
            }
            self.pending.push(*record);
            if self.pending.len() == CHUNK_RECORDS {
                self.chunk()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.chunk()?;
        let mut body = vec![0];
        body.extend_from_slice(&self.count.to_le_bytes());
        self.body(&body)?;
        self.output.finish()
    }
}

impl UctWriter {
    /// Puts down the name of the next space.
    fn name(&mut self, spaces: &[String]) -> Result<(), Error> {
        let name = space_name(self.known, spaces);
        let Ok(length) = u16::try_from(name.len()) else {
            let reason = format!("the name of its device or file has {} bytes", name.len());
            return Err(refused(self.output.path(), self.count, &reason));
        };
        self.names.extend_from_slice(&length.to_le_bytes());
        self.names.extend_from_slice(name.as_bytes());
        self.new_names += 1;
        self.known += 1;
        if self.names.len() > CHUNK_NAMES { self.chunk() } else { Ok(()) }
    }

    /// Writes what is pending as one chunk.
    fn chunk(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() && self.new_names == 0 {
            return Ok(());
        }
        let mut body = vec![1];
        body.extend_from_slice(&(self.pending.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.new_names.to_le_bytes());
        body.append(&mut self.names);
        self.new_names = 0;
        let columns: [fn(&Record) -> u64; COLUMNS] = [
            |record| record.time_ns,
            |record| {
                let op = match record.op {
                    Op::Read => 0,
                    Op::Write => WRITE,
                    Op::Evict => EVICTION,
                };
                op | if record.buffer.is_some() { BUFFER } else { 0 }
            },
            |record| u64::from(record.space),
            |record| record.address,
            |record| record.length - 1,
            |record| record.buffer.unwrap_or(0),
            |record| record.client.into(),
        ];
        let there = if self.has_evictions { COLUMNS } else { CLIENT };
        for column in &columns[..there] {
            let numbers = || self.pending.iter().map(*column);
            let (base, most) = (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0));
            let width = (64 - (most - base).leading_zeros()).div_ceil(8) as usize;
            body.extend_from_slice(&base.to_le_bytes());
            body.push(width as u8);
            for number in numbers() {
                body.extend_from_slice(&(number - base).to_le_bytes()[..width]);
            }
        }
        self.pending.clear();
        self.body(&body)
    }

    fn body(&mut self, body: &[u8]) -> Result<(), Error> {
        self.output.write(&(body.len() as u32).to_le_bytes())?;
        self.output.write(&crc32fast::hash(body).to_le_bytes())?;
        self.output.write(body)
    }
}
