//! A request in progress: what remains of it, and its parts, one per block; and requests that are
//! done, which are answered and counted together when no lock is held.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;
use undercroft_nbd::{Answer as Told, CommandKind, Piece, Pieces, Replies, Reply};

use crate::answer::{Answer, BASE_ALLOCATION, Failed, Outcome};
use crate::clock;
use crate::counters::{Latencies, Source};
use crate::geometry::{Geometry, zeroes};
use crate::late_requests::Late;
use crate::lock::sleep_lock;

/// A request that could not be answered at once.
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) durable: bool,
    pub(crate) started: Instant,
    /// For prefetches: the room that they take, returned when the job ends.
    _room: Option<Room>,
    progress: Mutex<Progress>,
}

pub(crate) enum JobKind {
    Read,
    Write(Payload),
    /// Writes zeroes to a part of a block, for an end of a WRITE_ZEROES.
    Zero,
    /// Reads blocks into the cache without answering a client.
    Prefetch,
}

struct Progress {
    /// Parts not yet done, plus one for the submission itself.
    left: u32,
    /// The pieces of a read by block; empty for those not yet available.
    pieces: Pieces,
    source: Source,
    failed: Option<Failed>,
    reply: Option<Reply>,
    /// Set if the client was answered early, and the job continues without it.
    late: Option<Late>,
}

/// Room for blocks to be prefetched, out of a limited number; dropping it returns the room.
pub(crate) struct Room {
    of: Arc<AtomicUsize>,
    blocks: usize,
}

impl Room {
    /// Takes room for up to `wanted` blocks, of `limit` in all.
    pub(crate) fn take(of: &Arc<AtomicUsize>, wanted: usize, limit: usize) -> Self {
        let mut blocks = 0;
        let taken = of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |under_way| {
            blocks = wanted.min(limit.saturating_sub(under_way));
            Some(under_way + blocks)
        });
        debug_assert!(taken.is_ok());
        Self { of: Arc::clone(of), blocks }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.blocks, Ordering::Relaxed);
    }
}

/// The part of a job that concerns one block.
#[derive(Clone)]
pub(crate) struct BlockOp {
    pub(crate) job: Arc<Job>,
    pub(crate) block: u64,
}

/// What an answer needs to know about its request.
pub(crate) struct RequestContext {
    pub(crate) reply: Reply,
    /// What it is counted as; `None`: it is a part of a request that is counted.
    pub(crate) operation: Option<CommandKind>,
    pub(crate) started: Instant,
}

impl RequestContext {
    /// Ends the request.
    pub(crate) fn complete(self, outcome: Outcome) -> Completion {
        Completion { asked: self, outcome, source: Source::Hit }
    }
}

/// A request that is done; it is answered when no lock is held.
pub(crate) struct Completion {
    pub(crate) asked: RequestContext,
    pub(crate) outcome: Outcome,
    pub(crate) source: Source,
}

impl Job {
    pub(crate) fn new(
        kind: JobKind,
        offset: u64,
        length: u64,
        durable: bool,
        started: Instant,
    ) -> Self {
        let (pieces, failed, reply, late, _room) = Default::default();
        let source = Source::Hit;
        let progress = Mutex::new(Progress { left: 1, pieces, source, failed, reply, late });
        Self { kind, offset, length, durable, started, _room, progress }
    }

    /// A prefetch within this room.
    pub(crate) fn ahead(offset: u64, length: u64, room: Room) -> Self {
        let job = Self::new(JobKind::Prefetch, offset, length, false, clock::now());
        Self { _room: Some(room), ..job }
    }

    /// The part of `block` that the request covers: first and last (exclusive) byte within the
    /// block.
    pub(crate) fn span(&self, block: u64, geometry: &Geometry) -> (usize, usize) {
        let start = geometry.start(block);
        let from = self.offset.saturating_sub(start);
        let to = (self.offset + self.length - start).min(geometry.block_bytes());
        (from as usize, to as usize)
    }

