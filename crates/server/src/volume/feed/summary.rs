//! The Bloom summary of what a volume's cache holds, which all followers that want one share. It is
//! made in steps: each question lists some blocks of the cache and hashes them. Blocks that enter
//! or leave meanwhile are in the shards' lists of changes, which say of a block that left whether
//! it was in the summary already. So the summary is exact when it is complete, and nothing is
//! published before.

use std::collections::VecDeque;

use undercroft_hints::{Follow, Hint, publication_hints};
use undercroft_level::content::{Publication, Publisher};

use super::{BYTES_FOR_ONE, Change, Feed, HASHED_FOR_ONE};
use crate::volume::Volume;

/// Handles of the cache that one question looks at. Smaller caches are summarized at once.
const HANDLES_AT_ONCE: u32 = 8192;

/// Handles that are looked at with a shard's lock held.
const HANDLES_PER_LOCK: u32 = 256;

/// Publications kept for slow followers, at most; they are not longer together than a whole filter
/// or [`KEPT_MIN`].
const PUBLICATIONS_MAX: usize = 64;
const KEPT_MIN: usize = 64 << 10;

/// Most bits of a filter: 32 MiB.
const BITS_MAX: u32 = 1 << 28;

/// Words of a filter that are scanned for changes at the cost of one block examined.
const WORDS_FOR_ONE: u64 = 512;

#[derive(Debug)]
pub(super) struct Summary {
    publisher: Publisher,
    /// Number of followers that want it.
    pub(super) users: usize,
    /// What the first of them asked for.
    pub(super) follow: Follow,
    hashes: u64,
    /// Shard and handle from which on blocks are missing; `None`: it is complete.
    missing_from: Option<(usize, u32)>,
    /// Whether the first publication is due because there were blocks.
    any: bool,
    /// Blocks that came and went since it was begun, and at how many it may be made anew.
    changes: u64,
    capacity: u64,
    sent: VecDeque<Publication>,
    /// The records of the latest state as a whole, and its number.
    whole: Option<(u32, Vec<Hint>)>,
}

impl Feed {
    /// Begins a summary, and makes the first step.
    pub(super) fn begin_summary(&mut self, volume: &Volume, follow: Follow, users: usize) {
        let capacity = volume.now().cache_blocks;
        let most = (BITS_MAX / capacity.max(1)).clamp(1, 64);
        let (bits, hashes) = (follow.filter_bits.clamp(1, 64), follow.hashes.clamp(1, 16));
        let share = (f64::from(follow.publish_ppm) / 1e6).clamp(0.0, 1.0);
        let bits = u32::from(bits).min(most);
        let mut summary = Summary {
            publisher: Publisher::new(bits, hashes.into(), capacity, share),
            users,
            follow,
            hashes: hashes.into(),
            missing_from: None,
            any: false,
            changes: 0,
            capacity: capacity.into(),
            sent: VecDeque::new(),
            whole: None,
        };
        self.begin_to_list(volume, &mut summary);
        self.summary = Some(summary);
        self.go_on_with_summary(volume);
    }

    /// Makes a summary anew whose filter is worn.
    pub(super) fn renew_summary(&mut self, volume: &Volume) {
        let Some(mut summary) = self.summary.take() else { return };
        summary.publisher.begin_anew();
        summary.whole = None;
        self.begin_to_list(volume, &mut summary);
        self.summary = Some(summary);
    }

    /// From now on the shards note which blocks are in the summary: none yet.
    fn begin_to_list(&mut self, volume: &Volume, summary: &mut Summary) {
        for mut shard in volume.shards.each() {
            let Some(changes) = &mut shard.blocks.watchers.content_log else { continue };
            let log = std::mem::take(&mut changes.log);
            changes.summarized = Some(Vec::new());
            drop(shard);
            // Without the summary, which these are not in.
            self.take(&log);
        }
        (summary.missing_from, summary.any, summary.changes) = (Some((0, 0)), false, 0);
    }

    /// Nobody wants a summary any more.
    pub(super) fn end_summary(&mut self, volume: &Volume) {
        self.summary = None;
        for mut shard in volume.shards.each() {
            let log = &mut shard.blocks.watchers.content_log;
            log.iter_mut().for_each(|changes| changes.summarized = None);
        }
    }

