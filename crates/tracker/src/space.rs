//! The address space to which an address belongs. Space 0 consists of the first process and all
//! memory that its children share with it; the private memory of a child is a space of its own. If
//! only shared memory counts, the private memory of the first process does not count either.
//!
//! Memory that children map and share among themselves is not recognised; it counts as private.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::read;

use crate::clock::now_us;
use crate::filter;
use crate::segment::layout::{CREATOR, SENDER, SPACES};
use crate::segment::{Segment, is_alive};
use crate::settings::Frames;

/// Most shared mappings that are distinguished; the largest ones are used.
const RANGES_MAX: usize = 64;
/// Smaller mappings are not caches.
const RANGE_MIN: u64 = 64 << 10;
/// Interval of further searches for shared memory, because the first process may share more at any
/// time.
const AGAIN_US: u64 = 1_000_000;

const UNKNOWN: u32 = 0;
const KNOWN: u32 = 1;
const BUSY: u32 = 2;

/// What is known about the memory of this process.
pub(crate) struct Memory {
    is_first: AtomicBool,
    state: AtomicU32,
    /// When the mappings were last read.
    looked_us: AtomicU64,
    /// The space of its private memory plus 1; 0 if that memory does not count.
    private: AtomicU32,
    shared: [[AtomicU64; 2]; RANGES_MAX],
}

impl Memory {
    pub(crate) const fn of_first_process() -> Memory {
        Memory {
            is_first: AtomicBool::new(true),
            state: AtomicU32::new(UNKNOWN),
            looked_us: AtomicU64::new(0),
            private: AtomicU32::new(0),
            shared: [const { [AtomicU64::new(0), AtomicU64::new(0)] }; RANGES_MAX],
        }
    }

    /// Call in a child after a fork.
    pub(crate) fn forked(&self) {
        self.is_first.store(false, Relaxed);
        self.state.store(UNKNOWN, Release);
    }

    pub(crate) fn is_first_process(&self) -> bool {
        self.is_first.load(Relaxed)
    }

    /// The space of an address; `None` if the memory there does not count.
    #[inline]
    pub(crate) fn space(&self, segment: &Segment, frames: Frames, address: u64) -> Option<u16> {
        if self.is_first_process() {
            if frames == Frames::All { Some(0) } else { self.of_first(segment, address) }
        } else if self.state.load(Acquire) == KNOWN || self.find_out(segment, frames) {
            self.known(address)
        } else {
            None
        }
    }

    /// The space in the first process, if only shared memory counts.
    fn of_first(&self, segment: &Segment, address: u64) -> Option<u16> {
        let found = if self.state.load(Acquire) == KNOWN { self.known(address) } else { None };
        let due = self.looked_us.load(Relaxed) + AGAIN_US;
        if found.is_some() || now_us() < due || !self.find_out(segment, Frames::Shared) {
            return found;
        }
        self.known(address)
    }

    /// The writable mappings of space 0 in this process, ordered by address: in the first process
    /// all, otherwise the shared ones.
    pub(crate) fn mappings(&self) -> Vec<Range<u64>> {
        let (all, mut list) = (self.is_first_process(), Vec::new());
        mappings(|found| {
            if all || found.is_shared {
                list.push(found.bytes);
            }
        });
        list
    }

    fn known(&self, address: u64) -> Option<u16> {
        for range in &self.shared {
            let [start, end] = [range[0].load(Relaxed), range[1].load(Relaxed)];
            if end == 0 {
                break;
            }
            if (start..end).contains(&address) {
                return Some(0);
            }
        }
        let private = self.private.load(Relaxed).checked_sub(1)?;
        u16::try_from(private).ok()
    }

    /// Reads the mappings. One thread does this; others go without the result meanwhile. Returns
    /// whether it is known now.
    #[cold]
    fn find_out(&self, segment: &Segment, frames: Frames) -> bool {
        let state = self.state.load(Acquire);
        let Some(_permit) = filter::may_call() else { return state == KNOWN };
        let begins =
            state != BUSY && self.state.compare_exchange(state, BUSY, AcqRel, Relaxed).is_ok();
        if !begins {
            return self.state.load(Acquire) == KNOWN;
        }
        let mut count = 0;
        let each = |found: Mapping| {
            let Range { start, end } = found.bytes;
            if !found.is_shared || end - start < RANGE_MIN {
                return;
            }
            let place = if count < RANGES_MAX {
                count += 1;
                count - 1
            } else {
                let size = |range: &[AtomicU64; 2]| range[1].load(Relaxed) - range[0].load(Relaxed);
                let least = (0..RANGES_MAX).min_by_key(|at| size(&self.shared[*at])).unwrap_or(0);
                if size(&self.shared[least]) >= end - start {
                    return;
                }
                least
            };
            self.shared[place][0].store(start, Relaxed);
            self.shared[place][1].store(end, Relaxed);
        };
        mappings(each);
        if let Some(range) = self.shared.get(count) {
            range[1].store(0, Relaxed);
        }
        let private = if frames == Frames::All { claim(segment) } else { None };
        self.private.store(private.map_or(0, |space| u32::from(space) + 1), Relaxed);
        self.looked_us.store(now_us(), Relaxed);
        self.state.store(KNOWN, Release);
        true
    }
}

