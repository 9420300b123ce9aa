//! The effect of one operation on one block, given what is in memory of it: the rules of reading
//! and writing. Called with the shard's lock held, and again when what it asked for has arrived.

use bytes::Bytes;
use undercroft_frames::{FrameMut, Pools};
use undercroft_nbd::Piece;

use crate::counters::Stats;
use crate::geometry::Geometry;
use crate::job::{Job, JobKind};
use crate::shard::content::{Content, State};
use crate::shard::dirty::DirtySet;

/// What an operation needs before it can go on.
pub(crate) enum Verdict {
    /// Nothing: it took effect. For a read, with the data.
    Done(Option<Piece>),
    /// The block must be read from the store; then execute the operation again.
    Fetch,
    /// A write to the store, which completes the operation: the job's own data, or these bytes from
    /// this byte of the volume on.
    Write(Option<Bytes>, u64),
    /// A free frame, which a running write-out will bring.
    Starve,
    /// The end of the write-out of the block.
    Wait,
}

/// What the execution of an operation may read and change.
pub(crate) struct OpContext<'a> {
    pub(crate) pool: &'a Pools,
    pub(crate) dirty: &'a mut DirtySet,
    pub(crate) geometry: &'a Geometry,
    pub(crate) counters: &'a mut Stats,
    /// Whether the policy holds the block.
    pub(crate) resident: bool,
    /// Whether a running write-out will free a frame.
    pub(crate) can_wait: bool,
    /// Whether the block itself is being written out.
    pub(crate) writing_out: bool,
    /// Whether a write may be answered now and reach the store later.
    pub(crate) delays: bool,
    /// Frames that may hold written blocks that are not resident, until they are written out.
    pub(crate) lent: usize,
}

pub(crate) fn execute(
    job: &Job,
    block: u64,
    state: &mut State,
    context: &mut OpContext,
) -> Verdict {
    match job.kind {
        JobKind::Read => {
            let (from, to) = job.span(block, context.geometry);
            let piece = state.content.sendable(from, to);
            piece.map_or(Verdict::Fetch, |piece| Verdict::Done(Some(piece)))
        }
        // Without a slot the data cannot be kept.
        JobKind::Prefetch if !context.resident => Verdict::Done(None),
        JobKind::Prefetch if state.content.is_absent() => Verdict::Fetch,
        JobKind::Prefetch => Verdict::Done(None),
        JobKind::Write(_) | JobKind::Zero => {
            let keep = context.resident || state.dirty.is_some();
            if !keep && context.lent > 0 && absorb(job, block, state, context) {
                return Verdict::Done(None);
            }
            // Without the bounds of dirty data it would be answered now.
            let is_full = Part::new(job, block, context.geometry).is_full();
            let is_delayable = keep || context.lent > 0 && is_full;
            let is_bounded =
                is_delayable && context.geometry.write_back && !context.delays && !job.durable;
            let verdict = match (keep, context.delays && !job.durable) {
                // Two writes of a block never run at the store at the same time.
                (false, _) | (_, false) if context.writing_out => Verdict::Wait,
                (false, _) => write_around(job, block, state, context),
                (true, false) => write_through(job, block, state, context),
                (true, true) => write_back(job, block, state, context),
            };
            let is_begun = matches!(verdict, Verdict::Write(..));
            context.counters.bounded_writes += u64::from(is_bounded && is_begun);
            verdict
        }
    }
}

/// Writes a block that does not stay in the cache: the data go to the store only.
fn write_around(job: &Job, block: u64, state: &mut State, context: &OpContext) -> Verdict {
    let part = Part::new(job, block, context.geometry);
    if part.is_aligned(context.geometry) {
        state.content = Content::Absent;
        return Verdict::Write(None, part.at);
    }
    if state.content.is_absent() {
        return Verdict::Fetch;
    }
    let bytes = part.patched(job, &state.content);
    state.content = Content::Absent;
    part.write_from(&bytes, context.geometry)
}

/// Takes a write of a whole block that does not stay in the cache into a spare frame, from which it
/// is written out at once. So the client does not wait for the store, as with a resident block.
/// Returns false, with nothing changed, if that is not possible.
fn absorb(job: &Job, block: u64, state: &mut State, context: &mut OpContext) -> bool {
    let is_possible =
        context.delays && !job.durable && Part::new(job, block, context.geometry).is_full();
    is_possible && write_now(job, block, state, context.pool, context.dirty, context.geometry)
}

