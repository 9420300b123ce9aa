//! One sector as a register: the orders that are still possible, step by step.

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
    /// Something was lost below, and the blocks may not have gone back yet.
    lost_below: Option<Step>,
}

/// An order that is possible, as far as it matters for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    /// The operation whose value is there.
    current: u32,
    /// What the last loss left.
    floor: u32,
    /// By slot: it had its moment, or can have none any more.
    done: u128,
    has_gone_back: bool,
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
        _ => number,
    }
}

impl<'a> Register<'a> {
    pub fn new(
        sector: u64,
        happenings: &'a [(Step, Happening<'a>)],
        flushes: &'a [(Step, Step)],
    ) -> Register<'a> {
        let mut last_found = BTreeMap::new();
        for (step, happening) in happenings {
            if let Happening::End(number, o) = happening {
                if matches!(o.action, Action::Read(_)) {
                    last_found.insert(value(*number, o, sector), *step);
                }
            }
        }
        let first =
            Possible { current: INITIAL, floor: INITIAL, done: 0, has_gone_back: false, since: 0 };
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
            lost_below: None,
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
            self.tidy(*step);
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
        let before = std::mem::take(&mut self.possible);
        for possible in before {
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
            let is_its = !open.is_read() && open.value(self.sector) == found;
            if !is_its || possible.done >> other & 1 == 1 {
                continue;
            }
            self.possible.extend(self.take_place(possible, other, step));
            if read.operation.call < possible.since {
                self.possible.extend(self.was_overwritten(possible, other));
            }
        }
        if self.lost_below.is_some() && !possible.has_gone_back {
            for survivor in self.survivors(&possible, step) {
                if self.value_of(survivor) == found {
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
            self.possible.push(Possible { done: possible.done | 1 << slot, ..possible });
        }
    }

    /// The operation takes effect now.
    fn take_place(&self, before: Possible, slot: usize, step: Step) -> Option<Possible> {
        let open = self.open[slot]?;
        let replaced = self.called(before.current);
        if open.failed.is_some_and(|failed| replaced > failed) {
            return None;
        }
        let mut after = Possible { current: open.number, since: step, ..before };
        after.done |= 1 << slot;
        for (other, failed) in self.open.iter().enumerate() {
            let failed = failed.and_then(|open| open.failed);
            if failed.is_some_and(|failed| replaced > failed) {
                after.done |= 1 << other;
            }
        }
        // What is written anew does not go back.
        after.has_gone_back |= self.lost_below.is_some_and(|lost| open.operation.call > lost);
        Some(self.found_by_all(after))
    }

    /// The operation had its moment just before that of the value which is there.
    fn was_overwritten(&self, possible: Possible, slot: usize) -> Option<Possible> {
        let open = self.open[slot]?;
        if open.operation.call >= possible.since {
            return None;
        }
        let mut done = possible.done | 1 << slot;
        let left = open.value(self.sector);
        for (other, read) in self.open.iter().enumerate() {
            let Some(read) = read.filter(Open::is_read) else { continue };
            if read.operation.call < possible.since && read.value(self.sector) == left {
                done |= 1 << other;
            }
        }
        Some(Possible { done, ..possible })
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
            Event::LostWithin(ranges) => {
                match ranges.iter().any(|range| range.contains(&self.sector)) {
                    true => self.lose(step),
                    false => self.settle(step),
                }
            }
            Event::Killed | Event::Closed => self.settle(step),
            Event::LostBelow => {
                self.lost_below = Some(step);
                self.possible.iter_mut().for_each(|possible| possible.has_gone_back = false);
            }
            Event::NoMoreLostBelow => {
                let before = std::mem::take(&mut self.possible);
                for possible in before {
                    self.possible.push(possible);
                    if self.lost_below.is_some() && !possible.has_gone_back {
                        for current in self.survivors(&possible, step) {
                            self.possible.push(Possible { current, since: step, ..possible });
                        }
                    }
                }
                self.lost_below = None;
            }
        }
    }

    /// What was not answered happened before now, or never.
    fn settle(&mut self, step: Step) {
        let before = std::mem::take(&mut self.possible);
        for possible in before {
            self.possible.push(possible);
            for (slot, open) in self.open.iter().enumerate() {
                let can =
                    open.is_some_and(|open| !open.is_read()) && possible.done >> slot & 1 == 0;
                if can {
                    self.possible.extend(self.take_place(possible, slot, step));
                }
            }
        }
        self.end_all(step);
    }

    /// What was not durable may be gone.
    fn lose(&mut self, step: Step) {
        let before = std::mem::take(&mut self.possible);
        for possible in before {
            for current in self.survivors(&possible, step) {
                let left = Possible { current, floor: current, since: step, ..possible };
                self.possible.push(left);
            }
        }
        self.end_all(step);
        self.lost = step;
        let kept: Vec<u32> = self.possible.iter().map(|possible| possible.current).collect();
        self.changes.retain(|(number, _)| kept.contains(number));
    }

    fn end_all(&mut self, step: Step) {
        for open in self.open.drain(..).flatten() {
            self.over.entry(open.number).or_insert(step);
        }
        self.lost_below = None;
        self.possible.iter_mut().for_each(|possible| possible.done = 0);
    }

    /// What the sector may hold after what was not durable was lost.
    fn survivors(&self, possible: &Possible, step: Step) -> Vec<u32> {
        let flushed = self.flushes.iter().filter(|(_, end)| *end <= step).map(|(call, _)| *call);
        let flushed = flushed.max().unwrap_or(0);
        let is_durable = |o: &Operation| match o.end {
            // It may have changed nothing.
            _ if o.action == Action::Trim || o.call < self.lost => false,
            Some((end, End::Done)) => end < flushed || (o.durable && end < step),
            _ => false,
        };
        let durable = self.changes.iter().filter(|(_, o)| is_durable(o)).map(|(_, o)| o.call);
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

    /// Drops what makes no difference any more.
    fn tidy(&mut self, step: Step) {
        for slot in 0..self.open.len() {
            let Some(open) = self.open[slot].filter(|open| !open.is_read()) else { continue };
            let ended = open.operation.end.is_some_and(|(end, _)| end <= step);
            let found = self.last_found.get(&open.value(self.sector)).copied().unwrap_or(0);
            if ended && found <= step {
                self.close(slot);
            }
        }
        self.possible.sort_unstable_by(|a, b| {
            let key = |p: &Possible| (p.current, p.floor, p.done, p.has_gone_back);
            key(a).cmp(&key(b)).then(b.since.cmp(&a.since))
        });
        self.possible.dedup_by_key(|p| (p.current, p.floor, p.done, p.has_gone_back));
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
