//! What clients that use the content of this cache are told: each block that enters or leaves, or a
//! Bloom summary and its changes.
//!
//! While serving a request, a shard only appends each block that enters or leaves to a list (8
//! bytes), and only while somebody follows. All other work is done when a follower asks: the lists
//! are gathered, hashed into the summary if there is one, and the answer is made from them. All of
//! these are bounded. A follower that asks too rarely must begin anew.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use undercroft_cache::WriteMode;
use undercroft_cache::content::{Publication, Publisher};
use undercroft_hints::{BlockRun, EvictFlags, Follow, Following, Hint, publication_hints, put_end};

use crate::counters::AwareStats;
use crate::volume::Volume;

/// Most changes that a shard records between two questions, and that are kept for slow followers.
const CHANGES_MAX: usize = 1 << 16;

/// Publications kept for slow followers.
const PUBLICATIONS_MAX: usize = 64;

/// Most followers of a volume at a time, because unsent records may be kept for each. Further ones
/// are told nothing.
const FOLLOWERS_MAX: usize = 64;

/// Most requested blocks that are recorded for a follower between two questions, to check whether
/// they stayed.
const ASKED_MAX: usize = 4096;

/// Bytes of the record heads around lists of blocks, and of the end record.
const HEADS: usize = 48;

/// The blocks that entered and left a shard since the last question.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Block number shifted left by one; the lowest bit is set if the block entered.
    log: Vec<u64>,
    is_lost: bool,
}

impl Changes {
    /// Records that a block entered or left.
    #[inline]
    pub(crate) fn note(&mut self, block: u64, came: bool) {
        if self.log.len() == CHANGES_MAX {
            self.is_lost = true;
            self.log.clear();
        }
        self.log.push(block << 1 | u64::from(came));
    }
}

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
    spare: Vec<u64>,
    digest: Option<DigestFeed>,
    stats: AwareStats,
}

#[derive(Debug)]
struct DigestFeed {
    publisher: Publisher,
    users: usize,
    follow: Follow,
    sent: VecDeque<Publication>,
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
    /// Records that did not fit into the last answer.
    pending: VecDeque<Hint>,
    /// Blocks that the client has requested since the last answer.
    asked: Vec<u64>,
}

impl Volume {
    fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of what followers were told, if there were any.
    pub(crate) fn told_to_followers(&self) -> Option<AwareStats> {
        let feed = self.feed();
        let counted = AwareStats { followers: feed.followers.len() as u64, ..feed.stats };
        (counted != AwareStats::default()).then_some(counted)
    }

    /// Updates the shards after a follower came or left. Shards record changes as long as there are
    /// followers. The level is also told the largest capacity of the followers' caches.
    fn followers_changed(&self, feed: &mut Feed) {
        let most = feed.followers.iter().max().copied();
        let part = |blocks: u64| {
            let part = blocks.div_ceil(self.shards.len().max(1) as u64);
            u32::try_from(part).unwrap_or(u32::MAX).max(1)
        };
        for index in 0..self.shards.len() {
            let mut shard = self.lock(index);
            if most.is_none() {
                shard.changes = None;
            } else if shard.changes.is_none() {
                shard.changes = Some(Changes::default());
            }
            shard.cache.followed_by(most.map(part));
        }
    }

    /// Gathers the recorded changes of all shards.
    fn gather(&self, feed: &mut Feed) {
        let mut is_lost = false;
        for index in 0..self.shards.len() {
            let mut shard = self.lock(index);
            let Some(changes) = &mut shard.changes else { continue };
            is_lost |= std::mem::take(&mut changes.is_lost);
            // The shard continues with the buffer of the last time.
            let mut log = std::mem::take(&mut feed.spare);
            std::mem::swap(&mut changes.log, &mut log);
            drop(shard);
            feed.take(&log);
            log.clear();
            feed.spare = log;
        }
        if is_lost {
            self.begin_anew(feed);
        }
    }

    /// Changes were lost: all followers begin anew from what is resident now.
    fn begin_anew(&self, feed: &mut Feed) {
        feed.stats.restarts += 1;
        feed.generation += 1;
        feed.first += feed.events.len() as u64;
        feed.events.clear();
        if let Some(digest) = feed.digest.take() {
            let publisher = self.summarize(feed, &digest.follow);
            feed.digest = Some(DigestFeed { publisher, sent: VecDeque::new(), ..digest });
        }
    }

    /// A summary of what is resident now; it includes the changes recorded so far.
    fn summarize(&self, feed: &mut Feed, follow: &Follow) -> Publisher {
        let mut publisher = publisher(follow, self);
        let mut any = false;
        for index in 0..self.shards.len() {
            let mut shard = self.lock(index);
            if let Some(changes) = &mut shard.changes {
                feed.take(&std::mem::take(&mut changes.log));
            }
            for (block, _) in shard.cache.residents() {
                publisher.came(block);
                any = true;
            }
        }
        if any {
            publisher.ask_for_whole();
        }
        publisher
    }

    fn residents(&self) -> Vec<u64> {
        let of = |index| self.lock(index).cache.residents();
        (0..self.shards.len()).flat_map(of).map(|(block, _)| block).collect()
    }

    fn is_resident(&self, block: u64) -> bool {
        self.lock(self.geometry.shard_of(block)).cache.frame(block).is_some()
    }
}