/// Writes through: answered when the store has the data. The copy is changed first, and dropped if
/// the store fails.
fn write_through(job: &Job, block: u64, state: &mut State, context: &mut OpContext) -> Verdict {
    let part = Part::new(job, block, context.geometry);
    if !part.is_full() && state.content.is_absent() {
        return Verdict::Fetch;
    }
    if !part.apply(job, &mut state.content, context.pool) {
        if context.can_wait {
            return Verdict::Starve;
        }
        context.counters.served_around += 1;
        state.content = Content::loose(part.patched(job, &state.content));
    }
    if state.dirty.is_some() {
        // The whole block: the rest of it may be newer than the store, too.
        let whole = state.content.piece(0, part.len);
        return Verdict::Write(whole, part.start);
    }
    if part.is_aligned(context.geometry) {
        return Verdict::Write(None, part.at);
    }
    let bytes = state.content.piece(0, part.len).unwrap_or_default();
    part.write_from(&bytes, context.geometry)
}

/// Writes back: answered when the copy is changed.
fn write_back(job: &Job, block: u64, state: &mut State, context: &mut OpContext) -> Verdict {
    let part = Part::new(job, block, context.geometry);
    if !part.is_full() && state.content.is_absent() {
        return Verdict::Fetch;
    }
    if write_now(job, block, state, context.pool, context.dirty, context.geometry) {
        return Verdict::Done(None);
    }
    if context.can_wait {
        return Verdict::Starve;
    }
    // Clients that do not read their replies hold all frames: the store must take the write.
    write_through(job, block, state, context)
}

/// Changes the copy of a block and marks it dirty, if the needed old content is in memory and a
/// frame is free. Returns whether that was done.
pub(crate) fn write_now(
    job: &Job,
    block: u64,
    state: &mut State,
    pool: &Pools,
    dirty: &mut DirtySet,
    geometry: &Geometry,
) -> bool {
    let part = Part::new(job, block, geometry);
    if !part.is_full() && state.content.is_absent() {
        return false;
    }
    let is_applied = part.apply(job, &mut state.content, pool);
    if is_applied {
        dirty.mark(block, state, job.started);
    }
    is_applied
}

/// The part of a block that a write concerns.
struct Part {
    /// First and last (exclusive) byte within the block.
    from: usize,
    to: usize,
    /// Bytes of the block.
    len: usize,
    /// The block's first byte in the volume.
    start: u64,
    /// The part's first byte in the volume.
    at: u64,
}

impl Part {
    fn new(job: &Job, block: u64, geometry: &Geometry) -> Self {
        let (from, to) = job.span(block, geometry);
        let start = geometry.start(block);
        Self { from, to, len: geometry.len(block), start, at: start + from as u64 }
    }

    fn is_full(&self) -> bool {
        self.from == 0 && self.to == self.len
    }

    /// Whether the part has the alignment that the store needs.
    fn is_aligned(&self, geometry: &Geometry) -> bool {
        self.is_full()
            || geometry.is_aligned(self.at) && geometry.is_aligned(self.start + self.to as u64)
    }

    /// Writes the part into the copy, in a frame that nobody else reads. Returns false, with the
    /// copy unchanged, if no frame is free.
    fn apply(&self, job: &Job, content: &mut Content, pool: &Pools) -> bool {
        let Some(mut frame) = self.frame_to_write(content, pool) else { return false };
        job.copy_to(self.at, &mut frame[self.from..self.to]);
        *content = Content::Frame(frame.freeze());
        true
    }

    /// A frame with the block's old content, as far as the part does not overwrite it.
    fn frame_to_write(&self, content: &mut Content, pool: &Pools) -> Option<FrameMut> {
        let shared = match std::mem::take(content) {
            Content::Frame(frame) => match frame.try_into_mut() {
                Ok(own) => return Some(own),
                Err(shared) => Content::Frame(shared),
            },
            other => other,
        };
        let Some(mut frame) = pool.take() else {
            *content = shared;
            return None;
        };
        if !self.is_full() {
            match &shared {
                Content::Frame(old) => frame.copy_from_slice(old.as_ref()),
                Content::Loose(old) => frame[..old.len()].copy_from_slice(old),
                Content::Zero | Content::Absent => frame.fill(0),
            }
        }
        Some(frame)
    }

    /// The whole block with the part written into it, in memory outside the cache.
    fn patched(&self, job: &Job, content: &Content) -> Bytes {
        let old = content.piece(0, self.len);
        let mut bytes = old.map_or_else(|| vec![0; self.len], |old| old.to_vec());
        job.copy_to(self.at, &mut bytes[self.from..self.to]);
        Bytes::from(bytes)
    }

    /// Writes the part from a copy of the whole block, widened to the alignment of the store.
    fn write_from(&self, block: &Bytes, geometry: &Geometry) -> Verdict {
        let unit = geometry.alignment as usize;
        let from = self.from / unit * unit;
        let to = self.to.next_multiple_of(unit).min(self.len);
        Verdict::Write(Some(block.slice(from..to)), self.start + from as u64)
    }
}
