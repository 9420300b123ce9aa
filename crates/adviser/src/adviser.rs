//! The adviser of one cache: takes what happens to the sampled blocks, drives all cells, ends
//! epochs, and gives other policies a turn.

use undercroft_cache::WriteMode;
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::{Awareness, Spec, policies};

use crate::GROUPS;
use crate::cell::{Cell, Deed, SETTLING, Setting, Step};
use crate::change::{NEWEST, has_changed};
use crate::control::{Known, OfSize, Sampled};
use crate::estimate::Estimate;
use crate::figures::{Adapts, CellFigure, Figures, State};
use crate::heard::{Adapting, Heard};
use crate::plan::{COUNTS_BYTES, Plan, placements};
use crate::sample::{DEPTHS, Event, Kind, Sample};
use crate::window::{EPOCHS, IN_TURNOVER, Place, Totals, Window};

/// Events that each cell takes at a time: enough that a cell's memory is near when it is used
/// again.
const TOGETHER: usize = 64;

/// An epoch ends after references to this many times as many sampled blocks as today's miniature
/// holds, even if hardly one misses.
const REFERENCES: u64 = 4;

/// An epoch that is so many times as long as it should be ends within a round.
const OVERDUE: u32 = 2;

/// Most events that do not count after others were skipped.
const SETTLING_MAX: u64 = 8192;

/// Epochs between two exchanges of policies: the new one's must be worth comparing.
const TURN: u64 = SETTLING as u64 + 2 * EPOCHS as u64;

/// The cache as it is configured.
#[derive(Clone, Debug)]
pub struct Today {
    /// Its policy.
    pub policy: Spec,
    /// When it places blocks.
    pub placement: Placement,
    /// Its size in blocks, at least 1.
    pub blocks: u32,
    /// What writes do.
    pub mode: WriteMode,
}

/// How to advise.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most memory of the adviser in bytes; see [`budget`](crate::budget()).
    pub budget: u64,
    /// The part of it that the caller's own buffers take.
    pub reserved: u64,
    /// The part of it that stays free at first, for a cache that [grows](Adviser::resize).
    pub room: u64,
    /// Makes the sample unpredictable for clients that choose the block numbers.
    pub seed: u64,
    /// The share of the blocks in the sample, instead of what the budget allows.
    pub rate: Option<f64>,
    /// The policies to compare, in the order in which they get their turns; today's and LRU are
    /// always compared.
    pub policies: Vec<Spec>,
}

impl Default for Options {
    fn default() -> Self {
        const FIRST: [&str; 7] = ["lru", "arc", "mq", "lirs", "2q", "w-tinylfu", "s3-fifo"];
        let others = policies().iter().map(|info| info.name);
        // `auto` runs several of these policies itself, and would cost as much as they do together.
        let is_left_out =
            |name: &&str| FIRST.contains(name) || ["opt", "mru", "auto"].contains(name);
        let others = others.filter(|name| !is_left_out(name));
        let all = FIRST.into_iter().chain(others).filter_map(|name| Spec::parse(name).ok());
        let policies = all.filter(|spec| !spec.info().is_content_aware()).collect();
        Self { budget: 8 << 20, reserved: 0, room: 0, seed: 0, rate: None, policies }
    }
}

/// Why there is no advice for a cache, as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAdvice(pub String);

/// The adviser of one cache.
pub struct Adviser {
    today: Today,
    /// Each is a part of the one before; the first is the widest.
    samples: [Sample; DEPTHS],
    bytes: u64,
    /// The part of these bytes that cells may take.
    cells_bytes: u64,
    seed: u64,
    /// Every policy that gets a turn; today's is the first.
    policies: Vec<Spec>,
    /// The policy that gets the next turn, and how many have one at once.
    next: usize,
    turns: usize,
    cells: Vec<Cell>,
    /// The placement that is in force, and the cell of today's configuration with it.
    placement: Placement,
    at_today: usize,
    /// What the cache does, if its placement adapts.
    adapting: Option<Adapting>,
    /// What is heard of clients, if placement at eviction is compared.
    heard: Option<Heard>,
    /// Reads of all blocks, those of them that were skipped, and references to sampled blocks.
    reads: Totals,
    skipped: Totals,
    references: Totals,
    /// Misses of all reads, as the cache itself counted them; not a number where it did not.
    missed: Totals<f64>,
    /// The share of misses among the reads of this round.
    miss_ratio: f64,
    epochs: u64,
    /// The epoch of the last exchange of policies.
    turned: u64,
    /// Until today's miniature is full, or no longer grows.
    is_filling: bool,
    /// The epoch in which the workload changed.
    changed: Option<u64>,
    /// Events that do not count yet, because others before them were skipped.
    settling: u64,
    steps: Vec<Step>,
}

