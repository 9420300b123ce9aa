//! The content table: which block is in which frame of the program's memory, and back.
//!
//! It is kept in granules of 4 KiB: a frame is 4 KiB of memory at any address, a page of 16 KiB is
//! four of them. The rules are those of `undercroft_cache::cct` with `Frames::Read` (USENIX 2003,
//! section 4; TPDS 2004, section 6), but that a read of several blocks makes frames, too:
//! databases combine reads of neighbouring pages.
//!
//! *Frames* are the truth: pairs of an address and the block there, in buckets of four by address
//! with two other buckets for each. A block changes by one atomic exchange, which says what was
//! there, so that each block that leaves is noticed by exactly one caller. *Links* lead from a
//! block to its frame. A link is a hint: it is believed when the frame has that block, and may be
//! missing or stale. So there is no lock, and a process killed between two steps leaves at worst a
//! missing link: a late eviction that is not noticed.
//!
//! Invariants while nobody is at work (checked by [`Table::check`]): frames do not overlap; a
//! block is in one frame; its link leads there unless it was overwritten for want of room.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::segment::Segment;
use crate::segment::layout::{FRAME_BUCKET, LINK_BUCKET};

/// Bytes of a granule.
pub const GRANULE: u64 = 4096;
const GRANULE_BITS: u32 = 12;

/// Bits of an address; above them is the number of its space.
const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
/// Frames of a bucket begin in as many bytes.
const BUCKET_BYTES_BITS: u32 = 14;
/// Buckets in which an address may be.
const CHOICES: usize = 3;
/// Frames in a bucket.
const WAYS: usize = FRAME_BUCKET / 2;
/// Links looked at for a block: two buckets side by side.
const LINK_WAYS: usize = 2 * LINK_BUCKET;

/// No block.
const EMPTY: u64 = 0;

/// A granule of a file: the file's id in the upper 24 bits, then whether it was written since it
/// was read, then its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    const DIRTY: u64 = 1 << 39;
    const NUMBERS: u64 = 1 << 39;

    /// Of a file's id (1 to 2^24 - 1) and a granule's number; none if either is out of range.
    pub fn new(file: u32, granule: u64) -> Option<Key> {
        let fits = (1..1 << 24).contains(&file) && granule < Self::NUMBERS;
        fits.then_some(Key(u64::from(file) << 40 | granule))
    }

    /// The file's id.
    pub fn file(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Number of the granule in its file.
    pub fn granule(self) -> u64 {
        self.0 & (Self::NUMBERS - 1)
    }

    /// Whether it was written since it was read.
    pub fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    /// As written since it was read.
    pub fn dirty(self) -> Key {
        Key(self.0 | Self::DIRTY)
    }

    /// As not written since.
    pub fn clean(self) -> Key {
        Key(self.0 & !Self::DIRTY)
    }

    /// As a word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// From a word.
    pub fn from_word(word: u64) -> Key {
        Key(word)
    }

    fn known(word: u64) -> Option<Key> {
        (word != EMPTY).then_some(Key(word))
    }
}

/// A frame's address: which address space, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// None for addresses that the table cannot name: 0, and those above 2^48.
    pub fn new(space: u16, address: u64) -> Option<Place> {
        let fits = (1..1 << ADDRESS_BITS).contains(&address);
        fits.then_some(Place(u64::from(space) << ADDRESS_BITS | address))
    }

    /// The address space.
    pub fn space(self) -> u16 {
        (self.0 >> ADDRESS_BITS) as u16
    }

    /// The address.
    pub fn address(self) -> u64 {
        self.0 & ADDRESS_MASK
    }
}

/// Who wants to know what leaves the table.
pub trait Sink {
    /// The block is in no frame any more.
    fn evicted(&mut self, block: Key);
    /// The block had left some time before, and was read again.
    fn late(&mut self, block: Key);
    /// Memory that is no frame was written from.
    fn no_frame(&mut self) {}
    /// A frame was forgotten for want of room.
    fn overflowed(&mut self) {}
}

/// The table.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    frames: &'a [AtomicU64],
    links: &'a [AtomicU64],
}

