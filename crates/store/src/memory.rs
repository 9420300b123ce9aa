//! A store in memory. It allocates memory for written data in chunks, and frees it for trimmed or
//! zeroed ranges. Nothing outlives the process, so everything written counts as durable.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::medium::{MAX_BYTES, Medium, append, buffers_bytes, pieces_bytes, ready};
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, write_options};
use crate::store::{
    Answer, Buffer, Extent, Facts, MAX_EXTENTS, ManyWrite, ManyWritten, Store, Zeroing,
};

/// Bytes of a chunk: large enough to keep the map small, and small enough for sparse writes.
const CHUNK_BYTES: u64 = 64 << 10;

/// The chunks are distributed over this many maps, each with its own lock.
const SHARDS: u64 = 64;

type Chunks = HashMap<u64, Box<[u8]>>;

/// A sparse store in memory.
pub struct MemoryStore {
    medium: Medium,
    shards: Vec<RwLock<Chunks>>,
}

pub(crate) static KINDS: [Kind; 1] =
    [Kind { name: "mem", form: "mem:", summary: "memory, gone when the server ends", parse }];

/// The specifications `mem:` and `mem(1GiB):`, with the size in bytes.
#[derive(Debug)]
struct MemorySpec(Option<u64>);

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let rest = words.place()?;
    if !rest.text().is_empty() {
        return rest.fail("nothing after `mem:`; a size is written mem(1GiB):");
    }
    match words.options()[..] {
        [] => Ok(StoreSpec::new(MemorySpec(None))),
        [(only, None)] => Ok(StoreSpec::new(MemorySpec(Some(only.size()?)))),
        [(name, _), ..] => name.fail("a size, such as 1GiB, and nothing else"),
    }
}

impl Description for MemorySpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let size = options.one_size(self.0, &MemorySpec(None));
        ready(size.and_then(|size| {
            let size = size.ok_or_else(|| invalid("mem: needs a size, as in mem(1GiB):"))?;
            Ok(Arc::new(MemoryStore::with_access(size, options.read_only)?) as _)
        }))
    }
}

impl fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mem")?;
        write_options(f, [self.0.map(|size| undercroft_text::Bytes(size).to_string())])?;
        f.write_str(":")
    }
}

impl MemoryStore {
    /// A store of `size` bytes, all zero.
    ///
    /// # Errors
    /// The size exceeds 2^63 - 1.
    pub fn new(size: u64) -> io::Result<MemoryStore> {
        MemoryStore::with_access(size, false)
    }

    pub(crate) fn with_access(size: u64, read_only: bool) -> io::Result<MemoryStore> {
        if size > MAX_BYTES {
            let why = format!("mem: at most {MAX_BYTES} bytes can be addressed, not {size}");
            return Err(invalid(&why));
        }
        let name = "mem:".to_owned();
        let facts = Facts { size, alignment: 1, read_only, zeroes_fast: !read_only, name };
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Ok(MemoryStore { medium: Medium::new(facts), shards })
    }