    /// Whether it changes the volume.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self.kind, JobKind::Write(_) | JobKind::Zero)
    }

    /// Adds a part that must be done.
    pub(crate) fn expect_part(&self, source: Source) {
        let mut progress = sleep_lock(&self.progress);
        progress.left += 1;
        progress.source = progress.source.max(source);
    }

    /// All parts have been submitted. `ready` has the pieces that were available at once, and empty
    /// ones for the others.
    pub(crate) fn submitted(&self, ready: Pieces, reply: Option<Reply>) -> Option<Completion> {
        let mut progress = sleep_lock(&self.progress);
        progress.reply = reply;
        if progress.pieces.count() == 0 {
            progress.pieces = ready;
        } else {
            for (piece, ready) in progress.pieces.iter_mut().zip(ready) {
                if piece.is_empty() {
                    *piece = ready;
                }
            }
        }
        self.one_less(progress)
    }

    /// The part of `block` is done. `result` has the data of a read.
    pub(crate) fn part_done(
        &self,
        block: u64,
        geometry: &Geometry,
        result: Result<Option<Piece>, Failed>,
    ) -> Option<Completion> {
        let mut progress = sleep_lock(&self.progress);
        match result {
            Ok(Some(_)) if progress.late.is_some() => {}
            Ok(Some(piece)) => {
                let blocks = geometry.blocks(self.offset, self.length);
                let count = (blocks.end() - blocks.start() + 1) as usize;
                if progress.pieces.count() == 0 {
                    progress.pieces = (0..count).map(|_| Piece::default()).collect();
                }
                let place = progress.pieces.iter_mut().nth((block - blocks.start()) as usize);
                *place.expect("a part of the job") = piece;
            }
            Ok(None) => {}
            // The client is told the first failure.
            Err(failed) => {
                progress.failed.get_or_insert(failed);
            }
        }
        self.one_less(progress)
    }

    /// Answers the client with a failure; the job continues without it. Returns `None` if the
    /// client has been answered, or needs no answer.
    pub(crate) fn give_up(
        &self,
        failed: Failed,
        late: impl FnOnce() -> Late,
    ) -> Option<Completion> {
        let mut progress = sleep_lock(&self.progress);
        let reply = progress.reply.take()?;
        progress.late = Some(late());
        progress.pieces = Pieces::default();
        Some(self.finished(reply, Err(failed), progress.source))
    }

    /// Ends the request.
    pub(crate) fn finished(&self, reply: Reply, outcome: Outcome, source: Source) -> Completion {
        let operation = match self.kind {
            JobKind::Read => Some(CommandKind::Read),
            JobKind::Write(_) => Some(CommandKind::Write),
            JobKind::Zero => None,
            JobKind::Prefetch => Some(CommandKind::Cache),
        };
        let asked = RequestContext { reply, operation, started: self.started };
        Completion { asked, outcome, source }
    }

    fn one_less(&self, mut progress: MutexGuard<'_, Progress>) -> Option<Completion> {
        progress.left -= 1;
        if progress.left > 0 {
            return None;
        }
        progress.late = None;
        let reply = progress.reply.take()?;
        let answer = match self.kind {
            JobKind::Read => Answer::Data(std::mem::take(&mut progress.pieces)),
            JobKind::Write(_) | JobKind::Zero | JobKind::Prefetch => Answer::Done,
        };
        let outcome = progress.failed.take().map_or(Ok(answer), Err);
        Some(self.finished(reply, outcome, progress.source))
    }

    /// Copies to `out` what the job writes to the volume from byte `at` on.
    pub(crate) fn copy_to(&self, at: u64, out: &mut [u8]) {
        match &self.kind {
            JobKind::Write(payload) => payload.copy_to(at - self.offset, out),
            _ => out.fill(0),
        }
    }

    /// What the job writes to a block; `None` if it writes only a part of the block.
    pub(crate) fn whole_block(&self, block: u64, geometry: &Geometry) -> Option<Bytes> {
        let (start, length) = (geometry.start(block), geometry.len(block));
        if self.span(block, geometry) != (0, length) {
            return None;
        }
        let mut data = self.data(start, start + length as u64);
        let one = if data.len() == 1 { data.pop() } else { None };
        Some(one.unwrap_or_else(|| Bytes::from(data.concat())))
    }

    /// The data that the job writes to the bytes `from..to` of the volume.
    pub(crate) fn data(&self, from: u64, to: u64) -> Vec<Bytes> {
        match &self.kind {
            JobKind::Write(payload) => payload.slices(from - self.offset, to - self.offset),
            _ => vec![zeroes((to - from) as usize)],
        }
    }
}

