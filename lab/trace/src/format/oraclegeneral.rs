//! oracleGeneral, the binary format of libCacheSim: packed little-endian records of 24 bytes
//! without a header: u32 time in seconds, u64 object, u32 size in bytes, i64 next access.
//!
//! One object is one block, whatever its size, also one of size 0. Reads only. The next access is
//! the number of the next record with the same object, the first record being 1, or -1 (in some
//! files the largest i64; -2 where it is not known). It is used to recognise the format only: our
//! own OPT computes it.
//!
//! A trace is written with true next accesses: the records go to a temporary file first, which is
//! then walked from its end. That costs one entry of a hash table (about 40 bytes) for each
//! distinct object and 24 bytes of disk for each record.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use undercroft_recording::{Output, Writer, refused};

use crate::format::lis::bare_meta;
use crate::format::packed::{damaged, eight, four, whole_records};
use crate::format::spaces::Spaces;
use crate::format::text::check_request;
use crate::format::{Entry, Format, Options, Sample};
use crate::input::Input;
use crate::write::{Refusal, want_bare, want_unit};
use crate::{Error, Meta, Op, Reader, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "oraclegeneral",
        about: "libCacheSim binary: u32 seconds, u64 object, u32 size, i64 next access",
        extensions: &["oraclegeneral", "oraclegeneral.bin", "oraclegeneralbin"],
        options: "",
        writable: true,
    },
    fits: |sample| fits(sample).into(),
    open,
    create: Some(create),
};

const SIZE: usize = 24;
/// Records read at once: few enough to stay in the processor's first cache.
const BATCH: usize = 512;
const SECOND: u64 = 1_000_000_000;

/// Without a magic number the format is known by its next accesses: they look ahead, and those
/// that stay in the sample arrive at the same object. Times never fall.
fn fits(sample: &Sample) -> bool {
    let records: Vec<&[u8]> = sample.bytes.chunks_exact(SIZE).collect();
    if records.is_empty() || sample.whole && sample.bytes.len() % SIZE != 0 {
        return false;
    }
    let time = |record: &[u8]| u32::from_le_bytes(four(record, 0));
    let rising = records.windows(2).all(|pair| time(pair[0]) <= time(pair[1]));
    let linked = records.iter().enumerate().all(|(index, record)| {
        let next = eight(record, 16) as i64;
        if matches!(next, -2 | -1 | i64::MAX) {
            return true;
        }
        let Ok(next) = usize::try_from(next) else { return false };
        let target = next.checked_sub(1).and_then(|next| records.get(next));
        // Beyond the sample is beyond the file if the sample is the whole of it.
        next > index + 1 && target.map_or(!sample.whole, |t| eight(t, 4) == eight(record, 4))
    });
    rising && linked
}

fn open(input: Input, _: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let meta = Meta { has_time: true, ..bare_meta("oraclegeneral") };
    Ok(Box::new(OracleGeneral { input, meta, spaces: Spaces::single() }))
}

struct OracleGeneral {
    input: Input,
    meta: Meta,
    spaces: Spaces,
}

impl Reader for OracleGeneral {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let bytes = self.input.peek(SIZE)?;
        let count = (bytes.len() / SIZE).min(BATCH);
        if count == 0 {
            return whole_records(&self.input, SIZE);
        }
        let batch = bytes[..count * SIZE].chunks_exact(SIZE);
        // An address in the last block of 2^64 would end beyond it: the only damage there is.
        let bad = batch.clone().position(|bytes| eight(bytes, 4) == u64::MAX);
        let taken = bad.unwrap_or(count);
        records.extend(batch.take(taken).map(|bytes| Record {
            time_ns: u64::from(u32::from_le_bytes(four(bytes, 0))) * SECOND,
            op: Op::Read,
            space: 0,
            address: eight(bytes, 4),
            length: 1,
            buffer: None,
            client: 0,
        }));
        self.input.consume(taken * SIZE);
        if taken < count {
            let fault = check_request(Unit::Blocks, u64::MAX, 1).expect_err("the last block");
            return Err(damaged(&self.input, *fault));
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.spaces.names()
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, "oraclegeneral", Unit::Blocks, meta)?;
    let output = Output::create(path)?;
    let scratch = BufWriter::with_capacity(1 << 16, output.scratch()?);
    Ok(Box::new(OracleWriter { output, scratch, size: meta.block_bytes.unwrap_or(1), count: 0 }))
}

struct OracleWriter {
    output: Output,
    scratch: BufWriter<File>,
    /// Size of an object: the block size, or 1 where the trace states none, which makes
    /// libCacheSim count in objects.
    size: u32,
    count: u64,
}

impl OracleWriter {
    fn encode(&self, record: &Record) -> Result<[u8; SIZE], Refusal> {
        want_bare("oraclegeneral", record)?;
        let seconds = record.time_ns / SECOND;
        let Ok(seconds) = u32::try_from(seconds) else {
            return Err(format!("oraclegeneral has 32 bits for the time, which is {seconds} s"));
        };
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&seconds.to_le_bytes());
        bytes[4..12].copy_from_slice(&record.address.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        Ok(bytes)
    }
}

impl Writer for OracleWriter {
    fn write(&mut self, records: &[Record], _: &[String]) -> Result<(), Error> {
        for record in records {
            self.count += 1;
            let bytes = self.encode(record);
            let bytes = bytes.map_err(|reason| refused(self.output.path(), self.count, &reason))?;
            self.scratch.write_all(&bytes).map_err(|error| self.output.error(error))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let OracleWriter { mut output, scratch, count, .. } = *self;
        let mut scratch = scratch.into_inner().map_err(|error| output.error(error.into_error()))?;
        link(&mut scratch, count).map_err(|error| output.error(error))?;
        let mut chunk = Vec::new();
        scratch.rewind().map_err(|error| output.error(error))?;
        loop {
            chunk.clear();
            let read = (&scratch).take(1 << 18).read_to_end(&mut chunk);
            if read.map_err(|error| output.error(error))? == 0 {
                return output.finish();
            }
            output.write(&chunk)?;
        }
    }
}

/// Fills in the next accesses of `count` records, from the last to the first.
fn link(file: &mut File, count: u64) -> io::Result<()> {
    const CHUNK: u64 = 1 << 14;
    let mut next_of: HashMap<u64, u64> = HashMap::new();
    let mut end = count;
    let mut bytes = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        let offset = SeekFrom::Start(start * SIZE as u64);
        bytes.resize((end - start) as usize * SIZE, 0);
        file.seek(offset)?;
        file.read_exact(&mut bytes)?;
        for (index, record) in bytes.chunks_exact_mut(SIZE).enumerate().rev() {
            let number = start + index as u64 + 1;
            let next = next_of.insert(eight(record, 4), number);
            record[16..].copy_from_slice(&next.unwrap_or(u64::MAX).to_le_bytes());
        }
        file.seek(offset)?;
        file.write_all(&bytes)?;
        end = start;
    }
    Ok(())
}
