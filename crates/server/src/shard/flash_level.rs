//! The flash level below a shard's memory: which blocks go there when they leave memory
//! (`undercroft_flash` decides, as in a simulation), and the order of reads and writes of a slot.
//!
//! A slot has one block at a time, and its number is given to the next block while the one before
//! may still be read or written there. So requests of a slot wait for each other: a write for all
//! reads, a read for no write, since it gets the data that are being written. No request of a
//! client waits for a write.
//!
//! A copy on flash is what the store has. It ends when a write or a range arrives, before that
//! takes effect; and it is made when its block leaves memory, or later, if the block has operations
//! or is dirty then, when these are done.
//!
//! Not here: how the device is asked (`operations/flash.rs`), and what outlives the server
//! (`journal.rs`).

mod journal;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use foldhash::fast::{FixedState, RandomState};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::sync::Notify;
use undercroft_flash::{
    Below, Directory as _, Evidence, Flash, Recorded, Reference, Slot, Slots, check_of,
};
use undercroft_level::{Referred, Request};

use crate::clock;
use crate::counters::FlashStats;
use crate::flash::{FlashPart, FlashRequest};
use crate::geometry::Geometry;
use crate::shard::content::Content;
use crate::shard::event::{Event, Goes, Leaving};

pub(crate) use journal::{Gate, Page};

/// Bytes that wait to be written to flash, of one shard; further blocks are given up.
const STAGED_BYTES: usize = 2 << 20;

/// The watcher for a level on flash.
pub(crate) struct FlashLevel {
    level: Below<Recorded>,
    /// Blocks that left memory. The level decides about those of a reference after it, since its
    /// own block may be read from a slot that one of them gets.
    leaving: Vec<Leaver>,
    /// Whether their reference is over.
    is_due: bool,
    /// The block of the write that has arrived and has not been queued yet: what it has in memory
    /// is about to change.
    changing: Option<u64>,
    /// The slots that are being read or written, or will be written. Clients cannot choose slots.
    slots: HashMap<Slot, InSlot, FixedState>,
    /// The slots from which blocks are being read.
    reading: HashMap<u64, Slot, RandomState>,
    /// Writes to begin when the lock is released.
    pub(crate) writes: Vec<FlashWrite>,
    /// Blocks whose data wait to be written, and the most.
    staged: usize,
    staged_max: usize,
    /// Slots whose data are on flash, with their blocks: the journal is not told yet.
    written: HashMap<Slot, u64, FixedState>,
    /// Slots whose next write waits for a commit of the journal. When there are many, one is asked
    /// for at once.
    held_back: Vec<Slot>,
    wanted: Arc<Notify>,
    part: Arc<FlashPart>,
    /// Whether the device is off, and what lay there void.
    is_off: bool,
    /// The first byte of the journal and table, and of the slots.
    metadata: u64,
    first_byte: u64,
    block_bytes: u64,
    began: Instant,
    counters: FlashStats,
}

/// A block that left memory.
struct Leaver {
    block: u64,
    evidence: Evidence,
    contents: Contents,
}

/// What is to be written to flash of a block that left memory.
enum Contents {
    Here(Bytes),
    /// The block has operations, or is dirty.
    Later,
    /// It has none, or may not have any.
    Nothing,
}

/// The requests of a slot.
#[derive(Default)]
struct InSlot {
    readers: u32,
    /// The block whose data are being written.
    writing: Option<(u64, Bytes)>,
    next: Next,
}

/// What is written to a slot next.
#[derive(Default)]
enum Next {
    #[default]
    Nothing,
    /// The data of a block that has operations or is dirty.
    Awaited(u64),
    Data(u64, Bytes),
}

/// A block to be written to flash.
pub(crate) struct FlashWrite {
    pub(crate) part: Arc<FlashPart>,
    pub(crate) block: u64,
    slot: Slot,
    /// The first byte in the device.
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
}

/// Where a block is read from that memory does not have.
pub(crate) enum Place {
    Store,
    /// From this byte of the device of this part.
    Flash(Arc<FlashPart>, u64),
    /// These are the data: they are on their way to flash.
    Data(Bytes),
}

