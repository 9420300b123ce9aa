//! Which cells an adviser has, and how large a sample its budget allows for them.

use undercroft_level::placement::{DataSource, Eviction, OnHit, Placement};
use undercroft_policy::{Spec, WriteMode};

use crate::adviser::Today;
use crate::below::FLASH_BY_MEMORY;
use crate::cell::Setting;
use crate::heard::{Adapting, Heard};
use crate::sample::{DEPTHS, Rates};

/// The sizes that are compared: numerator and denominator of today's.
pub const SIZES: [(u32, u32); 5] = [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1)];

/// Most policies that are simulated at once.
const POLICIES: usize = 8;

/// Most of them if placement at eviction is compared too, whose levels are larger.
const POLICIES_AND_PLACEMENTS: usize = 4;

/// Bytes of the counts of a cell.
pub(crate) const COUNTS_BYTES: u64 = 8 << 10;

/// The placements that are compared. A placement that adapts is one of two at any time, so these
/// stand for it; the first is that at eviction.
pub(crate) fn placements(today: &Placement) -> Vec<Placement> {
    match *today {
        Placement::Access => vec![Placement::Access],
        Placement::Eviction(rules) if rules.on_hit == OnHit::Adaptive => {
            // With `auto`, contents are told one by one.
            let down = if rules.is_auto { DataSource::Reload } else { rules.down };
            let at_eviction = Eviction { on_hit: OnHit::Move, is_auto: false, down, ..rules };
            vec![Placement::Eviction(at_eviction), Placement::Access]
        }
        other => vec![other, Placement::Access],
    }
}

/// What an adviser simulates.
pub(crate) struct Plan<'a> {
    pub(crate) today: &'a Today,
    pub(crate) policies: &'a [Spec],
    pub(crate) placements: &'a [Placement],
}

impl Plan<'_> {
    /// The cells of a policy. Sizes above today's are simulated with the blocks of a narrower
    /// sample, so that their miniatures are no larger than today's: they would take most of the
    /// memory, and their ratios, of fewer misses, are known better than those of small sizes.
    pub(crate) fn settings(&self, policy: usize, rates: Rates) -> Vec<Setting> {
        let adapts = Adapting::first(&self.today.placement).is_some();
        let cells = self.placements.iter().flat_map(|&placement| {
            let refreshes = adapts && placement == Placement::Access;
            // There only `auto` places what clients write that tell their evictions.
            let mode = match self.today.mode {
                WriteMode::Allocate if refreshes && !self.today.placement.is_auto() => {
                    WriteMode::NoAllocate
                }
                mode => mode,
            };
            SIZES.iter().enumerate().filter_map(move |(size, &(numerator, denominator))| {
                let whole = u64::from(self.today.blocks) * u64::from(numerator);
                let blocks = u32::try_from(whole / u64::from(denominator)).ok()?;
                let depth = numerator.ilog2() as u8;
                let is_todays = policy == 0 && numerator == denominator;
                let rate = rates[usize::from(depth)];
                let miniature = ((f64::from(blocks) * rate).round() as u32).max(1);
                (blocks > 0).then_some(Setting {
                    policy,
                    placement,
                    mode,
                    refreshes,
                    size,
                    blocks,
                    miniature,
                    rate,
                    depth,
                    flash: if is_todays { &FLASH_BY_MEMORY } else { &[] },
                })
            })
        });
        cells.collect()
    }

    /// Most bytes of all cells at a time.
    pub(crate) fn bytes(&self, rates: Rates) -> u64 {
        let of = |(policy, spec): (usize, &Spec)| {
            let cells = self.settings(policy, rates);
            cells.iter().map(|setting| COUNTS_BYTES + setting.bytes(spec)).sum::<u64>()
        };
        let each: Vec<u64> = self.policies.iter().enumerate().map(of).collect();
        // All but one of those that begin, and whichever has its turn.
        let (begin, wait) = each.split_at(self.at_once() - 1);
        let heard = match self.placements.len() {
            1 => 0,
            _ => Heard::bytes(rates[0], self.today),
        };
        heard + begin.iter().sum::<u64>() + wait.iter().max().copied().unwrap_or(0)
    }

    /// Number of policies that are simulated at once.
    pub(crate) fn at_once(&self) -> usize {
        let most = if self.placements.len() > 1 { POLICIES_AND_PLACEMENTS } else { POLICIES };
        most.min(self.policies.len())
    }

    /// The largest samples with which the cells take no more than `budget` bytes.
    pub(crate) fn rates(&self, budget: u64) -> Rates {
        // The widest sample, if it could have more than all blocks.
        let (mut fits, mut exceeds) = (0.0, narrowed(1) / narrowed(DEPTHS));
        if self.bytes(rates(exceeds)) <= budget {
            return rates(exceeds);
        }
        for _ in 0..40 {
            let middle = f64::midpoint(fits, exceeds);
            if self.bytes(rates(middle)) <= budget { fits = middle } else { exceeds = middle }
        }
        rates(fits)
    }
}

/// The part of the widest sample that is in the sample number `count`, from 1 on.
fn narrowed(count: usize) -> f64 {
    0.5_f64.powi(count as i32 - 1)
}

/// The rates of all samples, each half of the one before, but at most 1.
fn rates(widest: f64) -> Rates {
    std::array::from_fn(|depth| (widest * narrowed(depth + 1)).clamp(0.0, 1.0))
}