impl Feed {
    fn take(&mut self, log: &[u64]) {
        if let Some(digest) = &mut self.digest {
            for change in log {
                if change & 1 != 0 {
                    digest.publisher.came(change >> 1);
                } else {
                    digest.publisher.went(change >> 1);
                }
            }
        }
        self.events.extend(log);
        let too_many = self.events.len().saturating_sub(CHANGES_MAX);
        self.events.drain(..too_many);
        self.first += too_many as u64;
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

fn publisher(follow: &Follow, volume: &Volume) -> Publisher {
    let (bits, hashes) = (follow.filter_bits.clamp(1, 64), follow.hashes.clamp(1, 16));
    let share = f64::from(follow.publish_ppm) / 1e6;
    let capacity = volume.now().cache_blocks;
    Publisher::new(bits.into(), hashes.into(), capacity, share.clamp(0.0, 1.0))
}

impl Follower {
    /// Starts to follow. Returns `None` if the client wants to be told nothing, or cannot follow.
    pub(crate) fn new(volume: &Arc<Volume>, follow: Follow) -> Option<Self> {
        if follow.what == Following::Nothing || volume.config().cache_blocks == 0 {
            return None;
        }
        let mut feed = volume.feed();
        if feed.followers.len() >= FOLLOWERS_MAX {
            return None;
        }
        feed.followers.push(follow.capacity_blocks);
        volume.followers_changed(&mut feed);
        volume.gather(&mut feed);
        if follow.what == Following::Digest {
            match &mut feed.digest {
                // All share one summary. The first follower chose its shape, and each publication
                // gives it.
                Some(digest) => digest.users += 1,
                None => {
                    let publisher = volume.summarize(&mut feed, &follow);
                    let sent = VecDeque::new();
                    feed.digest = Some(DigestFeed { publisher, users: 1, follow, sent });
                }
            }
        }
        Some(Self {
            volume: Arc::clone(volume),
            follow,
            generation: feed.generation,
            cursor: feed.end(),
            sequence: None,
            pending: VecDeque::new(),
            asked: Vec::new(),
        })
    }

    /// The client reads or writes these blocks, and assumes that they are cached here afterwards.
    pub(crate) fn asks(&mut self, blocks: impl Iterator<Item = u64>) {
        if self.follow.what == Following::Blocks {
            let room = ASKED_MAX - self.asked.len();
            self.asked.extend(blocks.take(room));
        }
    }

    /// What the client has not been told yet, in at most `bytes` bytes.
    pub(crate) fn tell(&mut self, bytes: usize) -> Bytes {
        let volume = Arc::clone(&self.volume);
        let mut feed = volume.feed();
        volume.gather(&mut feed);
        let mut out = BytesMut::new();
        let mut more = 0;
        match self.follow.what {
            Following::Blocks if bytes >= HEADS + 8 => {
                let (hints, left) = self.blocks(&volume, &mut feed, (bytes - HEADS) / 8);
                hints.iter().for_each(|hint| hint.put(&mut out));
                more = if left > 0 { HEADS + 8 * left } else { 0 };
            }
            Following::Digest => {
                self.publications(&volume, &mut feed);
                while let Some(next) = self.pending.front() {
                    // Head, numbers and padding take less than 32 bytes.
                    let room = 32 + next.data_bytes();
                    if out.len() + room + 8 > bytes {
                        more = room + 8;
                        break;
                    }
                    next.put(&mut out);
                    self.pending.pop_front();
                }
            }
            _ => {}
        }
        feed.stats.news += 1;
        feed.stats.news_bytes += out.len() as u64;
        if bytes >= out.len() + 8 && (more > 0 || !out.is_empty()) {
            put_end(&mut out, more as u32);
        }
        out.freeze()
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
            let absent = |block: &u64| !volume.is_resident(*block);
            gone.extend(self.asked.iter().copied().filter(absent).take(room));
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

    /// Queues the publications that the client has not been told.
    fn publications(&mut self, volume: &Volume, feed: &mut Feed) {
        if self.generation != feed.generation {
            (self.generation, self.sequence) = (feed.generation, None);
            self.pending.clear();
        }
        let Some(digest) = &mut feed.digest else { return };
        if digest.publisher.is_due() {
            let publication = digest.publisher.publish(|| volume.residents());
            feed.stats.published += 1;
            digest.sent.push_back(publication);
            if digest.sent.len() > PUBLICATIONS_MAX {
                digest.sent.pop_front();
            }
        }
        if !self.pending.is_empty() {
            return;
        }
        let Some(last) = digest.sent.back() else { return };
        let (last, shape) = (last.sequence, digest.publisher.published().shape());
        let next = self.sequence.map(|known| known.wrapping_add(1));
        let from = digest.sent.iter().position(|one| Some(one.sequence) == next);
        match from {
            _ if self.sequence == Some(last) => return,
            Some(from) => {
                let missed = digest.sent.iter().skip(from);
                self.pending.extend(missed.flat_map(|one| publication_hints(shape, one)));
            }
            None => self.pending.extend(publication_hints(shape, &digest.publisher.whole())),
        }
        self.sequence = Some(last);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut feed = self.volume.feed();
        let own = self.follow.capacity_blocks;
        if let Some(at) = feed.followers.iter().position(|&blocks| blocks == own) {
            feed.followers.swap_remove(at);
        }
        if self.follow.what == Following::Digest {
            if let Some(digest) = &mut feed.digest {
                digest.users -= 1;
                if digest.users == 0 {
                    feed.digest = None;
                }
            }
        }
        self.volume.followers_changed(&mut feed);
    }
}

/// Splits ascending blocks into runs.
fn runs(blocks: Vec<u64>) -> Vec<BlockRun> {
    let chunks = blocks.chunk_by(|one, next| one + 1 == *next);
    let runs = chunks.flat_map(|run| run.chunks(BlockRun::COUNT_MAX as usize));
    runs.filter_map(|run| BlockRun::new(run[0], run.len() as u32)).collect()
}
