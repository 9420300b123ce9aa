//! One sector as a register: the orders that are still possible, step by step.

mod dominated;

use std::collections::BTreeMap;

use crate::checker::promises::Happening;
use crate::history::{Action, End, Event, FORGED, INITIAL, Operation, Step, Value, ZEROES};

/// Most operations that are open at a time; with more the sector is not looked at.
const OPEN_MAX: usize = 128;

pub struct Register<'a> {
    sector: u64,
    happenings: &'a [(Step, Happening<'a>)],
    /// Calls and ends of FLUSHes that succeeded.
    flushes: &'a [(Step, Step)],
    possible: Vec<Possible>,
    /// Operations that may still take effect, by slot.
    open: Vec<Option<Open<'a>>>,
    /// Changes since the last loss.
    changes: Vec<(u32, &'a Operation)>,
    /// When a value was found for the last time.
    last_found: BTreeMap<Value, Step>,
    /// When unanswered operations were over, since their server was.
    over: BTreeMap<u32, Step>,
    /// When something was lost last: what is older matters no more but for what it left.
    lost: Step,
    /// When a cache was lost, or what a server below had not made durable.
    cache_lost: Vec<Step>,
    /// Something was lost below, and the blocks may not have gone back yet.
    lost_below: Option<Step>,
    /// What was answered does not go back then.
    keeps_answered: bool,
    /// The store may execute late a write that it has refused. A TRIM drops what would have
    /// replaced it.
    is_late: bool,
}

/// An order that is possible, as far as it matters for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    /// The operation whose value is there.
    current: u32,
    /// What the last loss left.
    floor: u32,
    /// What the last loss of a cache left.
    kept: u32,
    /// By slot: it had its moment, or can have none any more.
    done: u128,
    has_gone_back: bool,
    /// Nothing was written since a TRIM, and the store may execute what it refused before.
    is_trimmed: bool,
    /// When the current operation had its moment.
    since: Step,
}

#[derive(Clone, Copy)]
struct Open<'a> {
    number: u32,
    operation: &'a Operation,
    /// It was answered with a failure then.
    failed: Option<Step>,
}

impl Open<'_> {
    /// What it leaves, or found.
    fn value(&self, sector: u64) -> Value {
        value(self.number, self.operation, sector)
    }

    fn is_read(&self) -> bool {
        matches!(self.operation.action, Action::Read(_))
    }
}

fn value(number: u32, operation: &Operation, sector: u64) -> Value {
    match &operation.action {
        Action::Read(found) => {
            found.get((sector - operation.place.sectors.start) as usize).copied().unwrap_or(FORGED)
        }
        Action::Zero | Action::Trim => ZEROES,
        _ => operation.value.unwrap_or(number),
    }
}

