//! The adviser of one cache: takes what happens to the sampled blocks, drives all cells, and ends
//! epochs. `turns.rs` gives other policies a turn and changes the size; `known.rs` works out what
//! is known.

mod known;
mod turns;

use undercroft_level::placement::Placement;
use undercroft_policy::{Awareness, Spec, WriteMode, policies};

use crate::cell::{Cell, Deed, Setting, Step};
use crate::change::{NEWEST, has_changed};
use crate::heard::{Adapting, Heard};
use crate::plan::{Plan, placements};
use crate::sample::{DEPTHS, Event, Kind, Rates, Sample};
use crate::window::{IN_TURNOVER, Place, Totals};

/// Events that each cell takes at a time: enough that a cell's memory is near when it is used
/// again.
const TOGETHER: usize = 64;

/// An epoch ends after references to this many times as many sampled blocks as today's miniature
/// holds, even if hardly one misses.
const REFERENCES: u64 = 4;

/// An epoch that is so many times as long as it should be ends within a round.
const OVERDUE: u32 = 2;

/// Most predicted evictions that follow an event. At most one more waits with each read, so none
/// waits for long, and no client can make the list of steps long.
const FORESEEN_MAX: u32 = 2;

/// Most events that do not count after others were skipped.
const SETTLING_MAX: u64 = 8192;

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
        const FIRST: [&str; 8] = ["lru", "auto", "arc", "mq", "lirs", "2q", "w-tinylfu", "s3-fifo"];
        let others = policies().iter().map(|info| info.name);
        let is_left_out = |name: &&str| FIRST.contains(name) || ["opt", "mru"].contains(name);
        let others = others.filter(|name| !is_left_out(name));
        let all = FIRST.into_iter().chain(others).filter_map(|name| Spec::parse(name).ok());
        let policies = all.filter(|spec| !spec.info().is_content_aware()).collect();
        Self { budget: 8 << 20, reserved: 0, room: 0, seed: 0, rate: None, policies }
    }
}

/// Why there is no advice for a content-aware policy.
pub const CONTENT_AWARE: &str = "the policy is content-aware: what it is worth depends on what its \
                                 neighbour holds, which a sample does not show";

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

/// What an adviser compares, and how large its samples are.
struct Planned {
    /// Today's policy is the first.
    policies: Vec<Spec>,
    placements: Vec<Placement>,
    rates: Rates,
    /// Most bytes of all cells.
    bytes: u64,
}

impl Planned {
    fn new(today: &Today, options: &Options) -> Result<Planned, NoAdvice> {
        if Awareness::of(&today.policy).is_some() {
            return Err(NoAdvice(CONTENT_AWARE.to_owned()));
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
        let plan = Plan { today, policies: &policies, placements: &placements };
        let budget = options.budget.saturating_sub(options.reserved + options.room);
        let given = options.rate.map(|rate| [rate.clamp(0.0, 1.0); DEPTHS]);
        let rates = given.unwrap_or_else(|| plan.rates(budget));
        let bytes = plan.bytes(rates);
        Ok(Planned { policies, placements, rates, bytes })
    }
}

/// Most bytes that an adviser takes, with the caller's own buffers; 0 if there is no advice for
/// such a cache.
pub fn bytes_max(today: &Today, options: &Options) -> u64 {
    Planned::new(today, options).map_or(0, |planned| planned.bytes + options.reserved)
}

impl Adviser {
    /// An adviser that has seen nothing.
    ///
    /// # Errors
    /// Why there is no advice for such a cache.
    pub fn new(today: Today, options: &Options) -> Result<Self, NoAdvice> {
        let Planned { policies, placements, rates, bytes } = Planned::new(&today, options)?;
        let plan = Plan { today: &today, policies: &policies, placements: &placements };
        let samples = rates.map(|rate| Sample::new(rate, options.seed));
        let mut cells = Vec::new();
        let first = plan.at_once();
        for (policy, spec) in policies.iter().enumerate().take(first) {
            for setting in plan.settings(policy, rates) {
                let seed = options.seed.wrapping_add(policy as u64);
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
            bytes: bytes + options.reserved,
            cells_bytes: bytes,
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
        for _ in 0..FORESEEN_MAX {
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
            let misses = |epochs| self.misses(&cell.misses, &cell.setting, epochs);
            let before = epochs.map(|at| misses(at..at + 1));
            let newest = misses(0..NEWEST);
            let reads = self.reads.sum(0, NEWEST) as f64 * cell.setting.rate;
            has_changed(&newest, reads, &before.collect::<Vec<_>>())
        })
    }
}

/// The cell of today's policy with a placement and a size in blocks.
fn position(cells: &[Cell], placement: Placement, blocks: u32) -> Option<usize> {
    cells.iter().position(|cell| {
        let Setting { policy, placement: its, blocks: size, .. } = cell.setting;
        (policy, its, size) == (0, placement, blocks)
    })
}
