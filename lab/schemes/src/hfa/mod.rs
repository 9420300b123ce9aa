//! HFA: blocks that moved between levels recently, or are hit often, get a protected queue (Meng et
//! al., JCST 2017). This file has what the variants share: how a block is received, hit and
//! evicted, the hot queue Q1 and the base queue Q2, and the partition of the cache between them.
//! `level.rs` has what each variant does about a request, an answer or a block from a neighbour.
//!
//! | variant | over | Q1 | Q2 |
//! | --- | --- | --- | --- |
//! | D-HFA | DEMOTE | by recency | by hotness |
//! | P-HFA | PROMOTE | by hotness | by recency |
//! | H-HFA | Hint-K | by hotness | by activity |
//!
//! The hotness of a block at a cache is H = F/(kT) + hits/t2. F is the sum of its moves there in
//! the last k slots of T references (`moves.rs`); the hits are those since the block came, t2
//! references ago. H is computed when a block comes and at each hit, and is valid until the next
//! computation ("lazy update") or until its k slots are over. `docs/measurements/hierarchies.md`
//! explains how unclear points of the paper are read here, and measures the effect.
//!
//! Invariants (checked by [`Hfa::validate`]): Q1 and Q2 together hold the resident blocks, no more
//! than the capacity; Q1 holds no more than `q1_max`, and a hard Q2 no more than the rest; the
//! numbers of idle places of Q1, of hot blocks in Q2 and of hits in Q2 agree with the blocks there;
//! every hot block is in the list of hotness that expires.

mod blocks;
mod level;
mod moves;
mod options;
mod queues;
mod settings;

use super::activity::{History, Steps};
use super::chances::Chances;
use super::hint_k::memory;
use super::level::{Evicted, LevelConfig, Load};
use blocks::{Block, Blocks, Row};
use moves::{Foreseen, Moves, RECORD_BYTES, TOut};
use queues::{ByHistory, ByHotness, ByRecency, Hottest, Queue};
use settings::Settings;
use undercroft_policy::containers::lists::Lists;
use undercroft_policy::{Arguments, Entry};

pub use moves::MoveLog;
pub(super) use options::{D_HFA, H_HFA, ORACLE, P_HFA};

/// The scheme that a variant extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Demote,
    Promote,
    HintK,
}

type DHfa = Hfa<ByRecency, ByHotness>;
type PHfa = Hfa<ByHotness, ByRecency>;
type HHfa = Hfa<ByHotness, ByHistory>;

/// How a block comes to a cache.
#[derive(Clone, Copy)]
struct Arrival {
    entry: Entry,
    owner: u16,
    /// From another cache.
    moved: bool,
    /// What came with it.
    load: Load,
    /// Whether the block that it evicts may be exchanged for the hottest block of the cache below.
    exchanges: bool,
    /// See [`Block::may_be_hot_below`].
    may_be_hot_below: bool,
}

/// A number of blocks, and its sum over the references of a slot.
#[derive(Clone, Copy, Default)]
struct SlotSum {
    blocks: u32,
    /// The sum at the end of the slot if the number stays as it is.
    sum: i64,
}

impl SlotSum {
    /// Updates the number when a block comes, goes, or is replaced; `left`: references left in the
    /// slot.
    #[inline(always)]
    fn change(&mut self, comes: bool, goes: bool, left: u64) {
        let change = i32::from(comes) - i32::from(goes);
        self.blocks = self.blocks.wrapping_add_signed(change);
        self.sum += i64::from(change) * left as i64;
    }

    /// Begins a slot of `period` references.
    fn begin_slot(&mut self, period: u64) {
        self.sum = i64::from(self.blocks) * period as i64;
    }

    /// The mean number of blocks during a finished slot.
    fn mean(&self, period: u64) -> f64 {
        self.sum as f64 / period as f64
    }
}

