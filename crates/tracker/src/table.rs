//! The content table: which block is in which frame of the program's memory, and back.
//!
//! It is kept in granules of 4 KiB: a frame is 4 KiB of memory at any address, and a page of 16 KiB
//! consists of four. The rules are those of `undercroft_level::cct` with `Frames::Read` (USENIX
//! 2003, section 4; TPDS 2004, section 6), with two additions: a read of several blocks also makes
//! frames, because databases combine reads of neighbouring pages; and so does a write from a pool
//! ([`crate::pools`]).
//!
//! *Frames* are authoritative: pairs of an address and its block, in buckets of four. A frame's
//! bucket is chosen by address, with two alternatives. The block of a frame changes by one atomic
//! exchange, which returns the old block, so that exactly one caller notices each block that
//! leaves. *Links* lead from a block to its frame. A link is only a hint: it counts if the frame
//! holds that block, and it may be missing or stale. So no lock is needed, and a process killed
//! between two steps leaves at worst a missing link: a late eviction that is not noticed.
//!
//! Invariants while no call is running (checked by [`Table::check`]): frames do not overlap; a
//! block is in one frame; its link leads there, unless the link was overwritten for lack of room.

mod check;
mod links;
mod names;
mod strays;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use links::Links;
use names::{ADDRESS_BITS, ADDRESS_MASK};
pub use names::{Key, Place};
pub use strays::Strays;
use undercroft_random::mix;

use crate::segment::Segment;
use crate::segment::layout::{FRAME_BUCKET, FRAME_HEAD};

/// Bytes of a granule.
pub const GRANULE: u64 = 4096;
const GRANULE_BITS: u32 = 12;

/// Words of a head.
pub const HEAD: usize = FRAME_HEAD - 1;
/// The first 56 bytes of a granule as they were last read or written. A database may change them in
/// a frame without writing them: InnoDB marks the frames that it frees, and PostgreSQL writes pages
/// with checksums from a private copy.
pub type Head = [u64; HEAD];

/// Binary logarithm of the bytes in which the frames of a bucket begin.
const BUCKET_BYTES_BITS: u32 = 14;
/// Number of buckets in which an address may be stored.
const CHOICES: usize = 3;
/// Number of frames in a bucket.
const WAYS: usize = FRAME_BUCKET / 2;

/// The word of a frame without a block.
const EMPTY: u64 = 0;

/// Receives what leaves the table.
pub trait Sink {
    /// The block is no longer in any frame.
    fn evicted(&mut self, block: Key);
    /// The block had left earlier, and was read again.
    fn late(&mut self, block: Key);
    /// A page was created in a frame into which nothing was ever read.
    fn made(&mut self) {}
    /// Data were written from memory that is not a frame.
    fn no_frame(&mut self) {}
    /// A frame was forgotten for lack of room.
    fn overflowed(&mut self) {}
}

/// The content table.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    frames: &'a [AtomicU64],
    links: Links<'a>,
    /// For each frame a block and its head; empty unless a server wants contents.
    heads: &'a [AtomicU64],
}

