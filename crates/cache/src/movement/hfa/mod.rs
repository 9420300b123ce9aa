//! HFA: blocks that moved between levels lately, or are hit often, get a protected queue (Meng et
//! al., JCST 2017). Here is what its variants have in common: how a block is received, hit and
//! evicted, the hot queue Q1 and the base queue Q2, and the partition of the cache between them.
//! `level.rs` says what each variant does about a request, an answer or a block of a neighbour.
//!
//! | variant | over | Q1 | Q2 |
//! | --- | --- | --- | --- |
//! | D-HFA | DEMOTE | by recency | by hotness |
//! | P-HFA | PROMOTE | by hotness | by recency |
//! | H-HFA | Hint-K | by hotness | by activity |
//!
//! The hotness of a block at a cache is H = F/(kT) + hits/t2: F sums its moves there in the last k
//! slots of T references (`moves.rs`), hits are those since the block came t2 references ago. H is
//! found when a block comes and at each hit, and stands until then ("lazy update"), but not longer
//! than the k slots that it speaks of. The readings of the paper that are chosen here, and what
//! they are worth, are in `docs/measurements/hierarchies.md`.
//!
//! Invariants (checked by [`Hfa::validate`]): Q1 and Q2 together hold the resident blocks, no more
//! than the capacity, Q1 no more than `q1_max`; the numbers of cold blocks in Q1, of hot blocks in
//! Q2 and of hits in Q2 agree with the blocks there; every hot block is among those to expire.

mod blocks;
mod level;
mod moves;
mod options;
mod queues;

use super::activity::{History, Steps};
use super::chances::Chances;
use super::level::{Evicted, LevelConfig, Load};
use crate::Entry;
use crate::lists::Lists;
use crate::policy::Arguments;
use blocks::{Block, Blocks, Row};
use moves::{Foreseen, Moves, RECORD_BYTES, TOut};
use options::Settings;
use queues::{ByHistory, ByHotness, ByRecency, Hottest, Queue};

pub use moves::MoveLog;
pub(super) use options::{D_HFA, H_HFA, ORACLE, P_HFA};

/// The scheme that a variant stands on.
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
    /// Whether it may drive the hottest block of the cache below up.
    exchanges: bool,
    /// See [`Block::may_be_hot_below`].
    may_be_hot_below: bool,
}

/// A number of blocks, and its sum over the references of a slot.
#[derive(Clone, Copy, Default)]
struct SlotSum {
    blocks: u32,
    /// The sum at the end of the slot, if the number does not change any more.
    sum: i64,
}

impl SlotSum {
    /// A block comes or goes, or another one for it; so many references are left in the slot.
    #[inline(always)]
    fn change(&mut self, comes: bool, goes: bool, left: u64) {
        let change = i32::from(comes) - i32::from(goes);
        self.blocks = self.blocks.wrapping_add_signed(change);
        self.sum += i64::from(change) * left as i64;
    }

    /// A slot of so many references begins.
    fn begin_slot(&mut self, period: u64) {
        self.sum = i64::from(self.blocks) * period as i64;
    }

    /// The mean number of blocks in a slot that is over.
    fn mean(&self, period: u64) -> f64 {
        self.sum as f64 / period as f64
    }
}

/// A cache of HFA.
struct Hfa<Q1, Q2> {
    base: Base,
    settings: Settings,
    steps: Steps,
    capacity: u32,
    has_lower: bool,
    blocks: Blocks,
    q1: Q1,
    q2: Q2,
    /// Blocks that Q1 may hold: c1 of the paper.
    q1_max: u32,
    moves: Moves,
    /// The order in which D-HFA exchanges blocks of Q1; none where no cache is above.
    hottest: Option<Hottest>,
    /// Over PROMOTE: the probabilities with which blocks pass.
    chances: Option<Chances>,
    /// Blocks in Q1 that are not hot, and blocks in Q2 that are: by these the partition changes
    /// (section 3.4 of the paper).
    cold_in_q1: SlotSum,
    hot_in_q2: SlotSum,
    /// Blocks in Q2 by their number of hits.
    q2_hits: Vec<u32>,
    /// Hot blocks by when their hotness was found.
    expiring: Lists,
    /// References so far; the slot of the last one, from 0, and the last one of that slot.
    now: u64,
    slot: u64,
    slot_end: u64,
    /// Whether the last reference of the slot is over.
    is_over: bool,
    /// Moves of a first pass.
    log: Option<Vec<(Entry, u64)>>,
}