impl FlashLevel {
    /// The level of the shard number `index` of `count`.
    pub(crate) fn new(
        part: &Arc<FlashPart>,
        (index, count): (u32, u32),
        block_bytes: u32,
        seed: u64,
    ) -> Self {
        let (first_byte, slots) = part.of_shard(index, count, block_bytes);
        let (metadata, directory) = match &part.journals {
            Some(journals) => journals.of_shard(index),
            None => (0, Recorded::new(Slots::new(slots, seed), None)),
        };
        let wanted = part.journals.as_ref().map(|it| Arc::clone(&it.wanted)).unwrap_or_default();
        let mut spec = part.spec.clone();
        spec.budget = spec.budget.map(|bytes| bytes / u64::from(count));
        Self {
            level: Below::new(Flash::new(directory, &spec, block_bytes)),
            leaving: Vec::new(),
            is_due: false,
            changing: None,
            slots: HashMap::default(),
            reading: HashMap::default(),
            writes: Vec::new(),
            staged: 0,
            staged_max: STAGED_BYTES / block_bytes as usize,
            written: HashMap::default(),
            held_back: Vec::new(),
            wanted,
            part: Arc::clone(part),
            is_off: false,
            metadata,
            first_byte,
            block_bytes: block_bytes.into(),
            began: clock::now(),
            counters: FlashStats::default(),
        }
    }

    /// What was counted so far.
    pub(crate) fn stats(&self) -> FlashStats {
        let mut stats = self.counters;
        stats.add(self.level.flash.counts());
        stats.capacity_blocks = u64::from(self.level.flash.directory().capacity());
        stats.durable = u64::from(self.level.flash.directory().entered_count());
        stats.up = u64::from(!self.is_off && !self.part.medium.is_off());
        stats
    }

    #[inline(always)]
    pub(super) fn watch(&mut self, event: &Event<'_>, geometry: &Geometry) {
        match *event {
            Event::Reads { request, referred, .. } | Event::Writes { request, referred } => {
                self.referred(request, referred, geometry);
            }
            Event::Entered { block, slot } => {
                self.level.holds(block, Some(slot), Evidence::None);
            }
            Event::Placed { block, slot } => {
                self.settle_due(geometry);
                let answer = self.level.arrived(block);
                self.is_due = true;
                self.level.holds(block, Some(slot), answer.evidence);
            }
            Event::Left { block, slot, how, content, is_evicted: true, is_covered } => {
                let contents = match how {
                    _ if is_covered => Contents::Nothing,
                    Leaving::Busy { .. } | Leaving::Dirty => Contents::Later,
                    Leaving::Clean if self.changing == Some(block) => Contents::Later,
                    Leaving::Clean => Contents::of(block, content, geometry),
                };
                self.settle_due(geometry);
                let evidence = self.level.evidence_of(slot);
                self.leaving.push(Leaver { block, evidence, contents });
            }
            Event::Left { block, is_evicted: false, .. } => self.fill(block, Contents::Nothing),
            Event::Idle { block, content, to, is_dirty, is_covered } => {
                self.settle(geometry);
                // A prefetch may have given up waiting for a frame.
                self.stop_reading(block);
                if !is_dirty && to != Goes::Stays {
                    let contents = match is_covered {
                        true => Contents::Nothing,
                        false => Contents::of(block, content, geometry),
                    };
                    self.fill(block, contents);
                }
            }
            Event::Activated { block, .. } => {
                self.changing = self.changing.filter(|&changing| changing != block);
            }
            Event::Written { block, is_ok: false, .. } | Event::Unknown { block } => {
                self.settle(geometry);
                self.end_copy(block);
            }
            Event::RangeBegins { blocks } => {
                self.settle(geometry);
                self.level.flash.discard_all(blocks);
            }
            Event::ContentsUnknown => {
                self.settle(geometry);
                self.level.flash.discard_all(&(0..=u64::MAX));
            }
            Event::Replaced => self.level.forget_evidence(),
            Event::Written { .. }
            | Event::Gone { .. }
            | Event::Returned { .. }
            | Event::Changes { .. }
            | Event::Changed { .. }
            | Event::WritesOut { .. }
            | Event::Filled { .. }
            | Event::Replaces { .. }
            | Event::RangeEnds { .. }
            | Event::Slots(_) => {}
        }
    }