/// A cache of HFA.
struct Hfa<Q1, Q2> {
    base: Base,
    settings: Settings,
    steps: Steps,
    /// The history of a block that comes from the disk; only Hint-K keeps histories.
    first: History,
    capacity: u32,
    has_lower: bool,
    blocks: Blocks,
    q1: Q1,
    q2: Q2,
    /// Blocks that Q1 may hold: c1 of the paper.
    q1_max: u32,
    moves: Moves,
    /// The order in which D-HFA exchanges blocks of Q1; `None` without a cache above.
    hottest: Option<Hottest>,
    /// Over PROMOTE: the probabilities with which blocks pass up.
    chances: Option<Chances>,
    /// Blocks in Q1 that are not hot, with a hard Q1's free places, and blocks in Q2 that are hot.
    /// The partition changes by these (section 3.4 of the paper).
    idle_in_q1: SlotSum,
    hot_in_q2: SlotSum,
    /// Blocks in Q2 by their number of hits.
    q2_hits: Vec<u32>,
    /// Hot blocks, ordered by when their hotness was computed.
    expiring: Lists,
    /// References so far; the number of the current slot, from 0; and the last reference of that
    /// slot.
    now: u64,
    slot: u64,
    slot_end: u64,
    /// Whether the last reference of the slot is over.
    is_over: bool,
    /// Logged moves, in the first pass of the oracle.
    log: Option<Vec<(Entry, u64)>>,
}

impl<Q1: Queue, Q2: Queue> Hfa<Q1, Q2> {
    fn new(base: Base, arguments: &Arguments, config: LevelConfig<'_>) -> Self {
        let LevelConfig { capacity, block_bytes, has_upper, has_lower, way_blocks, .. } = config;
        let settings = Settings::new(arguments, way_blocks);
        let is_hint_k = base == Base::HintK;
        let (steps, first) = if is_hint_k { memory(arguments) } else { (Steps::new(1), 0) };
        let bytes = f64::from(capacity) * f64::from(block_bytes) * settings.table_share;
        let records = settings.entries.unwrap_or((bytes / RECORD_BYTES as f64).max(1.0) as u32);
        let chances = (base == Base::Promote).then(|| Chances::new(arguments, &config));
        let mut new = Self {
            base,
            settings,
            capacity,
            has_lower,
            blocks: Blocks::default(),
            q1: Q1::new(&steps),
            q2: Q2::new(&steps),
            q1_max: 0,
            moves: Moves::Table(TOut::new(records, settings.k, settings.decay)),
            // Blocks can be exchanged only with a cache above.
            hottest: (base == Base::Demote && has_upper).then(Hottest::new),
            chances,
            idle_in_q1: SlotSum::default(),
            hot_in_q2: SlotSum::default(),
            q2_hits: Vec::new(),
            expiring: Lists::new(1),
            now: 0,
            slot: 0,
            slot_end: settings.period,
            is_over: false,
            log: None,
            steps,
            first,
        };
        new.set_q1_max(settings.first_q1_max(capacity));
        new.idle_in_q1.begin_slot(settings.period);
        new
    }

