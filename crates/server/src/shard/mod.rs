//! A shard: the policy, the slots of the resident blocks, the blocks that something is going on
//! with, and the rules by which a block moves between these. No I/O: what must be done at the
//! store or said to a client is put into [`Effects`], and done when the lock is released.
//!
//! Invariants, checked in `validate.rs` (docs/developer/server.md explains them):
//! 1. A block with an [`Active`] record has its state there, and its slot, if it is resident, says
//!    so; any other resident block has its state in its slot.
//! 2. A block that is not active and resident has content, unless an operation on it is parked or
//!    the block is unloaded (`restore.rs`); `unloaded` counts these, active or not.
//! 3. An active record has something running, a queue, or dirty content that has no slot.
//! 4. A block is in the dirty set exactly if its state says dirty.
//! 5. Whoever is starved has a write-out to wait for.

mod build;
pub(crate) mod content;
pub(crate) mod cooperation;
pub(crate) mod digests;
pub(crate) mod dirty;
pub(crate) mod ended;
pub(crate) mod endings;
pub(crate) mod eviction_placement;
pub(crate) mod execute;
pub(crate) mod levels;
pub(crate) mod ranges;
pub(crate) mod staged;
pub(crate) mod tell;
pub(crate) mod unflushed;
pub(crate) mod validate;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use undercroft_cache::{Asker, Frame, Level, Referred, Request};
use undercroft_frames::Pool;
use undercroft_nbd::Piece;

use crate::counters::{AwareStats, ShardCounters, Source};
use crate::geometry::Geometry;
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::content::{Active, Content, Memory, Running, Slot};
use crate::shard::cooperation::Cooperation;
use crate::shard::digests::{Digest, Digests};
use crate::shard::dirty::DirtySet;
use crate::shard::endings::Endings;
use crate::shard::execute::{Tools, Verdict, execute, write_now};
use crate::shard::levels::Levels;
use crate::shard::ranges::Ranges;
use crate::shard::tell::{Listener, Riders};
use crate::shard::unflushed::Unflushed;
use crate::volume::feed::Changes;

pub(crate) struct Shard {
    pub(crate) cache: Level,
    /// Only where placement is not access-based.
    pub(crate) coop: Option<Box<Cooperation>>,
    /// What came and went, while somebody follows it.
    pub(crate) changes: Option<Changes>,
    /// What clients said, where the policy is content-aware.
    pub(crate) told: AwareStats,
    /// Only of a level of a scheme of movement.
    pub(crate) levels: Option<Box<Levels>>,
    pub(crate) slots: Vec<Slot>,
    /// Only where clients may hand contents over.
    pub(crate) digests: Option<Digests>,
    pub(crate) active: HashMap<u64, Active, RandomState>,
    pub(crate) dirty: DirtySet,
    pub(crate) ranges: Ranges,
    /// Only where the store can lose what it has answered to a client.
    pub(crate) unflushed: Option<Unflushed>,
    pub(crate) counters: ShardCounters,
    pub(crate) pool: Pool,
    pub(crate) geometry: Arc<Geometry>,
    /// Who is told of blocks that leave.
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// Blocks whose first operation waits for a frame.
    pub(crate) starved: VecDeque<u64>,
    /// Write-outs at the store.
    pub(crate) write_outs: u32,
    /// Slots that are unloaded.
    pub(crate) unloaded: u32,
    together: Together,
}

/// What is looked up together, kept for its memory.
#[derive(Default)]
struct Together {
    blocks: Vec<u64>,
    frames: Vec<Frame>,
}

/// What has to happen when the lock is released.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) finished: Endings,
    pub(crate) starts: Vec<Start>,
    /// A reload is queued.
    pub(crate) reload: bool,
    /// What was driven out since the last of the starts.
    pub(crate) riders: Riders,
    /// Something was driven out.
    pub(crate) has_left: bool,
    /// Something went down for which something may come up.
    pub(crate) settles: bool,
}

/// Something to begin at the store.
pub(crate) struct Start {
    pub(crate) block: u64,
    pub(crate) action: Action,
    /// What the request that this is for drove out.
    pub(crate) riders: Riders,
}

pub(crate) enum Action {
    /// Read the block for the job, into this memory (given by [`Shard::assign`]).
    Fetch(Arc<Job>, Option<Memory>),
    /// Write for the job: its own data of the block, or these bytes from byte `.2` of the volume.
    Write(Arc<Job>, Option<Bytes>, u64),
    /// Write dirty content; together with that of neighbours, unless it is to be tried alone.
    WriteOut { bytes: Bytes, joins: bool },
}