impl<'a> Table<'a> {
    /// The table of a segment.
    #[inline]
    pub fn new(segment: &'a Segment) -> Table<'a> {
        let layout = segment.layout();
        let map = segment.map();
        let frames = map.words(layout.frames());
        let has_heads = segment.contents_are_ready();
        let heads = if has_heads { map.words(layout.heads()) } else { &[] };
        Table { frames, links: Links { words: map.words(layout.links()), frames }, heads }
    }

    /// Records that a granule was read into memory.
    #[inline]
    pub fn read(&self, place: Place, block: Key, sink: &mut impl Sink) {
        let Some(slot) = self.find(place) else {
            if let Some(other) = self.links.holder(block) {
                self.leave_late(other, block, sink);
            }
            self.clear(place.space(), place.address(), GRANULE, sink);
            self.add(place, block, sink);
            return;
        };
        let old = Key::known(self.block(slot).swap(block.word(), AcqRel));
        self.confirm(slot, place);
        if let Some(old) = old {
            // Read into the frame that held it: it had left and has come back.
            if old.clean() == block {
                return sink.late(old);
            }
            self.links.ahead(old);
        }
        if let Some(other) = self.links.add(block, slot) {
            self.leave_late(other, block, sink);
        }
        if let Some(old) = old {
            self.left(old, slot, sink);
        }
    }

    /// Records that a granule was written from memory. If that memory is a frame, the frame now
    /// holds the granule. It is a frame if something was read into it, or if it lies `in_pool`
    /// ([`crate::pools`]).
    #[inline]
    pub fn write(&self, place: Place, block: Key, in_pool: bool, sink: &mut impl Sink) {
        let holder = self.links.holder(block);
        let Some(slot) = self.find(place) else {
            if in_pool {
                return self.make(place, block, holder, sink);
            }
            sink.no_frame();
            // Written from other memory, as compressed pages are: the frame that it was read into
            // keeps it.
            if let Some(holder) = holder {
                self.mark_dirty(holder, block);
            }
            return;
        };
        if holder == Some(slot) {
            return self.mark_dirty(slot, block);
        }
        let old = self.block(slot).swap(block.dirty().word(), AcqRel);
        self.confirm(slot, place);
        match Key::known(old) {
            Some(old) if old.clean() == block => {
                self.links.add(block, slot);
                return;
            }
            Some(old) => self.left(old, slot, sink),
            None => {}
        }
        // This frame now holds the page, which was written from another frame before: it moved, and
        // was not evicted.
        if let Some(holder) = holder {
            self.forget_at(holder, block);
        }
        self.links.add(block, slot);
    }

    /// Records a page that was created in an unknown frame. If it was written from another frame
    /// before, it has moved from there.
    #[cold]
    fn make(&self, place: Place, block: Key, holder: Option<usize>, sink: &mut impl Sink) {
        if let Some(holder) = holder {
            self.forget_at(holder, block);
        }
        self.clear(place.space(), place.address(), GRANULE, sink);
        self.add(place, block.dirty(), sink);
        sink.made();
    }

    /// Records that memory was overwritten by something other than whole granules: its blocks have
    /// left.
    pub fn clear(&self, space: u16, address: u64, bytes: u64, sink: &mut impl Sink) {
        let end = address.saturating_add(bytes).min(ADDRESS_MASK);
        self.overlaps(space, address, end, |slot, _| {
            let old = self.block(slot).swap(EMPTY, AcqRel);
            self.address(slot).store(0, Release);
            if let Some(old) = Key::known(old) {
                self.left(old, slot, sink);
            }
        });
    }

    /// Forgets the frames for which `is_gone` is true, without reporting evictions. Returns the
    /// number of blocks in them.
    pub fn forget(&self, mut is_gone: impl FnMut(Place, Option<Key>) -> bool) -> u64 {
        let mut count = 0;
        for slot in 0..self.frames.len() / 2 {
            let place = self.address(slot).load(Acquire);
            let block = Key::known(self.block(slot).load(Acquire));
            if place != 0 && is_gone(Place(place), block) {
                let old = self.block(slot).swap(EMPTY, AcqRel);
                self.address(slot).store(0, Release);
                if let Some(old) = Key::known(old) {
                    self.links.remove(old, slot);
                    count += 1;
                }
            }
        }
        count
    }

    /// The block in the frame at a place, and its head if that is known.
    pub fn held(&self, place: Place) -> Option<(Key, Option<Head>)> {
        let slot = self.find(place)?;
        let block = Key::known(self.block(slot).load(Acquire))?;
        let words = self.head(slot);
        let is_its_own =
            words.first().is_some_and(|word| word.load(Acquire) == block.clean().word());
        let head = || std::array::from_fn(|word| words[1 + word].load(Relaxed));
        Some((block, is_its_own.then(head)))
    }

    /// Takes a block out of the frame at a place, if it is still there; the frame stays. Returns
    /// the block unless another frame holds it.
    pub fn take(&self, place: Place, block: Key) -> Option<Key> {
        let slot = self.find(place)?;
        let taken = self.block(slot).compare_exchange(block.word(), EMPTY, AcqRel, Relaxed);
        let old = Key::known(taken.ok()?)?;
        self.links.remove(old, slot).is_none().then_some(old)
    }

    /// Sets the head of a block that was just read into a place, or written from there; `None` if
    /// it is not known. A page may be written from a private copy: then the head is that of the
    /// frame which holds the block.
    pub fn set_head(&self, place: Place, block: Key, head: Option<Head>) {
        if self.heads.is_empty() {
            return;
        }
        let has_it = |slot: &usize| {
            Key::known(self.block(*slot).load(Acquire)).is_some_and(|b| b.clean() == block.clean())
        };
        let own = self.find(place).filter(has_it);
        let Some(slot) = own.or_else(|| self.links.holder(block)) else { return };
        let words = self.head(slot);
        // While the words change, the head is nobody's.
        words[0].store(EMPTY, Release);
        if let Some(head) = head {
            for (word, value) in words[1..].iter().zip(head) {
                word.store(value, Relaxed);
            }
            words[0].store(block.clean().word(), Release);
        }
    }

    fn head(&self, slot: usize) -> &'a [AtomicU64] {
        self.heads.get(slot * FRAME_HEAD..(slot + 1) * FRAME_HEAD).unwrap_or_default()
    }

    /// Whether a block is in a frame.
    pub fn holds(&self, block: Key) -> bool {
        self.links.holder(block).is_some()
    }

