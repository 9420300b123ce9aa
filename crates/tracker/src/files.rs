//! The tracked files, by device, inode and time of birth, in shared memory. An inode that is reused
//! for another file counts as another file, so that `unlink` need not be observed.
//!
//! Entries are written when a file is first opened, under a lock that records its owner; the lock
//! of a dead process is taken over. Readers check the entry's version before and after reading.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use undercroft_random::fibonacci;

use crate::device::{Part, Way};
use crate::segment::layout::{FILE, FILES, FILES_LOCK, FILES_MAX};
use crate::segment::{Segment, is_alive};
use crate::text;

const DEVICE: usize = 0;
const INODE: usize = 1;
const BIRTH: usize = 2;
/// Number of uses of the entry, modulo 256, in the lower 8 bits; 0 while it is free or being
/// written. Further whether the file's bytes are the volume's, and the volume's number.
const HEAD: usize = 3;
const START: usize = 4;
/// Increases when the file's position may have changed.
const CHANGES: usize = 5;
const OPENED: usize = 6;
const PATH: usize = 8;

const IS_RAW: u64 = 1 << 8;
const VOLUME_SHIFT: u32 = 16;

/// Most bytes of a tracked file's path.
pub const PATH_MAX: usize = (FILE - PATH) * 8;

/// Number of entries in which a file may be stored.
const CHOICES: usize = 8;
/// Number of attempts to take the lock.
const SPINS: usize = 2000;

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Time of birth in nanoseconds, or 0 if the file system does not tell.
    pub birth: u64,
}

/// A tracked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its identity.
    pub identity: Identity,
    /// How it maps to its volume.
    pub way: Way,
    /// Its path when it was first opened.
    pub path: Vec<u8>,
    /// Number of times that its position may have changed.
    pub changes: u64,
}

/// The tracked files of a segment.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    words: &'a [AtomicU64],
    lock: &'a AtomicU64,
}

impl<'a> Files<'a> {
    /// The files of a segment.
    pub fn new(segment: &'a Segment) -> Files<'a> {
        let words = segment.map().words(FILES..FILES + FILES_MAX * FILE);
        Files { words, lock: segment.word(FILES_LOCK) }
    }

    fn entry(&self, index: usize) -> &'a [AtomicU64] {
        &self.words[index * FILE..(index + 1) * FILE]
    }

    fn id(index: usize, head: u64) -> u32 {
        (index as u32) << 8 | (head & 0xff) as u32
    }

    /// Whether an id belongs to a file whose entry has not been reused.
    #[inline]
    pub fn is_current(&self, id: u32) -> bool {
        let index = (id >> 8) as usize;
        let (at, use_of_it) = (index * FILE + HEAD, u64::from(id & 0xff));
        let head = self.words.get(at).map_or(0, |head| head.load(Relaxed) & 0xff);
        head != 0 && head == use_of_it
    }

    /// The id of a known file.
    pub fn find(&self, identity: Identity, now_us: u64) -> Option<u32> {
        Self::choices(identity).find_map(|index| {
            let entry = self.entry(index);
            let head = entry[HEAD].load(Acquire);
            let found = head & 0xff != 0
                && entry[DEVICE].load(Relaxed) == identity.device
                && entry[INODE].load(Relaxed) == identity.inode
                && entry[BIRTH].load(Relaxed) == identity.birth
                && entry[HEAD].load(Acquire) == head;
            found.then(|| {
                entry[OPENED].store(now_us, Relaxed);
                Self::id(index, head)
            })
        })
    }

