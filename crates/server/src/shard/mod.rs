//! A shard: its blocks (`blocks.rs`), which of them are dirty (`dirty.rs`), and the operations by
//! which a block moves between its states. No I/O: what must be done at the store or answered to a
//! client is put into [`Effects`], and done after the lock is released.
//!
//! Invariants, checked in `validate.rs` (docs/developer/server.md explains them):
//! 1. The state of a block with an [`Active`] record is in that record; if the block is resident,
//!    its slot is marked active. The state of any other resident block is in its slot.
//! 2. A resident block that is not active has content, unless an operation on it is parked or the
//!    block is unloaded (`restore.rs`). `unloaded` counts unloaded blocks, active or not.
//! 3. An active record knows the block's slot, and has a running store request, a queue, or dirty
//!    content without a slot.
//! 4. A block is in the dirty set exactly if its state is dirty.
//! 5. If a block is starved, a write-out is running, or starts in its turn.

pub(crate) mod awaited;
pub(crate) mod below;
pub(crate) mod blocks;
mod build;
mod change;
pub(crate) mod content;
pub(crate) mod content_log;
pub(crate) mod digests;
pub(crate) mod dirty;
pub(crate) mod effects;
pub(crate) mod event;
pub(crate) mod eviction_placement;
pub(crate) mod execute;
pub(crate) mod flash_level;
mod handed_over;
pub(crate) mod place_evicted;
pub(crate) mod ranges;
pub(crate) mod staged;
mod starved;
pub(crate) mod unflushed;
pub(crate) mod validate;
pub(crate) mod watchers;
mod write_outs;

use std::mem::take;
use std::sync::Arc;

use undercroft_level::placement::DataSource;
use undercroft_level::{Frame, Referred, Request};
use undercroft_nbd::Piece;

use crate::counters::{Source, Stats};
use crate::job::{BlockOp, Job};
use crate::shard::blocks::Blocks;
use crate::shard::content::{Active, Content, Origin, Running, Slot};
use crate::shard::dirty::DirtySet;
use crate::shard::effects::{ClientWrite, Effects, Fetch};
use crate::shard::event::{Event, Goes, Leaving};
use crate::shard::execute::{OpContext, Verdict, execute, write_now};
use crate::shard::flash_level::Place;
use crate::shard::starved::Starved;

/// A part of a volume's cache, behind a lock of its own.
pub(crate) struct Shard {
    pub(crate) blocks: Blocks,
    pub(crate) dirty: DirtySet,
    pub(crate) counters: Stats,
    /// Frames of the blocks' pool that are for staged blocks.
    pub(crate) staged_frames: u32,
    /// Blocks whose first operation waits for a frame.
    pub(crate) starved: Starved,
}

impl Shard {
    /// A write of a block. Returns whether it hit, and the block's slot now.
    pub(crate) fn write(&mut self, request: &Request, fx: &mut Effects) -> (bool, Option<Frame>) {
        let block = request.block;
        let referred =
            self.blocks.level.request(request, || self.blocks.geometry.first_touch(block));
        self.carry_out(block, referred, fx);
        if referred.before.is_none() && referred.now.is_some() {
            self.blocks.tell(&Event::Returned { block });
        }
        self.blocks.tell(&Event::Writes { request, referred });
        self.place_next(fx);
        (referred.hit, referred.now)
    }

    /// Completes a write that only has to change the copy in the block's slot, as most writes with
    /// write-back do. Returns false, with nothing changed, if the write needs more.
    pub(crate) fn write_now(&mut self, job: &Job, block: u64, slot: Option<Frame>) -> bool {
        // Staged data depend on the queue of the block.
        let Blocks { slots, ranges, watchers, pool, geometry, .. } = &mut self.blocks;
        let is_plain = watchers.placement.is_none() && !job.durable && self.dirty.allows_more();
        let Some(slot) = slot.filter(|_| is_plain) else { return false };
        let slot = &mut slots[slot as usize];
        if slot.active || slot.unloaded || ranges.cover(block) {
            return false;
        }
        write_now(job, block, &mut slot.state, pool, &mut self.dirty, geometry)
    }

    /// Carries out the level's decisions about blocks that clients evicted.
    pub(crate) fn place_next(&mut self, fx: &mut Effects) {
        while let Some((block, down)) = self.blocks.level.next_placement() {
            self.carry_out_placement(block, down, fx);
        }
    }

    fn carry_out(&mut self, block: u64, referred: Referred, fx: &mut Effects) {
        self.leave_evicted(fx);
        match (referred.before, referred.now) {
            (Some(left), None) => self.leave(block, left, false, fx),
            (None, Some(slot)) => self.blocks.enter(block, slot),
            _ => {}
        }
    }

