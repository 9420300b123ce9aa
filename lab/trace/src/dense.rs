//! A whole trace as dense references, to be read many times and by many threads at once, forward
//! and backward.
//!
//! Chunks stay in memory up to a limit; later ones go to an unlinked temporary file, 4 bytes a
//! reference, and two bits where not every record has one. Callers do not see which. How a trace
//! becomes references is in `blocks.rs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::Error;
use crate::blocks::{BlockStream, CHUNK_REFERENCES, Counts, Ref};
use crate::left_out::LeftOut;
use crate::record::Meta;
use crate::renumber::BlockNames;

/// Where a dense trace may be kept.
#[derive(Clone, Debug)]
pub struct DenseOptions {
    /// References beyond so many bytes of them are spooled. Default 512 MiB; 0 spools everything.
    pub memory_bytes: u64,
    /// Folder of the spool file. Default: the system's folder for temporary files.
    pub spool_folder: PathBuf,
}

impl Default for DenseOptions {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, spool_folder: std::env::temp_dir() }
    }
}

/// A trace that has been read to its end.
#[derive(Debug)]
pub struct DenseTrace {
    chunks: Vec<Chunk>,
    spool: Spool,
    meta: Meta,
    spaces: Vec<String>,
    names: BlockNames,
    seen: Counts,
    divisor: u64,
    kept: Counts,
    left_out: LeftOut,
}

/// Index entry of a chunk.
#[derive(Debug)]
struct Chunk {
    /// Number of its first reference.
    start: u64,
    /// Records that ended before it.
    records_before: u64,
    references: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory { refs: Box<[Ref]>, ends: Box<[u64]> },
    Spool { offset: u64, end_words: u32 },
}

impl DenseTrace {
    /// Reads `stream` to its end; `progress` is told the records read so far, chunk by chunk.
    ///
    /// # Errors
    /// Those of [`BlockStream::next_chunk`], and [`Error::Io`] if the spool cannot be written.
    pub fn load(stream: BlockStream, progress: impl FnMut(u64)) -> Result<Self, Error> {
        Self::load_with(stream, &DenseOptions::default(), progress)
    }

    /// Reads `stream` to its end, with a say in where the trace is kept.
    ///
    /// # Errors
    /// Those of [`DenseTrace::load`].
    pub fn load_with(
        stream: BlockStream,
        options: &DenseOptions,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, Error> {
        Self::load_watched(stream, options, |stream, _| progress(stream.seen().records))
    }

    /// Reads `stream` to its end, with a look at each chunk of it as it is read: what its
    /// references came from, which is not kept.
    ///
    /// # Errors
    /// Those of [`DenseTrace::load`].
    pub fn load_watched(
        mut stream: BlockStream,
        options: &DenseOptions,
        mut watch: impl FnMut(&BlockStream, &[Ref]),
    ) -> Result<Self, Error> {
        let mut spool = Spool::new(options.spool_folder.clone());
        let mut chunks = Vec::new();
        let mut refs = Vec::with_capacity(CHUNK_REFERENCES);
        let (mut start, mut records_before) = (0, 0);
        while stream.next_chunk(&mut refs)? {
            watch(&stream, &refs);
            let ends = pack_ends(stream.record_ends());
            let bytes_after = (start + refs.len() as u64) * size_of::<Ref>() as u64;
            let references = refs.len() as u32;
            let place = if bytes_after <= options.memory_bytes {
                let next = Vec::with_capacity(CHUNK_REFERENCES);
                let refs = std::mem::replace(&mut refs, next).into_boxed_slice();
                Place::Memory { refs, ends: ends.into() }
            } else {
                spool.append(&refs, &ends)?
            };
            chunks.push(Chunk { start, records_before, references, place });
            start += u64::from(references);
            records_before = stream.seen().records;
        }
        Ok(Self {
            chunks,
            spool,
            meta: stream.meta().clone(),
            spaces: stream.spaces().to_vec(),
            seen: stream.seen(),
            divisor: stream.divisor(),
            kept: stream.kept(),
            left_out: stream.left_out(),
            names: stream.into_names(),
        })
    }

    /// What was left out since it moves no data.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// References, those of [`DenseTrace::kept`].
    pub fn len(&self) -> u64 {
        self.kept.references()
    }

    /// Whether there is no reference.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct blocks: their numbers are all those below this.
    pub fn unique(&self) -> u32 {
        self.names.len()
    }

    /// Counts over the whole trace, whether a sample kept a reference or not.
    pub fn seen(&self) -> Counts {
        self.seen
    }

    /// See [`BlockStream::divisor`].
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Counts over the references of this trace; equal to [`DenseTrace::seen`] if not sampled.
    pub fn kept(&self) -> Counts {
        self.kept
    }

    /// Facts about the trace.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Names of the address spaces.
    pub fn spaces(&self) -> &[String] {
        &self.spaces
    }

    /// The (space, block number) behind each dense number.
    pub fn names(&self) -> &BlockNames {
        &self.names
    }

    /// Whether part of the trace is in a temporary file.
    pub fn is_spooled(&self) -> bool {
        self.spool.file.is_some()
    }

    /// References before the end of the `records`-th record, which is where a warm-up of so many
    /// records ends: 0 for 0, all of them if the trace has no more records.
    ///
    /// # Errors
    /// [`Error::Io`] if the spool cannot be read.
    pub fn references_of(&self, records: u64) -> Result<u64, Error> {
        if records == 0 {
            return Ok(0);
        }
        if records >= self.seen.records {
            return Ok(self.len());
        }
        let after = self.chunks.partition_point(|chunk| chunk.records_before < records);
        let chunk = &self.chunks[after - 1];
        let wanted = records - chunk.records_before;
        let within = match &chunk.place {
            Place::Memory { ends, .. } => nth_end(ends, wanted),
            &Place::Spool { offset, end_words } => {
                nth_end(&self.spool.read_ends(offset, chunk.references, end_words)?, wanted)
            }
        };
        // The next chunk begins after the record's end, so the end is in this one.
        Ok(chunk.start + within.expect("a chunk holds the ends that its index entry says"))
    }

    /// Reads the trace from its first reference.
    pub fn forward(&self) -> Chunks<'_> {
        self.chunks_of(false)
    }

