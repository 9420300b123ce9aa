//! Shared memory as words that any process may change at any time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A shared mapping, seen as 64-bit words.
pub struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is reached through atomic operations only, and stays mapped as long as the
// value lives, whichever thread has it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` (a multiple of 8) of a file, to write to it or only to read.
    ///
    /// # Errors
    /// The system's, as when the process may not have so much address space.
    pub fn of_file(file: &File, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("not at 0"), words: bytes / 8 })
    }

    /// Memory without a file, shared over forks.
    ///
    /// # Errors
    /// The system's.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("not at 0"), words: bytes / 8 })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Some of the words.
    ///
    /// # Panics
    /// If they are not in the mapping.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        assert!(range.start <= range.end && range.end <= self.words, "words {range:?}");
        // SAFETY: the range lies in the mapping, which is page-aligned and lives as long as
        // `self`; every bit pattern is a valid word; all access is atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// One half of a word, for the system's futex calls.
    ///
    /// # Panics
    /// If it is not in the mapping.
    pub fn futex(&self, word: usize) -> &AtomicU32 {
        let word = &self.words(word..word + 1)[0];
        // SAFETY: the first half of a word is aligned and valid for as long as the word; the word
        // is used in no other way.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}