    /// Makes a block resident that is not, without counting a reference. `evicted`: a client has
    /// evicted it, and its data are here or about to arrive this way. Returns its slot.
    pub(crate) fn place(
        &mut self,
        block: u64,
        evicted: Option<DataSource>,
        fx: &mut Effects,
    ) -> Frame {
        let level = &mut self.blocks.level;
        let (slot, origin) = match evicted {
            None => (level.place(block), Origin::Used),
            Some(way @ DataSource::Demote) => (level.arrived(block, way), Origin::Demoted),
            Some(way @ DataSource::Reload) => (level.arrived(block, way), Origin::Reloaded),
        };
        if evicted.is_none() {
            self.blocks.geometry.first_touch(block);
        }
        self.leave_evicted(fx);
        self.blocks.enter(block, slot);
        self.blocks.tell(&Event::Placed { block, slot });
        self.blocks.slots[slot as usize].origin = origin;
        slot
    }

    #[inline]
    pub(crate) fn leave_evicted(&mut self, fx: &mut Effects) {
        for i in 0..self.blocks.level.evicted().len() {
            let evicted = self.blocks.level.evicted()[i];
            self.leave(evicted.block, evicted.frame, true, fx);
        }
    }

    /// A block lost its slot, to another one if it `is_evicted`. Dirty content is kept until the
    /// store has it.
    pub(crate) fn leave(&mut self, block: u64, slot: Frame, is_evicted: bool, fx: &mut Effects) {
        let (state, how) = self.blocks.leave(block, slot, is_evicted);
        match (how, state.dirty) {
            (Leaving::Dirty, Some(number)) => {
                self.blocks.active.insert(block, Active { state, ..Active::default() });
                self.dirty.wait_without_slot(number);
                fx.writes_out |= self.due_without_slot() > 0;
            }
            (Leaving::Clean, _) if is_evicted && self.blocks.watchers.below.is_some() => {
                fx.piggybacked.push(block);
                fx.has_left = true;
            }
            _ => {}
        }
    }

    /// Reads a block: the bytes `span` of it, if they are available at once.
    pub(crate) fn read_now(
        &mut self,
        request: &Request,
        span: (usize, usize),
        fx: &mut Effects,
    ) -> Result<Piece, Source> {
        let block = request.block;
        let referred =
            self.blocks.level.request(request, || self.blocks.geometry.first_touch(block));
        let mut origin = Origin::Used;
        let piece = match referred {
            Referred { hit: false, .. } => None,
            // Taken before the block leaves its slot; from now on the client has it.
            Referred { before: Some(frame), .. } => {
                let slot = &self.blocks.slots[frame as usize];
                origin = slot.origin;
                let is_quiet = !slot.active && !self.blocks.ranges.cover(block);
                let piece = slot.state.content.sendable(span.0, span.1);
                piece.filter(|_| is_quiet)
            }
            Referred { before: None, .. } => {
                self.blocks.staged(block).and_then(|content| content.sendable(span.0, span.1))
            }
        };
        self.carry_out(block, referred, fx);
        if let Referred { hit: true, before: None, now: Some(slot) } = referred {
            self.fill_staged(block, slot, fx);
        }
        let Blocks { level, watchers, pool, geometry, .. } = &mut self.blocks;
        watchers.tell(&Event::Reads { request, referred, origin }, level, pool, geometry);
        self.place_next(fx);
        match piece {
            Some(piece) => Ok(piece),
            None if referred.hit => {
                self.counters.joined_reads += 1;
                Err(Source::Joined)
            }
            None => Err(Source::Miss),
        }
    }

    /// Queues an operation behind those that arrived earlier for the same block.
    pub(crate) fn enqueue(&mut self, op: BlockOp, fx: &mut Effects) {
        let Some(op) = self.blocks.ranges.park(op) else { return };
        self.enqueue_unparked(op, fx);
    }

    pub(crate) fn enqueue_unparked(&mut self, op: BlockOp, fx: &mut Effects) {
        let block = op.block;
        self.blocks.activate(block).queue.push_back(op);
        self.step(block, fx);
    }

