//! The cached blocks and the hints about them: all state that the lock protects.
//!
//! Invariants: a frame that no resident block owns is empty. The frame of a resident block is empty
//! while an operation that will fill it or drop the block is running; otherwise it holds what the
//! server has. Requests are queued under the lock, so the server receives them in the order of the
//! references.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_hints::{
    Away, ClientStat, ContentPublisher, ContentReader, Follow, Hint, HintQueue, Mailbox,
    MessageAnswer, PolicyName, Report, Told,
};
use undercroft_level::content::Latencies;
use undercroft_level::{Referred, UpperLevel};
use undercroft_policy::WriteMode;

use undercroft_nbd::{Client, ClientError};

use super::gate::Gate;
use super::session::Session;
use super::{CachedOptions, CachedStats, News};

/// How often the counters are sent to the server while there is traffic.
const STAT_EVERY: Duration = Duration::from_secs(1);

/// The result of a reference to a block.
pub(super) struct Met {
    /// The block's data, if it was cached.
    pub(super) data: Option<Bytes>,
    /// Whether the block is resident now.
    pub(super) is_kept: bool,
}

pub(super) struct State {
    pub(super) gate: Gate,
    /// The current connection.
    client: Client,
    is_closed: bool,
    reconnections: u64,
    level: UpperLevel,
    write_mode: WriteMode,
    /// How the server was asked to tell what it holds, and what it has told.
    follow: Option<Follow>,
    news: ContentReader,
    latencies: Latencies,
    /// Publishes summaries of the cache, if configured.
    publishing: Option<ContentPublisher>,
    /// Requests since the server was last asked what it holds, and the number of requests between
    /// two such questions.
    unasked: usize,
    ask_every: usize,
    /// The data of each frame; empty if absent.
    frames: Vec<Bytes>,
    /// The mailbox, if the client sends hints.
    mailbox: Option<Mailbox>,
    /// Messages sent over earlier connections.
    messages_before: u64,
    hints: HintQueue,
    tells_evictions: bool,
    hands_over: bool,
    /// Bytes of a block: only whole blocks are handed over.
    block_bytes: usize,
    policy: PolicyName,
    stat_due: Option<Instant>,
    messages_refused: u64,
    pub(super) read_us_total: u64,
}

impl State {
    pub(super) fn new(level: UpperLevel, options: &CachedOptions, session: Session) -> State {
        let Session { client, mailbox, shape } = session;
        let capacity = level.cache().policy().capacity();
        let publishes = options.report == Report::Digest;
        let awareness = options.awareness();
        let frames = vec![Bytes::new(); capacity as usize];
        let follow = options.needs().follow.then(|| Follow::new(&awareness, capacity));
        let stat_due = stat_due(mailbox.as_ref());
        State {
            gate: Gate::default(),
            client,
            is_closed: false,
            reconnections: 0,
            level,
            write_mode: options.write_mode,
            follow,
            news: ContentReader::default(),
            latencies: Latencies::default(),
            publishing: publishes.then(|| ContentPublisher::new(&awareness, capacity)),
            unasked: 0,
            ask_every: options.batch.max(1),
            frames,
            mailbox,
            messages_before: 0,
            hints: HintQueue::new(options.batch),
            tells_evictions: options.report.needs().evict,
            hands_over: options.report == Report::Demotions,
            block_bytes: shape.block as usize,
            policy: PolicyName::new(options.policy.info().name),
            stat_due,
            messages_refused: 0,
            read_us_total: 0,
        }
    }

    /// Replaces a lost connection, once no operation runs. The cache is emptied, and both sides
    /// forget what they knew about each other.
    pub(super) fn begin_anew(&mut self, session: Session) -> Result<(), ClientError> {
        if self.is_closed {
            return Err(closed());
        }
        self.forget_all();
        self.level.lost();
        self.news.begin_anew();
        self.unasked = 0;
        self.hints.clear();
        if let Some(publishing) = &mut self.publishing {
            publishing.refused();
        }
        self.messages_before += self.mailbox.as_ref().map_or(0, Mailbox::messages);
        self.stat_due = stat_due(session.mailbox.as_ref());
        (self.client, self.mailbox) = (session.client, session.mailbox);
        self.reconnections += 1;
        Ok(())
    }

