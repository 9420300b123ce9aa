//! What lies in the cache, and what is yet to be said about it: all that is under the lock.
//!
//! Invariants: a frame that no resident block owns is empty. The frame of a resident block is
//! empty while an operation on the block is under way that will fill it or drop the block, and
//! holds what the server has else. Requests are queued under the lock, so the server meets them in
//! the order of the references.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_cache::content::Latencies;
use undercroft_cache::{Level, Referred, WriteMode};
use undercroft_hints::{
    Away, ClientStat, ContentPublisher, ContentReader, Follow, Hint, HintQueue, Mailbox,
    MessageAnswer, PolicyName, Report, Told,
};

use undercroft_nbd::{Client, ClientError};

use super::gate::Gate;
use super::session::Session;
use super::{CachedOptions, CachedStats};

/// How often the server is told the counters, while there is traffic.
const STAT_EVERY: Duration = Duration::from_secs(1);

/// What a reference to a block met.
pub(super) struct Met {
    /// The block's data, if it was here.
    pub(super) data: Option<Bytes>,
    /// Whether the block is resident now.
    pub(super) is_kept: bool,
}

pub(super) struct State {
    pub(super) gate: Gate,
    /// The connection as it is now.
    client: Client,
    is_closed: bool,
    reconnections: u64,
    level: Level,
    write_mode: WriteMode,
    /// How the server is to tell what it holds, and what it has told.
    follow: Option<Follow>,
    news: ContentReader,
    latencies: Latencies,
    /// What the server is told of the content.
    publishing: Option<ContentPublisher>,
    /// Requests since the server was last asked what it holds, and how many are between.
    unasked: usize,
    ask_every: usize,
    /// The data of each frame.
    frames: Vec<Bytes>,
    /// Where hints go, if anywhere.
    mailbox: Option<Mailbox>,
    /// Messages of the connections before.
    messages_before: u64,
    hints: HintQueue,
    tells_evictions: bool,
    hands_over: bool,
    /// Only whole blocks are handed over: those of this length.
    block_bytes: usize,
    policy: PolicyName,
    stat_due: Option<Instant>,
    messages_refused: u64,
    pub(super) read_us_total: u64,
}

