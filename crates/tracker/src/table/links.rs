//! Links from blocks to the frames that hold them. A link is only a hint: it counts if its frame
//! holds the block, and it may be missing or stale.
//!
//! The lower half of a link names a frame, the upper half marks the block. The links of a block are
//! in two adjacent buckets, so that a call waits for few cache lines; links of neighbouring blocks
//! of a file are neighbours here.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use undercroft_random::mix;

use super::Key;
use crate::ahead;
use crate::segment::layout::LINK_BUCKET;

/// Links examined for a block.
const WAYS: usize = 2 * LINK_BUCKET;
/// Binary logarithm of the number of granules that share a place for their links: a page of 16 KiB.
const SHARED_BITS: u32 = 2;
const SHARED: u64 = (1 << SHARED_BITS) - 1;
/// Binary logarithm of the number of successive places for a range of a file (of 1 MiB).
const STRETCH_BITS: u32 = 6;
const STRETCH: u64 = (1 << STRETCH_BITS) - 1;

/// The links, and the frames that they lead to.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    pub(super) words: &'a [AtomicU64],
    pub(super) frames: &'a [AtomicU64],
}

impl<'a> Links<'a> {
    /// The mark of a block, and the place of its links.
    #[inline]
    fn mark(block: Key) -> (u64, u64) {
        let page = block.clean().word() >> SHARED_BITS;
        let stretch = mix(page >> STRETCH_BITS);
        let mark = (stretch >> 32 & !SHARED | block.word() & SHARED) << 32;
        (mark, stretch.wrapping_add(page & STRETCH))
    }

    #[inline]
    fn place(&self, at: u64) -> &'a [AtomicU64] {
        let start = (at as usize & (self.words.len() / WAYS - 1)) * WAYS;
        &self.words[start..start + WAYS]
    }

    /// Prefetches the links that calls for a block will read.
    #[inline]
    pub(super) fn ahead(&self, block: Key) {
        let place = self.place(Self::mark(block).1);
        ahead::write(&place[0]);
        ahead::write(&place[LINK_BUCKET]);
    }

    /// The frame of a link with the right mark, if it holds the block.
    #[inline]
    fn follow(&self, link: u64, block: Key) -> Option<usize> {
        let slot = (link as u32 as usize).checked_sub(1)?;
        let held = self.frames.get(2 * slot + 1)?.load(Acquire);
        (Key::known(held)?.clean() == block.clean()).then_some(slot)
    }

    /// The frame that holds a block.
    #[inline]
    pub(super) fn holder(&self, block: Key) -> Option<usize> {
        let (mark, at) = Self::mark(block);
        self.place(at).iter().find_map(|word| {
            let link = word.load(Acquire);
            if (link ^ mark) >> 32 == 0 { self.follow(link, block) } else { None }
        })
    }

    /// Adds a link from a block to the frame that holds it now. Returns another frame that is
    /// believed to hold it, too.
    #[inline]
    pub(super) fn add(&self, block: Key, slot: usize) -> Option<usize> {
        let (mark, at) = Self::mark(block);
        let links = self.place(at);
        let wanted = mark | (slot as u64 + 1);
        let (mut is_there, mut free, mut other) = (false, None, None);
        for word in links {
            let link = word.load(Acquire);
            if link == 0 {
                free = free.or(Some(word));
            } else if link == wanted {
                is_there = true;
            } else if (link ^ mark) >> 32 == 0 {
                other = other.or_else(|| self.follow(link, block));
            }
        }
        if !is_there {
            let word = free.unwrap_or_else(|| self.least_needed(links, wanted));
            word.store(wanted, Release);
        }
        other
    }

    /// Removes the link from a block to a frame that it has left. Returns another frame that holds
    /// the block.
    #[inline]
    pub(super) fn remove(&self, block: Key, slot: usize) -> Option<usize> {
        let (mark, at) = Self::mark(block);
        let mut other = None;
        for word in self.place(at) {
            let link = word.load(Acquire);
            if (link ^ mark) >> 32 != 0 {
                continue;
            }
            if link == mark | (slot as u64 + 1) {
                let _ = word.compare_exchange(link, 0, AcqRel, Relaxed);
            } else {
                other = other.or_else(|| self.follow(link, block));
            }
        }
        other
    }

    /// The link to replace if all are in use: a stale one, or any.
    #[cold]
    fn least_needed(&self, links: &'a [AtomicU64], wanted: u64) -> &'a AtomicU64 {
        let is_stale = |word: &&AtomicU64| {
            let link = word.load(Acquire);
            let slot = (link as u32 as usize).wrapping_sub(1);
            let held = self.frames.get(slot.wrapping_mul(2).wrapping_add(1));
            let held = held.and_then(|word| Key::known(word.load(Acquire)));
            held.is_none_or(|held| Self::mark(held).0 >> 32 != link >> 32)
        };
        links.iter().find(is_stale).unwrap_or(&links[mix(wanted) as usize % WAYS])
    }
}