    /// Closes for good, without reconnecting. Returns the last connection.
    pub(super) fn close(&mut self) -> Client {
        self.is_closed = true;
        self.client.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn is_lost(&self) -> bool {
        self.client.is_lost()
    }

    /// Whether blocks are referenced only when the replies have arrived.
    pub(super) fn waits_for_replies(&self) -> bool {
        self.level.cache().is_aware() || self.publishing.is_some()
    }

    /// Notes that a block is requested. It is referenced when the reply arrives.
    pub(super) fn asks(&mut self, block: u64) {
        self.level.asks(block);
        // Its eviction may be reported before the request, but its data must not be handed over
        // then.
        if self.hands_over {
            self.hints.cancel(block);
        }
    }

    /// Asks the server what it holds, if it is time to. Call it after the requests that the answer
    /// must include are queued.
    pub(super) fn ask(&mut self) -> Option<News> {
        self.follow?;
        self.unasked += 1;
        if self.unasked < self.ask_every {
            return None;
        }
        self.unasked = 0;
        Some(Box::pin(self.mailbox.as_ref()?.ask(ContentReader::ASKED_BYTES)))
    }

    /// Takes an answer about what the server holds. Returns the bytes to read for the rest (0:
    /// none). If something was lost, asks the server to begin anew.
    pub(super) fn told(&mut self, told: &Told) -> (u32, Option<MessageAnswer>) {
        let is_complete = self.news.take(told, &mut self.level);
        let mailbox = self.mailbox.as_mut().filter(|mailbox| !is_complete && !mailbox.is_away());
        let again = mailbox.zip(self.follow).map(|(mailbox, follow)| mailbox.follow(follow));
        (told.more, again)
    }

    /// Reads the rest of what the server tells.
    pub(super) fn ask_more(
        &self,
        bytes: u32,
    ) -> Option<impl Future<Output = Result<Told, ClientError>> + Send + use<>> {
        Some(self.mailbox.as_ref()?.ask(bytes as usize))
    }

    /// Ends a request that waited for its reply: evaluates its time, and references the block.
    /// Returns whether the block is resident now.
    pub(super) fn answered(&mut self, block: u64, is_write: bool, took: Option<Duration>) -> bool {
        let us = took.filter(|_| !is_write).map(|took| took.as_secs_f64() * 1e6);
        let hit = us.and_then(|us| self.latencies.label(us));
        self.level.answered(block, is_write, hit);
        let referred = self.reference(block, is_write);
        let now = Instant::now();
        for gone in self.level.cache().evicted() {
            let data = std::mem::take(&mut self.frames[gone.frame as usize]);
            if self.mailbox.is_some() && self.tells_evictions {
                let whole = self.hands_over && data.len() == self.block_bytes;
                self.hints.add(gone.block, whole.then_some(data), now);
            }
        }
        self.hints.cancel(block);
        referred.now.is_some()
    }

    /// Ends a request that failed.
    pub(super) fn failed(&mut self, block: u64) {
        self.level.failed(block);
    }

    /// Whether a write leaves its block in the cache.
    pub(super) fn will_keep(&self, block: u64) -> bool {
        match self.write_mode {
            WriteMode::Allocate => true,
            WriteMode::NoAllocate => self.level.cache().frame(block).is_some(),
            WriteMode::Invalidate => false,
        }
    }

    /// References a block, and tells the summary what entered and left.
    fn reference(&mut self, block: u64, is_write: bool) -> Referred {
        let referred = self.level.reference(block, is_write);
        if let Some(publishing) = &mut self.publishing {
            for gone in self.level.cache().evicted() {
                publishing.changed(gone.block, false);
            }
            match (referred.hit, referred.now.is_some()) {
                (false, true) => publishing.changed(block, true),
                (true, false) => publishing.changed(block, false),
                _ => {}
            }
        }
        referred
    }

    /// Notes that the server refused a message.
    pub(super) fn refused(&mut self) {
        self.messages_refused += 1;
        if let Some(publishing) = &mut self.publishing {
            publishing.refused();
        }
    }

    /// The data of a block; the policy does not count this as a reference.
    pub(super) fn peek(&self, block: u64) -> Option<&Bytes> {
        let frame = self.level.cache().frame(block)?;
        Some(&self.frames[frame as usize]).filter(|data| !data.is_empty())
    }

    /// Reads a block. The evictions that it causes ride with the request, except for blocks for
    /// which `is_coming` is true: they will still be requested, so they are added to `later`.
    pub(super) fn read(
        &mut self,
        block: u64,
        now: Instant,
        is_coming: impl Fn(u64) -> bool,
        later: &mut Vec<u64>,
    ) -> Met {
        let referred = self.reference(block, false);
        self.let_go(now, is_coming, later);
        self.hints.cancel(block);
        let data = referred.now.map(|frame| self.frames[frame as usize].clone());
        let data = data.filter(|data| !data.is_empty());
        Met { data, is_kept: referred.now.is_some() }
    }

    /// Writes a block in the same way. Its old data are taken out, so that they are not handed
    /// over.
    pub(super) fn write(
        &mut self,
        block: u64,
        now: Instant,
        is_coming: impl Fn(u64) -> bool,
        later: &mut Vec<u64>,
    ) -> Met {
        let data = self.take_data(block);
        let referred = self.reference(block, true);
        self.let_go(now, is_coming, later);
        let is_kept = referred.now.is_some();
        if is_kept {
            self.hints.cancel(block);
        } else {
            self.hints.keep_data(&(block..block + 1));
        }
        Met { data, is_kept }
    }

    /// Queues hints for the evictions of the last reference.
    fn let_go(&mut self, now: Instant, is_coming: impl Fn(u64) -> bool, later: &mut Vec<u64>) {
        for gone in self.level.cache().evicted() {
            let data = std::mem::take(&mut self.frames[gone.frame as usize]);
            if self.mailbox.is_none() || !self.tells_evictions {
                continue;
            }
            if is_coming(gone.block) {
                later.push(gone.block);
                continue;
            }
            // Data are missing if the server has not answered yet; the volume's last block may be
            // short.
            let whole = self.hands_over && data.len() == self.block_bytes;
            self.hints.add_rider(gone.block, whole.then_some(data), now);
        }
    }

    /// Takes the data out of a resident block's frame.
    pub(super) fn take_data(&mut self, block: u64) -> Option<Bytes> {
        let frame = self.level.cache().frame(block)?;
        let data = std::mem::take(&mut self.frames[frame as usize]);
        Some(data).filter(|data| !data.is_empty())
    }

    /// Stores the data of a block from the server, if the block is still resident.
    pub(super) fn fill(&mut self, block: u64, data: Bytes) {
        if let Some(frame) = self.level.cache().frame(block) {
            self.frames[frame as usize] = data;
        }
    }

    /// Drops a block whose content at the server is unknown or no longer needed.
    pub(super) fn forget(&mut self, block: u64) {
        if let Some(frame) = self.level.discard(block) {
            self.frames[frame as usize] = Bytes::new();
            if let Some(publishing) = &mut self.publishing {
                publishing.changed(block, false);
            }
        }
    }

    /// Empties the cache.
    pub(super) fn forget_all(&mut self) {
        self.resident(&(0..u64::MAX)).into_iter().for_each(|block| self.forget(block));
    }

    /// Those of the blocks that are resident.
    pub(super) fn resident(&self, blocks: &Range<u64>) -> Vec<u64> {
        if blocks.end - blocks.start <= u64::from(self.level.cache().policy().len()) {
            blocks.clone().filter(|&block| self.level.cache().frame(block).is_some()).collect()
        } else {
            let all = self.level.cache().residents();
            all.into_iter().map(|(block, _)| block).filter(|b| blocks.contains(b)).collect()
        }
    }

    /// Blocks are about to change: the data of their waiting hints are dropped.
    pub(super) fn keep_data(&mut self, blocks: &Range<u64>) {
        self.hints.keep_data(blocks);
    }

    /// The message that goes in front of the next request, if one is due and the mailbox is free.
    pub(super) fn message(&mut self, now: Instant, pressing: bool) -> Option<MessageAnswer> {
        let stat = self.stat_due.is_some_and(|due| now >= due);
        let stat = stat.then(|| Hint::ClientStat(Box::new(self.client_stat())));
        let told = stat.is_some();
        let mailbox = self.mailbox.as_mut()?;
        let mut extra: Vec<Hint> = stat.into_iter().collect();
        // A summary is only made when the mailbox can take it.
        if let (Some(publishing), false) = (&mut self.publishing, mailbox.is_away()) {
            let cache = self.level.cache();
            extra.extend(publishing.due(|| cache.residents().iter().map(|(b, _)| *b).collect()));
        }
        let answer = mailbox.send(&mut self.hints, now, extra, pressing)?;
        if told {
            self.stat_due = Some(now + STAT_EVERY);
        }
        Some(answer)
    }

    /// All requests of an operation are queued. Hints that did not go with them wait, and so do
    /// those for the blocks in `later`.
    pub(super) fn sent(&mut self, now: Instant, later: Vec<u64>) {
        self.hints.depart();
        later.into_iter().for_each(|block| self.hints.add(block, None, now));
    }

    pub(super) fn has_hints(&self) -> bool {
        !self.hints.is_empty()
    }

    /// If a message hands one of these blocks over: what to wait for before they may change.
    pub(super) fn is_handing_over(&self, blocks: &Range<u64>) -> Option<Away> {
        self.mailbox.as_ref()?.is_handing_over(blocks)
    }

    /// Waits until a message can be sent.
    pub(super) fn message_away(&self) -> Option<Away> {
        self.mailbox.as_ref().map(Mailbox::away)
    }

    fn client_stat(&self) -> ClientStat {
        let stats = self.stats();
        ClientStat {
            reads: stats.reads,
            read_hits: stats.read_hits,
            writes: stats.writes,
            write_hits: stats.write_hits,
            evictions: stats.evictions,
            capacity_blocks: stats.capacity_blocks.into(),
            read_us_total: stats.read_us_total,
            tracking: None,
            policy: self.policy,
        }
    }

    pub(super) fn stats(&self) -> CachedStats {
        let counts = self.level.cache().counts();
        let known = self.level.below_counts();
        let hints = self.hints.counts();
        CachedStats {
            capacity_blocks: self.level.cache().policy().capacity(),
            resident_blocks: self.level.cache().policy().len(),
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            write_hits: counts.write_hits,
            evictions: counts.evictions,
            read_us_total: self.read_us_total,
            reconnections: self.reconnections,
            messages: self.messages_before + self.mailbox.as_ref().map_or(0, Mailbox::messages),
            messages_refused: self.messages_refused,
            demotions: hints.handed_over,
            hints_lost: hints.lost,
            held_evictions: known.held_evictions,
            news_bytes: self.news.bytes,
            summaries: known.summaries,
            predictions: known.predictions,
            confirmed: known.confirmed,
            published: self.publishing.as_ref().map_or(0, |publishing| publishing.published),
        }
    }
}

fn stat_due(mailbox: Option<&Mailbox>) -> Option<Instant> {
    let takes_stat = mailbox.is_some_and(|mailbox| mailbox.grant().grant.stat);
    takes_stat.then(|| Instant::now() + STAT_EVERY)
}

/// The error of every operation after closing.
pub(super) fn closed() -> ClientError {
    ClientError::Lost("it was closed".to_owned())
}