impl Shard {
    pub(crate) fn new(
        cache: Level,
        coop: Option<Cooperation>,
        levels: Option<Levels>,
        pool: Pool,
        geometry: Arc<Geometry>,
        listener: Option<Arc<dyn Listener>>,
    ) -> Self {
        let capacity = cache.capacity();
        Self {
            cache,
            coop: coop.map(Box::new),
            changes: None,
            told: AwareStats::default(),
            levels: levels.map(Box::new),
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            digests: None,
            active: HashMap::default(),
            dirty: DirtySet::default(),
            ranges: Ranges::default(),
            unflushed: None,
            counters: ShardCounters::default(),
            pool,
            geometry,
            listener,
            starved: VecDeque::new(),
            write_outs: 0,
            unloaded: 0,
            together: Together::default(),
        }
    }

    /// Reads what reads of these blocks will need, so that the processor overlaps its waits for
    /// memory: the index and the policy first, then the slots, then counts and data of the frames.
    /// Of the data the first byte is enough: from there on the processor sees what comes.
    pub(crate) fn prefetch(&mut self, blocks: impl Iterator<Item = u64>) {
        let Self { together: Together { blocks: all, frames }, cache, slots, digests, .. } = self;
        all.clear();
        blocks.for_each(|block| all.push(block));
        frames.clear();
        cache.prefetch(all, frames);
        if let Some(digests) = digests {
            digests.warm(frames);
        }
        let slots = frames.iter().map(|&frame| &slots[frame as usize]);
        black_box(slots.clone().filter(|slot| slot.state.content.is_shared()).count());
        black_box(slots.fold(0, |sum, slot| sum ^ slot.state.content.first_byte()));
    }

    /// A write of a block, `is_whole` or in part: whether it hit, and the block's slot now.
    pub(crate) fn write(
        &mut self,
        block: u64,
        is_whole: bool,
        asker: Asker,
        fx: &mut Effects,
    ) -> (bool, Option<Frame>) {
        let referred = self.reference(Request { block, is_write: true, is_whole, asker });
        self.carry_out(block, referred, fx);
        if referred.before.is_none() && referred.now.is_some() {
            self.is_back(block);
        }
        if self.coop.is_some() {
            self.noted_write(block, fx);
        }
        (referred.hit, referred.now)
    }

    /// Makes a write of a block that needs nothing but the copy in its slot to be changed, as most
    /// writes with write-back do: whether it did. Otherwise nothing has changed.
    pub(crate) fn write_now(&mut self, job: &Job, block: u64, slot: Option<Frame>) -> bool {
        let Self { slots, pool, dirty, geometry, .. } = self;
        // What is staged, and what a level of a scheme answers, follows the queue of the block.
        let is_plain = self.coop.is_none() && self.levels.is_none();
        let Some(slot) = slot.filter(|_| geometry.write_back && is_plain && !job.durable) else {
            return false;
        };
        let slot = &mut slots[slot as usize];
        if slot.active || slot.unloaded || self.ranges.cover(block) {
            return false;
        }
        write_now(job, block, &mut slot.state, pool, dirty, geometry)
    }

    /// A counted reference: what the level says. It is to be carried out on the slots.
    fn reference(&mut self, request: Request) -> Referred {
        if self.levels.is_some() {
            let referred = self.level_reference(&request);
            self.cache.delivered(&request);
            return referred;
        }
        let geometry = &self.geometry;
        self.cache.request(&request, || geometry.first_touch(request.block))
    }

    fn carry_out(&mut self, block: u64, referred: Referred, fx: &mut Effects) {
        self.leave_evicted(fx);
        match (referred.before, referred.now) {
            (Some(left), None) => self.leave(block, left, fx),
            (None, Some(frame)) => self.enter(block, frame),
            _ => {}
        }
    }

    /// Makes a block resident without counting a reference: true if it was not.
    pub(crate) fn place(&mut self, block: u64, fx: &mut Effects) -> bool {
        if self.cache.frame(block).is_some() {
            return false;
        }
        let Some(frame) = self.cache.place(block) else { return false };
        self.geometry.first_touch(block);
        self.leave_evicted(fx);
        self.enter(block, frame);
        true
    }