    /// Reads the trace from its last chunk to its first. Within a chunk the order is that of the
    /// trace: go through the slice in reverse.
    pub fn backward(&self) -> Chunks<'_> {
        self.chunks_of(true)
    }

    fn chunks_of(&self, backward: bool) -> Chunks<'_> {
        Chunks {
            trace: self,
            left: 0..self.chunks.len(),
            backward,
            refs: Vec::new(),
            bytes: vec![],
        }
    }

    /// Calls `f` with every chunk and the number of its first reference, in order.
    ///
    /// # Errors
    /// [`Error::Io`] if the spool cannot be read.
    pub fn for_each_chunk(&self, mut f: impl FnMut(u64, &[Ref])) -> Result<(), Error> {
        let mut chunks = self.forward();
        while let Some((start, refs)) = chunks.next()? {
            f(start, refs);
        }
        Ok(())
    }
}

/// A pass over a [`DenseTrace`], with a buffer of its own of one chunk at most.
#[derive(Debug)]
pub struct Chunks<'a> {
    trace: &'a DenseTrace,
    left: std::ops::Range<usize>,
    backward: bool,
    refs: Vec<Ref>,
    bytes: Vec<u8>,
}

impl Chunks<'_> {
    /// The next chunk with the number of its first reference; none at the end of the pass. Not an
    /// iterator, because the slice lives only until the next call.
    ///
    /// # Errors
    /// [`Error::Io`] if the spool cannot be read.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer")]
    pub fn next(&mut self) -> Result<Option<(u64, &[Ref])>, Error> {
        let index = if self.backward { self.left.next_back() } else { self.left.next() };
        let Some(index) = index else { return Ok(None) };
        let chunk = &self.trace.chunks[index];
        match &chunk.place {
            Place::Memory { refs, .. } => Ok(Some((chunk.start, refs))),
            &Place::Spool { offset, .. } => {
                self.bytes.resize(chunk.references as usize * size_of::<Ref>(), 0);
                self.trace.spool.read(offset, &mut self.bytes)?;
                self.refs.clear();
                self.refs.extend(words(&self.bytes).map(Ref::from_bits));
                Ok(Some((chunk.start, &self.refs)))
            }
        }
    }
}

/// The record ends of a chunk in unary: for each record a 0 for every reference since the end
/// before, then a 1. Exact, and a bit a reference and a bit a record at most. Empty where every
/// record has one reference, as in most traces.
fn pack_ends(record_ends: &[u32]) -> Vec<u64> {
    let Some(&last) = record_ends.last() else { return Vec::new() };
    if record_ends.iter().zip(1..).all(|(&end, number)| end == number) {
        return Vec::new();
    }
    let mut ends = vec![0; (last as usize + record_ends.len()).div_ceil(64)];
    for (i, &references) in record_ends.iter().enumerate() {
        let bit = references as usize + i;
        ends[bit / 64] |= 1 << (bit % 64);
    }
    ends
}

/// References of the chunk up to the end of its `wanted`-th record, counted from 1.
fn nth_end(ends: &[u64], wanted: u64) -> Option<u64> {
    if ends.is_empty() {
        return Some(wanted);
    }
    let mut missing = wanted;
    for (i, &word) in ends.iter().enumerate() {
        let ones = u64::from(word.count_ones());
        if missing > ones {
            missing -= ones;
            continue;
        }
        let mut rest = word;
        for _ in 1..missing {
            rest &= rest - 1;
        }
        let bit = i as u64 * 64 + u64::from(rest.trailing_zeros());
        return Some(bit - (wanted - 1));
    }
    None
}

/// The temporary file: per chunk its references, then its packed record ends, little-endian.
#[derive(Debug)]
struct Spool {
    folder: PathBuf,
    file: Option<File>,
    size: u64,
}

impl Spool {
    fn new(folder: PathBuf) -> Self {
        Self { folder, file: None, size: 0 }
    }

    fn append(&mut self, refs: &[Ref], ends: &[u64]) -> Result<Place, Error> {
        let mut bytes: Vec<u8> = refs.iter().flat_map(|r| r.to_bits().to_le_bytes()).collect();
        bytes.extend(ends.iter().flat_map(|word| word.to_le_bytes()));
        let offset = self.size;
        let written = self.file_made().and_then(|file| file.write_all_at(&bytes, offset));
        written.map_err(|source| self.error(source))?;
        self.size += bytes.len() as u64;
        Ok(Place::Spool { offset, end_words: ends.len() as u32 })
    }

    fn file_made(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.folder)?,
        };
        Ok(self.file.insert(file))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let file = self.file.as_ref().expect("a spooled chunk has a spool");
        file.read_exact_at(bytes, offset).map_err(|source| self.error(source))
    }

    fn read_ends(&self, offset: u64, references: u32, end_words: u32) -> Result<Vec<u64>, Error> {
        let offset = offset + u64::from(references) * size_of::<Ref>() as u64;
        let mut bytes = vec![0; end_words as usize * 8];
        self.read(offset, &mut bytes)?;
        Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect())
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Io { path: self.folder.join("(temporary spool)"), source }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()))
}

#[cfg(test)]
mod tests;
