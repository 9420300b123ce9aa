//! A cache of HFA as its neighbours meet it: time, requests, answers, and blocks that come from
//! above or below. Each variant decides in its own file.

use super::super::Gauges;
use super::super::link::{Bid, Left, LinkedLevel, Load, Pass, Passing, Risen, Upper};
use super::level::{Block, Hints};
use super::{Arrival, Base, Hfa};
use crate::Entry;

impl LinkedLevel for Hfa {
    fn grow(&mut self, entries: u32) {
        self.level.grow(entries);
        self.blocks.resize(self.blocks.len().max(entries as usize), Block::default());
    }

    fn open(&mut self) {
        self.now += 1;
        let slot = (self.now - 1) / self.settings.period;
        if slot != self.slot {
            self.slot = slot;
            self.expire();
        }
    }

    /// The partition takes note, and changes once a period.
    fn close(&mut self) {
        let level = &mut self.level;
        level.cold_sum += u64::from(level.cold_in_hot);
        level.warm_sum += u64::from(level.warm_in_base);
        if self.now % self.settings.period == 0 {
            self.repartition();
        }
    }

    /// Nothing but the sums changes within a slot.
    fn skip(&mut self, references: u64) {
        let mut left = references;
        while left > 0 {
            self.open();
            let to_end =
                (self.settings.period - self.now % self.settings.period) % self.settings.period;
            let more = to_end.min(left - 1);
            let level = &mut self.level;
            level.cold_sum += more * u64::from(level.cold_in_hot);
            level.warm_sum += more * u64::from(level.warm_in_base);
            self.now += more;
            self.close();
            left -= 1 + more;
        }
    }

    fn bid(&self) -> Bid {
        let value = |entry: Entry| self.steps.value(self.blocks[entry as usize].history);
        let least = match self.base {
            Base::HintK => self.level.base.tail().map(value),
            Base::Demote | Base::Promote => None,
        };
        Bid { has_room: !self.level.is_full(), least, life: 0 }
    }

    fn life(&self) -> u64 {
        self.own_life()
    }

    fn hear_life(&mut self, upper: u16, life: u64) {
        if self.chances.is_adaptive {
            let lives = [life as f64, self.own_life() as f64];
            self.chances.tell(upper, self.level.capacity, self.now, lives);
        }
    }

    fn introduce(&mut self, upper: u16, blocks: u64, levels: u16) {
        self.chances.introduce(upper, blocks, levels);
    }

    fn measure_way(&mut self, blocks: u64) {
        self.settings.measure_way(blocks);
    }

    fn serve(
        &mut self,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
        left: &mut Option<Left>,
    ) -> Pass {
        let load = upper.and_then(|upper| match self.base {
            Base::Demote => Some(self.give_up(entry)),
            Base::Promote => self.promote(entry, is_write, upper),
            Base::HintK => self.rise(entry, upper),
        });
        match load {
            Some(load) => Pass::Moved { load, nearest: load.frequency },
            None => {
                self.hit(entry, left);
                Pass::Kept
            }
        }
    }

    fn pass(&mut self, passing: Passing, pass: Pass, left: &mut Option<Left>) -> (Pass, bool) {
        // Of a block that is kept below nothing is drawn and nothing counted.
        if pass == Pass::Kept {
            return (pass, false);
        }
        let stays = match self.base {
            Base::Demote => self.takes_at_the_top(passing),
            Base::Promote => self.owns(passing),
            Base::HintK => self.takes_one_level_up(passing, pass),
        };
        let (moved, load, below) = match pass {
            Pass::Moved { load, nearest } => (true, load, nearest),
            Pass::Fresh { nearest } => (false, Load::default(), nearest),
            Pass::Kept => return (pass, false),
        };
        if !stays {
            let nearest = self.frequency(passing.entry);
            let further =
                if moved { Pass::Moved { load, nearest } } else { Pass::Fresh { nearest } };
            return (further, false);
        }
        let arrival = Arrival { moved, load, exchanges: true, owner: passing.owner };
        self.receive(passing.entry, arrival, left);
        let is_foretold = matches!(self.level.hints, Hints::Foretold(_));
        self.blocks[passing.entry as usize].may_be_hot_below =
            is_foretold || below > self.settings.least;
        (Pass::Kept, true)
    }

    fn demoted(
        &mut self,
        entry: Entry,
        owner: u16,
        load: Load,
        exchanges: bool,
        left: &mut Option<Left>,
    ) -> Option<f64> {
        self.receive(entry, Arrival { moved: true, load, exchanges, owner }, left);
        let block = &self.blocks[entry as usize];
        (exchanges && self.base == Base::Demote && block.is_hot()).then_some(block.heat)
    }

    fn exchange(&mut self, entry: Entry, heat: f64, rises: &dyn Fn(u16) -> bool) -> Option<Risen> {
        self.hottest_for(entry, heat, rises)
    }

    fn exchanged(&mut self, risen: Risen, left: &mut Option<Left>) {
        let Risen { entry, owner, load } = risen;
        self.receive(entry, Arrival { moved: true, load, exchanges: false, owner }, left);
    }

    fn forget(&mut self, entry: Entry) {
        if self.holds(entry) {
            self.pull(entry);
            self.level.forget_warm(entry);
            self.blocks[entry as usize] = Block::default();
        }
    }

    fn holds(&self, entry: Entry) -> bool {
        self.blocks[entry as usize].is_here()
    }

    fn knows(&self, entry: Entry) -> bool {
        self.holds(entry) || self.level.hints.knows(entry)
    }

    fn len(&self) -> u32 {
        self.level.len()
    }

    fn remembered_max(&self) -> u32 {
        match &self.level.hints {
            Hints::Table(table) => table.max(),
            Hints::Foretold(_) => u32::MAX,
        }
    }

    fn residents(&self) -> Vec<Entry> {
        let mut all = self.level.base.tail_first();
        all.extend(self.level.hot.tail_first());
        all
    }

    fn gauges(&self) -> Option<Gauges> {
        let (hot_blocks, hot_target) = (self.level.hot.len(), self.level.target);
        Some(Gauges { hot_blocks, hot_target, probability: self.chances.first_probability() })
    }

    /// Per block H, hits, when it came and when it was updated, flags; the table; Hint-K's history.
    fn overhead_bytes(&self) -> u64 {
        let table = match &self.level.hints {
            Hints::Table(table) => table.bytes(),
            Hints::Foretold(foretold) => foretold.bytes(),
        };
        let history = u64::from(self.base == Base::HintK);
        (8 + 2 + 4 + 4 + 2 + history) * u64::from(self.level.capacity) + table
    }

    fn take_log(&mut self) -> Option<Vec<(Entry, u64)>> {
        self.log.take()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let (hot, base) = (self.level.hot.tail_first(), self.level.base.tail_first());
        let khv = |&entry: &Entry| (entry, self.steps.real(self.blocks[entry as usize].history));
        let khv: Vec<_> = hot.iter().chain(&base).map(khv).collect();
        let table = match &self.level.hints {
            Hints::Table(table) => format!("{:?}", table.entries()),
            Hints::Foretold(_) => String::new(),
        };
        vec![
            ("Q1", format!("{hot:?}")),
            ("Q2", format!("{base:?}")),
            ("T_out", table),
            ("c1", self.level.target.to_string()),
            ("khv", format!("{khv:?}")),
        ]
    }

    fn validate(&self) -> Result<(), String> {
        self.chances.validate()?;
        self.level.validate(&self.blocks)
    }
}
