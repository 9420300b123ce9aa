//! The adviser of one cache: takes what happens to the sampled blocks, drives all cells, ends
//! epochs, and gives other policies a turn.

use undercroft_cache::placement::Placement;
use undercroft_cache::policy::{Awareness, Spec, policies};
use undercroft_cache::{Deliveries, Standing, WriteMode};

use crate::cell::{Cell, Deed, Setting, Step};
use crate::change::{NEWEST, has_changed};
use crate::estimate::Estimate;
use crate::figures::{CellFigure, Figures, State};
use crate::sample::{Event, Kind, Sample};
use crate::window::{EPOCHS, IN_TURNOVER, Reads, Window};

/// The sizes that are compared: numerator and denominator of today's.
pub const SIZES: [(u32, u32); 5] = [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1)];

/// Most policies that are simulated at once.
const POLICIES: usize = 8;

/// Most of them if placement at eviction is compared too, whose levels are larger.
const POLICIES_AND_PLACEMENTS: usize = 4;

/// Events that each cell takes at a time: enough that a cell's memory is near when it is used
/// again.
const TOGETHER: usize = 64;

/// An epoch ends after references to this many times as many sampled blocks as today's miniature
/// holds, even if hardly one misses.
const REFERENCES: u64 = 4;

/// Most events that do not count after others were skipped.
const SETTLING_MAX: u64 = 8192;

/// Epochs between two exchanges of policies: the new one's must be worth comparing.
const TURN: u64 = 2 * EPOCHS as u64;

/// Bytes of the counts of a cell, and of what is known about deliveries to clients.
const COUNTS_BYTES: u64 = 8 << 10;
const DELIVERIES_BYTES: u64 = 3 << 20;

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
        Self { budget: 8 << 20, reserved: 0, seed: 0, rate: None, policies }
    }
}

/// Why there is no advice for a cache, as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAdvice(pub String);