    /// Bytes of memory that hold data now.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| read(shard).len() as u64 * CHUNK_BYTES).sum()
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[(chunk % SHARDS) as usize]
    }

    fn fill(&self, offset: u64, buffers: &mut [Buffer]) {
        let mut at = offset;
        for buffer in buffers {
            let mut rest = (**buffer).as_mut();
            while !rest.is_empty() {
                let (chunk, range) = place(at, rest.len() as u64);
                let (now, later) = rest.split_at_mut(range.len());
                match read(self.shard(chunk)).get(&chunk) {
                    Some(data) => now.copy_from_slice(&data[range]),
                    None => now.fill(0),
                }
                at += now.len() as u64;
                rest = later;
            }
        }
    }

    fn store(&self, offset: u64, data: &[Bytes]) -> io::Result<()> {
        let mut at = offset;
        for piece in data {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (chunk, range) = place(at, rest.len() as u64);
                let (now, later) = rest.split_at(range.len());
                let mut chunks = write(self.shard(chunk));
                allocated(&mut chunks, chunk)?[range].copy_from_slice(now);
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }

    fn write_now(&self, offset: u64, data: &[Bytes]) -> io::Result<()> {
        let length = pieces_bytes(data);
        self.medium.check_change("write", offset, length)?;
        let fault = |error| self.medium.fault("write", offset, length, error);
        self.store(offset, data).map_err(fault)
    }

    /// Zeroes a range. Whole chunks are dropped, unless they must stay (or become) allocated.
    fn clear(&self, offset: u64, length: u64, keep_allocated: bool) -> io::Result<()> {
        let end = offset + length;
        let whole = offset.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES;
        if !keep_allocated && !whole.is_empty() {
            self.clear_part(offset, whole.start * CHUNK_BYTES, false)?;
            self.drop_chunks(whole.clone());
            return self.clear_part(whole.end * CHUNK_BYTES, end, false);
        }
        self.clear_part(offset, end, keep_allocated)
    }

    fn clear_part(&self, start: u64, end: u64, keep_allocated: bool) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let (chunk, range) = place(at, end - at);
            at += range.len() as u64;
            let mut chunks = write(self.shard(chunk));
            if keep_allocated {
                allocated(&mut chunks, chunk)?[range].fill(0);
            } else if let Some(data) = chunks.get_mut(&chunk) {
                data[range].fill(0);
            }
        }
        Ok(())
    }

    /// Drops a range of chunks; visits the existing chunks if these are fewer than the range.
    fn drop_chunks(&self, range: Range<u64>) {
        if range.end - range.start < SHARDS * 16 {
            range.for_each(|chunk| drop(write(self.shard(chunk)).remove(&chunk)));
            return;
        }
        for shard in &self.shards {
            write(shard).retain(|chunk, _| !range.contains(chunk));
        }
    }

    fn list(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset + length;
        let mut out = Vec::new();
        let mut at = offset;
        // Limits the answer and the time: a hole of a pebibyte has many absent chunks.
        for _ in 0..MAX_EXTENTS * 16 {
            if at == end || out.len() == MAX_EXTENTS {
                break;
            }
            let (chunk, range) = place(at, end - at);
            let hole = !read(self.shard(chunk)).contains_key(&chunk);
            let length = range.len() as u64;
            at += length;
            append(&mut out, Extent { length, hole, zero: hole });
        }
        out
    }
}

impl Store for MemoryStore {
    fn facts(&self) -> Facts {
        self.medium.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let checked = self.medium.check("read", offset, buffers_bytes(&mut into));
        if checked.is_ok() {
            self.fill(offset, &mut into);
        }
        ready((into, checked))
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, _durable: bool) -> Answer<io::Result<()>> {
        ready(self.write_now(offset, &data))
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn write_many(&self, writes: Vec<ManyWrite>, _here: bool, written: ManyWritten) {
        let write = |one: &ManyWrite| self.write_now(one.offset, &one.data);
        written(writes.iter().map(write).collect());
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        _durable: bool,
    ) -> Answer<io::Result<()>> {
        let fault = |error| self.medium.fault("zero", offset, length, error);
        ready(
            self.medium
                .check_change("zero", offset, length)
                .and_then(|()| self.clear(offset, length, how.keep_allocated).map_err(fault)),
        )
    }

    fn trim(&self, offset: u64, length: u64, _durable: bool) -> Answer<io::Result<()>> {
        ready(
            self.medium
                .check_change("trim", offset, length)
                .and_then(|()| self.clear(offset, length, false)),
        )
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        ready(Ok(()))
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        let checked = self.medium.check("extents", offset, length);
        ready(checked.map(|()| self.list(offset, length)))
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        ready(Ok(self.medium.size()))
    }
}

/// The chunk of an address, and the part of it that up to `length` bytes from the address on cover.
fn place(at: u64, length: u64) -> (u64, Range<usize>) {
    let within = at % CHUNK_BYTES;
    let count = length.min(CHUNK_BYTES - within);
    (at / CHUNK_BYTES, within as usize..(within + count) as usize)
}

/// A chunk for writing; allocated and zeroed if it is missing.
fn allocated(chunks: &mut Chunks, chunk: u64) -> io::Result<&mut [u8]> {
    use std::collections::hash_map::Entry;
    match chunks.entry(chunk) {
        Entry::Occupied(held) => Ok(held.into_mut()),
        Entry::Vacant(vacant) => {
            let mut data = Vec::new();
            data.try_reserve_exact(CHUNK_BYTES as usize)?;
            data.resize(CHUNK_BYTES as usize, 0);
            Ok(vacant.insert(data.into_boxed_slice()))
        }
    }
}

// A poisoned lock is sound: only copies happen under these locks.

fn read(shard: &RwLock<Chunks>) -> RwLockReadGuard<'_, Chunks> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Chunks>) -> RwLockWriteGuard<'_, Chunks> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}