impl<Q1: Queue, Q2: Queue> Hfa<Q1, Q2> {
    fn new(base: Base, arguments: &Arguments, config: LevelConfig<'_>) -> Self {
        let LevelConfig { capacity, block_bytes, has_upper, has_lower, way_blocks, .. } = config;
        let settings = Settings::new(base, arguments, way_blocks);
        let steps = Steps::new(settings.steps);
        let bytes = f64::from(capacity) * f64::from(block_bytes) * settings.table_share;
        let records = settings.entries.unwrap_or((bytes / RECORD_BYTES as f64).max(1.0) as u32);
        let chances = (base == Base::Promote).then(|| Chances::new(arguments, &config));
        Self {
            base,
            settings,
            capacity,
            has_lower,
            blocks: Blocks::default(),
            q1: Q1::new(&steps),
            q2: Q2::new(&steps),
            q1_max: settings.first_q1_max(capacity),
            moves: Moves::Table(TOut::new(records, settings.k, settings.decay)),
            // Only blocks with a cache above can be exchanged.
            hottest: (base == Base::Demote && has_upper).then(Hottest::new),
            chances,
            cold_in_q1: SlotSum::default(),
            hot_in_q2: SlotSum::default(),
            q2_hits: Vec::new(),
            expiring: Lists::new(1),
            now: 0,
            slot: 0,
            slot_end: settings.period,
            is_over: false,
            log: None,
            steps,
        }
    }

    /// The cache `node` of the oracle: told the moves of a first pass, or, without these, the one
    /// that logs them.
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

    #[inline(always)]
    fn frequency(&self, entry: Entry) -> f64 {
        self.moves.frequency(entry, self.slot)
    }

