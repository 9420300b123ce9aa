//! The arrival of requests: each is checked, and started according to its command.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use undercroft_level::{self as cache, Asker, ClientEviction};
use undercroft_nbd::{self as nbd, Command, Failure, Piece, Pieces, Reply, Request};
use undercroft_store::Zeroing;

use crate::answer::{Answer, Failed, Outcome};
use crate::clock;
use crate::counters::Source;
use crate::job::{BlockOp, Job, JobKind, Payload, RequestContext, Room};
use crate::lock::lock;
use crate::shard::ranges::RangeKind;
use crate::volume::clients::Caller;
use crate::volume::direct::DirectRequest;
use crate::volume::range_requests::RangeOp;
use crate::volume::{Volume, Work};

/// Most blocks of a batch that are prefetched before the first is served: about what the
/// processor's cache can hold.
const WARM_BLOCKS_MAX: usize = 512;

/// Most blocks that one CACHE request examines.
const PREFETCH_BLOCKS_MAX: u64 = 256;

/// Most bytes that a volume prefetches at a time, but at least [`AHEAD_BLOCKS_MIN`] blocks.
const AHEAD_BYTES_MAX: u64 = 8 << 20;
const AHEAD_BLOCKS_MIN: u64 = 64;

impl Volume {
    /// Serves requests of one client that arrived together, and leaves `requests` empty. Never
    /// blocks; hits are answered before it returns. May be called on any thread, whether or not it
    /// belongs to the volume's runtime. Returns the cost beyond one step for each block read or
    /// written, in such steps.
    pub fn serve(self: &Arc<Self>, requests: &mut Vec<Request>, caller: Caller) -> u64 {
        let started = clock::now();
        let mut work = Work::of_client(self, requests.len());
        // The recorder and the adviser's sample see requests before these take effect.
        let at_us = || self.clients.micros(started);
        if let Some(recorder) = &self.recorder {
            recorder.note(requests, self.size(), caller.client, at_us());
        }
        self.advice.tap.note(requests, &self.geometry, caller, at_us);
        self.answers.pending.fetch_add(requests.len() as u64, Ordering::SeqCst);
        work.prefetch_requests(requests);
        let asker = self.clients.asker(caller, started);
        for request in requests.drain(..) {
            work.begin(request, started, asker);
        }
        work.finish()
    }

    /// Shows evictions that a client told, `with_contents` or without, to the recorder and the
    /// adviser's sample, before they take effect.
    pub(super) fn note_evictions(&self, gone: &[ClientEviction], client: u8, with_contents: bool) {
        if let Some(recorder) = &self.recorder {
            recorder.note_evictions(gone, client);
        }
        self.advice.tap.note_evictions(gone, client, with_contents);
    }
}