    /// A client read or wrote a block.
    fn referred(&mut self, request: &Request, referred: Referred, geometry: &Geometry) {
        self.settle_due(geometry);
        if !self.is_off && self.part.medium.is_off() {
            self.is_off = true;
            self.level.flash.discard_all(&(0..=u64::MAX));
        }
        let Request { block, is_write, is_streamed, .. } = *request;
        self.changing = is_write.then_some(block);
        if is_write {
            // What it had is out of date.
            let own = self.leaving.iter_mut().filter(|leaver| leaver.block == block);
            own.for_each(|leaver| leaver.contents = Contents::Later);
        }
        let Referred { hit, before, now } = referred;
        let reference = Reference { block, is_write, is_streamed, hit, before };
        self.level.flash.set_busy(self.is_busy());
        let answer = self.level.referred(&reference);
        if let Some(ended) = answer.ended {
            self.drop_next(ended);
        }
        match answer.write_to {
            // Only whole blocks fit.
            Some(_) if geometry.len(block) as u64 != geometry.block_bytes() => {
                self.level.flash.give_up(block);
            }
            Some(slot) => self.set_next(slot, Next::Awaited(block)),
            None => {}
        }
        self.is_due = true;
        self.level.holds(block, now, answer.evidence);
    }

    /// Whether no more may wait to be written.
    fn is_busy(&self) -> bool {
        self.staged >= self.staged_max || self.is_off
    }

    fn settle_due(&mut self, geometry: &Geometry) {
        if self.is_due {
            self.settle(geometry);
        }
    }

    /// Decides about the blocks that left memory.
    pub(crate) fn settle(&mut self, geometry: &Geometry) {
        self.is_due = false;
        if self.leaving.is_empty() {
            return;
        }
        self.level.flash.advance(clock::since(self.began).as_micros() as u64);
        let mut leaving = std::mem::take(&mut self.leaving);
        for Leaver { block, evidence, contents } in leaving.drain(..) {
            if geometry.len(block) as u64 != geometry.block_bytes() {
                self.end_copy(block);
                continue;
            }
            self.level.flash.set_busy(self.is_busy());
            if let Some(slot) = self.level.flash.left(block, evidence) {
                self.set_next(slot, Next::Awaited(block));
            }
            self.fill(block, contents);
        }
        // Keeps its memory.
        self.leaving = leaving;
    }

    /// If flash waits for a block: this is what is to be written.
    fn fill(&mut self, block: u64, contents: Contents) {
        if self.slots.is_empty() || matches!(contents, Contents::Later) {
            return;
        }
        let Some(slot) = self.level.flash.find(block) else { return };
        let waits = self.slots.get(&slot).is_some_and(|it| it.next.awaits(block));
        if !waits {
            return;
        }
        match contents {
            Contents::Here(data) if !self.is_busy() => {
                self.staged += 1;
                // A copy, because a slow device would keep the frame too long.
                self.set_next(slot, Next::Data(block, Bytes::copy_from_slice(&data)));
                self.begin_write(slot);
            }
            _ => {
                self.drop_next(slot);
                self.level.flash.give_up(block);
            }
        }
    }

    /// Where to read a block from that memory does not have.
    pub(crate) fn place_of(&mut self, block: u64, geometry: &Geometry) -> Place {
        // The block may have waited for a frame since it was asked for here.
        self.stop_reading(block);
        let Some(slot) = self.level.flash.find(block) else { return Place::Store };
        let requests = self.slots.entry(slot).or_default();
        match (&requests.next, &requests.writing) {
            (Next::Data(_, data), _) => return Place::Data(data.clone()),
            (Next::Awaited(_), _) => return Place::Store,
            (Next::Nothing, Some((_, data))) => return Place::Data(data.clone()),
            (Next::Nothing, None) => requests.readers += 1,
        }
        self.reading.insert(block, slot);
        let byte = self.first_byte + (u64::from(slot) << geometry.block_bits);
        Place::Flash(Arc::clone(&self.part), byte)
    }

    /// Whether anything of an earlier server lies on flash.
    pub(crate) fn has_copies(&self) -> bool {
        self.level.flash.directory().entered_count() > 0
    }

    /// Whether a block lies on flash.
    pub(crate) fn has(&mut self, block: u64) -> bool {
        self.level.flash.find(block).is_some()
    }