impl Adviser {
    /// An adviser that has seen nothing.
    ///
    /// # Errors
    /// Why there is no advice for such a cache.
    pub fn new(today: Today, options: &Options) -> Result<Self, NoAdvice> {
        if Awareness::of(&today.policy).is_some() {
            let why = "the policy is content-aware: what it is worth depends on what its neighbour \
                       holds, which a sample does not show";
            return Err(NoAdvice(why.to_owned()));
        }
        let mut policies = vec![today.policy.clone()];
        let is_other = |spec: &&Spec| spec.to_string() != today.policy.to_string();
        policies.extend(options.policies.iter().filter(is_other).cloned());
        let lru = policies.iter().position(|policy| policy.info().name == "lru");
        match lru {
            Some(lru) if lru > 1 => policies[1..=lru].rotate_right(1),
            Some(_) => {}
            None => policies.extend(Spec::parse("lru")),
        }
        let placements = placements(&today.placement);
        let plan = Plan { today: &today, policies: &policies, placements: &placements };
        let budget = options.budget.saturating_sub(options.reserved + options.room);
        let given = options.rate.map(|rate| [rate.clamp(0.0, 1.0); DEPTHS]);
        let rates = given.unwrap_or_else(|| plan.rates(budget));
        let samples = rates.map(|rate| Sample::new(rate, options.seed));
        let mut cells = Vec::new();
        let first = plan.at_once();
        for (policy, spec) in policies.iter().enumerate().take(first) {
            for setting in plan.settings(policy, rates) {
                let seed = options.seed.wrapping_add(cells.len() as u64);
                match Cell::new(setting, spec, seed) {
                    Ok(cell) => cells.push(cell),
                    // Such a policy cannot be had in such a size.
                    Err(_) if policy > 0 => {}
                    Err(error) => return Err(NoAdvice(error.to_string())),
                }
            }
        }
        let adapting = Adapting::first(&today.placement);
        let is_by_access = adapting.is_some_and(|adapting| adapting.is_by_access());
        let placement = if is_by_access { Placement::Access } else { placements[0] };
        let Some(at_today) = position(&cells, placement, today.blocks) else {
            return Err(NoAdvice("its size cannot be simulated".to_owned()));
        };
        let heard = || Heard::new(rates[0], &today, options.seed);
        let heard = (placements.len() > 1).then(heard);
        Ok(Self {
            samples,
            bytes: plan.bytes(rates) + options.reserved,
            cells_bytes: plan.bytes(rates),
            seed: options.seed,
            next: first % policies.len(),
            turns: first,
            policies,
            cells,
            placement,
            at_today,
            adapting,
            heard,
            today,
            reads: Totals::default(),
            skipped: Totals::default(),
            references: Totals::default(),
            missed: Totals::default(),
            miss_ratio: f64::NAN,
            epochs: 0,
            turned: 0,
            is_filling: true,
            changed: None,
            settling: 0,
            steps: Vec::with_capacity(TOGETHER),
        })
    }

