//! A pool of equal frames, and the handles to them. The numbered rules are those of lib.rs.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::process;
use std::ptr::NonNull;

use crate::memory::Mapping;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More handles than this to one frame are a leak; beyond lies the overflow of the count.
const HANDLES_MAX: u32 = 1 << 30;

/// A number of frames of one size.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    base: NonNull<u8>,
    frame_bytes: usize,
    counts: Box<[AtomicU32]>,
    /// Frames from this number on are no longer given out. Changed under the lock of `free`.
    limit: AtomicU32,
    free: Mutex<Free>,
    /// Keeps the memory mapped (rule 1).
    mapping: Arc<Mapping>,
}

/// The frames in nobody's hands.
struct Free {
    /// Those below the limit.
    ready: Vec<u32>,
    /// Those from the limit on.
    retired: Vec<u32>,
    /// Whether the memory from the limit on was given back to the system.
    is_given_back: bool,
}

// SAFETY: `base` points to memory that `_mapping` keeps, and that is reached only through handles
// under the rules 3 to 5; everything else is Send and Sync by itself.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Pool {
    /// `base` is the start of `count * frame_bytes` bytes of `mapping` that nobody else uses.
    pub(crate) fn new(m: Arc<Mapping>, base: NonNull<u8>, count: u32, frame_bytes: usize) -> Self {
        let counts = (0..count).map(|_| AtomicU32::new(0)).collect();
        // Taken from the end: the low frames first, so that a small cache stays in few pages.
        let ready = (0..count).rev().collect();
        let free = Mutex::new(Free { ready, retired: Vec::new(), is_given_back: false });
        let limit = AtomicU32::new(count);
        Self(Arc::new(Inner { base, frame_bytes, counts, limit, free, mapping: m }))
    }

    /// A free frame for writing, with whatever it held last; `None` while all are in use.
    pub fn take(&self) -> Option<FrameMut> {
        let index = self.0.free().ready.pop()?;
        // Rule 3, 0 to 1. The free list's lock orders this after the last handle's end.
        self.0.counts[index as usize].store(1, Ordering::Relaxed);
        // Rule 1: the strong count that a frame in use owns; `Handle::drop` takes it back.
        let pool = Arc::into_raw(Arc::clone(&self.0));
        // SAFETY: the pointer of an `Arc` is not null.
        let pool = unsafe { NonNull::new_unchecked(pool.cast_mut()) };
        Some(FrameMut { handle: Handle { pool, index } })
    }

    /// Frames that are in nobody's hands just now.
    pub fn free_count(&self) -> usize {
        self.0.free().ready.len()
    }

    /// Frames that are given out, or may be.
    pub fn count(&self) -> u32 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the number of frames that are given out; at most those that the pool was made with.
    /// Frames beyond it stay valid as long as somebody holds them. Returns the number of frames
    /// now.
    pub fn resize(&self, count: u32) -> u32 {
        let mut free = self.0.free();
        let (before, after) = (self.count(), count.min(self.0.counts.len() as u32));
        self.0.limit.store(after, Ordering::Relaxed);
        let Free { ready, retired, is_given_back } = &mut *free;
        if after < before {
            retired.extend(ready.iter().filter(|&&index| index >= after));
            ready.retain(|&index| index < after);
            *is_given_back = false;
        } else {
            ready.extend(retired.iter().rev().filter(|&&index| index < after));
            retired.retain(|&index| index >= after);
        }
        after
    }

    /// Frames beyond the number in use whose memory is not the system's yet.
    pub fn surplus(&self) -> u32 {
        let is_given_back = self.0.free().is_given_back;
        if is_given_back { 0 } else { self.0.counts.len() as u32 - self.count() }
    }

    /// Gives the memory of the frames beyond the number in use back to the system, when nobody
    /// holds any of them. Returns whether that is done.
    pub fn give_back(&self) -> bool {
        let mut free = self.0.free();
        let (limit, all) = (self.count(), self.0.counts.len() as u32);
        if free.retired.len() < (all - limit) as usize {
            return false;
        }
        if !free.is_given_back && limit < all {
            let at = |index: u32| index as usize * self.0.frame_bytes;
            // Under the lock, so that none of these frames is given out meanwhile (rule 4).
            self.0.mapping.give_back(self.0.base, at(limit)..at(all));
        }
        free.is_given_back = true;
        true
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.0.frame_bytes
    }
}