impl<'a> Register<'a> {
    pub fn new(
        sector: u64,
        happenings: &'a [(Step, Happening<'a>)],
        flushes: &'a [(Step, Step)],
        is_late: bool,
    ) -> Register<'a> {
        let mut last_found = BTreeMap::new();
        for (step, happening) in happenings {
            if let Happening::End(number, o) = happening {
                if matches!(o.action, Action::Read(_)) {
                    last_found.insert(value(*number, o, sector), *step);
                }
            }
        }
        let first = Possible {
            current: INITIAL,
            floor: INITIAL,
            kept: INITIAL,
            done: 0,
            has_gone_back: false,
            is_trimmed: false,
            since: 0,
        };
        Register {
            sector,
            happenings,
            flushes,
            possible: vec![first],
            open: Vec::new(),
            changes: Vec::new(),
            last_found,
            over: BTreeMap::new(),
            lost: 0,
            cache_lost: Vec::new(),
            lost_below: None,
            keeps_answered: false,
            is_late,
        }
    }

    pub fn check(mut self) -> Result<(), String> {
        for (step, happening) in self.happenings {
            match happening {
                Happening::Call(number, operation) => self.call(*number, operation),
                Happening::End(number, operation) => self.end(*step, *number, operation),
                Happening::Event(event) => self.event(*step, event),
            }
            if self.open.len() > OPEN_MAX {
                return Ok(());
            }
            if self.possible.is_empty() {
                return Err(self.explain(*step, happening));
            }
            let has_closed = self.close_what_is_over(*step);
            // A call makes no two orders alike.
            if has_closed || !matches!(happening, Happening::Call(..)) {
                self.drop_dominated();
            }
        }
        Ok(())
    }

    fn value_of(&self, number: u32) -> Value {
        if number == INITIAL {
            return INITIAL;
        }
        self.change(number).map_or(number, |operation| value(number, operation, self.sector))
    }

    fn call(&mut self, number: u32, operation: &'a Operation) {
        let open = Open { number, operation, failed: None };
        let slot = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.open[slot] = Some(open);
        if slot >= OPEN_MAX {
            return;
        }
        if open.is_read() {
            let found = open.value(self.sector);
            let holds: Vec<_> =
                self.possible.iter().map(|p| self.value_of(p.current) == found).collect();
            for (possible, holds) in self.possible.iter_mut().zip(holds) {
                possible.done |= u128::from(holds) << slot;
            }
        } else {
            self.changes.push((number, operation));
        }
    }

    fn end(&mut self, step: Step, number: u32, operation: &'a Operation) {
        let is_it = |open: &Option<Open<'_>>| open.is_some_and(|open| open.number == number);
        // Its server may have ended before the answer was noticed.
        let Some(slot) = self.open.iter().position(is_it) else { return };
        let Some(open) = self.open[slot] else { return };
        match operation.end {
            Some((_, End::Done)) => {}
            Some((_, End::Failed)) => {
                self.open[slot] = Some(Open { failed: Some(step), ..open });
                return;
            }
            _ => return,
        }
        for possible in std::mem::take(&mut self.possible) {
            if possible.done >> slot & 1 == 1 {
                self.possible.push(possible);
            } else if open.is_read() {
                self.explain_read(possible, slot, step);
            } else {
                self.explain_change(possible, slot, step);
            }
        }
        self.close(slot);
    }

    /// All orders in which a read found what it did.
    fn explain_read(&mut self, possible: Possible, slot: usize, step: Step) {
        let Some(read) = self.open[slot] else { return };
        let found = read.value(self.sector);
        for (other, open) in self.open.clone().into_iter().enumerate() {
            let Some(open) = open else { continue };
            if open.is_read() || possible.done >> other & 1 == 1 {
                continue;
            }
            // Whether it may have been found before the value came that is there now.
            let is_before = read.operation.call.max(open.operation.call) < possible.since;
            if open.operation.action == Action::Trim {
                self.possible.extend(self.leaves_older(possible, other, step, Some(found)));
                // What became durable since then did not bind it. Others may have found it, too.
                let then = read.operation.call.max(open.operation.call);
                let mut survivors = self.survivors(&possible, then).into_iter();
                if is_before && survivors.any(|number| self.value_of(number) == found) {
                    let others = self.reads_finding(&[found], possible.since);
                    let done = possible.done | 1 << other | 1 << slot | others;
                    self.possible.push(Possible { done, ..possible });
                }
            }
            if open.value(self.sector) != found {
                continue;
            }
            self.possible.extend(self.take_place(possible, other, step));
            if is_before {
                self.possible.extend(self.was_overwritten(possible, other));
            }
        }
        if possible.is_trimmed {
            for current in self.survivors(&possible, step) {
                if self.value_of(current) == found {
                    let late = Possible { current, since: step, ..possible };
                    self.possible.push(self.found_by_all(late));
                }
            }
        }
        if self.lost_below.is_some() {
            for survivor in self.survivors(&possible, step) {
                if self.value_of(survivor) != found {
                    continue;
                }
                if read.operation.call < possible.since {
                    // It had gone back by then, and was written anew.
                    let done = possible.done | 1 << slot;
                    self.possible.push(Possible { done, ..possible });
                }
                if !possible.has_gone_back {
                    let gone = Possible { has_gone_back: true, since: step, ..possible };
                    self.possible.push(self.found_by_all(Possible { current: survivor, ..gone }));
                }
            }
        }
    }

    /// All orders in which a change that has ended took effect.
    fn explain_change(&mut self, possible: Possible, slot: usize, step: Step) {
        let Some(open) = self.open[slot] else { return };
        self.possible.extend(self.take_place(possible, slot, step));
        self.possible.extend(self.was_overwritten(possible, slot));
        if open.operation.action == Action::Trim {
            let mut done = possible.done | 1 << slot;
            if open.operation.call < possible.since {
                // What it brought back was found, and overwritten.
                let back = self.survivors(&possible, possible.since);
                let back: Vec<Value> = back.into_iter().map(|n| self.value_of(n)).collect();
                done |= self.reads_finding(&back, possible.since);
            }
            let is_trimmed = possible.is_trimmed || self.is_late;
            self.possible.push(Possible { done, is_trimmed, ..possible });
            self.possible.extend(self.leaves_older(possible, slot, step, None));
        }
    }

    /// The operation takes effect now.
    fn take_place(&self, before: Possible, slot: usize, step: Step) -> Option<Possible> {
        let open = self.open[slot]?;
        let replaced = self.called(before.current);
        if open.failed.is_some_and(|failed| replaced > failed) {
            return None;
        }
        let is_trimmed = self.is_late && open.operation.action == Action::Trim;
        let mut after = Possible { current: open.number, is_trimmed, since: step, ..before };
        after.done |= 1 << slot;
        for (other, late) in self.open.iter().enumerate() {
            let Some(late) = late.filter(|open| open.failed.is_some_and(|at| replaced > at)) else {
                continue;
            };
            // It had its moment before that of the value that goes, or will have none.
            if before.done >> other & 1 == 0 && late.operation.call < before.since {
                after.done |= self.reads_of(late, before.since);
            }
            after.done |= 1 << other;
        }
        // What is written anew does not go back. What was there may have, just before.
        let goes_back = self.lost_below.is_some() && !before.has_gone_back;
        if goes_back || before.is_trimmed {
            let back = self.survivors(&before, step);
            let back: Vec<Value> = back.into_iter().map(|n| self.value_of(n)).collect();
            after.done |= self.reads_finding(&back, step);
        }
        after.has_gone_back |= self.lost_below.is_some_and(|lost| open.operation.call > lost);
        Some(self.found_by_all(after))
    }

    /// A TRIM takes effect now, and what was only in a cache is gone.
    fn leaves_older(
        &self,
        before: Possible,
        slot: usize,
        step: Step,
        found: Option<Value>,
    ) -> Vec<Possible> {
        let survivors = self.survivors(&before, step).into_iter();
        let fits = |number: &u32| found.is_none_or(|found| self.value_of(*number) == found);
        let done = before.done | 1 << slot;
        // What an earlier loss had left is not durable any more, whatever is flushed.
        let (is_trimmed, since) = (self.is_late, step);
        let left = survivors.filter(fits).map(|current| Possible {
            current,
            kept: current,
            done,
            is_trimmed,
            since,
            ..before
        });
        left.map(|possible| self.found_by_all(possible)).collect()
    }

    /// The operation had its moment just before that of the value which is there.
    fn was_overwritten(&self, possible: Possible, slot: usize) -> Option<Possible> {
        let open = self.open[slot]?;
        if open.operation.call >= possible.since {
            return None;
        }
        let done = possible.done | 1 << slot | self.reads_of(open, possible.since);
        Some(Possible { done, ..possible })
    }

    /// The reads under way that may have found what an operation left before a moment.
    fn reads_of(&self, left: Open<'_>, before: Step) -> u128 {
        self.reads_finding(&[left.value(self.sector)], before)
    }

    /// The reads under way that may have found one of some values before a moment.
    fn reads_finding(&self, values: &[Value], before: Step) -> u128 {
        let finds = |read: &Open<'_>| {
            read.is_read()
                && read.operation.call < before
                && values.contains(&read.value(self.sector))
        };
        let reads =
            self.open.iter().enumerate().filter(|(_, open)| open.as_ref().is_some_and(finds));
        reads.fold(0, |done, (slot, _)| done | 1 << slot)
    }

    /// Every read under way may have found the value now.
    fn found_by_all(&self, mut possible: Possible) -> Possible {
        let value = self.value_of(possible.current);
        for (slot, open) in self.open.iter().enumerate() {
            let finds = open.filter(Open::is_read).map(|read| read.value(self.sector) == value);
            possible.done |= u128::from(finds == Some(true)) << slot;
        }
        possible
    }

    fn called(&self, number: u32) -> Step {
        self.change(number).map_or(0, |operation| operation.call)
    }

    /// They are in the order of their calls, which is that of their numbers.
    fn change(&self, number: u32) -> Option<&'a Operation> {
        let at = self.changes.binary_search_by_key(&number, |(of, _)| *of).ok()?;
        Some(self.changes[at].1)
    }

    fn close(&mut self, slot: usize) {
        self.open[slot] = None;
        self.possible.iter_mut().for_each(|possible| possible.done &= !(1 << slot));
    }

    fn event(&mut self, step: Step, event: &Event) {
        match event {
            Event::Lost => self.lose(step),
            Event::CacheLost => self.lose_cache(step),
            Event::LostWithin(ranges) => {
                match ranges.iter().any(|range| range.contains(&self.sector)) {
                    true => self.lose_cache(step),
                    false => self.settle(step),
                }
            }
            Event::Killed | Event::Closed => self.settle(step),
            Event::LostBelow | Event::FailedLostBelow => {
                self.lost_below = Some(step);
                self.keeps_answered = *event == Event::FailedLostBelow;
                self.possible.iter_mut().for_each(|possible| possible.has_gone_back = false);
            }
            Event::NoMoreLostBelow => {
                for possible in std::mem::take(&mut self.possible) {
                    self.possible.push(possible);
                    if self.lost_below.is_some() && !possible.has_gone_back {
                        for current in self.survivors(&possible, step) {
                            let gone = Possible { current, since: step, ..possible };
                            self.possible.push(self.found_by_all(gone));
                        }
                    }
                }
                self.possible.iter_mut().for_each(|possible| possible.kept = possible.current);
                let lost = self.lost_below.take().filter(|_| !self.keeps_answered);
                self.cache_lost.extend(lost);
            }
        }
    }

    /// What was not answered happened before now, or never.
    fn settle(&mut self, step: Step) {
        for possible in std::mem::take(&mut self.possible) {
            self.possible.push(possible);
            for (slot, open) in self.open.iter().enumerate() {
                let can =
                    open.is_some_and(|open| !open.is_read()) && possible.done >> slot & 1 == 0;
                if !can {
                    continue;
                }
                self.possible.extend(self.take_place(possible, slot, step));
                if open.is_some_and(|open| open.operation.action == Action::Trim) {
                    self.possible.extend(self.leaves_older(possible, slot, step, None));
                }
            }
        }
        self.end_all(step);
    }

    /// What was not durable may be gone.
    fn lose(&mut self, step: Step) {
        for possible in std::mem::take(&mut self.possible) {
            for current in self.survivors(&possible, step) {
                let (floor, kept) = (current, current);
                let left = Possible { current, floor, kept, since: step, ..possible };
                self.possible.push(left);
            }
        }
        self.end_all(step);
        self.lost = step;
        let kept: Vec<u32> = self.possible.iter().map(|possible| possible.current).collect();
        self.changes.retain(|(number, _)| kept.contains(number));
    }

    /// What was only in the cache may be gone.
    fn lose_cache(&mut self, step: Step) {
        for possible in std::mem::take(&mut self.possible) {
            for current in self.survivors(&possible, step) {
                let kept = current;
                self.possible.push(Possible { current, kept, since: step, ..possible });
            }
        }
        self.cache_lost.push(step);
        self.end_all(step);
    }

    fn end_all(&mut self, step: Step) {
        for open in self.open.drain(..).flatten() {
            self.over.entry(open.number).or_insert(step);
        }
        self.lost_below = None;
        // A volume is opened only when nothing is late of those that had it before.
        // Nothing from before a TRIM is durable, so what there may be depends on the floor alone.
        let trimmed = self.possible.iter().filter(|possible| possible.is_trimmed);
        let by_floor: BTreeMap<u32, Possible> = trimmed.map(|p| (p.floor, *p)).collect();
        for possible in by_floor.into_values() {
            let survivors = self.survivors(&possible, step).into_iter();
            let late = survivors.map(|current| Possible { current, since: step, ..possible });
            self.possible.extend(late);
        }
        for possible in &mut self.possible {
            (possible.done, possible.is_trimmed) = (0, false);
        }
    }

    /// What the sector may hold after what was not durable was lost.
    fn survivors(&self, possible: &Possible, step: Step) -> Vec<u32> {
        // What was only in a cache that was lost is not made durable by a FLUSH that comes later;
        // nor is what was under way then, unless it is there.
        let is_flushed = |number: u32, o: &Operation, end: Step| {
            let mut losses = self.cache_lost.iter().copied();
            let is_there = |lost| number == possible.current && lost < end;
            let is_lost =
                |&lost: &Step| lost >= o.call && number != possible.kept && !is_there(lost);
            let below = self.lost_below.filter(|&lost| lost >= o.call);
            let before = losses.find(is_lost).or(below).unwrap_or(step);
            self.flushes.iter().any(|&(call, done)| end < call && call <= before && done <= step)
        };
        // After a TRIM whatever was there before may be there again.
        let trims = self.changes.iter().filter(|(_, o)| o.action == Action::Trim);
        let trimmed = trims.map(|(_, o)| o.end.map_or(Step::MAX, |(end, _)| end)).max();
        // What the server that keeps it has had in its care since it was started.
        let started = self.cache_lost.last().copied().unwrap_or(0).max(self.lost);
        let keeps = |o: &Operation, end: Step| {
            self.lost_below.is_some() && self.keeps_answered && o.call > started && end < step
        };
        let is_durable = |number: u32, o: &Operation| match o.end {
            _ if o.call < self.lost.max(trimmed.unwrap_or(0)) => false,
            Some((end, End::Done)) if keeps(o, end) => true,
            Some((end, End::Done)) => (o.durable && end < step) || is_flushed(number, o, end),
            _ => false,
        };
        let durable = self.changes.iter().filter(|(n, o)| is_durable(*n, o)).map(|(_, o)| o.call);
        let newest = durable.max().unwrap_or(0);
        let ended = |number: u32, o: &Operation| {
            let answered = o.end.filter(|(_, end)| *end != End::Unknown).map(|(step, _)| step);
            answered.or(self.over.get(&number).copied()).unwrap_or(Step::MAX)
        };
        let may = self
            .changes
            .iter()
            .filter(|(number, o)| o.call > self.lost && ended(*number, o) >= newest);
        let mut survivors: Vec<u32> = may.map(|(number, _)| *number).collect();
        if newest == 0 {
            survivors.push(possible.floor);
        }
        survivors
    }

    /// Closes changes that have ended and that nobody finds later; whether there were any.
    fn close_what_is_over(&mut self, step: Step) -> bool {
        let mut has_closed = false;
        for slot in 0..self.open.len() {
            let Some(open) = self.open[slot].filter(|open| !open.is_read()) else { continue };
            // A TRIM that was not answered may bring back any value, at any time.
            if open.operation.action == Action::Trim {
                continue;
            }
            let ended = open.operation.end.is_some_and(|(end, _)| end <= step);
            let found = self.last_found.get(&open.value(self.sector)).copied().unwrap_or(0);
            if ended && found <= step {
                self.close(slot);
                has_closed = true;
            }
        }
        has_closed
    }

    fn slots(&self, is_meant: impl Fn(&Open<'_>) -> bool) -> u128 {
        let open = self.open.iter().enumerate();
        let meant = open.filter(|(_, open)| open.as_ref().is_some_and(&is_meant));
        meant.fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    fn explain(&self, at: Step, what: &Happening<'_>) -> String {
        let mut text = match what {
            Happening::End(number, o) => {
                let value = value(*number, o, self.sector);
                match o.action {
                    Action::Read(_) => {
                        format!("#{number} (s{}) reads what #{value} left", o.session)
                    }
                    _ => format!("#{number} cannot have happened"),
                }
            }
            other => format!("{other:?}"),
        };
        let from = self.happenings.partition_point(|(step, _)| *step < at).saturating_sub(12);
        for (step, happening) in self.happenings[from..].iter().take_while(|(step, _)| *step <= at)
        {
            let line = match happening {
                Happening::Call(number, o) => {
                    let fua = if o.durable { " FUA" } else { "" };
                    let name = match o.action {
                        Action::Read(_) => "READ".to_owned(),
                        ref other => format!("{other:?}{fua}"),
                    };
                    format!("call #{number} {name}")
                }
                Happening::End(number, o) => match o.action {
                    Action::Read(_) => {
                        format!("end  #{number}: {}", value(*number, o, self.sector))
                    }
                    _ => format!("end  #{number} {:?}", o.end.map(|(_, end)| end)),
                },
                Happening::Event(event) => format!("{event:?}"),
            };
            text.push_str(&format!("\n      {step} {line}"));
        }
        text
    }
}