impl State {
    pub(super) fn new(level: Level, options: &CachedOptions, session: Session) -> State {
        let Session { client, mailbox, shape } = session;
        let capacity = level.capacity();
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

    /// Another connection takes the place of the last one, which was lost, when nothing goes on any
    /// more. The cache begins empty, and so does what each side knows of the other.
    pub(super) fn begin_anew(&mut self, session: Session) -> Result<(), ClientError> {
        if self.is_closed {
            return Err(closed());
        }
        self.forget_all();
        self.level.lost_below();
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

    /// No connection is made any more: the last one.
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

    /// Whether blocks are referenced when the replies are here.
    pub(super) fn waits_for_replies(&self) -> bool {
        self.level.is_content_aware() || self.publishing.is_some()
    }

    /// A block is asked for, and referenced when it is here.
    pub(super) fn asks(&mut self, block: u64) {
        self.level.asks_below(block);
        // That it left may go in front of that, but nothing is handed over that is asked for again.
        if self.hands_over {
            self.hints.cancel(block);
        }
    }

    /// What the server has to tell of what it holds, if it is time to ask: to be called when the
    /// requests are queued that it is to come after.
    pub(super) fn ask(
        &mut self,
    ) -> Option<impl Future<Output = Result<Told, ClientError>> + Send + use<>> {
        self.follow?;
        self.unasked += 1;
        if self.unasked < self.ask_every {
            return None;
        }
        self.unasked = 0;
        Some(self.mailbox.as_ref()?.ask(ContentReader::ASKED_BYTES))
    }

    /// The server told what it holds; how many bytes to ask for to hear the rest. If something was
    /// lost, it is asked to begin anew.
    pub(super) fn told(&mut self, told: &Told) -> (u32, Option<MessageAnswer>) {
        let is_complete = self.news.take(told, &mut self.level);
        let mailbox = self.mailbox.as_mut().filter(|mailbox| !is_complete && !mailbox.is_away());
        let again = mailbox.zip(self.follow).map(|(mailbox, follow)| mailbox.follow(follow));
        (told.more, again)
    }

    /// The rest of what the server has to tell.
    pub(super) fn ask_more(
        &self,
        bytes: u32,
    ) -> Option<impl Future<Output = Result<Told, ClientError>> + Send + use<>> {
        Some(self.mailbox.as_ref()?.ask(bytes as usize))
    }

    /// A request that waited for its reply is over: what the time says, and the reference. Whether
    /// the block is resident now.
    pub(super) fn answered(&mut self, block: u64, is_write: bool, took: Option<Duration>) -> bool {
        let us = took.filter(|_| !is_write).map(|took| took.as_secs_f64() * 1e6);
        let hit = us.and_then(|us| self.latencies.label(us));
        self.level.answered_below(block, is_write, hit);
        let referred = self.reference(block, is_write);
        let now = Instant::now();
        for gone in self.level.evicted() {
            let data = std::mem::take(&mut self.frames[gone.frame as usize]);
            if self.mailbox.is_some() && self.tells_evictions {
                let whole = self.hands_over && data.len() == self.block_bytes;
                self.hints.add(gone.block, whole.then_some(data), now);
            }
        }
        self.hints.cancel(block);
        referred.now.is_some()
    }

    /// What was asked for did not come.
    pub(super) fn failed(&mut self, block: u64) {
        self.level.failed_below(block);
    }

    /// Whether a write leaves its block in the cache.
    pub(super) fn will_keep(&self, block: u64) -> bool {
        match self.write_mode {
            WriteMode::Allocate => true,
            WriteMode::NoAllocate => self.level.frame(block).is_some(),
            WriteMode::Invalidate => false,
        }
    }

    /// A reference, of which a summary takes notice.
    fn reference(&mut self, block: u64, is_write: bool) -> Referred {
        let referred = self.level.reference(block, is_write, || false);
        if let Some(publishing) = &mut self.publishing {
            for gone in self.level.evicted() {
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

    /// The server did not take a message.
    pub(super) fn refused(&mut self) {
        self.messages_refused += 1;
        if let Some(publishing) = &mut self.publishing {
            publishing.refused();
        }
    }

    /// The data of a block, without a trace in the policy.
    pub(super) fn peek(&self, block: u64) -> Option<&Bytes> {
        let frame = self.level.frame(block)?;
        Some(&self.frames[frame as usize]).filter(|data| !data.is_empty())
    }

    /// A read of a block. What it drives out rides, but for blocks that `is_coming` says are yet
    /// to be asked for: those are given back, to be told of later.
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

    /// A write of a block, in the same way. Its old data is taken out: nobody will hand it over.
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

    /// Queues hints of what the last reference drove out.
    fn let_go(&mut self, now: Instant, is_coming: impl Fn(u64) -> bool, later: &mut Vec<u64>) {
        for gone in self.level.evicted() {
            let data = std::mem::take(&mut self.frames[gone.frame as usize]);
            if self.mailbox.is_none() || !self.tells_evictions {
                continue;
            }
            if is_coming(gone.block) {
                later.push(gone.block);
                continue;
            }
            // Not what its server has not answered yet, nor the volume's short last block.
            let whole = self.hands_over && data.len() == self.block_bytes;
            self.hints.add_rider(gone.block, whole.then_some(data), now);
        }
    }

    /// Takes the data out of a resident block's frame.
    pub(super) fn take_data(&mut self, block: u64) -> Option<Bytes> {
        let frame = self.level.frame(block)?;
        let data = std::mem::take(&mut self.frames[frame as usize]);
        Some(data).filter(|data| !data.is_empty())
    }

    /// The server has answered: the data of a block, if it is still here.
    pub(super) fn fill(&mut self, block: u64, data: Bytes) {
        if let Some(frame) = self.level.frame(block) {
            self.frames[frame as usize] = data;
        }
    }

    /// Forgets a block: what the server has there is not known, or of no use.
    pub(super) fn forget(&mut self, block: u64) {
        if let Some(frame) = self.level.discard(block) {
            self.frames[frame as usize] = Bytes::new();
            if let Some(publishing) = &mut self.publishing {
                publishing.changed(block, false);
            }
        }
    }

    /// The cache is empty afterwards.
    pub(super) fn forget_all(&mut self) {
        self.resident(&(0..u64::MAX)).into_iter().for_each(|block| self.forget(block));
    }

    /// The resident ones of some blocks.
    pub(super) fn resident(&self, blocks: &Range<u64>) -> Vec<u64> {
        if blocks.end - blocks.start <= u64::from(self.level.len()) {
            blocks.clone().filter(|&block| self.level.frame(block).is_some()).collect()
        } else {
            let all = self.level.residents();
            all.into_iter().map(|(block, _)| block).filter(|b| blocks.contains(b)).collect()
        }
    }

    /// Blocks are about to change: what waits to be said of them is no longer handed over.
    pub(super) fn keep_data(&mut self, blocks: &Range<u64>) {
        self.hints.keep_data(blocks);
    }

    /// The message that goes in front of the next request, if one is due and may be sent.
    pub(super) fn message(&mut self, now: Instant, pressing: bool) -> Option<MessageAnswer> {
        let stat = self.stat_due.is_some_and(|due| now >= due);
        let stat = stat.then(|| Hint::ClientStat(Box::new(self.client_stat())));
        let told = stat.is_some();
        let mailbox = self.mailbox.as_mut()?;
        let mut extra: Vec<Hint> = stat.into_iter().collect();
        // One that is on its way would keep a summary from going.
        if let (Some(publishing), false) = (&mut self.publishing, mailbox.is_away()) {
            let level = &self.level;
            extra.extend(publishing.due(|| level.residents().iter().map(|(b, _)| *b).collect()));
        }
        let answer = mailbox.send(&mut self.hints, now, extra, pressing)?;
        if told {
            self.stat_due = Some(now + STAT_EVERY);
        }
        Some(answer)
    }

    /// All requests of an operation are queued: what did not go along waits, and so does what they
    /// drove out of their own.
    pub(super) fn sent(&mut self, now: Instant, later: Vec<u64>) {
        self.hints.depart();
        later.into_iter().for_each(|block| self.hints.add(block, None, now));
    }

    pub(super) fn has_hints(&self) -> bool {
        !self.hints.is_empty()
    }

    /// A message that hands one of these blocks over: what to wait for before they may change.
    pub(super) fn is_handing_over(&self, blocks: &Range<u64>) -> Option<Away> {
        self.mailbox.as_ref()?.is_handing_over(blocks)
    }

    /// What to wait for until a message can be sent.
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
        let counts = self.level.counts();
        let known = self.level.below_counts();
        let hints = self.hints.counts();
        CachedStats {
            capacity_blocks: self.level.capacity(),
            resident_blocks: self.level.len(),
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

/// The error of everything that comes later.
pub(super) fn closed() -> ClientError {
    ClientError::Lost("it was closed".to_owned())
}