impl Inner {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back a frame whose last handle is gone.
    fn take_back(&self, index: u32) {
        let mut free = self.free();
        if index < self.limit.load(Ordering::Relaxed) {
            free.ready.push(index);
        } else {
            free.retired.push(index);
        }
    }
}

/// One counted reference to a frame.
struct Handle {
    /// Made from the `Arc` of a pool; alive by rule 1 as long as the handle is.
    pool: NonNull<Inner>,
    index: u32,
}

// SAFETY: a handle is a counted reference to a `Send + Sync` value; the count is atomic.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn inner(&self) -> &Inner {
        // SAFETY: rule 1: this handle's frame is not free, so it owns a strong count of the pool.
        unsafe { self.pool.as_ref() }
    }

    fn count(&self) -> &AtomicU32 {
        &self.inner().counts[self.index as usize]
    }

    /// The bytes of the frame.
    fn bytes(&self) -> NonNull<[u8]> {
        let Inner { base, frame_bytes, .. } = *self.inner();
        // SAFETY: rule 2: the index is below the pool's count of frames.
        let start = unsafe { base.add(self.index as usize * frame_bytes) };
        NonNull::slice_from_raw_parts(start, frame_bytes)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        if self.count().fetch_add(1, Ordering::Relaxed) >= HANDLES_MAX {
            // As `Arc` does: a count that overflows would free a frame in use.
            process::abort();
        }
        Self { pool: self.pool, index: self.index }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Rule 5: what the other handles read happened before the next owner writes. A fence would
        // do, but ThreadSanitizer knows nothing of fences.
        self.count().load(Ordering::Acquire);
        self.inner().take_back(self.index);
        // SAFETY: `take` forgot one `Arc` of this pool for the frame, which is now free again.
        // Since another thread may take the frame at once and forget its own, only the number
        // of counts matters, not which is whose.
        drop(unsafe { Arc::from_raw(self.pool.as_ptr()) });
    }
}

/// The only handle to a frame: may write.
pub struct FrameMut {
    handle: Handle,
}

impl FrameMut {
    /// From now on the frame is only read, by any number of handles.
    pub fn freeze(self) -> Frame {
        Frame { handle: self.handle }
    }
}

impl Deref for FrameMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame's bytes are initialised (rule 2) and nobody writes them (rule 4).
        unsafe { self.handle.bytes().as_ref() }
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this is the only handle (rule 4), borrowed mutably; initialised by rule 2.
        unsafe { self.handle.bytes().as_mut() }
    }
}

impl AsMut<[u8]> for FrameMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// One of the handles to a frame that is only read.
#[derive(Clone)]
pub struct Frame {
    handle: Handle,
}

impl Frame {
    /// The right to write, if this is the only handle; else the handle back.
    ///
    /// # Errors
    /// Somebody else may be reading the frame.
    pub fn try_into_mut(self) -> Result<FrameMut, Self> {
        // Rule 5: Acquire, against the Release of handles that went.
        if self.handle.count().load(Ordering::Acquire) == 1 {
            Ok(FrameMut { handle: self.handle })
        } else {
            Err(self)
        }
    }

    /// Whether its pool has shrunk, and no longer gives this frame out: its holder should move what
    /// is in it elsewhere.
    pub fn is_surplus(&self) -> bool {
        self.handle.index >= self.handle.inner().limit.load(Ordering::Relaxed)
    }

    /// Whether others hold the frame too.
    pub fn is_shared(&self) -> bool {
        self.handle.count().load(Ordering::Acquire) != 1
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the frame's bytes are initialised (rule 2), and while a `Frame` exists there is
        // no `FrameMut` of it (rule 4), so nobody writes.
        unsafe { self.handle.bytes().as_ref() }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", self.handle.index)
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameMut({})", self.handle.index)
    }
}
