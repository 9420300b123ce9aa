//! Shared memory as words that any process may change at any time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Words of the smallest page.
const PAGE: usize = 4096 / 8;

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
    /// Maps the first `bytes` bytes (a multiple of 8) of a file, writable or read-only.
    ///
    /// # Errors
    /// The error of the system, for example if the process may not use that much address space.
    pub fn of_file(file: &File, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("not at 0"), words: bytes / 8 })
    }

    /// Maps memory without a file, shared with forked processes.
    ///
    /// # Errors
    /// The error of the system.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED)? };
        Ok(Mapping { start: NonNull::new(start.cast()).expect("not at 0"), words: bytes / 8 })
    }

    /// The words of a range.
    ///
    /// # Panics
    /// The range is not within the mapping.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        assert!(range.start <= range.end && range.end <= self.words, "words {range:?}");
        // SAFETY: the range lies in the mapping, which is page-aligned and lives as long as
        // `self`; every bit pattern is a valid word; all access is atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// Allocates the pages of some words, also of a file that this process may no longer open.
    ///
    /// # Errors
    /// The error of the system: no room, or Linux before 5.14.
    ///
    /// # Panics
    /// The range is not within the mapping.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let words = self.words(range.start / PAGE * PAGE..range.end);
        // SAFETY: the range lies in the mapping; allocating a page changes no content.
        unsafe {
            let start = words.as_ptr().cast_mut().cast();
            Ok(madvise(start, words.len() * 8, Advice::LinuxPopulateWrite)?)
        }
    }

    /// The first half of a word, for futex calls.
    ///
    /// # Panics
    /// The word is not within the mapping.
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