    /// The newly resident block gets an empty slot.
    pub(crate) fn enter(&mut self, block: u64, frame: u32) {
        if let Some(changes) = &mut self.changes {
            changes.note(block, true);
        }
        let record = if self.active.is_empty() { None } else { self.active.get_mut(&block) };
        let active = record.is_some();
        if let Some(record) = record {
            record.departed = None;
        }
        self.slots[frame as usize] = Slot { active, ..Slot::default() };
        self.set_digest_of_slot(frame, 0);
    }

    #[inline]
    pub(crate) fn leave_evicted(&mut self, fx: &mut Effects) {
        for i in 0..self.cache.evicted().len() {
            let evicted = self.cache.evicted()[i];
            self.driven_out(evicted.block, evicted.frame, fx);
        }
    }

    /// Forgets a block that has no content.
    pub(crate) fn discard(&mut self, block: u64) {
        if let (true, Some(changes)) = (self.cache.frame(block).is_some(), &mut self.changes) {
            changes.note(block, false);
        }
        self.cache.discard(block);
    }

    /// A block lost its slot. What the store does not have yet is kept until it has.
    pub(crate) fn leave(&mut self, block: u64, frame: u32, fx: &mut Effects) {
        if let Some(changes) = &mut self.changes {
            changes.note(block, false);
        }
        let slot = std::mem::take(&mut self.slots[frame as usize]);
        let digest = self.take_digest_of_slot(frame);
        self.unloaded -= u32::from(slot.unloaded);
        if slot.active {
            self.let_go_of_frame(block);
        } else if slot.state.dirty.is_some() {
            let digest = if digest == 0 { Digest::Struck } else { Digest::Known(digest) };
            self.active.insert(block, Active { state: slot.state, digest, ..Active::default() });
            self.try_write_out(block, fx);
        } else {
            self.remember_digest(block, digest);
        }
    }

    /// A block lost its slot while it is written through: the store gets the data from elsewhere,
    /// and the frame is needed for the blocks that stay.
    fn let_go_of_frame(&mut self, block: u64) {
        if let Some(record) = self.active.get_mut(&block) {
            let is_written = matches!(record.running, Running::Write | Running::Starved);
            if is_written && record.state.dirty.is_none() {
                record.state.content = Content::Absent;
            }
        }
    }

    /// A read of a block: the bytes `span` of it if they can be had at once.
    pub(crate) fn read_now(
        &mut self,
        block: u64,
        span: (usize, usize),
        asker: Asker,
        fx: &mut Effects,
    ) -> Result<Piece, Source> {
        let is_whole = span == (0, self.geometry.len(block));
        let referred = self.reference(Request { block, is_write: false, is_whole, asker });
        let piece = match referred {
            Referred { hit: false, .. } => None,
            // Before it leaves its slot, where the client has it from now on.
            Referred { before: Some(frame), .. } => {
                let slot = &self.slots[frame as usize];
                let is_quiet = !slot.active && !self.ranges.cover(block);
                let piece = slot.state.content.sendable(span.0, span.1);
                piece.filter(|_| is_quiet)
            }
            Referred { before: None, .. } => {
                self.staged(block).and_then(|content| content.sendable(span.0, span.1))
            }
        };
        self.carry_out(block, referred, fx);
        if let Referred { hit: true, before: None, now: Some(slot) } = referred {
            self.fill_staged(block, slot, fx);
        }
        if self.coop.is_some() {
            self.noted_read(block, fx);
        }
        match piece {
            Some(piece) => Ok(piece),
            None if referred.hit => {
                self.counters.joined_reads += 1;
                Err(Source::Joined)
            }
            None => Err(Source::Miss),
        }
    }

    /// An operation takes its place behind all that arrived before it for the same block.
    pub(crate) fn enqueue(&mut self, op: BlockOp, fx: &mut Effects) {
        let Some(op) = self.ranges.park(op) else { return };
        self.enqueue_unparked(op, fx);
    }

    pub(crate) fn enqueue_unparked(&mut self, op: BlockOp, fx: &mut Effects) {
        let block = op.block;
        self.activate(block).queue.push_back(op);
        self.step(block, fx);
    }

    /// The block's active record, into which its state moves if there was none.
    pub(crate) fn activate(&mut self, block: u64) -> &mut Active {
        let Self { active, cache, slots, digests, .. } = self;
        active.entry(block).or_insert_with(|| {
            let Some(frame) = cache.frame(block) else { return Active::default() };
            let slot = &mut slots[frame as usize];
            slot.active = true;
            let digest = digests.as_mut().map_or(Digest::Struck, |digests| digests.lift(frame));
            Active { state: std::mem::take(&mut slot.state), digest, ..Active::default() }
        })
    }

