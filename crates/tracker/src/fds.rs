//! The tracked file behind each descriptor of this process. A forked process has a copy of this
//! table, as it has of the descriptors.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Descriptors from this number on are not tracked.
pub const MAX: usize = 1 << 16;

/// A tracked file whose id is not known yet.
const PENDING: u64 = (1 << 24) - 1;
const ID: u64 = (1 << 24) - 1;

/// The state of each descriptor: the file's id in the lower 24 bits, or 0, and in the upper half
/// the time, in seconds, of the last check.
static FDS: [AtomicU64; MAX] = [const { AtomicU64::new(0) }; MAX];

/// One more than the highest descriptor that was ever tracked.
static END: AtomicUsize = AtomicUsize::new(0);

/// A tracked descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(u64);

impl Fd {
    /// A descriptor whose file is determined at its first use.
    pub fn pending() -> Fd {
        Fd(PENDING)
    }

    /// A descriptor whose file was just determined.
    pub fn of(id: u32, now_s: u64) -> Fd {
        Fd(u64::from(id) & ID | now_s << 32)
    }

    /// The file's id.
    #[inline]
    pub fn id(self) -> Option<u32> {
        (self.0 & ID != PENDING).then_some((self.0 & ID) as u32)
    }

    /// Whether the last check was in another second.
    #[inline]
    pub fn is_old(self, now_s: u64) -> bool {
        self.0 >> 32 != now_s & u64::from(u32::MAX)
    }
}

#[inline]
fn word(fd: i32) -> Option<&'static AtomicU64> {
    FDS.get(usize::try_from(fd).ok()?)
}

/// The file behind a descriptor, if it is tracked.
#[inline]
pub fn get(fd: i32) -> Option<Fd> {
    let known = word(fd)?.load(Relaxed);
    if known == 0 { None } else { Some(Fd(known)) }
}

/// The tracked descriptors.
pub(crate) fn all() -> impl Iterator<Item = (i32, Fd)> {
    (0..END.load(Relaxed) as i32).filter_map(|fd| Some((fd, get(fd)?)))
}

/// Sets or removes a descriptor's entry; returns the previous one.
pub fn set(fd: i32, known: Option<Fd>) -> Option<Fd> {
    let word = word(fd)?;
    let value = known.map_or(0, |known| known.0);
    if value == 0 && word.load(Relaxed) == 0 {
        return None;
    }
    if value != 0 {
        END.fetch_max(fd as usize + 1, Relaxed);
    }
    let old = word.swap(value, Relaxed);
    (old != 0).then_some(Fd(old))
}

/// Replaces an entry if it is still equal to `old`.
pub fn replace(fd: i32, old: Fd, new: Option<Fd>) {
    if let Some(word) = word(fd) {
        let new = new.map_or(0, |new| new.0);
        let _ = word.compare_exchange(old.0, new, Relaxed, Relaxed);
    }
}
