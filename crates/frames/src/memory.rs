//! The mapping that all frames lie in, and its division into pools.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::pool::Pool;
use crate::prepare::prepare;

/// Huge pages are this large on the machines that matter; the budget is rounded up to it.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Why there is no memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refuses the mapping.
    #[error("cannot map {bytes} bytes for the cache: {source}; give the cache less")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A frame is a power of two from 512 bytes to 2 MiB.
    #[error("a frame of {0} bytes is not a power of two from 512 to 2097152")]
    FrameSize(usize),
    /// The budget is used up.
    #[error("{wanted} bytes for frames do not fit: {left} of the cache's memory are left")]
    Budget {
        /// Bytes that the pool needs.
        wanted: usize,
        /// Bytes not yet given to pools.
        left: usize,
    },
}

/// A fixed budget of memory for frames. Pages are taken from the system when their frame is first
/// written, or before by [`prepare`](Self::prepare).
#[derive(Clone)]
pub struct Memory(pub(crate) Arc<Mapping>);

pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes given to pools so far. They are never taken back.
    given: Mutex<usize>,
    /// Whether a part was given back to the system, after which nothing more is prepared.
    is_cut: AtomicBool,
}

// SAFETY: the mapping is plain memory, valid from any thread until it is dropped. The pointer is
// handed to pools only, which keep to the rules 2 to 5 in lib.rs.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods take `&self` and touch no byte of the memory.
unsafe impl Sync for Mapping {}

impl Memory {
    /// Reserves `bytes`, at least 1, rounded up to whole huge pages.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        let refused = |source| MemoryError::Map { bytes, source };
        let rounded = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // The system may refuse what it cannot give; without a reserve it would give anything.
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new anonymous mapping at an address that the system chooses replaces nothing.
        let address = unsafe { mmap_anonymous(ptr::null_mut(), rounded, access, flags) }
            .map_err(|e| refused(e.into()))?;
        // SAFETY: the range is the mapping just made. The advice changes no content; a system
        // without huge pages may refuse it, which costs speed only.
        let _ = unsafe { madvise(address, rounded, Advice::LinuxHugepage) };
        let base = NonNull::new(address.cast())
            .ok_or_else(|| refused(io::Error::other("the system mapped the address zero")))?;
        Ok(Self(Arc::new(Mapping {
            base,
            bytes: rounded,
            given: Mutex::new(0),
            is_cut: AtomicBool::new(false),
        })))
    }

    /// Gives a part of the budget to a pool of `count` frames of `frame_bytes` each.
    ///
    /// # Errors
    /// The frame size is not allowed, or the budget does not suffice.
    pub fn pool(&self, count: u32, frame_bytes: usize) -> Result<Pool, MemoryError> {
        if !frame_bytes.is_power_of_two() || !(512..=HUGE_PAGE_BYTES).contains(&frame_bytes) {
            return Err(MemoryError::FrameSize(frame_bytes));
        }
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        let start = given.next_multiple_of(frame_bytes);
        let wanted = (count as usize).saturating_mul(frame_bytes);
        let left = self.0.bytes.saturating_sub(start);
        if wanted > left {
            return Err(MemoryError::Budget { wanted, left });
        }
        *given = start + wanted;
        // SAFETY: `start` is within the mapping, or at its end if nothing is wanted.
        let base = unsafe { self.0.base.add(start) };
        Ok(Pool::new(Arc::clone(&self.0), base, count, frame_bytes))
    }

    /// Takes all of the budget from the system, in a thread of its own: who writes to a frame for
    /// the first time then need not wait for that. It stops when the memory is no longer in use or
    /// the machine has little left; in that case it calls `short` with the bytes that it has taken,
    /// which are also the thread's result.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn prepare(
        &self,
        short: impl FnOnce(usize) + Send + 'static,
    ) -> io::Result<JoinHandle<usize>> {
        let mapping = Arc::downgrade(&self.0);
        let thread = thread::Builder::new().name("undercroft-memory".to_owned());
        let bytes = self.0.bytes;
        thread.spawn(move || {
            let done = prepare(&mapping);
            let is_wanted = |mapping: Arc<Mapping>| !mapping.is_cut.load(Ordering::Relaxed);
            if done < bytes && mapping.upgrade().is_some_and(is_wanted) {
                short(done);
            }
            done
        })
    }

    /// Bytes of the budget.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

impl Mapping {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the whole pages within a part of a pool, whose first byte is at `pool`, back to the
    /// system. Nobody may hold a frame of that part; its bytes are zero afterwards.
    pub(crate) fn give_back(&self, pool: NonNull<u8>, part: Range<usize>) {
        let start = pool.as_ptr().addr() - self.base.as_ptr().addr();
        let (from, to) = (start + part.start, start + part.end);
        assert!(from <= to && to <= self.bytes, "a part of the mapping");
        self.is_cut.store(true, Ordering::Relaxed);
        // Beside the part lie frames in use: a page is given back as a whole.
        let page = page_size();
        let (from, to) = (from.next_multiple_of(page), to / page * page);
        if from < to {
            // SAFETY: whole pages within the mapping, which starts with a page. The caller's lock
            // keeps their frames from being given out, and nobody holds one. They read as zeroes
            // afterwards, and so stay initialised (rule 2).
            let _ = unsafe {
                let start = self.base.add(from).as_ptr().cast();
                madvise(start, to - from, Advice::LinuxDontNeed)
            };
        }
    }

    /// Takes a huge page, the one `at` so many bytes from the start, from the system: whether it
    /// could be had. Not after a part was given back.
    pub(crate) fn populate(&self, at: usize) -> bool {
        assert!(at % HUGE_PAGE_BYTES == 0 && at < self.bytes, "a huge page of the mapping");
        if self.is_cut.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: the page lies within the mapping, whose base is page-aligned and whose length is
        // a multiple of a huge page. The advice changes no content, whoever writes there meanwhile.
        let advised = unsafe {
            let page = self.base.add(at).as_ptr().cast();
            madvise(page, HUGE_PAGE_BYTES, Advice::LinuxPopulateWrite)
        };
        advised.is_ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: pools hold this mapping, and handles hold their pool (rule 1): nobody is left
        // who could use the memory. Base and length are those of the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