    /// Carries out the operations of a block as far as possible.
    pub(crate) fn step(&mut self, block: u64, fx: &mut Effects) {
        let resident = self.cache.frame(block).is_some();
        let can_wait = self.write_outs > 0;
        let Self { active, dirty, pool, geometry, counters, coop, cache, .. } = self;
        let Some(record) = active.get_mut(&block) else { return };
        loop {
            if !matches!(record.running, Running::Nothing | Running::WriteOut(_)) {
                return;
            }
            let Some(op) = record.queue.front() else { break };
            let writing_out = record.running != Running::Nothing;
            let mut tools =
                Tools { pool, dirty, geometry, counters, resident, can_wait, writing_out };
            let verdict = execute(&op.job, block, &mut record.state, &mut tools);
            let job = Arc::clone(&op.job);
            match verdict {
                Verdict::Done(piece) => {
                    record.queue.pop_front();
                    if job.is_change() {
                        record.digest.begin();
                    }
                    if let Some(coop) = coop {
                        coop.stage(block, &job, &record.state.content, pool, geometry, cache);
                    }
                    fx.finished.extend(job.part_done(block, geometry, Ok(piece)));
                }
                Verdict::Fetch => {
                    record.running = Running::Fetch;
                    record.digest.begin();
                    // What is being read back already ends as this fetch would.
                    if coop.as_mut().is_some_and(|coop| coop.join_reload(block)) {
                        return;
                    }
                    let riders = std::mem::take(&mut fx.riders);
                    fx.starts.push(Start { block, action: Action::Fetch(job, None), riders });
                    return;
                }
                Verdict::Write(bytes, at) => {
                    record.running = Running::Write;
                    record.digest.begin();
                    let riders = std::mem::take(&mut fx.riders);
                    fx.starts.push(Start { block, action: Action::Write(job, bytes, at), riders });
                    return;
                }
                // The block's own write-out will free one.
                Verdict::Starve if writing_out => return,
                Verdict::Starve => {
                    record.running = Running::Starved;
                    self.starved.push_back(block);
                    return;
                }
                Verdict::Wait => return,
            }
        }
        if record.running == Running::Nothing {
            self.settle(block, fx);
        }
    }

    /// Nothing is going on with the block any more: its state goes to its slot, or to the store,
    /// or is not needed.
    fn settle(&mut self, block: u64, fx: &mut Effects) {
        let slot = self.cache.frame(block);
        let digest = self.prove(block);
        let Some(record) = self.active.get_mut(&block) else { return };
        let state = &mut record.state;
        if slot.is_some() {
            if let Content::Loose(bytes) = &state.content {
                if let Some(mut frame) = self.pool.take() {
                    frame[..bytes.len()].copy_from_slice(bytes);
                    state.content = Content::Frame(frame.freeze());
                } else if state.dirty.is_none() {
                    state.content = Content::Absent;
                }
            }
        }
        match slot {
            Some(frame) if !state.content.is_absent() => {
                let slot = &mut self.slots[frame as usize];
                self.unloaded -= u32::from(slot.unloaded);
                *slot = Slot { state: std::mem::take(state), ..Slot::default() };
                self.active.remove(&block);
                self.set_digest_of_slot(frame, digest);
            }
            None if state.dirty.is_some() => {
                if digest != 0 {
                    record.digest = Digest::Known(digest);
                }
                self.try_write_out(block, fx);
            }
            Some(frame) if self.slots[frame as usize].unloaded => {
                // Not yet: the next one tries again.
                self.slots[frame as usize].active = false;
                self.active.remove(&block);
            }
            Some(frame) => {
                // A resident block without content: a failure, or no frame was free.
                self.slots[frame as usize] = Slot::default();
                self.discard(block);
                self.active.remove(&block);
                self.remember_digest(block, digest);
                self.is_gone(block);
            }
            None => {
                let record = self.active.remove(&block);
                self.remember_digest(block, digest);
                self.is_over(block, record.and_then(|record| record.departed));
            }
        }
    }

