//! A cache of HFA among its neighbours: what each variant does about a request, an answer, and a
//! block that comes from above or below.
//!
//! * D-HFA, over DEMOTE: a block found below the first level moves to the first level. A block that
//!   a level evicts goes one level down. When a block comes down into Q1, the hottest block of that
//!   Q1 goes one level up if it is hotter than the new one. The oracle is D-HFA with knowledge of
//!   future moves: a first pass logs the moves, and the second pass computes F from the log. No
//!   procedure is published for it; this one is an approximation, not a bound.
//! * P-HFA, over PROMOTE: a block on its way up stays in the first cache that remembers enough
//!   moves of it, or else in the one whose random draw says so. A cache that passes a block up
//!   counts that as a move. Evicted blocks are dropped. Writes work as in PROMOTE: they update the
//!   owner's copy, or the first cache takes the block.
//! * H-HFA, over Hint-K: a block found below the first level moves one level up if it is more
//!   active than the least active block of the Q2 there.

use super::super::Gauges;
use super::super::level::{
    Bid, Demoted, Evicted, Load, Pass, Passing, Promoted, SchemeLevel, Upper,
};
use super::blocks::Row;
use super::queues::Queue;
use super::{Arrival, Base, Block, Hfa};
use undercroft_policy::Entry;

impl<Q1: Queue, Q2: Queue> Hfa<Q1, Q2> {
    /// Removes a block that was hit here, if it moves up. Returns what goes with it.
    fn rise(&mut self, row: Row, is_write: bool, upper: Upper) -> Option<Load> {
        match self.base {
            Base::Demote => Some(self.give_up(row)),
            Base::Promote => {
                if is_write || !self.passes(upper.number) {
                    return None;
                }
                self.take_out(row);
                let Block { entry, .. } = self.leave(row);
                self.count_move(entry);
                Some(Load::default())
            }
            Base::HintK => {
                let Bid { has_room, least, .. } = upper.bid;
                let value = self.steps.value(self.blocks[row].history);
                let rises = has_room || least.is_some_and(|least| value > least);
                rises.then(|| self.give_up(row))
            }
        }
    }

    /// Whether a block that comes up stays here.
    fn stays(&mut self, passing: Passing, pass: Pass) -> bool {
        let Passing { entry, is_write, upper, .. } = passing;
        let Some(upper) = upper else { return true };
        match self.base {
            // The block goes to the client's own cache.
            Base::Demote => false,
            Base::Promote if is_write => false,
            Base::Promote => {
                let is_frequent = self.frequency(entry) > self.settings.least;
                if is_frequent || !self.passes(upper) {
                    return true;
                }
                self.count_move(entry);
                false
            }
            // A block that moves goes one level up only.
            Base::HintK => matches!(pass, Pass::Moved { .. }),
        }
    }

    /// Draws whether a block passes to the level above with the number `upper`.
    fn passes(&mut self, upper: u16) -> bool {
        self.chances.as_mut().is_some_and(|chances| chances.passes(upper))
    }

    /// References between the last uses of the newest and the oldest block of Q2, which is the
    /// queue that PROMOTE manages; 0 while Q2 has room.
    fn life(&self) -> u64 {
        let used = |row: Row| self.blocks[row].updated;
        let ends = self.q2.ends().filter(|_| self.is_q2_full());
        ends.map_or(0, |[newest, oldest]| used(newest).saturating_sub(used(oldest)))
    }

    /// Recomputes the hotness of a block in Q1 without moving it. Only for a Q1 ordered by recency.
    fn refresh(&mut self, row: Row) {
        let hottest = self.hottest.as_mut().expect("D-HFA exchanges by hotness");
        hottest.remove(row, &self.blocks[row]);
        let was_hot = self.blocks[row].is_hot();
        self.find_hotness(row);
        let left = self.left_in_slot();
        self.idle_in_q1.change(!self.blocks[row].is_hot(), !was_hot, left);
        let hottest = self.hottest.as_mut().expect("it is still there");
        hottest.insert(row, &self.blocks[row]);
    }
}

impl<Q1: Queue, Q2: Queue> SchemeLevel for Hfa<Q1, Q2> {
    fn grow(&mut self, entries: u32) {
        self.blocks.grow(entries);
        self.moves.grow(entries);
        // A new block gets its row before its victim frees one.
        let rows = entries.min(self.capacity.saturating_add(1));
        self.q1.grow(rows);
        self.q2.grow(rows);
        self.expiring.grow(rows);
        if let Some(hottest) = &mut self.hottest {
            hottest.grow(rows);
        }
    }

    #[inline]
    fn begin_references(&mut self, mut references: u64) {
        while references > 0 {
            if self.now == self.slot_end {
                self.begin_slot();
                references -= 1;
            }
            // Within a slot, time alone changes nothing.
            let within = references.min(self.slot_end - self.now);
            self.now += within;
            references -= within;
        }
    }

    #[inline]
    fn end_reference(&mut self) {
        if self.now == self.slot_end {
            self.end_slot();
        }
    }

    fn bid(&self) -> Bid {
        let life = if self.chances.is_some() { self.life() } else { 0 };
        Bid { has_room: !self.is_q2_full(), least: self.q2.least(), life }
    }

    fn hear(&mut self, upper: Upper) {
        let lives = [upper.bid.life, self.bid().life];
        if let Some(chances) = &mut self.chances {
            chances.hear(upper.number, self.now, lives.map(|life| life as f64));
        }
    }