    /// A block comes to the cache: what leaves for it.
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
            let victim = self.make_room();
            self.push_q2(row);
            victim
        };
        victim.map(|victim| self.evict(victim, exchanges))
    }

    /// A hit, after which the block stays: what leaves for it.
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

    /// Finds H of a block anew, which is in no queue or in one that is not ordered by it.
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

    /// Puts a block, which is in no queue, into Q1: the one that has to leave the cache for it.
    fn insert_into_q1(&mut self, row: Row) -> Option<Row> {
        if self.q1.len() < self.q1_max {
            let victim = self.make_room();
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

    /// Takes a block out of the queues if the cache is full.
    #[inline(always)]
    fn make_room(&mut self) -> Option<Row> {
        if self.is_full() { self.take_victim() } else { None }
    }

    /// Takes out of its queue what Q2, or Q1 where Q2 has nothing, gives up.
    #[inline(always)]
    fn take_victim(&mut self) -> Option<Row> {
        let victim = self.q2.tail().or_else(|| self.q1.tail())?;
        self.take_out(victim);
        Some(victim)
    }

    /// Puts a block, which is in no queue, into Q1, at the head or in the last place for it.
    #[inline(always)]
    fn push_q1(&mut self, row: Row, is_at_head: bool) {
        let left = self.left_in_slot();
        let block = &mut self.blocks[row];
        block.in_q1 = true;
        if let Some(hottest) = &mut self.hottest {
            hottest.push(row, block, is_at_head);
        }
        self.cold_in_q1.change(!block.is_hot(), false, left);
        if is_at_head {
            self.q1.push(row, block);
        } else {
            self.q1.push_last(row, block);
        }
    }

    /// Puts a block, which is in no queue, into Q2.
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

    /// Takes a block out of its queue; it is still resident then.
    #[inline(always)]
    fn take_out(&mut self, row: Row) {
        let (left, block) = (self.left_in_slot(), &self.blocks[row]);
        if block.in_q1 {
            self.q1.remove(row, block);
            self.cold_in_q1.change(false, !block.is_hot(), left);
            if let Some(hottest) = &mut self.hottest {
                hottest.remove(row, block);
            }
        } else {
            self.q2.remove(row, block);
            self.hot_in_q2.change(false, block.is_hot(), left);
            self.q2_hits[usize::from(block.hits)] -= 1;
        }
    }

    /// Fewest hits of a block in Q2.
    fn fewest_q2_hits(&self) -> u16 {
        self.q2_hits.iter().position(|&blocks| blocks > 0).unwrap_or(0) as u16
    }

    /// A block that is in no queue leaves the cache downwards, or for good.
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

    /// The cache gives a block up to one above it: what goes with it.
    #[inline(always)]
    fn give_up(&mut self, row: Row) -> Load {
        self.take_out(row);
        let Block { entry, moved, history, .. } = self.leave(row);
        Load { frequency: self.depart(entry, moved), history: self.after_move(history, true) }
    }

    /// A block that is in no queue is not here any more.
    #[inline(always)]
    fn leave(&mut self, row: Row) -> Block {
        self.forget_expiry(row);
        self.blocks.remove(row)
    }

    /// The last moves of a block after one more; only Hint-K remembers them.
    #[inline(always)]
    fn after_move(&self, history: History, is_promotion: bool) -> History {
        if self.base == Base::HintK { self.steps.push(history, is_promotion) } else { history }
    }

    /// A block leaves the cache for another one: F, which goes with it. A stay that began with a
    /// move is a move of the slot in which it ends.
    #[inline(always)]
    fn depart(&mut self, entry: Entry, moved: bool) -> f64 {
        if moved { self.count_move(entry) } else { self.frequency(entry) }
    }

    /// A block has moved: F with that.
    #[inline(always)]
    fn count_move(&mut self, entry: Entry) -> f64 {
        if let Some(log) = &mut self.log {
            log.push((entry, self.slot));
        }
        self.moves.count(entry, self.slot)
    }

    /// References that are not over in the slot.
    #[inline(always)]
    fn left_in_slot(&self) -> u64 {
        self.slot_end - self.now + 1
    }

    /// The last reference of a slot is over: Q1 gives up as many places as it had cold blocks, and
    /// gets as many as there were hot ones in Q2.
    #[cold]
    fn end_slot(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let period = self.settings.period;
        let excess = (self.cold_in_q1.mean(period) - self.hot_in_q2.mean(period)) as i64;
        if !self.settings.is_dynamic || self.q1_max == 0 {
            return;
        }
        let most = i64::from(self.capacity) - 1;
        self.q1_max = (i64::from(self.q1_max) - excess).clamp(1, most) as u32;
        while self.q1.len() > self.q1_max {
            let tail = self.q1.tail().expect("it is not empty");
            self.take_out(tail);
            self.push_q2(tail);
        }
        if excess < 0 {
            self.move_hot_up();
        }
    }

    /// The first reference of a slot begins.
    #[cold]
    fn begin_slot(&mut self) {
        self.end_slot();
        self.is_over = false;
        self.now += 1;
        self.slot += 1;
        let period = self.settings.period;
        self.slot_end += period;
        self.cold_in_q1.begin_slot(period);
        self.hot_in_q2.begin_slot(period);
        self.expire();
    }

    /// Moves hot blocks from the head of Q2 to the tail of Q1 while there is room for them and Q2
    /// has more than its share.
    fn move_hot_up(&mut self) {
        let room = self.q1_max - self.q1.len();
        let over = self.q2.len().saturating_sub(self.capacity - self.q1_max);
        let wanted = room.min(over).min(self.hot_in_q2.blocks);
        if wanted == 0 {
            return;
        }
        for row in self.q2.hot_from_head(self.blocks.rows(), wanted as usize) {
            self.take_out(row);
            self.push_q1(row, false);
        }
    }

    /// The hotness of a block was found just now: it is over after k slots.
    #[inline(always)]
    fn note_expiry(&mut self, row: Row) {
        if self.settings.expires && self.blocks[row].is_hot() {
            self.expiring.push_back(0, row);
        }
    }

    /// The hotness of a block is about to change.
    #[inline(always)]
    fn forget_expiry(&mut self, row: Row) {
        if self.settings.expires && self.blocks[row].is_hot() {
            self.expiring.remove(0, row);
        }
    }

    /// A slot begins: hotness that was found k slots ago or earlier is over.
    fn expire(&mut self) {
        // The last reference of the last slot that is that long ago, from 1; 0: there is none.
        let last = (self.slot + 1).saturating_sub(self.settings.k) * self.settings.period;
        while let Some(row) = self.expiring.front(0) {
            if self.blocks[row].updated > last {
                return;
            }
            self.expiring.remove(0, row);
            self.cool(row);
        }
    }

    /// A block is no longer hot.
    fn cool(&mut self, row: Row) {
        let left = self.left_in_slot();
        let block = &mut self.blocks[row];
        if block.in_q1 {
            self.q1.cool(row, block);
            self.cold_in_q1.change(true, false, left);
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
        let is_hot = |row: &&Row| self.blocks[**row].is_hot();
        let cold = q1.iter().filter(|row| !is_hot(row)).count();
        let hot = q2.iter().filter(is_hot).count();
        if (cold, hot) != (self.cold_in_q1.blocks as usize, self.hot_in_q2.blocks as usize) {
            return Err(format!("{cold} cold in Q1 and {hot} hot in Q2 are counted otherwise"));
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