impl Work<'_> {
    /// Prefetches what reads and writes will need of their shards, all at once, so that the waits
    /// for memory overlap.
    fn prefetch_requests(&mut self, requests: &[Request]) {
        let volume = self.volume;
        let geometry = &*volume.geometry;
        let refers = |request: &&Request| {
            let refers = matches!(request.command, Command::Read { .. } | Command::Write { .. });
            refers && request.length > 0
        };
        let blocks = |request: &Request| {
            let last = request.offset.saturating_add(request.length - 1);
            geometry.block_of(request.offset)..=geometry.block_of(last)
        };
        let single = |request: &Request| blocks(request).count() == 1;
        if requests.len() == 1 && requests.iter().filter(refers).all(single) {
            return;
        }
        for index in 0..volume.shards.len() {
            let (shard, _) = self.nth_shard(index);
            let all = requests.iter().filter(refers).flat_map(blocks).take(WARM_BLOCKS_MAX);
            shard.blocks.prefetch(all.filter(|&block| geometry.shard_of(block) == index));
        }
    }

    /// Whether a request can be served.
    fn check(&mut self, request: &Request) -> Result<(), Failed> {
        let volume = self.volume;
        if volume.answers.is_closing() {
            return Err(Failed::closing());
        }
        let changes = request.command.changes();
        if changes && volume.is_read_only() {
            return Err(Failed::new(Failure::NotPermitted, "the volume is read-only"));
        }
        let end = request.offset.checked_add(request.length);
        if end.is_none_or(|end| end > volume.geometry.size()) {
            let failure = if changes { Failure::NoSpace } else { Failure::Invalid };
            return Err(Failed::new(failure, "the range is not within the volume"));
        }
        if let Command::Write { data } = &request.command {
            let given: u64 = data.iter().map(|piece| piece.len() as u64).sum();
            if given != request.length {
                return Err(Failed::new(Failure::Invalid, "length and data do not agree"));
            }
        }
        if volume.answers.late.is_full() { self.check_at_hand(request) } else { Ok(()) }
    }

    /// Refuses a request that needs the store, if too many requests are late already.
    #[cold]
    fn check_at_hand(&mut self, request: &Request) -> Result<(), Failed> {
        let volume = self.volume;
        let Request { command, offset, length, .. } = request;
        let is_read = matches!(command, Command::Read { .. }) && *length > 0;
        let mut blocks = volume.geometry.blocks(*offset, (*length).max(1));
        let is_at_hand = |block| {
            let (shard, _) = self.shard(block);
            shard.blocks.is_quiet(block) && shard.blocks.content_of(block).is_some()
        };
        if is_read && !volume.shards.is_empty() && blocks.all(is_at_hand) {
            return Ok(());
        }
        let open = volume.answers.late.open();
        Err(Failed::new(
            Failure::Io,
            &format!("the store has {open} requests not answered in time, and is asked no more"),
        ))
    }

    fn begin(&mut self, request: Request, started: Instant, asker: Asker) {
        let volume = self.volume;
        let operation = Some(request.command.kind());
        if let Err(failed) = self.check(&request) {
            let asked = RequestContext { reply: request.reply, operation, started };
            return self.finished(asked.complete(Err(failed)));
        }
        if volume.shards.is_empty() {
            return DirectRequest::begin(volume, request, started);
        }
        let Request { command, offset, length, durable, reply } = request;
        let asked = RequestContext { reply, operation, started };
        match command {
            Command::Flush => {
                // The bounds of all shards are taken now; no lock may be held meanwhile.
                self.release();
                let bounds = volume.shards.changes_so_far();
                let done = Arc::clone(volume).flush(bounds.clone());
                let done = async { done.await.map(|()| Answer::Done) };
                let left = move |volume: &Volume| volume.shards.untried_below(&bounds);
                self.finish_later(asked, done, left);
            }
            Command::BlockStatus { one_extent } => {
                let status = Arc::clone(volume).block_status(offset, length, one_extent);
                self.finish_later(asked, async { status.await.map(Answer::Extents) }, |_| 0);
            }
            _ if length == 0 => self.finished(asked.complete(Ok(Answer::Done))),
            Command::Read { .. } => self.read(offset, length, asker, asked),
            Command::Write { data } => {
                let kind = JobKind::Write(Payload::new(data));
                let job = Job::new(kind, offset, length, durable, started);
                self.write(job, asker, asked.reply);
            }
            Command::Trim => self.trim(offset, length, durable, asked),
            Command::WriteZeroes { keep_allocated, fast } => {
                let how = Zeroing { keep_allocated, only_if_fast: fast };
                self.zero(offset, length, how, durable, (asker, asked));
            }
            Command::Cache => {
                self.prefetch(offset, length, false);
                self.finished(asked.complete(Ok(Answer::Done)));
            }
        }
    }

    /// Answers a request when its task is done, or in time; `left`: see
    /// [`answer_in_time`](super::answers::Answers::answer_in_time).
    fn finish_later(
        &self,
        asked: RequestContext,
        task: impl Future<Output = Outcome> + Send + 'static,
        left: impl Fn(&Volume) -> usize + Send + 'static,
    ) {
        let volume = Arc::clone(self.volume);
        self.volume.runtime.spawn(async move {
            let this = &*volume;
            this.answers.answer_in_time(asked, (Source::Hit, 0), task, move || left(this)).await
        });
    }

    /// Notes references to some blocks. Returns the first of them that belongs to a recognised
    /// stream and passes the cache.
    fn streamed_from(&self, blocks: RangeInclusive<u64>) -> u64 {
        self.volume.streams.as_ref().map_or(u64::MAX, |streams| lock(streams).note_all(blocks))
    }

    /// Reads a range. Hits are answered from the frames, without a job.
    fn read(&mut self, offset: u64, length: u64, asker: Asker, asked: RequestContext) {
        let volume = self.volume;
        let geometry = &*volume.geometry;
        let blocks = geometry.blocks(offset, length);
        let mut pieces = Pieces::default();
        let mut job: Option<Arc<Job>> = None;
        let streamed = self.streamed_from(blocks.clone());
        for block in blocks {
            let start = geometry.start(block);
            let from = offset.saturating_sub(start) as usize;
            let to = (offset + length - start).min(geometry.block_bytes()) as usize;
            let (is_write, is_whole) = (false, (from, to) == (0, geometry.len(block)));
            let is_streamed = block >= streamed;
            let (shard, fx) = self.shard(block);
            let request = cache::Request { block, is_write, is_whole, is_streamed, asker };
            match shard.read_now(&request, (from, to), fx) {
                Ok(piece) => pieces.push(piece),
                Err(source) => {
                    let job = job.get_or_insert_with(|| {
                        Arc::new(Job::new(JobKind::Read, offset, length, false, asked.started))
                    });
                    job.expect_part(source);
                    pieces.push(Piece::default());
                    shard.enqueue(BlockOp { job: Arc::clone(job), block }, fx);
                }
            }
        }
        match job {
            None => self.finished(asked.complete(Ok(Answer::Data(pieces)))),
            Some(job) => {
                if let Some(finished) = job.submitted(pieces, Some(asked.reply)) {
                    self.finished(finished);
                }
            }
        }
    }

    /// Writes a range. Each block counts as a reference, and is an operation in the block's queue.
    /// If a block need not wait, the write takes effect without an active record.
    fn write(&mut self, job: Job, asker: Asker, reply: Reply) {
        let volume = self.volume;
        let mut blocks = volume.geometry.blocks(job.offset, job.length);
        let streamed = self.streamed_from(blocks.clone());
        let refer = |block, job: &Job, work: &mut Work<'_>| {
            let (from, to) = job.span(block, &volume.geometry);
            let (is_write, is_whole) = (true, to - from == volume.geometry.len(block));
            let is_streamed = block >= streamed;
            let (shard, fx) = work.shard(block);
            let request = cache::Request { block, is_write, is_whole, is_streamed, asker };
            let (hit, slot) = shard.write(&request, fx);
            (if hit { Source::Hit } else { Source::Miss }, slot)
        };
        let (mut source, mut waits) = (Source::Hit, None);
        for block in blocks.by_ref() {
            let (of_block, slot) = refer(block, &job, self);
            source = source.max(of_block);
            if !self.shard_again(block).0.write_now(&job, block, slot) {
                waits = Some(block);
                break;
            }
        }
        let Some(block) = waits else {
            return self.finished(job.finished(reply, Ok(Answer::Done), source));
        };
        let job = Arc::new(job);
        let enqueue = |block, source, work: &mut Work<'_>| {
            job.expect_part(source);
            let (shard, fx) = work.shard_again(block);
            shard.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
        };
        enqueue(block, source, self);
        for block in blocks {
            let (source, _) = refer(block, &job, self);
            enqueue(block, source, self);
        }
        if let Some(finished) = job.submitted(Pieces::default(), Some(reply)) {
            self.finished(finished);
        }
    }

    /// Drops whole blocks; partial blocks at the ends stay, since TRIM is advice.
    fn trim(&mut self, offset: u64, length: u64, durable: bool, asked: RequestContext) {
        let volume = self.volume;
        let Some(blocks) = volume.geometry.whole_blocks(offset, length) else {
            return self.finished(asked.complete(Ok(Answer::Done)));
        };
        self.release();
        let done = RangeOp::take_on(volume, blocks, RangeKind::Trim, durable);
        self.finish_later(asked, async { done.await.map(|()| Answer::Done) }, |_| 0);
    }

    /// Zeroes whole blocks as a range; partial blocks at the ends are written. It is one request,
    /// which is answered when all of its parts have ended.
    fn zero(
        &mut self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
        (asker, asked): (Asker, RequestContext),
    ) {
        let volume = self.volume;
        if how.only_if_fast && !volume.store.facts().zeroes_fast {
            let failed = Failed::new(Failure::NotSupported, "zeroing is no faster than writing");
            return self.finished(asked.complete(Err(failed)));
        }
        let geometry = &volume.geometry;
        let (blocks, end) = (geometry.whole_blocks(offset, length), offset + length);
        let (head_end, tail_start) = match &blocks {
            Some(b) => (geometry.start(*b.start()), geometry.start(b.end() + 1).min(end)),
            // Within one block, or across the border of two.
            None => {
                let border = geometry.start(geometry.block_of(end - 1)).max(offset);
                (border, border)
            }
        };
        let mut edges = Vec::new();
        for (from, to) in [(offset, head_end), (tail_start, end)] {
            if from < to {
                let (reply, edge) = Reply::detached();
                let job = Job::new(JobKind::Zero, from, to - from, durable, asked.started);
                self.write(job, asker, reply);
                edges.push(edge);
            }
        }
        self.release();
        let range = blocks.map(|b| RangeOp::take_on(volume, b, RangeKind::Zero(how), durable));
        let done = async move {
            let mut result = Ok(Answer::Done);
            if let Some(range) = range {
                result = range.await.map(|()| Answer::Done);
            }
            for edge in edges {
                if let nbd::Answer::Failed(failure, message) = edge.await {
                    result = result.and(Err(Failed::new(failure, &message)));
                }
            }
            result
        };
        self.finish_later(asked, done, |_| 0);
    }

    /// Brings the first blocks of a range into the cache, if they are missing and frames are free;
    /// no client waits for them. Returns the number of blocks examined, which `work_debt` counts.
    pub(crate) fn prefetch(&mut self, offset: u64, length: u64, ahead: bool) -> u64 {
        let volume = self.volume;
        let length = length.min(volume.geometry.size().saturating_sub(offset));
        if length == 0 || volume.shards.is_empty() {
            return 0;
        }
        let limit = (AHEAD_BYTES_MAX >> volume.geometry.block_bits).max(AHEAD_BLOCKS_MIN);
        // The operator configures the length of read-ahead.
        let most = if ahead { limit } else { PREFETCH_BLOCKS_MAX };
        let most = most.min(u64::from(volume.now().cache_blocks / 2)).max(1) as usize;
        let blocks = volume.geometry.blocks(offset, length);
        let wanted = (blocks.end() - blocks.start() + 1).min(most as u64) as usize;
        let room = Room::take(&volume.ahead, wanted, limit as usize);
        let (mut left, mut looked) = (room.blocks(), 0);
        // By shard: fetches that were started and have no frames yet.
        let mut begun = vec![0; volume.shards.len()];
        let job = Arc::new(Job::ahead(offset, length, room));
        for block in blocks.take(most) {
            let begun = &mut begun[volume.geometry.shard_of(block)];
            let (shard, fx) = self.shard(block);
            if left == 0 || shard.blocks.pool.free_count() <= *begun {
                break;
            }
            looked += 1;
            let is_new = shard.blocks.level.frame(block).is_none();
            if is_new {
                shard.place(block, None, fx);
            }
            if is_new || shard.blocks.is_unloaded(block) {
                left -= 1;
                *begun += 1;
                let count = &mut shard.counters;
                *(if ahead { &mut count.read_ahead } else { &mut count.prefetched }) += 1;
                job.expect_part(Source::Miss);
                shard.enqueue(BlockOp { job: Arc::clone(&job), block }, fx);
            }
        }
        job.submitted(Pieces::default(), None);
        self.work_debt += looked;
        looked
    }
}