    /// The id of a file; a new file is added.
    ///
    /// Returns `None` if there is no room, or another process held the lock all the time.
    pub fn add(&self, identity: Identity, way: Way, path: &[u8], now_us: u64) -> Option<u32> {
        if path.len() > PATH_MAX {
            return None;
        }
        if let Some(id) = self.find(identity, now_us) {
            return Some(id);
        }
        let me = u64::from(std::process::id());
        let mut owner = 0;
        let mut spins = 0;
        while let Err(other) = self.lock.compare_exchange(owner, me, AcqRel, Acquire) {
            spins += 1;
            if spins == SPINS {
                return None;
            }
            // The lock of a killed process is taken over.
            owner = if spins % 64 == 0 && !is_alive(other) { other } else { 0 };
            std::hint::spin_loop();
        }
        let id =
            self.find(identity, now_us).unwrap_or_else(|| self.write(identity, way, path, now_us));
        self.lock.store(0, Release);
        Some(id)
    }

    fn choices(identity: Identity) -> impl Iterator<Item = usize> {
        let Identity { device, inode, birth } = identity;
        let hash = fibonacci(device ^ inode.rotate_left(20) ^ birth);
        // The first entry is unused, so that ids begin at 1.
        (0..CHOICES as u64).map(move |n| 1 + ((hash >> 32) + n) as usize % (FILES_MAX - 1))
    }

    /// Writes an entry, under the lock: a free one, or the one whose file was opened longest ago.
    fn write(&self, identity: Identity, way: Way, path: &[u8], now_us: u64) -> u32 {
        let opened = |index: &usize| self.entry(*index)[OPENED].load(Relaxed);
        let index = Self::choices(identity).min_by_key(opened).unwrap_or(1);
        let entry = self.entry(index);
        // The number of uses is kept elsewhere while the entry is written.
        let uses = entry[7].load(Relaxed) % 0xff + 1;
        entry[7].store(uses, Relaxed);
        entry[HEAD].store(0, Release);
        std::sync::atomic::fence(Release);
        let (is_raw, part) = match way {
            Way::Raw(part) => (IS_RAW, part),
            Way::Mapped(part) => (0, part),
        };
        entry[DEVICE].store(identity.device, Relaxed);
        entry[INODE].store(identity.inode, Relaxed);
        entry[BIRTH].store(identity.birth, Relaxed);
        entry[START].store(part.start, Relaxed);
        entry[CHANGES].store(0, Relaxed);
        entry[OPENED].store(now_us, Relaxed);
        text::store(&entry[PATH..], path);
        let head = uses | is_raw | (part.volume as u64) << VOLUME_SHIFT;
        entry[HEAD].store(head, Release);
        Self::id(index, head)
    }

    /// The number of the volume that a file is on, if the file is current.
    #[inline]
    pub fn volume(&self, id: u32) -> Option<usize> {
        let head = self.words.get((id >> 8) as usize * FILE + HEAD)?.load(Relaxed);
        (head & 0xff == u64::from(id & 0xff)).then_some((head >> VOLUME_SHIFT) as usize)
    }

    /// Records that the file's position may have changed.
    pub fn changed(&self, id: u32) {
        if self.is_current(id) {
            self.entry((id >> 8) as usize)[CHANGES].fetch_add(1, AcqRel);
        }
    }

    /// Number of times that a file's position may have changed.
    pub fn changes(&self, id: u32) -> Option<u64> {
        let current = self.is_current(id);
        current.then(|| self.entry((id >> 8) as usize)[CHANGES].load(Acquire))
    }

    /// The file with an id, if it is current.
    pub fn get(&self, id: u32) -> Option<File> {
        if !self.is_current(id) {
            return None;
        }
        let entry = self.entry((id >> 8) as usize);
        let head = entry[HEAD].load(Acquire);
        let word = |at: usize| entry[at].load(Relaxed);
        let part = Part { volume: (head >> VOLUME_SHIFT) as usize, start: word(START) };
        let file = File {
            identity: Identity { device: word(DEVICE), inode: word(INODE), birth: word(BIRTH) },
            way: if head & IS_RAW != 0 { Way::Raw(part) } else { Way::Mapped(part) },
            path: text::load(&entry[PATH..]),
            changes: word(CHANGES),
        };
        std::sync::atomic::fence(Acquire);
        let same = entry[HEAD].load(Relaxed) == head && u64::from(id & 0xff) == head & 0xff;
        same.then_some(file)
    }
}