    /// Begins to write an active block's dirty content, unless something forbids it just now, or
    /// the store refused it.
    pub(crate) fn try_write_out(&mut self, block: u64, fx: &mut Effects) {
        if self.ranges.cover(block) {
            return;
        }
        let length = self.geometry.len(block);
        let Some(record) = self.active.get_mut(&block) else { return };
        let is_refused = record.state.dirty.is_some_and(|number| self.dirty.is_refused(number));
        if record.running != Running::Nothing || is_refused {
            return;
        }
        let Some(bytes) = record.state.content.piece(0, length) else { return };
        let joins = self.dirty.joins(block);
        if let Some(number) = self.dirty.start(block, &mut record.state) {
            record.running = Running::WriteOut(number);
            record.digest.begin_write_out();
            self.write_outs += 1;
            let (action, riders) = (Action::WriteOut { bytes, joins }, Riders::new());
            fx.starts.push(Start { block, action, riders });
        }
    }

    /// Gives a fetch its memory, unless that has to wait. Done when the whole request has passed
    /// the policy: a block that the request itself drove out again needs no frame.
    pub(crate) fn assign(&mut self, mut start: Start, fx: &mut Effects) -> Option<Start> {
        let block = start.block;
        if let Action::Fetch(job, memory @ None) = &mut start.action {
            let resident = self.cache.frame(block).is_some();
            let frame = if resident { self.pool.take() } else { None };
            let is_ahead = matches!(job.kind, JobKind::Prefetch);
            if frame.is_none() && is_ahead && self.give_up(block, fx) {
                return None;
            }
            if resident && frame.is_none() && self.write_outs > 0 {
                self.starve(block);
                return None;
            }
            self.counters.served_around += u64::from(resident && frame.is_none());
            *memory = Some(match frame {
                Some(frame) => Memory::Frame(frame),
                None => Memory::Heap(vec![0; self.geometry.len(block)].into()),
            });
        }
        Some(start)
    }

    /// What is fetched for nobody has no frame: it is not fetched, unless somebody waits by now.
    fn give_up(&mut self, block: u64, fx: &mut Effects) -> bool {
        let Some(record) = self.active.get_mut(&block) else { return false };
        if record.queue.len() != 1 {
            return false;
        }
        record.running = Running::Nothing;
        if let Some(op) = record.queue.pop_front() {
            fx.finished.extend(op.job.part_done(block, &self.geometry, Ok(None)));
        }
        self.settle(block, fx);
        true
    }

    fn starve(&mut self, block: u64) {
        if let Some(record) = self.active.get_mut(&block) {
            record.running = Running::Starved;
            self.starved.push_back(block);
        }
    }

    /// Lets the starved go on, as far as there are frames; all of them, if none will be freed.
    pub(crate) fn feed(&mut self, fx: &mut Effects) {
        while self.write_outs == 0 || self.pool.free_count() > 0 {
            let Some(block) = self.starved.pop_front() else { return };
            if let Some(record) = self.active.get_mut(&block) {
                record.running = Running::Nothing;
            }
            let begun = fx.starts.len();
            self.step(block, fx);
            for start in fx.starts.split_off(begun) {
                let start = self.assign(start, fx);
                fx.starts.extend(start);
            }
        }
    }

    /// The jobs that wait for something, one for each of their blocks that does.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        let queued = self.active.values().flat_map(|record| record.queue.iter());
        queued.map(|op| &op.job).chain(self.ranges.parked_jobs())
    }

    /// The blocks whose dirty content is on its way to the store.
    pub(crate) fn being_written_out(&self) -> impl Iterator<Item = u64> + '_ {
        let writing = |record: &Active| matches!(record.running, Running::WriteOut(_));
        self.active.iter().filter(move |(_, record)| writing(record)).map(|(&block, _)| block)
    }

    /// Begins to write a dirty block out, resident or not, and whether or not the store refused it
    /// before.
    pub(crate) fn write_out(&mut self, block: u64, fx: &mut Effects) {
        if self.ranges.cover(block) {
            return;
        }
        if let Some(number) = self.activate(block).state.dirty {
            self.dirty.try_again(number);
        }
        self.try_write_out(block, fx);
        self.step(block, fx);
    }

    /// Bit 0: in memory, or being read into it; bit 1: the store does not have its content.
    pub(crate) fn residency(&self, block: u64) -> u32 {
        let resident = self.cache.frame(block).is_some() && !self.is_unloaded(block);
        let dirty = self.dirty.within(block, block).next().is_some();
        u32::from(resident) | u32::from(dirty) << 1
    }
}