    fn introduce(&mut self, upper: u16, blocks: u64) {
        if let Some(chances) = &mut self.chances {
            chances.introduce(upper, blocks);
        }
    }

    fn serve(
        &mut self,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
    ) -> (Pass, Option<Evicted>) {
        let row = self.blocks.find(entry).expect("the block is here");
        match upper.and_then(|upper| self.rise(row, is_write, upper)) {
            Some(load) => (Pass::Moved { load, nearest: load.frequency }, None),
            None => (Pass::Kept, self.hit(row)),
        }
    }

    fn pass(&mut self, passing: Passing, pass: Pass) -> (Pass, Option<Evicted>) {
        let Passing { entry, owner, .. } = passing;
        let (load, below) = match pass {
            Pass::Moved { load, nearest } => (Some(load), nearest),
            Pass::Fresh { nearest } => (None, nearest),
            Pass::Kept => return (pass, None),
        };
        if !self.stays(passing, pass) {
            let nearest = self.frequency(entry);
            let further = load.map(|load| Pass::Moved { load, nearest });
            return (further.unwrap_or(Pass::Fresh { nearest }), None);
        }
        let evicted = self.receive(Arrival {
            entry,
            owner,
            moved: load.is_some(),
            load: load.unwrap_or(Load { history: self.first, ..Load::default() }),
            exchanges: true,
            may_be_hot_below: below > self.settings.least,
        });
        (Pass::Kept, evicted)
    }

    fn demoted(&mut self, demoted: Demoted) -> (Option<f64>, Option<Evicted>) {
        let Demoted { entry, owner, load, exchanges } = demoted;
        let may_be_hot_below = true;
        let evicted =
            self.receive(Arrival { entry, owner, moved: true, load, exchanges, may_be_hot_below });
        let row = self.blocks.find(entry).expect("it came");
        let Block { in_q1, hotness, .. } = self.blocks[row];
        let is_due = exchanges && self.base == Base::Demote && in_q1;
        (is_due.then_some(hotness), evicted)
    }

    /// Promotes the hottest block of Q1 if it is hotter than `hotness`, that of the demoted block
    /// `entry` when it came. That block may have left again: the exchange for its own victim can
    /// evict it.
    fn exchange(
        &mut self,
        entry: Entry,
        hotness: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Promoted> {
        let hottest = self.hottest.as_ref()?;
        // If no block is hot, the head is the candidate.
        let first = hottest.first().or_else(|| self.q1.ends().map(|[newest, _]| newest))?;
        if self.now - self.blocks[first].updated > self.settings.period {
            self.refresh(first);
        }
        let Block { entry: hottest, hotness: highest, owner, .. } = self.blocks[first];
        if hottest == entry || highest <= hotness || !rises(owner) {
            return None;
        }
        Some(Promoted { entry: hottest, owner, load: self.give_up(first) })
    }

    fn exchanged(&mut self, promoted: Promoted) -> Option<Evicted> {
        let Promoted { entry, owner, load } = promoted;
        let (moved, exchanges, may_be_hot_below) = (true, false, true);
        self.receive(Arrival { entry, owner, moved, load, exchanges, may_be_hot_below })
    }

    fn discard(&mut self, entry: Entry) {
        let row = self.blocks.find(entry).expect("the block is here");
        self.take_out(row);
        self.leave(row);
    }

    fn holds(&self, entry: Entry) -> bool {
        self.blocks.find(entry).is_some()
    }

    fn remembers(&self, entry: Entry) -> bool {
        // The log contains the moves of all blocks.
        self.log.is_some() || self.moves.knows(entry)
    }

    fn remembered_max(&self) -> u32 {
        if self.log.is_some() { u32::MAX } else { self.moves.max() }
    }

    fn len(&self) -> u32 {
        Hfa::len(self)
    }

    fn gauges(&self) -> Option<Gauges> {
        let probability = self.chances.as_ref().map_or(0.0, |chances| chances.first());
        Some(Gauges { hot_blocks: self.q1.len(), hot_target: self.q1_max, probability })
    }

    /// For each block: H, hits, when it came and when H was computed, flags, and for Hint-K the
    /// history. Then the table of moves.
    fn overhead_bytes(&self) -> u64 {
        let history = u64::from(self.base == Base::HintK);
        (8 + 2 + 4 + 4 + 2 + history) * u64::from(self.capacity) + self.moves.bytes()
    }

    fn take_log(&mut self) -> Option<Vec<(Entry, u64)>> {
        self.log.take()
    }

    fn describe(&self, block: &dyn Fn(Entry) -> u32) -> Vec<(&'static str, String)> {
        let (q1, q2) = (self.q1.tail_first(), self.q2.tail_first());
        let of_row = |row: Row| block(self.blocks[row].entry);
        let value = |&row: &Row| (of_row(row), self.steps.real(self.blocks[row].history));
        let khv: Vec<_> = q1.iter().chain(&q2).map(value).collect();
        let blocks = |rows: Vec<Row>| rows.into_iter().map(of_row).collect::<Vec<_>>();
        vec![
            ("Q1", format!("{:?}", blocks(q1))),
            ("Q2", format!("{:?}", blocks(q2))),
            ("T_out", self.moves.describe(block)),
            ("c1", self.q1_max.to_string()),
            ("khv", format!("{khv:?}")),
        ]
    }

    fn validate(&self) -> Result<(), String> {
        self.chances.as_ref().map_or(Ok(()), |chances| chances.validate())?;
        self.check()
    }
}