/// Claims a space for the private memory of this process; `None` if all are taken.
pub(crate) fn claim(segment: &Segment) -> Option<u16> {
    let me = u64::from(std::process::id());
    let spaces = &segment.header()[SPACES];
    let nth = |at: usize| (me as usize + at) % spaces.len();
    let is_ours = |at: &usize| {
        let claimed = spaces[nth(*at)].compare_exchange(0, me, AcqRel, Acquire);
        claimed.is_ok() || claimed == Err(me)
    };
    let at = (0..spaces.len()).find(is_ours)?;
    u16::try_from(nth(at) + 1).ok()
}

/// Whether a process of the program still exists.
pub(crate) fn is_in_use(segment: &Segment) -> bool {
    let first = [CREATOR, SENDER].map(|word| segment.word(word).load(Acquire));
    first.into_iter().any(|pid| pid != 0 && is_alive(pid)) || any_alive(segment)
}

/// Whether any forked process still exists.
pub(crate) fn any_alive(segment: &Segment) -> bool {
    segment.header()[SPACES].iter().any(|pid| is_alive(pid.load(Acquire)))
}

/// Spaces whose processes have ended.
pub(crate) fn dead(segment: &Segment) -> Vec<u16> {
    let spaces = segment.header()[SPACES].iter().zip(1..);
    let is_dead = |pid: u64| pid != 0 && !is_alive(pid);
    spaces.filter(|(pid, _)| is_dead(pid.load(Acquire))).map(|(_, space)| space).collect()
}

/// Releases a space.
pub(crate) fn free(segment: &Segment, space: u16) {
    segment.header()[SPACES][usize::from(space) - 1].store(0, Release);
}

/// A writable mapping.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    bytes: Range<u64>,
    is_shared: bool,
}

/// Calls `each` with every writable mapping of this process. It does not allocate, because it runs
/// in calls of the program.
fn mappings(mut each: impl FnMut(Mapping)) {
    const MAPS: &CStr = c"/proc/self/maps";
    let Ok(file) = openat(CWD, MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    // The needed fields are at the beginning of each line.
    let mut head = [0_u8; 64];
    let mut length = 0;
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = read(&file, &mut buffer) {
        for &byte in &buffer[..count] {
            if byte != b'\n' {
                if length < head.len() {
                    head[length] = byte;
                    length += 1;
                }
                continue;
            }
            if let Some(found) = mapping(&head[..length]) {
                each(found);
            }
            length = 0;
        }
    }
}

/// Parses a line: `7f0000000000-7f0000001000 rw-s ...`
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let protection = words.next()?.as_bytes();
    let bytes = hex(start)?..hex(end)?;
    let is_shared = protection.get(3) == Some(&b's');
    (protection.get(1) == Some(&b'w')).then_some(Mapping { bytes, is_shared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_among_the_mappings() {
        let found = |is_shared| Some(Mapping { bytes: 0x7f00..0x7f10, is_shared });
        assert_eq!(mapping(b"7f00-7f10 rw-s 0 0:1 9 /x"), found(true));
        assert_eq!(mapping(b"7f00-7f10 rw-p 0 0:1 9"), found(false));
        assert_eq!(mapping(b"7f00-7f10 r--s 0 0:1 9"), None);
        assert_eq!(mapping(b"nonsense"), None);
        let segment = Segment::anonymous(1 << 20).unwrap();
        let shared = std::ptr::from_ref(segment.word(0)) as u64;
        let private = Box::new(0_u64);
        let private = std::ptr::from_ref(&*private) as u64;
        let memory = Memory::of_first_process();
        let has = |at| memory.mappings().iter().any(|bytes| bytes.contains(&at));
        assert!(has(shared) && has(private));
        assert!(memory.mappings().is_sorted_by_key(|bytes| bytes.start));
        memory.forked();
        assert!(has(shared) && !has(private));
    }

    #[test]
    fn private_memory_of_the_first_process_counts_only_if_all_does() {
        let segment = Segment::anonymous(1 << 20).unwrap();
        let at = |word: &AtomicU64| std::ptr::from_ref(word) as u64;
        let (shared, private) = (at(segment.word(0)), at(&AtomicU64::new(0)));
        let memory = Memory::of_first_process();
        assert_eq!(memory.space(&segment, Frames::All, private), Some(0));
        assert_eq!(memory.space(&segment, Frames::Shared, private), None);
        assert_eq!(memory.space(&segment, Frames::Shared, shared), Some(0));
        // Memory shared later is found soon.
        let another = Segment::anonymous(1 << 20).unwrap();
        let later = at(another.word(0));
        while memory.space(&segment, Frames::Shared, later).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(memory.space(&segment, Frames::Shared, private), None);
        memory.forked();
        assert_eq!(memory.space(&segment, Frames::Shared, shared), Some(0));
        assert_eq!(memory.space(&segment, Frames::Shared, private), None);
    }
}