    /// Makes this the oracle's cache `node`. With a log it uses the moves of a first pass; without
    /// one it logs its own.
    fn with_log(mut self, log: Option<&MoveLog>, node: usize) -> Self {
        let Settings { k, decay, .. } = self.settings;
        match log {
            Some(log) => self.moves = Moves::Foreseen(Foreseen::new(log, node, k, decay)),
            None => self.log = Some(Vec::new()),
        }
        self
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.q1.len() + self.q2.len()
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Whether a block must leave before another one comes into Q2. Hard queues do not lend room.
    #[inline(always)]
    fn is_q2_full(&self) -> bool {
        let not_q2 = if self.settings.is_hard { self.q1_max } else { self.q1.len() };
        self.q2.len() == self.capacity - not_q2
    }

    #[inline(always)]
    fn frequency(&self, entry: Entry) -> f64 {
        self.moves.frequency(entry, self.slot)
    }

    /// Admits a block. Returns the block that is evicted for it.
    fn receive(&mut self, arrival: Arrival) -> Option<Evicted> {
        let Arrival { entry, owner, moved, load, exchanges, may_be_hot_below } = arrival;
        let frequency = self.frequency(entry).max(load.frequency);
        let is_for_q1 = self.q1_max > 0
            && match self.base {
                Base::Demote | Base::Promote => frequency > self.settings.least,
                Base::HintK => self.moves.remembers(entry, self.slot),
            };
        let row = self.blocks.insert(Block {
            entry,
            hotness: self.settings.hotness(frequency, 0, 1),
            loaded: self.now,
            updated: self.now,
            moved,
            may_be_hot_below,
            history: if self.base == Base::HintK { self.steps.within(load.history) } else { 0 },
            owner,
            ..Block::default()
        });
        self.note_expiry(row);
        let victim = if is_for_q1 {
            self.insert_into_q1(row)
        } else {
            let victim = if self.is_q2_full() { self.take_victim() } else { None };
            self.push_q2(row);
            victim
        };
        victim.map(|victim| self.evict(victim, exchanges))
    }

    /// Counts a hit on a block that stays. Returns the block that is evicted, if any.
    fn hit(&mut self, row: Row) -> Option<Evicted> {
        self.take_out(row);
        let block = &mut self.blocks[row];
        block.hits = block.hits.saturating_add(1);
        let was_in_q1 = block.in_q1;
        self.find_hotness(row);
        if was_in_q1 {
            self.push_q1(row, true);
        } else if self.q1_max > 0 && self.settings.rises_by_hits {
            let victim = self.insert_into_q1(row);
            return victim.map(|victim| self.evict(victim, true));
        } else {
            self.push_q2(row);
        }
        None
    }

    /// Recomputes H of a block that is in no queue, or in a queue that is not ordered by H.
    #[inline(always)]
    fn find_hotness(&mut self, row: Row) {
        self.forget_expiry(row);
        let frequency = self.frequency(self.blocks[row].entry);
        let block = &mut self.blocks[row];
        let stay = (self.now - block.loaded).max(1);
        block.hotness = self.settings.hotness(frequency, block.hits, stay);
        block.updated = self.now;
        self.note_expiry(row);
    }

    /// Inserts a block, which is in no queue, into Q1. Returns the block that must leave the cache
    /// for it.
    fn insert_into_q1(&mut self, row: Row) -> Option<Row> {
        if self.q1.len() < self.q1_max {
            let victim = if self.is_full() { self.take_victim() } else { None };
            self.push_q1(row, true);
            return victim;
        }
        let tail = self.q1.tail().expect("Q1 has room for a block");
        self.take_out(tail);
        self.push_q1(row, true);
        if !self.is_full() {
            self.push_q2(tail);
            return None;
        }
        if self.blocks[tail].hits <= self.fewest_q2_hits() {
            return Some(tail);
        }
        let victim = self.take_victim();
        self.push_q2(tail);
        victim
    }

    /// Takes the victim out of its queue: the tail of Q2, or of Q1 if Q2 is empty.
    #[inline(always)]
    fn take_victim(&mut self) -> Option<Row> {
        let victim = self.q2.tail().or_else(|| self.q1.tail())?;
        self.take_out(victim);
        Some(victim)
    }

    /// Inserts a block, which is in no queue, into Q1: at the head, or else in its last possible
    /// place.
    #[inline(always)]
    fn push_q1(&mut self, row: Row, is_at_head: bool) {
        let left = self.left_in_slot();
        let block = &mut self.blocks[row];
        block.in_q1 = true;
        if let Some(hottest) = &mut self.hottest {
            hottest.push(row, block, is_at_head);
        }
        self.idle_in_q1.change(!block.is_hot(), self.settings.is_hard, left);
        if is_at_head {
            self.q1.push(row, block);
        } else {
            self.q1.push_last(row, block);
        }
    }

    /// Inserts a block, which is in no queue, into Q2.
    #[inline(always)]
    fn push_q2(&mut self, row: Row) {
        let left = self.left_in_slot();
        let block = &mut self.blocks[row];
        block.in_q1 = false;
        self.hot_in_q2.change(block.is_hot(), false, left);
        let hits = usize::from(block.hits);
        if self.q2_hits.len() <= hits {
            self.q2_hits.resize(hits + 1, 0);
        }
        self.q2_hits[hits] += 1;
        self.q2.push(row, block);
    }

    /// Removes a block from its queue; it stays resident.
    #[inline(always)]
    fn take_out(&mut self, row: Row) {
        let (left, block) = (self.left_in_slot(), &self.blocks[row]);
        if block.in_q1 {
            self.q1.remove(row, block);
            self.idle_in_q1.change(self.settings.is_hard, !block.is_hot(), left);
            if let Some(hottest) = &mut self.hottest {
                hottest.remove(row, block);
            }
        } else {
            self.q2.remove(row, block);
            self.hot_in_q2.change(false, block.is_hot(), left);
            self.q2_hits[usize::from(block.hits)] -= 1;
        }
    }

    /// The smallest number of hits of any block in Q2.
    fn fewest_q2_hits(&self) -> u16 {
        self.q2_hits.iter().position(|&blocks| blocks > 0).unwrap_or(0) as u16
    }

    /// Evicts a block that is in no queue: to the level below, or for good.
    #[inline(always)]
    fn evict(&mut self, row: Row, exchanges: bool) -> Evicted {
        let Block { entry, owner, moved, history, may_be_hot_below, .. } = self.leave(row);
        if !self.has_lower || self.base == Base::Promote {
            return Evicted { entry, owner, load: None, exchanges: false, awaits: false };
        }
        let frequency = self.depart(entry, moved);
        let history = self.after_move(history, false);
        let exchanges = exchanges && self.base == Base::Demote;
        let awaits = exchanges && (may_be_hot_below || frequency > self.settings.least);
        Evicted { entry, owner, load: Some(Load { frequency, history }), exchanges, awaits }
    }

    /// Gives a block to a cache above. Returns what goes with it.
    #[inline(always)]
    fn give_up(&mut self, row: Row) -> Load {
        self.take_out(row);
        let Block { entry, moved, history, .. } = self.leave(row);
        Load { frequency: self.depart(entry, moved), history: self.after_move(history, true) }
    }

    /// Makes a block, which is in no queue, non-resident.
    #[inline(always)]
    fn leave(&mut self, row: Row) -> Block {
        self.forget_expiry(row);
        self.blocks.remove(row)
    }

    /// The history of a block after one more move; only Hint-K keeps histories.
    #[inline(always)]
    fn after_move(&self, history: History, is_promotion: bool) -> History {
        if self.base == Base::HintK { self.steps.push(history, is_promotion) } else { history }
    }

    /// A block leaves for another cache. Returns its F, which goes with it. If the block had moved
    /// here, that move counts in the slot in which the block leaves.
    #[inline(always)]
    fn depart(&mut self, entry: Entry, moved: bool) -> f64 {
        if moved { self.count_move(entry) } else { self.frequency(entry) }
    }

    /// Counts a move of a block. Returns its F, this move included.
    #[inline(always)]
    fn count_move(&mut self, entry: Entry) -> f64 {
        if let Some(log) = &mut self.log {
            log.push((entry, self.slot));
        }
        self.moves.count(entry, self.slot)
    }

    /// References left in the slot, the current one included.
    #[inline(always)]
    fn left_in_slot(&self) -> u64 {
        self.slot_end - self.now + 1
    }

    /// Ends a slot: Q1 shrinks by the mean number of its idle places, and grows by the mean number
    /// of hot blocks in Q2.
    #[cold]
    fn end_slot(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let period = self.settings.period;
        let excess = (self.idle_in_q1.mean(period) - self.hot_in_q2.mean(period)) as i64;
        if !self.settings.is_dynamic || self.q1_max == 0 {
            return;
        }
        let most = i64::from(self.capacity) - 1;
        self.set_q1_max((i64::from(self.q1_max) - excess).clamp(1, most) as u32);
        while self.q1.len() > self.q1_max {
            let tail = self.q1.tail().expect("it is not empty");
            self.take_out(tail);
            self.push_q2(tail);
        }
        if excess < 0 {
            self.move_to_q1();
        }
    }

    /// Sets the places of Q1; those of hard queues are idle until blocks come.
    fn set_q1_max(&mut self, places: u32) {
        if self.settings.is_hard {
            let idle = &mut self.idle_in_q1.blocks;
            *idle = (*idle + places).wrapping_sub(self.q1_max);
        }
        self.q1_max = places;
    }

    /// Begins a slot, with its first reference.
    #[cold]
    fn begin_slot(&mut self) {
        self.end_slot();
        self.is_over = false;
        self.now += 1;
        self.slot += 1;
        let period = self.settings.period;
        self.slot_end += period;
        self.idle_in_q1.begin_slot(period);
        self.hot_in_q2.begin_slot(period);
        self.expire();
    }

    /// Moves hot blocks from the head of Q2 to the tail of Q1 while Q1 has room and Q2 has more
    /// than its share; then others too, if the queues are hard.
    fn move_to_q1(&mut self) {
        let room = self.q1_max - self.q1.len();
        let over = self.q2.len().saturating_sub(self.capacity - self.q1_max);
        let most = room.min(over) as usize;
        let hot = most.min(self.hot_in_q2.blocks as usize);
        let mut rows =
            if hot > 0 { self.q2.hot_from_head(self.blocks.rows(), hot) } else { vec![] };
        if self.settings.is_hard && hot < most {
            let from_head = self.q2.tail_first().into_iter().rev();
            let cold = from_head.filter(|&row| !self.blocks[row].is_hot());
            rows.extend(cold.take(most - hot));
        }
        for row in rows {
            self.take_out(row);
            self.push_q1(row, false);
        }
    }

    /// Notes that the hotness of a block was computed now; it expires after k slots.
    #[inline(always)]
    fn note_expiry(&mut self, row: Row) {
        if self.settings.expires && self.blocks[row].is_hot() {
            self.expiring.push_back(0, row);
        }
    }

    /// Forgets the expiry of a block whose hotness is about to change.
    #[inline(always)]
    fn forget_expiry(&mut self, row: Row) {
        if self.settings.expires && self.blocks[row].is_hot() {
            self.expiring.remove(0, row);
        }
    }

    /// Begins a slot: hotness that was computed k slots ago or earlier expires.
    fn expire(&mut self) {
        // The last reference whose hotness expires, counted from 1; 0: no reference is that old.
        let last = (self.slot + 1).saturating_sub(self.settings.k) * self.settings.period;
        while let Some(row) = self.expiring.front(0) {
            if self.blocks[row].updated > last {
                return;
            }
            self.expiring.remove(0, row);
            self.cool(row);
        }
    }

    /// Makes a block cold.
    fn cool(&mut self, row: Row) {
        let left = self.left_in_slot();
        let block = &mut self.blocks[row];
        if block.in_q1 {
            self.q1.cool(row, block);
            self.idle_in_q1.change(true, false, left);
            if let Some(hottest) = &mut self.hottest {
                hottest.remove(row, block);
            }
        } else {
            self.q2.cool(row, block);
            self.hot_in_q2.change(false, true, left);
        }
        block.hotness = 0.0;
    }

    fn check(&self) -> Result<(), String> {
        let (q1, q2) = (self.q1.tail_first(), self.q2.tail_first());
        let is_placed =
            |rows: &[Row], in_q1: bool| rows.iter().all(|&row| self.blocks[row].in_q1 == in_q1);
        let len = self.blocks.len();
        if !is_placed(&q1, true) || !is_placed(&q2, false) || len != self.len() {
            return Err("the queues do not hold just the resident blocks".into());
        }
        if q1.len() as u32 > self.q1_max || len > self.capacity {
            return Err(format!("{} in Q1 of {}, {len} in all", q1.len(), self.q1_max));
        }
        if self.settings.is_hard && q2.len() as u32 > self.capacity - self.q1_max {
            return Err(format!("{} in Q2 beside {} for Q1", q2.len(), self.q1_max));
        }
        let is_hot = |row: &&Row| self.blocks[**row].is_hot();
        let cold = q1.iter().filter(|row| !is_hot(row)).count();
        let free = if self.settings.is_hard { self.q1_max as usize - q1.len() } else { 0 };
        let (idle, hot) = (cold + free, q2.iter().filter(is_hot).count());
        if (idle, hot) != (self.idle_in_q1.blocks as usize, self.hot_in_q2.blocks as usize) {
            return Err(format!("{idle} idle in Q1 and {hot} hot in Q2 are counted otherwise"));
        }
        let mut hits = vec![0; self.q2_hits.len()];
        q2.iter().for_each(|&row| hits[usize::from(self.blocks[row].hits)] += 1);
        if hits != self.q2_hits {
            return Err("hits in Q2 are counted otherwise".into());
        }
        let hot = q1.iter().chain(&q2).filter(is_hot).count();
        if self.settings.expires && self.expiring.len(0) as usize != hot {
            return Err("hot blocks that do not expire".into());
        }
        self.blocks.check()?;
        self.expiring.check()?;
        self.moves.validate()?;
        self.hottest.as_ref().map_or(Ok(()), Hottest::check)?;
        self.q1.check(self.blocks.rows())?;
        self.q2.check(self.blocks.rows())
    }
}
