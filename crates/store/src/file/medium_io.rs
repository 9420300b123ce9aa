//! Positional reads and writes of a file: short ones are continued, interrupted ones repeated, and
//! unaligned memory is copied through an aligned buffer for direct I/O.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use undercroft_ring::Read;

use super::durability::Durable;
use crate::medium::{gather, scatter};
use crate::store::Buffer;

/// Most pieces that the kernel accepts in one call (`IOV_MAX`).
const MAX_SLICES: usize = 1024;

/// Bytes of the aligned buffer for direct I/O with unaligned memory.
const BOUNCE_BYTES: usize = 1 << 20;

/// The open file.
pub(super) struct MediumIo {
    file: Arc<File>,
    /// The alignment that direct I/O needs for addresses, offsets and lengths; `None` without it.
    alignment: Option<usize>,
    /// Most reads that threads of connections have begun and that have not ended; the I/O threads
    /// have as many.
    begun_max: usize,
    /// Whether the file system lacks reads that do not wait.
    no_cached_reads: AtomicBool,
    /// Whether the file system lacks durable writes.
    no_durable_writes: AtomicBool,
}

impl MediumIo {
    pub(super) fn new(file: File, alignment: Option<u32>, begun_max: usize) -> MediumIo {
        MediumIo {
            file: Arc::new(file),
            alignment: alignment.map(|bytes| bytes as usize),
            begun_max,
            no_cached_reads: AtomicBool::new(false),
            no_durable_writes: AtomicBool::new(false),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Reads as many of the first bytes as possible without waiting for the disk; returns their
    /// number.
    pub(super) fn read_cached(&self, offset: u64, into: &mut [Buffer]) -> usize {
        if self.no_cached_reads.load(Ordering::Relaxed) {
            return 0;
        }
        let mut slices = slices_mut(into, 0);
        match rustix::io::preadv2(&self.file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => count,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.no_cached_reads.store(true, Ordering::Relaxed);
                0
            }
            // Not cached, interrupted, or failed: the complete read will tell.
            Err(_) => 0,
        }
    }

    /// Begins to read on the calling thread, if that takes reads: by direct I/O, since what has to
    /// go through the page cache may wait there, and into one aligned piece of memory.
    pub(super) fn begin_read(
        &self,
        offset: u64,
        mut into: Vec<Buffer>,
    ) -> Result<Read, Vec<Buffer>> {
        // Each read that has not ended keeps the file open.
        let is_busy = Arc::strong_count(&self.file) > self.begun_max;
        let (Some(alignment), 1, false) = (self.alignment, into.len(), is_busy) else {
            return Err(into);
        };
        let Some(mut memory) = into.pop() else { return Err(into) };
        if !is_aligned((*memory).as_mut(), alignment) {
            return Err(vec![memory]);
        }
        undercroft_ring::read(&self.file, offset, memory).map_err(|memory| vec![memory])
    }

    /// Reads into the buffers from `offset` on; the first `done` bytes have been read already.
    pub(super) fn read(&self, offset: u64, into: &mut [Buffer], mut done: usize) -> io::Result<()> {
        if let Some(alignment) = self.alignment {
            if !into.iter_mut().all(|buffer| is_aligned((**buffer).as_mut(), alignment)) {
                return self.read_bounced(offset, into, alignment);
            }
        }
        loop {
            let mut slices = slices_mut(into, done);
            if slices.is_empty() {
                return Ok(());
            }
            let at = offset + done as u64;
            match retry_on_intr(|| rustix::io::preadv(&self.file, &mut slices, at))? {
                0 => return Err(ended(at)),
                count => done += count,
            }
        }
    }

    fn read_bounced(&self, offset: u64, into: &mut [Buffer], alignment: usize) -> io::Result<()> {
        let length: usize = into.iter_mut().map(|buffer| (**buffer).as_mut().len()).sum();
        let mut bounce = Aligned::new(length.min(BOUNCE_BYTES), alignment);
        let mut done = 0;
        while done < length {
            let memory = bounce.bytes();
            let wanted = memory.len().min(length - done);
            let mut slices = [IoSliceMut::new(&mut memory[..wanted])];
            let at = offset + done as u64;
            let count = retry_on_intr(|| rustix::io::preadv(&self.file, &mut slices, at))?;
            if count == 0 {
                return Err(ended(at));
            }
            scatter(into, done, &bounce.bytes()[..count]);
            done += count;
        }
        Ok(())
    }

    /// Writes the pieces from `offset` on.
    pub(super) fn write(&self, offset: u64, data: &[Bytes]) -> io::Result<()> {
        self.write_flagged(offset, data, ReadWriteFlags::empty())
    }

    /// Writes the pieces from `offset` on, durably if the file system supports that. Returns
    /// whether they are durable.
    pub(super) fn write_durable(&self, offset: u64, data: &[Bytes]) -> io::Result<Durable> {
        if !self.no_durable_writes.load(Ordering::Relaxed) {
            match self.write_flagged(offset, data, ReadWriteFlags::DSYNC) {
                Ok(()) => return Ok(Durable::Already),
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.no_durable_writes.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        self.write(offset, data).map(|()| Durable::No)
    }

    fn write_flagged(&self, offset: u64, data: &[Bytes], flags: ReadWriteFlags) -> io::Result<()> {
        match self.alignment {
            Some(alignment) if !data.iter().all(|piece| is_aligned(piece, alignment)) => {
                self.write_bounced(offset, data, alignment, flags)
            }
            _ => self.write_slices(offset, data, flags),
        }
    }

    fn write_slices<T: AsRef<[u8]>>(
        &self,
        offset: u64,
        data: &[T],
        flags: ReadWriteFlags,
    ) -> io::Result<()> {
        let mut done = 0;
        loop {
            let slices = slices(data, done);
            if slices.is_empty() {
                return Ok(());
            }
            let at = offset + done as u64;
            let count = retry_on_intr(|| rustix::io::pwritev2(&self.file, &slices, at, flags))?;
            if count == 0 {
                return Err(io::Error::from(ErrorKind::WriteZero));
            }
            done += count;
        }
    }

    fn write_bounced(
        &self,
        offset: u64,
        data: &[Bytes],
        alignment: usize,
        flags: ReadWriteFlags,
    ) -> io::Result<()> {
        let length: usize = data.iter().map(Bytes::len).sum();
        let mut bounce = Aligned::new(length.min(BOUNCE_BYTES), alignment);
        let mut done = 0;
        while done < length {
            let memory = bounce.bytes();
            let filled = gather(data, done, memory);
            self.write_slices(offset + done as u64, &[&memory[..filled]], flags)?;
            done += filled;
        }
        Ok(())
    }

    /// Writes zeroes explicitly.
    pub(super) fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // At most 1 MiB at a time, so the conversions are exact.
        let piece = length.min(BOUNCE_BYTES as u64);
        let mut zeroes = Aligned::new(piece as usize, self.alignment.unwrap_or(1));
        let zeroes = &*zeroes.bytes();
        let mut done = 0;
        while done < length {
            let count = piece.min(length - done);
            let now = [&zeroes[..count as usize]];
            self.write_slices(offset + done, &now, ReadWriteFlags::empty())?;
            done += count;
        }
        Ok(())
    }
}

/// Zeroed memory that begins at an aligned address.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize, alignment: usize) -> Aligned {
        let memory = vec![0; length + alignment - 1];
        let start = memory.as_ptr().addr().wrapping_neg() % alignment;
        Aligned { memory, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

fn is_aligned(memory: &[u8], alignment: usize) -> bool {
    (memory.as_ptr().addr() | memory.len()) % alignment == 0
}

fn ended(at: u64) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, format!("the file ends at {at}: it has shrunk"))
}

/// The buffers behind the first `skip` bytes, as many as one call accepts.
fn slices_mut(buffers: &mut [Buffer], mut skip: usize) -> Vec<IoSliceMut<'_>> {
    let mut out = Vec::with_capacity(buffers.len().min(MAX_SLICES));
    for buffer in buffers {
        let memory = (**buffer).as_mut();
        let passed = skip.min(memory.len());
        skip -= passed;
        if passed < memory.len() && out.len() < MAX_SLICES {
            out.push(IoSliceMut::new(&mut memory[passed..]));
        }
    }
    out
}

/// The pieces behind the first `skip` bytes, as many as one call accepts.
fn slices<T: AsRef<[u8]>>(pieces: &[T], mut skip: usize) -> Vec<IoSlice<'_>> {
    let mut out = Vec::with_capacity(pieces.len().min(MAX_SLICES));
    for piece in pieces {
        let memory = piece.as_ref();
        let passed = skip.min(memory.len());
        skip -= passed;
        if passed < memory.len() && out.len() < MAX_SLICES {
            out.push(IoSlice::new(&memory[passed..]));
        }
    }
    out
}