    /// A read of a block from flash has ended; without data, if it failed or took too long. Returns
    /// whether these are the data that were written.
    pub(crate) fn read_ended(&mut self, block: u64, data: Option<Bytes>) -> bool {
        let Some(slot) = self.stop_reading(block) else { return false };
        let check = self.level.flash.directory().slots().check_in(slot);
        let is_good = data.as_ref().is_some_and(|data| check_of(block, data) == check);
        self.part.medium.note(FlashRequest::Read, is_good);
        if !is_good {
            self.counters.failed_reads += u64::from(data.is_none());
            self.counters.damaged += u64::from(data.is_some());
            if self.level.flash.find(block) == Some(slot) {
                self.end_copy(block);
            }
        }
        is_good
    }

    /// The copy of a block, if there is one, does not count any more.
    fn end_copy(&mut self, block: u64) {
        if let Some(slot) = self.level.flash.discard(block) {
            self.drop_next(slot);
        }
    }

    /// A block is read from flash no more. Returns the slot from which it was.
    fn stop_reading(&mut self, block: u64) -> Option<Slot> {
        let slot = self.reading.remove(&block)?;
        if let Some(requests) = self.slots.get_mut(&slot) {
            requests.readers -= 1;
        }
        self.begin_write(slot);
        Some(slot)
    }

    /// A write has ended, of this level or of one before; `check` is that of its data.
    pub(crate) fn write_ended(&mut self, write: &FlashWrite, check: u16, is_ok: bool) {
        if !Arc::ptr_eq(&self.part, &write.part) {
            return;
        }
        let slot = write.slot;
        self.staged -= 1;
        self.counters.failed_writes += u64::from(!is_ok);
        self.level.flash.directory_mut().set_check(slot, check);
        let Some(requests) = self.slots.get_mut(&slot) else { return };
        requests.writing = None;
        let is_last = matches!(requests.next, Next::Nothing);
        if is_last && self.level.flash.find(write.block) == Some(slot) {
            match is_ok {
                true if self.level.flash.directory().journal().is_some() => {
                    self.written.insert(slot, write.block);
                }
                true => {}
                false => self.level.flash.give_up(write.block),
            }
        }
        self.begin_write(slot);
    }

    /// Begins the next write of a slot, unless it must wait; forgets a slot without requests.
    fn begin_write(&mut self, slot: Slot) {
        if self.holds_back(slot) {
            return;
        }
        let Entry::Occupied(mut entry) = self.slots.entry(slot) else { return };
        let requests = entry.get_mut();
        if requests.readers > 0 || requests.writing.is_some() {
            return;
        }
        match std::mem::take(&mut requests.next) {
            Next::Nothing => _ = entry.remove(),
            Next::Data(block, data) => {
                requests.writing = Some((block, data.clone()));
                let offset = self.first_byte + u64::from(slot) * self.block_bytes;
                let part = Arc::clone(&self.part);
                self.writes.push(FlashWrite { part, block, slot, offset, data });
            }
            awaited => requests.next = awaited,
        }
    }

    fn set_next(&mut self, slot: Slot, next: Next) {
        let before = std::mem::replace(&mut self.slots.entry(slot).or_default().next, next);
        self.staged -= usize::from(matches!(before, Next::Data(..)));
    }

    /// What was to be written to a slot is out of date.
    fn drop_next(&mut self, slot: Slot) {
        if self.slots.contains_key(&slot) {
            self.set_next(slot, Next::Nothing);
            self.begin_write(slot);
        }
    }

    /// Checks that the requests of slots are those that were counted.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub(super) fn validate(&self) -> Result<(), String> {
        let has_data = |it: &&InSlot| matches!(it.next, Next::Data(..));
        let waiting = self.slots.values().filter(has_data).count();
        let writing = self.slots.values().filter(|it| it.writing.is_some()).count();
        let readers: u32 = self.slots.values().map(|it| it.readers).sum();
        if self.staged != waiting + writing || readers as usize != self.reading.len() {
            return Err(format!(
                "flash: {} staged, {waiting} wait and {writing} are written; {readers} readers of \
                 {} blocks",
                self.staged,
                self.reading.len()
            ));
        }
        self.level.flash.directory().slots().validate()
    }
}

impl Contents {
    fn of(block: u64, content: &Content, geometry: &Geometry) -> Self {
        content.piece(0, geometry.len(block)).map_or(Self::Nothing, Self::Here)
    }
}

impl Next {
    fn awaits(&self, block: u64) -> bool {
        matches!(self, Self::Awaited(awaited) if *awaited == block)
    }
}
