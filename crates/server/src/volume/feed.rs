//! What clients that use the content of this cache are told: each block that enters or leaves, or a
//! Bloom summary and its changes.
//!
//! While serving a request, a shard only appends each block that enters or leaves to a list (8
//! bytes), and only while somebody follows. All other work is done when a follower asks: the lists
//! are gathered, hashed into the summary if there is one, and the answer is made from them. All of
//! these are bounded. A follower that asks too rarely must begin anew.
//!
//! A summary of a large cache is made in steps, with each question and for all followers together:
//! nobody waits for it, and whoever asks pays for his step. A shard's lock is held while a few
//! blocks are listed, and never while they are hashed. `summary.rs` does that.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use undercroft_hints::{BlockRun, EvictFlags, Follow, Following, Hint, put_end};
use undercroft_policy::WriteMode;

use crate::counters::AwareStats;
use crate::lock::sleep_lock;
use crate::shard::content_log::{Change, ContentLog};
use crate::volume::Volume;

mod summary;

use self::summary::Summary;

/// Most changes that the shards record together between two questions, and that are kept for slow
/// followers.
const CHANGES_MAX: usize = 1 << 16;

/// Fewest changes that one shard may record.
const CHANGES_OF_SHARD: usize = 1 << 10;

/// Most followers of a volume at a time, because unsent records may be kept for each. Further ones
/// are refused.
const FOLLOWERS_MAX: usize = 64;

/// Most bytes of summaries that are kept for followers which have not read them, beside the first
/// summary. Who finds no room is told later.
const UNREAD_MAX: usize = 64 << 20;

/// Most requested blocks that are recorded for a follower between two questions, to check whether
/// they stayed.
const ASKED_MAX: usize = 4096;

/// Listed blocks, hashed positions and bytes copied that cost as much as one block examined.
const LISTED_FOR_ONE: u64 = 16;
const HASHED_FOR_ONE: u64 = 64;
const BYTES_FOR_ONE: u64 = 4096;

/// Bytes of the record heads around lists of blocks, and of the end record.
const HEADS: usize = 48;

/// Why a client cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{FOLLOWERS_MAX} clients follow what this cache holds, and there is room for no more: follow \
     when one has left"
)]
pub(crate) struct NoRoom;

/// State shared by all followers of a volume.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// The capacity of each follower's cache, in blocks.
    followers: Vec<u64>,
    /// Changes whenever all followers must begin anew.
    generation: u64,
    /// The latest changes, and the number of the first of them.
    events: VecDeque<u64>,
    first: u64,
    /// Buffer that gathering exchanges with the shards' lists.
    spare: Vec<Change>,
    summary: Option<Summary>,
    /// Bytes of summaries that followers have not read.
    unread: usize,
    /// Work since it was charged last, in blocks examined.
    work: u64,
    stats: AwareStats,
}

/// A client that follows the cache's content; dropping it ends that.
pub(crate) struct Follower {
    volume: Arc<Volume>,
    follow: Follow,
    generation: u64,
    /// Number of the next change to tell.
    cursor: u64,
    /// Sequence number of the last publication told.
    sequence: Option<u32>,
    /// Records that did not fit into the last answer, and their bytes.
    pending: VecDeque<Hint>,
    unread: usize,
    /// Blocks that the client has requested since the last answer.
    asked: Vec<u64>,
}

impl Feed {
    /// Counters of what followers were told, if there were any.
    pub(crate) fn told(&self) -> Option<AwareStats> {
        let counted = AwareStats { followers: self.followers.len() as u64, ..self.stats };
        (counted != AwareStats::default()).then_some(counted)
    }

    /// Updates the shards after a follower came or left. Shards record changes as long as there are
    /// followers. The level is also told the largest capacity of the followers' caches.
    fn followers_changed(&mut self, volume: &Volume) {
        let most = self.followers.iter().max().copied();
        let part = |blocks: u64| {
            let part = blocks.div_ceil(volume.shards.len().max(1) as u64);
            u32::try_from(part).unwrap_or(u32::MAX).max(1)
        };
        for mut shard in volume.shards.each() {
            if most.is_none() {
                shard.blocks.watchers.content_log = None;
            } else if shard.blocks.watchers.content_log.is_none() {
                let most = (CHANGES_MAX / volume.shards.len()).max(CHANGES_OF_SHARD);
                shard.blocks.watchers.content_log =
                    Some(ContentLog { most, ..ContentLog::default() });
            }
            shard.blocks.level.followed_by(most.map(part));
        }
    }