/// The adviser of one cache.
pub struct Adviser {
    today: Today,
    sample: Sample,
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
    /// The cell of today's configuration.
    at_today: usize,
    /// What was delivered to whom, if placement at eviction is compared.
    deliveries: Option<Deliveries>,
    has_heard: bool,
    /// Reads of all blocks, those of them that were skipped, and references to sampled blocks.
    reads: Reads,
    skipped: Reads,
    references: Reads,
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
        let placements = match today.placement {
            Placement::Access => vec![Placement::Access],
            placement => vec![placement, Placement::Access],
        };
        let plan = Plan { today: &today, policies: &policies, placements: &placements };
        let budget = options.budget.saturating_sub(options.reserved);
        let rate = options.rate.unwrap_or_else(|| plan.rate(budget)).clamp(0.0, 1.0);
        let sample = Sample::new(rate, options.seed);
        let mut cells = Vec::new();
        let first = plan.at_once();
        for (policy, spec) in policies.iter().enumerate().take(first) {
            for setting in plan.settings(policy, rate) {
                let seed = options.seed.wrapping_add(cells.len() as u64);
                match Cell::new(setting, spec, today.mode, seed) {
                    Ok(cell) => cells.push(cell),
                    // Such a policy cannot be had in such a size.
                    Err(_) if policy > 0 => {}
                    Err(error) => return Err(NoAdvice(error.to_string())),
                }
            }
        }
        let is_today = |cell: &Cell| {
            let Setting { policy, placement, blocks, .. } = cell.setting;
            (policy, placement, blocks) == (0, today.placement, today.blocks)
        };
        let Some(at_today) = cells.iter().position(is_today) else {
            return Err(NoAdvice("its size cannot be simulated".to_owned()));
        };
        let miniature = cells[at_today].setting.miniature;
        let deliveries = (placements.len() > 1).then(|| Deliveries::new(miniature, options.seed));
        Ok(Self {
            sample,
            bytes: plan.bytes(rate) + options.reserved,
            cells_bytes: plan.bytes(rate),
            seed: options.seed,
            next: first % policies.len(),
            turns: first,
            policies,
            cells,
            at_today,
            deliveries,
            today,
            has_heard: false,
            reads: Reads::default(),
            skipped: Reads::default(),
            references: Reads::default(),
            epochs: 0,
            turned: 0,
            is_filling: true,
            changed: None,
            settling: 0,
            steps: Vec::with_capacity(TOGETHER),
        })
    }

    /// The blocks whose events it takes.
    pub fn sample(&self) -> Sample {
        self.sample
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
                self.reads.now += reads;
                self.references.now += references as u64;
            } else {
                self.skipped.now += reads;
            }
            for cell in &mut self.cells {
                cell.take(&self.steps, counts);
            }
            if counts {
                self.end_of_epoch();
            }
        }
    }

    /// Notes reads of blocks that are not in the sample, behind the last event.
    pub fn saw_reads(&mut self, reads: u64) {
        self.reads.now += reads;
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
        let &Event { block, at_us, client, kind, .. } = event;
        let deed = match kind {
            Kind::Read { is_whole, tells } => {
                if let Some(deliveries) = &mut self.deliveries {
                    deliveries.read(block, client, is_whole, at_us, u64::MAX);
                }
                Deed::Reference { is_write: false, tells }
            }
            Kind::Write { is_whole, tells } => {
                if let Some(deliveries) = &mut self.deliveries {
                    deliveries.write(block, client, is_whole, at_us);
                }
                Deed::Reference { is_write: true, tells }
            }
            Kind::Evicted => {
                self.has_heard = true;
                let Some(deliveries) = &mut self.deliveries else { return };
                match deliveries.evict(block, client, at_us, u64::MAX) {
                    Standing::Last => Deed::Evicted,
                    Standing::HeldByOthers | Standing::Stale => return,
                }
            }
            Kind::Discarded => Deed::Discarded,
        };
        self.steps.push(Step { block, group: self.sample.group(block), deed });
    }

    /// Ends the epoch if it is long enough.
    fn end_of_epoch(&mut self) {
        let today = &self.cells[self.at_today];
        let miniature = today.setting.miniature;
        let turned = today.admitted >= miniature.div_ceil(IN_TURNOVER);
        let repeated = self.references.now >= REFERENCES * u64::from(miniature);
        if !turned && !repeated {
            return;
        }
        let is_full = today.is_full() || !turned;
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            counted.end_epoch();
        }
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
    }

    /// Drops all complete epochs.
    fn forget(&mut self) {
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            counted.keep(0);
        }
        self.cells.iter_mut().for_each(|cell| cell.keep(0));
    }

    /// Whether the last epochs do not fit those before, with today's policy in any size or any
    /// policy in today's.
    fn has_changed(&self) -> bool {
        let today = &self.cells[self.at_today].setting;
        let mut cells = self.cells.iter().filter(|cell| {
            cell.setting.blocks == today.blocks || cell.setting.policy == today.policy
        });
        cells.any(|cell| {
            let epochs = NEWEST..cell.misses.epochs();
            let before = epochs.map(|at| self.share(&cell.misses, at, at + 1));
            let newest = self.share(&cell.misses, 0, NEWEST);
            let reads = self.reads.sum(0, NEWEST) as f64 * self.sample.rate();
            has_changed(&newest, reads, &before.collect::<Vec<_>>())
        })
    }

    /// What a window counted in the epochs `from..to`, as a share of the reads.
    fn share(&self, window: &Window, from: usize, to: usize) -> Estimate {
        let rate = self.sample.rate();
        Estimate::of(&window.sum(from, to), self.reads.sum(from, to) as f64 * rate, rate)
    }

    /// How much less of one thing there is than of another, as a share of the reads.
    fn less(&self, what: &[&Window], than: &[&Window]) -> Estimate {
        let epochs = what.iter().chain(than).map(|window| window.epochs()).min().unwrap_or(0);
        let rate = self.sample.rate();
        let mut groups = [0; crate::GROUPS];
        for (windows, sign) in [(what, -1), (than, 1)] {
            for window in windows {
                let sum = window.sum(0, epochs);
                groups.iter_mut().zip(sum).for_each(|(group, count)| *group += sign * count);
            }
        }
        Estimate::of(&groups, self.reads.sum(0, epochs) as f64 * rate, rate)
    }

    /// Replaces the least promising policy by the next one, if it is time.
    fn take_turns(&mut self) {
        let is_time = self.epochs >= self.turned + TURN && self.reads.epochs() == EPOCHS;
        if self.policies.len() <= self.turns || !is_time {
            return;
        }
        let Setting { placement, blocks, .. } = self.cells[self.at_today].setting;
        let rows = self.cells.iter();
        let rows = rows
            .filter(|cell| cell.setting.placement == placement && cell.setting.blocks == blocks);
        let mut rows: Vec<_> = rows
            .map(|cell| {
                let misses = self.share(&cell.misses, 0, cell.misses.epochs()).value;
                (cell.setting.policy, misses)
            })
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
        let is_today = |cell: &Cell| {
            let Setting { policy, placement: its, blocks: size, .. } = cell.setting;
            (policy, its, size) == (0, placement, blocks)
        };
        self.at_today = self.cells.iter().position(is_today).unwrap_or(0);
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
        let cells = self.cells.iter().filter(|cell| reads > 0 && cell.misses.epochs() > 0);
        let misses_hints = self.deliveries.is_some() && !self.has_heard;
        let cells = cells
            .filter(|cell| !misses_hints || cell.setting.placement == self.today.placement)
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
            rate: self.sample.rate(),
            skipped_share,
            bytes: self.bytes,
            misses_hints,
        }
    }

    fn figure(&self, cell: &Cell, today: &Cell) -> CellFigure {
        let misses = self.share(&cell.misses, 0, cell.misses.epochs());
        let reloads = self.share(&cell.reloads, 0, cell.reloads.epochs());
        let hits = (1.0 - misses.value).clamp(0.0, 1.0);
        let own = self.of_size(cell);
        let between = match cell.setting.blocks == today.setting.blocks {
            true => own - self.of_size(today),
            false => own.hypot(self.of_size(today)),
        };
        let between = if std::ptr::eq(cell, today) { 0.0 } else { between };
        let misses = misses.with_standard(own);
        let less =
            |what: &[&Window], than: &[&Window]| self.less(what, than).with_standard(between);
        let Setting { policy, placement, blocks, .. } = cell.setting;
        CellFigure {
            policy: self.policies[policy].to_string(),
            placement: placement.to_string(),
            blocks,
            is_today: std::ptr::eq(cell, today),
            hits: Estimate { value: hits, ..misses },
            gain: less(&[&cell.misses], &[&today.misses]),
            disk: misses.plus(&reloads),
            saved: less(&[&cell.misses, &cell.reloads], &[&today.misses, &today.reloads]),
            is_full: cell.is_full(),
        }
    }

    /// The standard error of a miss ratio because the miniature is too small or too large for the
    /// blocks that happen to be in the sample.
    fn of_size(&self, cell: &Cell) -> f64 {
        let ratio = |cell: &Cell| self.share(&cell.misses, 0, cell.misses.epochs()).value;
        let Setting { policy, placement, blocks, miniature } = cell.setting;
        let others = self
            .cells
            .iter()
            .filter(|other| (other.setting.policy, other.setting.placement) == (policy, placement));
        let slope = |other: &Cell| {
            let times = f64::from(other.setting.blocks) / f64::from(blocks);
            // Sizes are doublings; the next ones show the curve here.
            let is_next = (0.4..0.6).contains(&times) || (1.9..2.1).contains(&times);
            is_next.then(|| (ratio(cell) - ratio(other)).abs() / times.ln().abs())
        };
        let steepest = others.filter_map(slope).fold(0.0, f64::max);
        steepest * ((1.0 - self.sample.rate()).max(0.0) / f64::from(miniature)).sqrt()
    }

    /// How full today's miniature is, in words.
    fn filled(&self) -> String {
        let today = &self.cells[self.at_today];
        let share = 100 * u64::from(today.len()) / u64::from(today.setting.miniature);
        format!("the simulated cache of today's size is filled to {share} %")
    }
}