    /// Adds some of the blocks that are missing in the summary.
    pub(super) fn go_on_with_summary(&mut self, volume: &Volume) {
        let Some(summary) = &mut self.summary else { return };
        let mut left = HANDLES_AT_ONCE;
        while let Some((index, from)) = summary.missing_from.filter(|_| left > 0) {
            if index == volume.shards.len() {
                summary.missing_from = None;
                if summary.any {
                    summary.publisher.ask_for_whole();
                }
                return;
            }
            let to = from + HANDLES_PER_LOCK;
            let mut shard = volume.shards.lock(index);
            let (mut blocks, end) = shard.blocks.level.cache().known().residents_within(from..to);
            if let Some(changes) = &mut shard.blocks.watchers.content_log {
                blocks.retain(|&(_, slot)| !changes.set_summarized(slot, true));
            }
            drop(shard);
            blocks.iter().for_each(|&(block, _)| summary.publisher.came(block));
            summary.any |= !blocks.is_empty();
            let hashed = blocks.len() as u64 * summary.hashes;
            self.work += 1 + hashed / HASHED_FOR_ONE;
            summary.missing_from = Some(if to < end { (index, to) } else { (index + 1, 0) });
            left -= HANDLES_PER_LOCK;
        }
    }
}

impl Summary {
    /// Whether blocks are missing in it.
    pub(super) fn is_being_made(&self) -> bool {
        self.missing_from.is_some()
    }

    /// Whether it may say of too many blocks that they are here, and enough has changed since it
    /// was made that it can be made anew.
    pub(super) fn is_worn(&self) -> bool {
        self.publisher.is_saturated() && !self.is_being_made() && self.changes >= self.capacity
    }

    /// Takes in changes. Returns the work, in blocks examined.
    pub(super) fn take(&mut self, log: &[Change]) -> u64 {
        for change in log {
            match change & 3 {
                0 => {}
                2 => self.publisher.went(change >> 2),
                _ => self.publisher.came(change >> 2),
            }
        }
        self.changes += log.len() as u64;
        log.len() as u64 * self.hashes / HASHED_FOR_ONE
    }

    /// Makes a publication if one is due. Returns whether there was one, and the work, in blocks
    /// examined.
    pub(super) fn publish(&mut self) -> (bool, u64) {
        if !self.publisher.is_due() {
            return (false, 0);
        }
        let publication = self.publisher.publish_now();
        let bytes = publication.bytes();
        self.sent.push_back(publication);
        let most = self.publisher.published().bytes().len().max(KEPT_MIN) as u64;
        let kept = |sent: &VecDeque<Publication>| sent.iter().map(Publication::bytes).sum::<u64>();
        while self.sent.len() > PUBLICATIONS_MAX || self.sent.len() > 1 && kept(&self.sent) > most {
            self.sent.pop_front();
        }
        let words = u64::from(self.publisher.published().shape().bits / 64);
        (true, 1 + words / WORDS_FOR_ONE + bytes / BYTES_FOR_ONE)
    }

    /// The records of what was published since the publication `sequence` (`None`: of everything),
    /// and the number of the latest publication.
    pub(super) fn since(&mut self, sequence: Option<u32>) -> (Vec<Hint>, Option<u32>) {
        let Some(last) = self.sent.back().map(|one| one.sequence) else {
            return (Vec::new(), sequence);
        };
        if sequence == Some(last) {
            return (Vec::new(), sequence);
        }
        let shape = self.publisher.published().shape();
        let next = sequence.map(|known| known.wrapping_add(1));
        let from = self.sent.iter().position(|one| Some(one.sequence) == next);
        if let Some(from) = from {
            let missed = self.sent.iter().skip(from);
            return (missed.flat_map(|one| publication_hints(shape, one)).collect(), Some(last));
        }
        if self.whole.as_ref().is_none_or(|(number, _)| *number != last) {
            self.whole = Some((last, publication_hints(shape, &self.publisher.whole())));
        }
        let whole = self.whole.as_ref().map(|(_, hints)| hints.clone());
        (whole.unwrap_or_default(), Some(last))
    }
}