    /// Executes the operations of a block as far as possible.
    pub(crate) fn step(&mut self, block: u64, fx: &mut Effects) {
        let can_wait = self.leaving() > 0;
        let delays = self.dirty.allows_more();
        let mut lent = self.blocks.lent_frames(block);
        let mut absorbed = None;
        let Self { blocks, dirty, counters, .. } = self;
        let Blocks { level, active, watchers, pool, geometry, .. } = blocks;
        let Some(record) = active.get_mut(&block) else { return };
        let resident = record.slot.is_some();
        loop {
            if !matches!(record.running, Running::Nothing | Running::WriteOut(_)) {
                return;
            }
            let Some(op) = record.queue.front() else { break };
            let writing_out = record.running != Running::Nothing;
            let mut context = OpContext {
                pool,
                dirty,
                geometry,
                counters,
                resident,
                can_wait,
                writing_out,
                delays,
                lent,
            };
            let verdict = execute(&op.job, block, &mut record.state, &mut context);
            let job = Arc::clone(&op.job);
            match verdict {
                Verdict::Done(piece) => {
                    record.queue.pop_front();
                    if job.is_change() {
                        let content = &record.state.content;
                        let event = Event::Changed { block, job: &job, content };
                        watchers.tell(&event, level, pool, geometry);
                    }
                    fx.finished.extend(job.part_done(block, geometry, Ok(piece)));
                    absorbed = Some(job).filter(|job| !resident && job.is_change());
                    lent = lent.saturating_sub(1);
                }
                Verdict::Fetch => {
                    let flash = watchers.flash.as_mut();
                    let place = flash.map_or(Place::Store, |it| it.place_of(block, geometry));
                    if let Place::Data(data) = place {
                        record.state.content = Content::loose(data);
                        watchers.tell(&Event::Changes { block }, level, pool, geometry);
                        continue;
                    }
                    record.running = Running::Fetch;
                    watchers.tell(&Event::Changes { block }, level, pool, geometry);
                    // If a reload of the block is running, it serves as the fetch.
                    let placement = watchers.placement.as_mut();
                    if placement.is_some_and(|placement| placement.join_reload(block)) {
                        return;
                    }
                    let from = match place {
                        Place::Flash(part, byte) => Some((part, byte)),
                        _ => None,
                    };
                    let (memory, piggybacked) = (Vec::new(), take(&mut fx.piggybacked));
                    let joins = !record.is_suspect;
                    let fetch = Fetch { first: block, from, job, memory, piggybacked, joins };
                    return fx.store.fetches.push(fetch);
                }
                Verdict::Write(bytes, offset) => {
                    record.running = Running::Write;
                    watchers.tell(&Event::Changes { block }, level, pool, geometry);
                    let end = match &bytes {
                        None => geometry.start(block) + job.span(block, geometry).1 as u64,
                        Some(bytes) => offset + bytes.len() as u64,
                    };
                    let (first, count, piggybacked) = (block, 1, take(&mut fx.piggybacked));
                    let write = ClientWrite { first, count, job, bytes, offset, end, piggybacked };
                    return fx.store.writes.push(write);
                }
                // The block's own write-out will free a frame.
                Verdict::Starve if writing_out => return,
                Verdict::Starve => {
                    record.running = Running::Starved;
                    self.starved.push(block, false);
                    return;
                }
                Verdict::Wait => return,
            }
        }
        if record.running == Running::Nothing {
            self.settle(block, fx);
        }
        if let Some(job) = absorbed {
            self.end_awaited(block, &job, fx);
        }
    }

    /// Ends the active state of a block: its state moves to its slot, is written out, or is
    /// dropped.
    fn settle(&mut self, block: u64, fx: &mut Effects) {
        let Blocks { slots, active, ranges, pool, .. } = &mut self.blocks;
        let is_covered = ranges.cover(block);
        let Some(Active { slot, state, .. }) = active.get_mut(&block) else { return };
        let slot = *slot;
        // Content that finds no frame is given up; what is known of it is not.
        let mut given_up = Content::Absent;
        if let (Some(_), Content::Loose(bytes)) = (slot, &state.content) {
            if let Some(mut frame) = pool.take() {
                frame[..bytes.len()].copy_from_slice(bytes);
                state.content = Content::Frame(frame.freeze());
            } else if state.dirty.is_none() {
                given_up = take(&mut state.content);
            }
        }
        let to = match slot {
            Some(slot) if !state.content.is_absent() || slots[slot as usize].unloaded => {
                Goes::ToSlot(slot)
            }
            None if state.dirty.is_some() => Goes::Stays,
            _ => Goes::Nowhere,
        };
        let leaves_slot = slot.is_some() && to == Goes::Nowhere;
        if leaves_slot {
            // A resident block without content: a fetch failed, or no frame was free.
            self.blocks.discard(block);
        }
        let Blocks { level, active, watchers, pool, geometry, .. } = &mut self.blocks;
        let Some(record) = active.get(&block) else { return };
        let content = if leaves_slot { &given_up } else { &record.state.content };
        let is_dirty = record.state.dirty.is_some();
        let event = Event::Idle { block, content, to, is_dirty, is_covered };
        watchers.tell(&event, level, pool, geometry);
        if let (Goes::Stays, Some(number)) = (to, record.state.dirty) {
            self.dirty.wait_without_slot(number);
            fx.writes_out |= self.due_without_slot() > 0;
            return;
        }
        let Some(Active { state, .. }) = self.blocks.active.remove(&block) else { return };
        match to {
            // Not loaded yet: the next call tries again.
            Goes::ToSlot(slot) if state.content.is_absent() => {
                self.blocks.slots[slot as usize].active = false;
            }
            Goes::ToSlot(slot) => {
                if let Some(number) = state.dirty {
                    self.dirty.has_slot(number);
                }
                self.blocks.put(slot, state);
            }
            _ if leaves_slot => self.blocks.tell(&Event::Gone { block }),
            _ => {}
        }
    }
}