/// What a request is counted by.
type Counted = (CommandKind, Source, Instant);

/// Requests that have ended since the last answers were sent.
#[derive(Default)]
pub(crate) struct Completions {
    replies: Replies,
    /// Number of requests for each kind; requests of one kind that end together share an entry.
    runs: SmallVec<[(Counted, u64); 2]>,
}

impl Completions {
    /// With room for `requests` requests.
    pub(crate) fn with_capacity(requests: usize) -> Self {
        Self { replies: Replies::with_capacity(requests), ..Self::default() }
    }

    /// Adds a request.
    #[inline(always)]
    pub(crate) fn push(&mut self, finished: Completion) {
        let Completion { asked: RequestContext { reply, operation, started }, outcome, source } =
            finished;
        if let Some(operation) = operation {
            let kind = (operation, source, started);
            match self.runs.last_mut() {
                Some((last, count)) if *last == kind => *count += 1,
                _ => self.runs.push((kind, 1)),
            }
        }
        let told = match outcome {
            Ok(Answer::Done) => Told::Done,
            Ok(Answer::Data(pieces)) => Told::Data(pieces),
            Ok(Answer::Extents(extents)) => Told::Extents(vec![(BASE_ALLOCATION, extents)]),
            Err(failed) => Told::Failed(failed.failure, failed.message.to_string()),
        };
        self.replies.add(reply, told);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Records their latencies and sends all answers, by dropping them; returns their number.
    pub(crate) fn answer(self, latencies: &Latencies) -> u64 {
        let (now, mut all) = (clock::now(), 0);
        for ((operation, source, started), count) in self.runs {
            let time = now.saturating_duration_since(started);
            latencies.of(operation, source).record(time, count);
            all += count;
        }
        drop(self.replies);
        all
    }
}

impl Extend<Completion> for Completions {
    fn extend<I: IntoIterator<Item = Completion>>(&mut self, all: I) {
        all.into_iter().for_each(|finished| self.push(finished));
    }
}

/// The data of a write, in pieces.
pub(crate) struct Payload {
    pieces: Vec<Bytes>,
    /// The end of each piece, counted from the start of the data.
    ends: Vec<u64>,
}

impl Payload {
    pub(crate) fn new(mut pieces: Vec<Bytes>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end += piece.len() as u64;
            end
        });
        Self { ends: ends.collect(), pieces }
    }

    /// Where the bytes `from..to` are, which must lie within the data: pieces, and parts of them.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (&Bytes, Range<usize>)> {
        let first = self.ends.partition_point(|&end| end <= from);
        let all = self.pieces.iter().zip(&self.ends).skip(first);
        let parts = all.map(move |(piece, end)| {
            let start = end - piece.len() as u64;
            let [from, to] = [from, to.min(*end)].map(|at| at.saturating_sub(start) as usize);
            (piece, from..to)
        });
        parts.take_while(|(_, part)| !part.is_empty())
    }

    fn slices(&self, from: u64, to: u64) -> Vec<Bytes> {
        self.parts(from, to).map(|(piece, part)| piece.slice(part)).collect()
    }

    fn copy_to(&self, from: u64, out: &mut [u8]) {
        let mut done = 0;
        for (piece, part) in self.parts(from, from + out.len() as u64) {
            let now = done..done + part.len();
            done = now.end;
            out[now].copy_from_slice(&piece[part]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_in_pieces_is_one_sequence() {
        let whole: Vec<u8> = (0..100).collect();
        let cuts = [0_usize, 10, 10, 37, 99, 100];
        let pieces = cuts.windows(2).map(|c| Bytes::copy_from_slice(&whole[c[0]..c[1]])).collect();
        let payload = Payload::new(pieces);
        for from in 0..100 {
            for to in from..=100 {
                assert_eq!(payload.slices(from as u64, to as u64).concat(), &whole[from..to]);
                let mut out = vec![0; to - from];
                payload.copy_to(from as u64, &mut out);
                assert_eq!(out, &whole[from..to]);
            }
        }
    }
}
