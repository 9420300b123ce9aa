//! How Tandem (`tandem.rs`) finds its options: ghosts of it, which hold no data, run with several
//! sets of options on a sample of the blocks. The set of the ghost whose references cost least
//! lately is taken. Memory is bounded by [`MOST_KEPT`], apart from arrays by block number.
//!
//! A cost is a number of round trips to the level below: a read that the level below serves and a
//! demotion are one each, a read of the disk is one and [`DISK`] more. After every turn, which is
//! as many references as a ghost has places for blocks, a quarter of each cost is forgotten.
//!
//! All ghosts see the same references, so that what is special about the sample is the same for
//! all. A change needs a difference of [`LEAD`]: it costs demotions, and a directory that has to
//! settle.

use undercroft_random::hash;

use super::tandem::{Options, Tandem};
use super::{Move, Scheme};
use undercroft_policy::{Entry, Reference, SpecError};

/// The options of each ghost, for loops, for recency, for what lies between, and for blocks that
/// only their frequency tells apart. The first are the default options, from which a Tandem starts.
const CHOICES: [Options; 7] = [
    keep_all(0.05, 0.1),
    keep_all(0.01, 0.005),
    keep_all(0.2, 0.25),
    keep_all(0.5, 1.0),
    keep_all(0.05, 0.4),
    keep_all(0.9, 0.5),
    Options { window: 0.05, hirs: 0.1, is_selective: true },
];

const fn keep_all(window: f64, hirs: f64) -> Options {
    Options { window, hirs, is_selective: false }
}

/// Most blocks that a ghost keeps; if the levels keep more, a sample of the blocks is looked at.
const MOST_KEPT: u32 = 4096;

/// Round trips that a read of the disk is worth.
const DISK: u64 = 4;

/// Part of its cost by which another ghost must be cheaper.
const LEAD: f64 = 0.02;

/// No sampled block.
const NOT_SAMPLED: u32 = u32::MAX;

struct Ghost {
    tandem: Tandem,
    cost: u64,
}

/// Ghosts of Tandem, and which of them is the cheapest.
pub(super) struct Ghosts {
    ghosts: Vec<Ghost>,
    /// Number of each sampled block among those.
    numbers: Vec<u32>,
    sampled: u32,
    /// Hashes below it are sampled.
    below: u64,
    /// Sampled references of a turn, and those so far in this one.
    turn: u64,
    seen: u64,
    chosen: usize,
    moves: Vec<Move>,
}

impl Ghosts {
    /// Ghosts for levels of so many blocks; `make` makes a Tandem of two sizes and its options.
    pub(super) fn new(
        [upper, lower]: [u32; 2],
        make: impl Fn([u32; 2], Options) -> Result<Tandem, SpecError>,
    ) -> Result<Self, SpecError> {
        let kept = u64::from(upper) + u64::from(lower);
        let share = (f64::from(MOST_KEPT) / kept as f64).min(1.0);
        let scaled = |size: u32| (f64::from(size) * share).round().max(1.0) as u32;
        let sizes = [scaled(upper), scaled(lower)];
        let ghost = |&options: &Options| Ok(Ghost { tandem: make(sizes, options)?, cost: 0 });
        Ok(Self {
            ghosts: CHOICES.iter().map(ghost).collect::<Result<_, SpecError>>()?,
            numbers: Vec::new(),
            sampled: 0,
            below: if share < 1.0 { (share * u64::MAX as f64) as u64 } else { u64::MAX },
            turn: u64::from(sizes[0] + sizes[1]),
            seen: 0,
            chosen: 0,
            moves: Vec::new(),
        })
    }

    /// Makes entries below `entries` valid.
    pub(super) fn grow(&mut self, entries: u32) {
        for entry in self.numbers.len() as u32..entries {
            let is_sampled = hash(entry.into()) <= self.below;
            self.numbers.push(if is_sampled { self.sampled } else { NOT_SAMPLED });
            self.sampled += u32::from(is_sampled);
        }
        self.ghosts.iter_mut().for_each(|ghost| ghost.tandem.grow(self.sampled));
    }

    /// Shows the ghosts a reference. The options to take from now on, if they change.
    pub(super) fn reference(&mut self, reference: Reference) -> Option<Options> {
        let number: Entry = self.numbers[reference.entry() as usize];
        if number == NOT_SAMPLED {
            return None;
        }
        let same = Reference::new(number, reference.is_write());
        for ghost in &mut self.ghosts {
            self.moves.clear();
            let found = ghost.tandem.reference(0, same, &mut self.moves);
            let down = self.moves.iter().filter(|m| matches!(m, Move::Demoted(..))).count() as u64;
            let read = match found {
                _ if reference.is_write() => 0,
                Some(level) => level as u64,
                None => 1 + DISK,
            };
            // In parts that survive that a share of them is forgotten.
            ghost.cost += (down + read) << 8;
        }
        self.seen += 1;
        if self.seen < self.turn {
            return None;
        }
        self.seen = 0;
        self.choose()
    }

    /// Bytes of all ghosts.
    pub(super) fn overhead_bytes(&self) -> u64 {
        self.ghosts.iter().map(|ghost| ghost.tandem.overhead_bytes(0)).sum()
    }

    /// Checks the invariants of each ghost.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.ghosts.iter().try_for_each(|ghost| ghost.tandem.validate())
    }

    fn choose(&mut self) -> Option<Options> {
        let costs = || self.ghosts.iter().map(|ghost| ghost.cost);
        let (best, least) = costs().enumerate().min_by_key(|&(_, cost)| cost)?;
        let most = (1.0 - LEAD) * self.ghosts[self.chosen].cost as f64;
        let is_better = (least as f64) < most;
        self.ghosts.iter_mut().for_each(|ghost| ghost.cost = ghost.cost * 3 / 4);
        if !is_better {
            return None;
        }
        self.chosen = best;
        Some(CHOICES[best])
    }
}