    /// The frames and their blocks.
    pub fn content(&self) -> impl Iterator<Item = (Place, Key)> + use<'a> {
        self.frames.chunks_exact(2).filter_map(|frame| {
            let (place, block) = (frame[0].load(Acquire), frame[1].load(Acquire));
            let block = Key::known(block).filter(|_| place != 0)?;
            Some((Place(place), block))
        })
    }

    fn address(&self, slot: usize) -> &'a AtomicU64 {
        &self.frames[2 * slot]
    }

    fn block(&self, slot: usize) -> &'a AtomicU64 {
        &self.frames[2 * slot + 1]
    }

    /// The first slots of the buckets in which frames at this address may be stored.
    #[inline]
    fn buckets(&self, place: u64) -> [usize; CHOICES] {
        let far = mix(place >> BUCKET_BYTES_BITS);
        [self.bucket(place), self.start(far), self.start(far >> 32)]
    }

    /// The first choice is by address, so that neighbours in memory are neighbours here; the other
    /// buckets are for collisions.
    #[inline]
    fn bucket(&self, place: u64) -> usize {
        let space = (place >> ADDRESS_BITS).wrapping_mul(0x9e37_79b9);
        self.start((place >> BUCKET_BYTES_BITS).wrapping_add(space))
    }

    #[inline]
    fn start(&self, bucket: u64) -> usize {
        (bucket as usize & (self.frames.len() / FRAME_BUCKET - 1)) * WAYS
    }

    #[inline]
    fn find(&self, place: Place) -> Option<usize> {
        let in_bucket = |start: usize| {
            (start..start + WAYS).find(|&slot| self.address(slot).load(Acquire) == place.0)
        };
        in_bucket(self.bucket(place.0))
            .or_else(|| self.buckets(place.0)[1..].iter().copied().find_map(in_bucket))
    }

    /// Calls `each` with every frame that overlaps a memory range, and its address.
    fn overlaps(&self, space: u16, start: u64, end: u64, mut each: impl FnMut(usize, u64)) {
        let tag = u64::from(space) << ADDRESS_BITS;
        let lowest = start.saturating_sub(GRANULE - 1);
        let groups = lowest >> BUCKET_BYTES_BITS..=(end.max(1) - 1) >> BUCKET_BYTES_BITS;
        for group in groups {
            for first in self.buckets(tag | group << BUCKET_BYTES_BITS) {
                for slot in first..first + WAYS {
                    let place = Place(self.address(slot).load(Acquire));
                    let inside = place.address() >= lowest && place.address() < end;
                    if place.0 != 0 && place.space() == space && inside {
                        each(slot, place.address());
                    }
                }
            }
        }
    }

    /// Call after an exchange: if the frame was given to another address meanwhile, removes the
    /// block that was stored there.
    fn confirm(&self, slot: usize, place: Place) {
        if self.address(slot).load(Acquire) != place.0 {
            self.block(slot).store(EMPTY, Release);
        }
    }

    /// Adds a frame. If there is no room, it replaces an empty frame of its buckets, or any.
    fn add(&self, place: Place, block: Key, sink: &mut impl Sink) {
        let buckets = self.buckets(place.0);
        let slots = || buckets.into_iter().flat_map(|start| start..start + WAYS);
        let claim = |slot: usize, old| {
            self.address(slot).compare_exchange(old, place.0, AcqRel, Relaxed).is_ok()
        };
        let free = slots().find(|&slot| self.address(slot).load(Acquire) == 0 && claim(slot, 0));
        let slot = free.or_else(|| {
            sink.overflowed();
            let unused = slots().find(|&slot| self.block(slot).load(Acquire) == EMPTY);
            let any = mix(place.0 ^ block.word()) as usize % (CHOICES * WAYS);
            let slot = unused.or_else(|| slots().nth(any))?;
            claim(slot, self.address(slot).load(Acquire)).then_some(slot)
        });
        let Some(slot) = slot else { return };
        // It is not known that the block of a forgotten frame has left, so no eviction is reported.
        if let Some(old) = Key::known(self.block(slot).swap(block.word(), AcqRel)) {
            self.links.remove(old, slot);
        }
        self.confirm(slot, place);
        self.links.add(block, slot);
    }

    /// A block was displaced from a frame: reports its eviction, unless another frame holds it.
    #[inline]
    fn left(&self, old: Key, slot: usize, sink: &mut impl Sink) {
        if self.links.remove(old, slot).is_none() {
            sink.evicted(old);
        }
    }

    /// A block was read: if another frame was believed to hold it, the block had left there
    /// unnoticed.
    #[cold]
    fn leave_late(&self, other: usize, block: Key, sink: &mut impl Sink) {
        if let Some(old) = self.forget_at(other, block) {
            sink.late(old);
        }
    }

    /// Removes a block from a frame; the frame stays.
    fn forget_at(&self, slot: usize, block: Key) -> Option<Key> {
        let word = self.block(slot);
        let old = Key::known(word.load(Acquire)).filter(|old| old.clean() == block)?;
        let taken = word.compare_exchange(old.word(), EMPTY, AcqRel, Relaxed).is_ok();
        self.links.remove(old, slot);
        taken.then_some(old)
    }

    fn mark_dirty(&self, slot: usize, block: Key) {
        let word = self.block(slot);
        let _ = word.compare_exchange(block.word(), block.dirty().word(), AcqRel, Relaxed);
    }
}

const _: () = assert!(1 << GRANULE_BITS == GRANULE);