    /// Continues with another size of the cache, in blocks, and with the same sample: the miniatures
    /// keep their blocks, so that they need not be filled again. What was counted is forgotten.
    /// Returns `false`, and changes nothing, if the sample would be too large or much too small for
    /// `budget` bytes; make a new adviser then.
    pub fn resize(&mut self, blocks: u32, budget: u64) -> bool {
        let today = Today { blocks: blocks.max(1), ..self.today.clone() };
        let rates = self.samples.map(|sample| sample.rate());
        let placements = placements(&today.placement);
        let plan = Plan { today: &today, policies: &self.policies, placements: &placements };
        let (cells_bytes, reserved) = (plan.bytes(rates), self.bytes - self.cells_bytes);
        let fits = (budget / 2..=budget).contains(&(cells_bytes + reserved));
        if !fits && rates[0] < 1.0 || cells_bytes + reserved > budget {
            return false;
        }
        let sizes: Vec<_> = (0..self.policies.len()).map(|at| plan.settings(at, rates)).collect();
        let next = |cell: &Cell| {
            let Setting { policy, placement, size, .. } = cell.setting;
            sizes[policy].iter().find(|next| (next.placement, next.size) == (placement, size))
        };
        if !self.cells.iter().all(|cell| next(cell).is_some()) {
            return false;
        }
        for cell in &mut self.cells {
            if let Some(next) = next(cell) {
                cell.resize(next, &self.policies[next.policy]);
            }
        }
        (self.bytes, self.cells_bytes) = (cells_bytes + reserved, cells_bytes);
        self.today = today;
        self.find_today();
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            *counted = Totals::default();
        }
        self.missed = Totals::default();
        self.is_filling = !self.cells[self.at_today].is_full();
        self.changed = None;
        true
    }

    /// The blocks whose events it takes.
    pub fn sample(&self) -> Sample {
        self.samples[0]
    }

    /// Number of complete epochs since the start.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Takes what happened to blocks of the sample, in order.
    pub fn take(&mut self, events: &[Event]) {
        for some in events.chunks(TOGETHER) {
            let reads: u64 = some.iter().map(|event| u64::from(event.reads)).sum();
            let counts = self.settling == 0;
            self.settling = self.settling.saturating_sub(some.len() as u64);
            self.steps.clear();
            for event in some {
                self.note(event);
            }
            let references = self.steps.iter();
            let references =
                references.filter(|step| matches!(step.deed, Deed::Reference { .. })).count();
            if counts {
                self.saw_reads(reads);
                self.references.now += references as u64;
            } else {
                self.skipped.now += reads;
            }
            for cell in &mut self.cells {
                cell.take(&self.steps, counts);
            }
            if counts && self.end_of_epoch(OVERDUE) {
                // How many of the round's misses were before, and how many come, is not known.
                self.missed.void_last();
            }
        }
    }

    /// Notes reads of blocks that are not in the sample, behind the last event.
    pub fn saw_reads(&mut self, reads: u64) {
        self.reads.now += reads;
        if reads > 0 {
            self.missed.now += self.miss_ratio * reads as f64;
        }
    }

    /// Begins a round: tells which share of its reads missed in the cache itself; `None` if that is
    /// not known.
    pub fn begin_round(&mut self, miss_ratio: Option<f64>) {
        self.miss_ratio = miss_ratio.unwrap_or(f64::NAN);
    }

    /// Ends a round. Epochs end here, if rounds are short enough, so that the cache's count and the
    /// figures are of the same reads.
    pub fn end_round(&mut self) {
        if self.settling == 0 {
            self.end_of_epoch(1);
        }
    }

    /// Tells what the cache does at present; ignored unless its placement adapts.
    pub fn adapts(&mut self, now: Adapting) {
        let Some(before) = self.adapting else { return };
        self.adapting = Some(now);
        if now.is_by_access() != before.is_by_access() {
            let at_eviction = placements(&self.today.placement)[0];
            self.placement = if now.is_by_access() { Placement::Access } else { at_eviction };
            self.find_today();
            // What the cache counted before was with the other placement.
            self.missed.void();
        }
    }

    /// Finds the cell of today's configuration.
    fn find_today(&mut self) {
        let found = position(&self.cells, self.placement, self.today.blocks);
        self.at_today = found.unwrap_or(0);
    }

    /// Notes that events were left out, and with them so many reads. Those that come next do not
    /// count until the miniatures have settled.
    pub fn skipped(&mut self, reads: u64) {
        self.skipped.now += reads;
        let miniature = u64::from(self.cells[self.at_today].setting.miniature);
        self.settling = (2 * miniature).min(SETTLING_MAX);
    }

    /// Notes an event as a step of the cells, unless it changes nothing there.
    fn note(&mut self, event: &Event) {
        let adapting = self.adapting.as_ref();
        let heard = self.heard.as_mut();
        let deed = match event.kind {
            Kind::Read { is_whole, tells } => {
                if let Some(heard) = heard {
                    heard.reference(event, false, is_whole);
                }
                Deed::Reference { is_write: false, tells }
            }
            Kind::Write { is_whole, tells } => {
                if let Some(heard) = heard {
                    heard.reference(event, true, is_whole);
                }
                Deed::Reference { is_write: true, tells }
            }
            Kind::Evicted { has_contents } => {
                let deed = heard.and_then(|heard| heard.evicted(event, has_contents, adapting));
                let Some(deed) = deed else { return };
                deed
            }
            Kind::Discarded => {
                if let Some(heard) = heard {
                    heard.discarded(event.block);
                }
                Deed::Discarded
            }
        };
        self.add(event.block, deed);
        loop {
            let heard = self.heard.as_mut();
            let foreseen = heard.and_then(|heard| heard.foreseen(self.adapting.as_ref()));
            let Some((block, deed)) = foreseen else { return };
            self.add(block, deed);
        }
    }

    /// Adds a step of the cells.
    fn add(&mut self, block: u64, deed: Deed) {
        let [widest, narrower @ ..] = &self.samples;
        // The rest are parts of each other.
        let depth = narrower.iter().filter(|sample| sample.takes(block)).count() as u8;
        self.steps.push(Step { block, place: Place { group: widest.group(block), depth }, deed });
    }

    /// Ends the epoch if it is long enough: `times` as long as an epoch is. Returns whether it did.
    fn end_of_epoch(&mut self, times: u32) -> bool {
        let today = &self.cells[self.at_today];
        let miniature = today.setting.miniature;
        let turned = today.admitted >= times * miniature.div_ceil(IN_TURNOVER);
        let whole = REFERENCES * u64::from(miniature);
        let repeated = self.references.now >= u64::from(times) * whole;
        if !turned && !repeated {
            return false;
        }
        let is_full = today.is_full() || !turned;
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            counted.end_epoch();
        }
        self.missed.end_epoch();
        self.cells.iter_mut().for_each(Cell::end_epoch);
        self.epochs += 1;
        if self.is_filling {
            self.forget();
            self.is_filling = !is_full;
        } else if self.has_changed() {
            self.changed = Some(self.epochs);
            self.forget();
        } else {
            self.take_turns();
        }
        true
    }

    /// Drops all complete epochs.
    fn forget(&mut self) {
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            counted.keep(0);
        }
        self.missed.keep(0);
        self.cells.iter_mut().for_each(|cell| cell.keep(0));
    }

    /// Whether the last epochs do not fit those before, with LRU in any size. Other policies keep a
    /// part of a loop, so that their hits come and go, and those that took a turn are still
    /// learning.
    fn has_changed(&self) -> bool {
        let is_lru = |cell: &&Cell| self.policies[cell.setting.policy].info().name == "lru";
        let mut cells = self.cells.iter().filter(is_lru);
        cells.any(|cell| {
            let epochs = NEWEST..cell.misses.epochs();
            let before = epochs.map(|at| self.misses(cell, at, at + 1));
            let newest = self.misses(cell, 0, NEWEST);
            let reads = self.reads.sum(0, NEWEST) as f64 * cell.setting.rate;
            has_changed(&newest, reads, &before.collect::<Vec<_>>())
        })
    }

    /// The miss ratio of a cell in the epochs `from..to`.
    fn misses(&self, cell: &Cell, from: usize, to: usize) -> Estimate {
        let Setting { rate, depth, .. } = cell.setting;
        let groups = cell.misses.sum(from..to, depth);
        Sampled::new(&groups, self.reads.sum(from, to), rate, OfSize::default()).estimate()
    }

    /// The miss ratio of a cell in all epochs that it has.
    fn miss_ratio_of(&self, cell: &Cell) -> f64 {
        self.misses(cell, 0, cell.misses.epochs()).value
    }

    /// The cells of all policies with today's placement and size.
    fn of_todays_size(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| {
            (cell.setting.placement, cell.setting.blocks) == (self.placement, self.today.blocks)
        })
    }

    /// Replaces the least promising policy by the next one, if it is time.
    fn take_turns(&mut self) {
        let is_counted = |cell: &Cell| cell.misses.epochs() == EPOCHS;
        let is_time = self.epochs >= self.turned + TURN && self.of_todays_size().all(is_counted);
        if self.policies.len() <= self.turns || !is_time {
            return;
        }
        let mut rows: Vec<_> = self
            .of_todays_size()
            .map(|cell| (cell.setting.policy, self.miss_ratio_of(cell)))
            .collect();
        rows.sort_by(|one, other| one.1.total_cmp(&other.1));
        let is_kept = |policy: usize| policy == 0 || self.policies[policy].info().name == "lru";
        // The best is the first.
        let last = rows.iter().skip(1).rev().find(|(policy, _)| !is_kept(*policy));
        let Some(&(last, _)) = last else { return };
        self.turned = self.epochs;
        let present = |policy: usize| rows.iter().any(|row| row.0 == policy);
        let others = self.cells.iter().filter(|cell| cell.setting.policy != last);
        let others = others.map(|cell| self.bytes_of(cell, cell.setting.policy)).sum::<u64>();
        let fits = |next: usize| {
            let its = self.cells.iter().filter(|cell| cell.setting.policy == last);
            others + its.map(|cell| self.bytes_of(cell, next)).sum::<u64>() <= self.cells_bytes
        };
        let count = self.policies.len();
        let mut waiting = (self.next..self.next + count).map(|next| next % count);
        let Some(next) = waiting.find(|&next| !present(next) && fits(next)) else { return };
        self.next = (next + 1) % count;
        let (spec, seed) = (self.policies[next].clone(), self.seed);
        self.cells.retain_mut(|cell| {
            // A size in which the policy cannot be had goes until the adviser begins anew.
            cell.setting.policy != last || cell.replace(next, &spec, seed).is_ok()
        });
        self.find_today();
    }

    /// Most bytes that a cell takes with a policy.
    fn bytes_of(&self, cell: &Cell, policy: usize) -> u64 {
        COUNTS_BYTES + cell.setting.bytes(&self.policies[policy])
    }

    /// What is known now.
    pub fn figures(&self) -> Figures {
        let kept = self.reads.epochs();
        let reads = self.reads.sum(0, kept);
        let since = |epoch: u64| self.epochs - epoch < u64::from(IN_TURNOVER);
        let (state, why) = match (self.is_filling, self.changed) {
            (true, _) => (State::Learning, Some(self.filled())),
            (false, Some(epoch)) if since(epoch) => {
                let why = format!(
                    "the workload has changed; seen of it: {kept} of {IN_TURNOVER} quarters of a \
                     turnover of the cache"
                );
                (State::Changed, Some(why))
            }
            (false, _) if (kept as u32) < IN_TURNOVER => {
                let why = format!("seen: {kept} of {IN_TURNOVER} quarters of a turnover");
                (State::Learning, Some(why))
            }
            (false, _) => (State::Ready, None),
        };
        let skipped = self.skipped.sum(0, kept) + self.skipped.now;
        let all = (reads + self.reads.now + skipped).max(1);
        let skipped_share = skipped as f64 / all as f64;
        let today = &self.cells[self.at_today];
        // A policy that has just begun has too few epochs, or none with reads.
        let least = kept.min(IN_TURNOVER as usize).max(1);
        let cells = self.cells.iter().filter(|cell| {
            let epochs = cell.misses.epochs();
            epochs >= least && self.reads.sum(0, epochs) > 0
        });
        let misses_hints = self.heard.as_ref().is_some_and(|heard| !heard.has_evictions());
        let cells = cells
            .filter(|cell| !misses_hints || cell.setting.placement == self.placement)
            .map(|cell| self.figure(cell, today))
            .collect();
        Figures {
            state,
            why,
            cells,
            epochs: self.epochs,
            kept,
            reads,
            references: self.references.sum(0, kept),
            rate: self.sample().rate(),
            skipped_share,
            bytes: self.bytes,
            misses_hints,
            adapts: self.adapting.map(|now| Adapts {
                name: self.today.placement.name(),
                by_eviction: now.by_eviction,
            }),
        }
    }

    fn figure(&self, cell: &Cell, today: &Cell) -> CellFigure {
        let epochs = cell.misses.epochs();
        let (own, its) = (self.of_size(cell), self.of_size(today));
        let of =
            |windows: &[&Window], size| self.sampled(windows, size, epochs, cell.setting.depth);
        let misses = of(&[&cell.misses], own);
        let disk = of(&[&cell.misses, &cell.reloads], own);
        let today_misses = of(&[&today.misses], its);
        let gain = today_misses.minus(&misses);
        let saved = of(&[&today.misses, &today.reloads], its).minus(&disk);
        let (missed, reads) = (self.missed.sum(0, epochs), self.reads.sum(0, epochs));
        let known = (missed.is_finite() && reads > 0)
            .then(|| Known { sampled: today_misses, truth: missed / reads as f64 });
        let estimate = |sampled: &Sampled| match &known {
            Some(known) => sampled.corrected(known).estimate(),
            None => sampled.estimate(),
        };
        let (misses, gain) = (estimate(&misses), estimate(&gain));
        // Only what misses today can be gained.
        let most = estimate(&today_misses).value.clamp(0.0, 1.0);
        let Setting { policy, placement, blocks, .. } = cell.setting;
        CellFigure {
            policy: self.policies[policy].to_string(),
            placement: placement.to_string(),
            blocks,
            is_today: std::ptr::eq(cell, today),
            hits: Estimate { value: (1.0 - misses.value).clamp(0.0, 1.0), ..misses },
            gain: Estimate { value: gain.value.clamp(most - 1.0, most), ..gain },
            disk: estimate(&disk),
            saved: estimate(&saved),
            is_full: cell.is_full(),
        }
    }

    /// What windows of a cell counted in the last epochs about the blocks of the sample `depth`.
    fn sampled(&self, windows: &[&Window], size: OfSize, epochs: usize, depth: u8) -> Sampled {
        let mut groups = [0; GROUPS];
        for window in windows {
            let sum = window.sum(0..epochs, depth);
            groups.iter_mut().zip(sum).for_each(|(group, count)| *group += count);
        }
        let rate = self.samples[usize::from(depth)].rate();
        Sampled::new(&groups, self.reads.sum(0, epochs), rate, size)
    }

    /// How the miss ratio of a cell depends on its size.
    fn of_size(&self, cell: &Cell) -> OfSize {
        let Setting { policy, placement, blocks, rate, .. } = cell.setting;
        let others = self
            .cells
            .iter()
            .filter(|other| (other.setting.policy, other.setting.placement) == (policy, placement));
        let slope = |other: &Cell| {
            let times = f64::from(other.setting.blocks) / f64::from(blocks);
            // Sizes are doublings; the next ones show the curve here.
            let is_next = (0.4..0.6).contains(&times) || (1.9..2.1).contains(&times);
            let differ = || (self.miss_ratio_of(cell) - self.miss_ratio_of(other)).abs();
            is_next.then(|| differ() / times.ln().abs())
        };
        OfSize { slope: others.filter_map(slope).fold(0.0, f64::max), blocks, rate }
    }

    /// How full today's miniature is, in words.
    fn filled(&self) -> String {
        let today = &self.cells[self.at_today];
        let share = 100 * u64::from(today.len()) / u64::from(today.setting.miniature);
        format!("the simulated cache of today's size is filled to {share} %")
    }
}

/// The cell of today's policy with a placement and a size in blocks.
fn position(cells: &[Cell], placement: Placement, blocks: u32) -> Option<usize> {
    cells.iter().position(|cell| {
        let Setting { policy, placement: its, blocks: size, .. } = cell.setting;
        (policy, its, size) == (0, placement, blocks)
    })
}