    /// Gathers the recorded changes of all shards.
    fn gather(&mut self, volume: &Volume) {
        let mut is_lost = false;
        for mut shard in volume.shards.each() {
            let Some(changes) = &mut shard.blocks.watchers.content_log else { continue };
            is_lost |= std::mem::take(&mut changes.is_lost);
            // The shard continues with the buffer of the last time.
            let mut log = std::mem::take(&mut self.spare);
            std::mem::swap(&mut changes.log, &mut log);
            drop(shard);
            self.take(&log);
            log.clear();
            self.spare = log;
        }
        if is_lost {
            self.begin_anew(volume);
        }
    }

    /// Changes were lost: all followers begin anew from what is resident now.
    fn begin_anew(&mut self, volume: &Volume) {
        self.stats.restarts += 1;
        self.generation += 1;
        self.first += self.events.len() as u64;
        self.events.clear();
        if let Some(before) = self.summary.take() {
            self.begin_summary(volume, before.follow, before.users);
        }
    }

    fn take(&mut self, log: &[Change]) {
        if let Some(summary) = &mut self.summary {
            self.work += summary.take(log);
        }
        self.events.extend(log.iter().map(|change| change >> 2 << 1 | change & 1));
        self.work += log.len() as u64 / LISTED_FOR_ONE;
        let too_many = self.events.len().saturating_sub(CHANGES_MAX);
        self.events.drain(..too_many);
        self.first += too_many as u64;
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Follower {
    /// Starts to follow; returns the work too, in blocks examined. `None` if the client wants to be
    /// told nothing.
    ///
    /// # Errors
    /// There are as many followers as are allowed.
    pub(crate) fn new(volume: &Arc<Volume>, follow: Follow) -> Result<(Option<Self>, u64), NoRoom> {
        if follow.what == Following::Nothing || volume.config().cache_blocks == 0 {
            return Ok((None, 0));
        }
        let mut feed = sleep_lock(&volume.feed);
        if feed.followers.len() >= FOLLOWERS_MAX {
            return Err(NoRoom);
        }
        feed.followers.push(follow.capacity_blocks);
        feed.followers_changed(volume);
        feed.gather(volume);
        if follow.what == Following::Digest {
            match &mut feed.summary {
                // All share one summary. The first follower chose its shape, and each publication
                // gives it.
                Some(summary) => summary.users += 1,
                None => feed.begin_summary(volume, follow, 1),
            }
        }
        let work = std::mem::take(&mut feed.work);
        let (generation, cursor, volume) = (feed.generation, feed.end(), Arc::clone(volume));
        let (sequence, pending, unread, asked) = Default::default();
        let follower =
            Self { volume, follow, generation, cursor, sequence, pending, unread, asked };
        Ok((Some(follower), work))
    }

    /// The client reads or writes these blocks, and assumes that they are cached here afterwards.
    pub(crate) fn asks(&mut self, blocks: impl Iterator<Item = u64>) {
        if self.follow.what == Following::Blocks {
            let room = ASKED_MAX - self.asked.len();
            self.asked.extend(blocks.take(room));
        }
    }

    /// What the client has not been told yet, in at most `bytes` bytes; and the work, in blocks
    /// examined.
    pub(crate) fn tell(&mut self, bytes: usize) -> (Bytes, u64) {
        let volume = Arc::clone(&self.volume);
        let mut feed = sleep_lock(&volume.feed);
        feed.gather(&volume);
        let mut out = BytesMut::new();
        let mut more = 0;
        match self.follow.what {
            Following::Blocks if bytes >= HEADS + 8 => {
                let (hints, left) = self.blocks(&volume, &mut feed, (bytes - HEADS) / 8);
                hints.iter().for_each(|hint| hint.put(&mut out));
                more = if left > 0 { HEADS + 8 * left } else { 0 };
            }
            Following::Digest => {
                feed.go_on_with_summary(&volume);
                more = self.publications(&volume, &mut feed);
                while let Some(next) = self.pending.front() {
                    // Head, numbers and padding take less than 32 bytes.
                    let room = 32 + next.data_bytes();
                    if out.len() + room + 8 > bytes {
                        more = room + 8;
                        break;
                    }
                    next.put(&mut out);
                    let bytes = next.data_bytes();
                    self.pending.pop_front();
                    self.unread -= bytes;
                    feed.unread -= bytes;
                }
            }
            _ => {}
        }
        feed.stats.news += 1;
        feed.stats.news_bytes += out.len() as u64;
        feed.work += out.len() as u64 / BYTES_FOR_ONE;
        if bytes >= out.len() + 8 && (more > 0 || !out.is_empty()) {
            put_end(&mut out, more as u32);
        }
        (out.freeze(), std::mem::take(&mut feed.work))
    }

    /// The changes of at most `most` blocks, as they are now, and the number of changes left.
    fn blocks(&mut self, volume: &Volume, feed: &mut Feed, most: usize) -> (Vec<Hint>, usize) {
        let mut hints = Vec::new();
        if self.generation != feed.generation || self.cursor < feed.first {
            (self.generation, self.cursor) = (feed.generation, feed.end());
            hints.push(Hint::Follow(Follow::default()));
        }
        let from = (self.cursor - feed.first) as usize;
        let mut changed: Vec<u64> = feed.events.range(from..).take(most).copied().collect();
        self.cursor += changed.len() as u64;
        feed.work += (changed.len() as u64 + 4 * self.asked.len() as u64) / LISTED_FOR_ONE;
        // A stable sort: the last change of a block counts.
        changed.sort_by_key(|change| change >> 1);
        self.asked.sort_unstable();
        let (mut gone, mut came) = (Vec::new(), Vec::new());
        for run in changed.chunk_by(|one, next| one >> 1 == next >> 1) {
            let last = run[run.len() - 1];
            let block = last >> 1;
            if last & 1 == 0 {
                gone.push(block);
            } else if self.asked.binary_search(&block).is_err() {
                // The client assumes that blocks which it has just requested are cached here.
                came.push(block);
            }
        }
        // A write may leave its block out of the cache, and then no change is recorded.
        if volume.geometry.mode != WriteMode::Allocate {
            let room = most - gone.len() - came.len();
            let is_out =
                |block: &u64| volume.shards.of(*block).blocks.level.frame(*block).is_none();
            gone.extend(self.asked.iter().copied().filter(is_out).take(room));
            gone.sort_unstable();
            gone.dedup();
        }
        self.asked.clear();
        if !gone.is_empty() {
            let flags = EvictFlags::default();
            hints.push(Hint::Evict { age_us: 0, sequence: 0, flags, runs: runs(gone) });
        }
        if !came.is_empty() {
            hints.push(Hint::Hold(runs(came)));
        }
        (hints, (feed.end() - self.cursor) as usize)
    }

    /// Queues the publications that the client has not been told. Returns the bytes that the next
    /// question needs, if there is more to tell that is not queued.
    fn publications(&mut self, volume: &Volume, feed: &mut Feed) -> usize {
        if self.generation != feed.generation {
            (self.generation, self.sequence) = (feed.generation, None);
            self.forget_unread(feed);
        }
        let Some(summary) = &mut feed.summary else { return 0 };
        if summary.is_worn() {
            feed.renew_summary(volume);
            return HEADS;
        }
        if summary.is_being_made() {
            return HEADS;
        }
        let (published, work) = summary.publish();
        feed.stats.published += u64::from(published);
        feed.work += work;
        if !self.pending.is_empty() {
            return 0;
        }
        let (hints, last) = summary.since(self.sequence);
        let bytes: usize = hints.iter().map(Hint::data_bytes).sum();
        if bytes > 0 && feed.unread > 0 && feed.unread + bytes > UNREAD_MAX {
            return 0;
        }
        feed.unread += bytes;
        feed.work += bytes as u64 / BYTES_FOR_ONE;
        self.unread += bytes;
        (self.pending, self.sequence) = (hints.into(), last);
        0
    }

    fn forget_unread(&mut self, feed: &mut Feed) {
        feed.unread -= std::mem::take(&mut self.unread);
        self.pending.clear();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut feed = sleep_lock(&self.volume.feed);
        let own = self.follow.capacity_blocks;
        if let Some(at) = feed.followers.iter().position(|&blocks| blocks == own) {
            feed.followers.swap_remove(at);
        }
        feed.unread -= self.unread;
        if let (Following::Digest, Some(summary)) = (self.follow.what, &mut feed.summary) {
            summary.users -= 1;
            if summary.users == 0 {
                feed.end_summary(&self.volume);
            }
        }
        feed.followers_changed(&self.volume);
    }
}

/// Splits ascending blocks into runs.
fn runs(blocks: Vec<u64>) -> Vec<BlockRun> {
    let chunks = blocks.chunk_by(|one, next| one + 1 == *next);
    let runs = chunks.flat_map(|run| run.chunks(BlockRun::COUNT_MAX as usize));
    runs.filter_map(|run| BlockRun::new(run[0], run.len() as u32)).collect()
}

#[cfg(test)]
mod tests;