/// What an adviser simulates.
struct Plan<'a> {
    today: &'a Today,
    policies: &'a [Spec],
    placements: &'a [Placement],
}

impl Plan<'_> {
    /// The cells of a policy.
    fn settings(&self, policy: usize, rate: f64) -> Vec<Setting> {
        let cells = self.placements.iter().flat_map(|&placement| {
            SIZES.iter().filter_map(move |&(numerator, denominator)| {
                let whole = u64::from(self.today.blocks) * u64::from(numerator);
                let blocks = u32::try_from(whole / u64::from(denominator)).ok()?;
                let miniature = (f64::from(blocks) * rate).round() as u32;
                (blocks > 0).then(|| Setting {
                    policy,
                    placement,
                    blocks,
                    miniature: miniature.max(1),
                })
            })
        });
        cells.collect()
    }

    /// Most bytes of all cells at a time.
    fn bytes(&self, rate: f64) -> u64 {
        let of = |(policy, spec): (usize, &Spec)| {
            let cells = self.settings(policy, rate);
            cells.iter().map(|setting| COUNTS_BYTES + setting.bytes(spec)).sum::<u64>()
        };
        let each: Vec<u64> = self.policies.iter().enumerate().map(of).collect();
        // All but one of those that begin, and whichever has its turn.
        let (begin, wait) = each.split_at(self.at_once() - 1);
        let deliveries = if self.placements.len() > 1 { DELIVERIES_BYTES } else { 0 };
        deliveries + begin.iter().sum::<u64>() + wait.iter().max().copied().unwrap_or(0)
    }

    /// Number of policies that are simulated at once.
    fn at_once(&self) -> usize {
        let most = if self.placements.len() > 1 { POLICIES_AND_PLACEMENTS } else { POLICIES };
        most.min(self.policies.len())
    }

    /// The largest rate with which the cells take no more than `budget` bytes.
    fn rate(&self, budget: u64) -> f64 {
        if self.bytes(1.0) <= budget {
            return 1.0;
        }
        let (mut fits, mut exceeds) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(fits, exceeds);
            if self.bytes(middle) <= budget { fits = middle } else { exceeds = middle }
        }
        fits
    }
}