fn mix(word: u64) -> u64 {
    // The finaliser of splitmix64.
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl<'a> Table<'a> {
    /// The table of a segment.
    #[inline]
    pub fn new(segment: &'a Segment) -> Table<'a> {
        let layout = segment.layout();
        let map = segment.map();
        Table { frames: map.words(layout.frames()), links: map.words(layout.links()) }
    }

    /// A granule was read into memory.
    #[inline]
    pub fn read(&self, place: Place, block: Key, sink: &mut impl Sink) {
        let Some(slot) = self.find(place) else {
            self.leave_late(block, usize::MAX, sink);
            self.clear(place.space(), place.address(), GRANULE, sink);
            self.add(place, block, sink);
            return;
        };
        let old = self.block(slot).swap(block.word(), AcqRel);
        self.confirm(slot, place);
        match Key::known(old) {
            // Read into the frame where it was: it had left and comes back.
            Some(old) if old.clean() == block => return sink.late(old),
            Some(old) => self.left(old, slot, sink),
            None => {}
        }
        self.leave_late(block, slot, sink);
        self.link(block, slot);
    }

    /// A granule was written from memory: if that is a frame, the frame holds it.
    #[inline]
    pub fn write(&self, place: Place, block: Key, sink: &mut impl Sink) {
        let holder = self.holder(block);
        let Some(slot) = self.find(place) else {
            sink.no_frame();
            // From elsewhere, as compressed pages are: where it was read to is as it was.
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
            Some(old) if old.clean() == block => return self.link(block, slot),
            Some(old) => self.left(old, slot, &mut *sink),
            None => {}
        }
        // A new page in this frame, which was written from another before: moved, not evicted.
        if let Some(holder) = holder {
            self.forget_at(holder, block);
        }
        self.link(block, slot);
    }

    /// Memory was overwritten with what is no whole granule: what it held has left.
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

    /// Forgets the frames for which a question is answered with yes, and says nothing about it.
    pub fn forget(&self, mut is_gone: impl FnMut(Place, Option<Key>) -> bool) {
        for slot in 0..self.frames.len() / 2 {
            let place = self.address(slot).load(Acquire);
            let block = Key::known(self.block(slot).load(Acquire));
            if place != 0 && is_gone(Place(place), block) {
                let old = self.block(slot).swap(EMPTY, AcqRel);
                self.address(slot).store(0, Release);
                if let Some(old) = Key::known(old) {
                    self.unlink(old, slot);
                }
            }
        }
    }

    /// Whether a block is in a frame.
    pub fn holds(&self, block: Key) -> bool {
        self.holder(block).is_some()
    }

    /// What is in the frames.
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

    /// First slots of the buckets in which frames may be that begin like this one. The first is
    /// by address, so that neighbours in memory are neighbours here; the others are for what
    /// collides there.
    #[inline]
    fn buckets(&self, place: u64) -> [usize; CHOICES] {
        let group = place >> BUCKET_BYTES_BITS;
        let near = group.wrapping_add((place >> ADDRESS_BITS).wrapping_mul(0x9e37_79b9));
        let far = mix(group);
        let mask = self.frames.len() / FRAME_BUCKET - 1;
        let start = |bucket: u64| (bucket as usize & mask) * WAYS;
        [start(near), start(far), start(far >> 32)]
    }

    #[inline]
    fn find(&self, place: Place) -> Option<usize> {
        for start in self.buckets(place.0) {
            for slot in start..start + WAYS {
                if self.address(slot).load(Acquire) == place.0 {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// Calls with every frame that overlaps some memory, and its address.
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

    /// After an exchange: if the frame was given to another address meanwhile, what was put there
    /// is not believed.
    fn confirm(&self, slot: usize, place: Place) {
        if self.address(slot).load(Acquire) != place.0 {
            self.block(slot).store(EMPTY, Release);
        }
    }

    /// A new frame. If there is no room, an unused one of its buckets goes, or any.
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
        // What a forgotten frame held is not known to have left: nothing is said.
        if let Some(old) = Key::known(self.block(slot).swap(block.word(), AcqRel)) {
            self.unlink(old, slot);
        }
        self.confirm(slot, place);
        self.link(block, slot);
    }

    /// A block was displaced from a frame.
    #[inline]
    fn left(&self, old: Key, slot: usize, sink: &mut impl Sink) {
        self.unlink(old, slot);
        if !self.holds(old.clean()) {
            sink.evicted(old);
        }
    }

    /// A block was read: if a frame other than `but` is believed to hold it, that was wrong.
    #[inline]
    fn leave_late(&self, block: Key, but: usize, sink: &mut impl Sink) {
        if let Some(other) = self.holder(block).filter(|other| *other != but) {
            if let Some(old) = self.forget_at(other, block) {
                sink.late(old);
            }
        }
    }

    /// Takes a block out of a frame, which stays one.
    fn forget_at(&self, slot: usize, block: Key) -> Option<Key> {
        let word = self.block(slot);
        let old = Key::known(word.load(Acquire)).filter(|old| old.clean() == block)?;
        let taken = word.compare_exchange(old.word(), EMPTY, AcqRel, Relaxed).is_ok();
        self.unlink(old, slot);
        taken.then_some(old)
    }

    fn mark_dirty(&self, slot: usize, block: Key) {
        let word = self.block(slot);
        let _ = word.compare_exchange(block.word(), block.dirty().word(), AcqRel, Relaxed);
    }

    /// Where the links of a block are, and what marks them. Granules of 16 KiB share a place.
    #[inline]
    fn link_place(&self, block: Key) -> (usize, u64) {
        let block = block.clean().word();
        let near = mix(block >> 2);
        let buckets = self.links.len() / LINK_WAYS;
        let start = (near as usize & (buckets - 1)) * LINK_WAYS;
        (start, (near >> 32 & !3 | block & 3) << 32)
    }

    fn tag(block: Key) -> u64 {
        let block = block.clean().word();
        (mix(block >> 2) >> 32 & !3 | block & 3) << 32
    }

    /// The frame that holds a block.
    #[inline]
    fn holder(&self, block: Key) -> Option<usize> {
        let (start, tag) = self.link_place(block);
        self.links[start..start + LINK_WAYS].iter().find_map(|link| {
            let link = link.load(Acquire);
            let slot = (link as u32 as usize).checked_sub(1).filter(|_| link >> 32 == tag >> 32)?;
            let held = self.frames.get(2 * slot + 1)?.load(Acquire);
            (Key::known(held)?.clean() == block.clean()).then_some(slot)
        })
    }

    #[inline]
    fn link(&self, block: Key, slot: usize) {
        let (start, tag) = self.link_place(block);
        let links = &self.links[start..start + LINK_WAYS];
        let link = tag | (slot as u64 + 1);
        let mut free = None;
        for (at, word) in links.iter().enumerate() {
            let there = word.load(Acquire);
            if there == link {
                return;
            }
            if free.is_none() && there == 0 {
                free = Some(at);
            }
        }
        let stale = || links.iter().position(|word| !self.leads_anywhere(word.load(Acquire)));
        let at = free.or_else(stale).unwrap_or((mix(link) as usize) % LINK_WAYS);
        links[at].store(link, Release);
    }

    /// Whether the frame that a link names may still hold its block.
    fn leads_anywhere(&self, link: u64) -> bool {
        let slot = (link as u32 as usize).wrapping_sub(1);
        let held = self.frames.get(slot.wrapping_mul(2).wrapping_add(1));
        let held = held.and_then(|word| Key::known(word.load(Acquire)));
        held.is_some_and(|held| Self::tag(held) == link >> 32 << 32)
    }

    #[inline]
    fn unlink(&self, block: Key, slot: usize) {
        let (start, tag) = self.link_place(block);
        let link = tag | (slot as u64 + 1);
        for word in &self.links[start..start + LINK_WAYS] {
            if word.load(Acquire) == link {
                let _ = word.compare_exchange(link, 0, AcqRel, Relaxed);
            }
        }
    }

    /// Checks the invariants in the head of this file, while nobody is at work.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn check(&self) -> Result<(), String> {
        let addresses = (0..self.frames.len() / 2).map(|slot| (self.address(slot), slot));
        let mut places: Vec<_> = addresses
            .map(|(place, slot)| (place.load(Acquire), slot))
            .filter(|p| p.0 != 0)
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let (one, two) = (Place(pair[0].0), Place(pair[1].0));
            if one.space() == two.space() && two.address() - one.address() < GRANULE {
                return Err(format!("frames overlap: {one:x?} and {two:x?}"));
            }
        }
        let mut blocks = std::collections::HashMap::new();
        for &(place, slot) in &places {
            if self.find(Place(place)) != Some(slot) {
                return Err(format!("frame {place:x} is not found"));
            }
            let Some(block) = Key::known(self.block(slot).load(Acquire)) else { continue };
            if let Some(other) = blocks.insert(block.clean(), place) {
                return Err(format!("{block:x?} is in two frames, {other:x} and {place:x}"));
            }
            if self.holder(block) != Some(slot) {
                return Err(format!("no link leads to {block:x?}"));
            }
        }
        match (0..self.frames.len() / 2).find(|&slot| {
            self.address(slot).load(Acquire) == 0 && self.block(slot).load(Acquire) != EMPTY
        }) {
            Some(slot) => Err(format!("slot {slot} holds a block and has no address")),
            None => Ok(()),
        }
    }
}

const _: () = assert!(1 << GRANULE_BITS == GRANULE);
