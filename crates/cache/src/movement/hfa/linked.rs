//! A cache of HFA as its neighbours meet it: time, requests, answers, and blocks that come from
//! above or below. Each variant decides in its own file.

use super::super::Gauges;
use super::super::link::{Bid, Left, LinkedLevel, Load, Pass, Passing, Risen, Upper};
use super::super::shared::{AtHand, Shared};
use super::level::Hints;
use super::queue::Queue;
use super::{Arrival, Base, Hfa, Variant};
use crate::Entry;

impl<V: Variant> LinkedLevel for Hfa<V> {
    fn lists(&self) -> u32 {
        Self::lists_with(&self.steps)
    }

    fn period(&self) -> u64 {
        self.settings.period
    }

    fn grow(&mut self, entries: u32) {
        self.level.grow(entries);
    }

    fn begin_slot(&mut self, shared: &mut AtHand<'_>) {
        self.expire(shared);
    }

    fn end_slot(&mut self, shared: &mut AtHand<'_>) {
        self.repartition(shared);
        self.level.start_sums(self.settings.period);
    }

    #[inline]
    fn bid(&self) -> Bid {
        Bid { has_room: !self.level.is_full(), least: self.level.base.least(), life: 0 }
    }

    fn life(&self, shared: &Shared) -> u64 {
        self.own_life(shared)
    }

    fn hears_lives(&self) -> bool {
        self.chances.is_adaptive
    }

    #[inline(always)]
    fn awaits_life(&self, shared: &Shared, upper: u16) -> bool {
        V::BASE == Base::Promote && self.awaits(shared, upper)
    }

    fn hear_life(&mut self, shared: &Shared, upper: u16, life: u64) {
        if self.chances.is_adaptive {
            let lives = [life as f64, self.own_life(shared) as f64];
            self.chances.tell(upper, self.level.capacity, shared.now(), lives);
        }
    }

    fn introduce(&mut self, upper: u16, blocks: u64, levels: u16) {
        self.chances.introduce(upper, blocks, levels);
    }

    fn measure_way(&mut self, blocks: u64) {
        self.settings.measure_way(blocks);
    }

    #[inline(always)]
    fn serve(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
        left: &mut Option<Left>,
    ) -> Pass {
        let load = match (upper, V::BASE) {
            (None, _) => None,
            (Some(_), Base::Demote) => Some(self.give_up(shared, entry)),
            (Some(upper), Base::Promote) => self.promote(shared, entry, is_write, upper),
            (Some(upper), Base::HintK) => self.rise(shared, entry, upper),
        };
        match load {
            Some(load) => Pass::Moved { load, nearest: load.frequency },
            None => {
                self.hit(shared, entry, left);
                Pass::Kept
            }
        }
    }

    #[inline(always)]
    fn pass(
        &mut self,
        shared: &mut AtHand<'_>,
        passing: Passing,
        pass: Pass,
        left: &mut Option<Left>,
    ) -> (Pass, bool) {
        // Of a block that is kept below nothing is drawn and nothing counted.
        if pass == Pass::Kept {
            return (pass, false);
        }
        let stays = match V::BASE {
            Base::Demote => self.takes_at_the_top(passing),
            Base::Promote => self.owns(shared, passing),
            Base::HintK => self.takes_one_level_up(passing, pass),
        };
        if stays {
            self.take(shared, passing, pass, left);
            return (Pass::Kept, true);
        }
        let nearest = if passing.is_told { self.frequency(shared, passing.entry) } else { 0.0 };
        let further = match pass {
            Pass::Moved { load, .. } => Pass::Moved { load, nearest },
            Pass::Fresh { .. } | Pass::Kept => Pass::Fresh { nearest },
        };
        (further, false)
    }

    #[inline(always)]
    fn demoted(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        owner: u16,
        load: Load,
        exchanges: bool,
        left: &mut Option<Left>,
    ) -> Option<f64> {
        let arrival = Arrival { moved: true, load, exchanges, may_be_hot_below: true, owner };
        self.receive(shared, entry, arrival, left);
        let block = shared.blocks.get(entry);
        (exchanges && V::BASE == Base::Demote && block.is_hot).then_some(block.heat)
    }

    fn exchange(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        heat: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Risen> {
        self.hottest_for(shared, entry, heat, rises)
    }

    fn awaits_exchange(&self, left: &Left) -> bool {
        let frequency = left.load.map_or(0.0, |load| load.frequency);
        left.exchanges && (left.may_be_hot_below || frequency > self.settings.least)
    }

    fn exchanged(&mut self, shared: &mut AtHand<'_>, risen: Risen, left: &mut Option<Left>) {
        let Risen { entry, owner, load } = risen;
        let (moved, exchanges, may_be_hot_below) = (true, false, true);
        let arrival = Arrival { moved, load, exchanges, may_be_hot_below, owner };
        self.receive(shared, entry, arrival, left);
    }

    fn forget(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        self.level.pull(shared, entry);
        shared.blocks.get_mut(entry).place = 0;
    }

    fn remembers(&self, shared: &Shared, entry: Entry) -> bool {
        self.level.hints.knows(shared.blocks.get(entry))
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

    fn residents(&self, shared: &Shared) -> Vec<Entry> {
        let mut all = self.level.base.tail_first(&shared.blocks);
        all.extend(self.level.hot.tail_first(&shared.blocks));
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
        let history = u64::from(V::BASE == Base::HintK);
        (8 + 2 + 4 + 4 + 2 + history) * u64::from(self.level.capacity) + table
    }

    fn take_log(&mut self) -> Option<Vec<(Entry, u64)>> {
        self.log.take()
    }

    fn describe(&self, shared: &Shared) -> Vec<(&'static str, String)> {
        let blocks = &shared.blocks;
        let (hot, base) = (self.level.hot.tail_first(blocks), self.level.base.tail_first(blocks));
        let khv = |&entry: &Entry| (entry, self.steps.real(blocks.get(entry).history));
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

    fn validate(&self, shared: &Shared) -> Result<(), String> {
        self.chances.validate()?;
        self.level.validate(shared)
    }
}
