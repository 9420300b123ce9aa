//! From figures to findings: pure functions. A difference counts only if it is larger than its
//! error and than [`SMALL`].
//!
//! Not here: what a finding is, and what is said of it (`undercroft-adviser`).

use undercroft_adviser::{
    Advice, Assumption, Choice, Estimate, Finding, FlashGain, SMALL_IN_TRACES as SMALL, Verdict,
};

use super::price::Prices;
use super::{Figure, PARTS, Part, Sample, Study};

/// An LRU hit ratio at the smallest size above which a trace is hardly one from below a cache.
const UNFILTERED: f64 = 0.25;

impl From<&Figure> for Choice {
    fn from(figure: &Figure) -> Self {
        Self {
            policy: figure.policy.clone(),
            placement: figure.placement.clone(),
            capacity_blocks: figure.capacity_blocks,
            read_hit_ratio: figure.read_hit_ratio,
            disk_reads: figure.disk_reads,
        }
    }
}

/// Whether a difference is a gain that the figures carry.
fn is_gain(difference: &Estimate) -> bool {
    difference.verdict(SMALL) == Verdict::Gain
}

/// What the figures of `study` say, with prices if they are given.
pub fn advise(study: &Study, prices: Option<&Prices>) -> Advice {
    let rows = Rows(study);
    Advice { findings: rows.findings(prices), assumptions: rows.assumptions() }
}

/// The figures by size.
struct Rows<'a>(&'a Study);

impl<'a> Rows<'a> {
    fn access(&self) -> impl Iterator<Item = &'a Figure> {
        self.0.figures.iter().filter(|figure| figure.is_access() && !figure.is_opt())
    }

    /// The sizes of the study, ascending.
    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.access().map(|figure| figure.capacity_blocks).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn find(&self, policy: &str, size: u32) -> Option<&'a Figure> {
        let is = |f: &&Figure| f.policy == policy && f.capacity_blocks == size && f.is_access();
        self.0.figures.iter().find(is)
    }

    /// The best figure at a size, of those that place at the access and gain over LRU; else LRU.
    fn best(&self, size: u32) -> Option<&'a Figure> {
        let lru = self.find("lru", size)?;
        let is_better = |f: &&Figure| is_gain(&self.hits(f, lru));
        let better = self.access().filter(|f| f.capacity_blocks == size).filter(is_better);
        let best = better.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
        Some(best.unwrap_or(lru))
    }

    /// The difference of two figures in hit ratio.
    fn hits(&self, a: &Figure, b: &Figure) -> Estimate {
        self.difference(a.read_hit_ratio - b.read_hit_ratio, a, b, |part| part.read_hits)
    }

    /// The difference of two figures in blocks read from the disk / reads that arrive.
    fn disk(&self, a: &Figure, b: &Figure) -> Estimate {
        let reads = self.0.reads.max(1) as f64;
        let value = (a.disk_reads as f64 - b.disk_reads as f64) / reads;
        self.difference(value, a, b, |part| part.reads - part.read_hits + part.reloads)
    }

    /// A difference in what `count` counts, with its error: two standard errors, by how much eight
    /// parts of the trace differ, and the error of a sample.
    fn difference(&self, value: f64, a: &Figure, b: &Figure, count: fn(&Part) -> u64) -> Estimate {
        let share = |part: &Part| count(part) as f64 / part.reads.max(1) as f64;
        let weight = |part: usize| b.parts.get(part).map_or(0.0, |part| part.reads as f64);
        let all: f64 = (0..PARTS).map(weight).sum();
        let of = |part: usize| share(&a.parts[part]) - share(&b.parts[part]);
        let is_whole = all > 0.0 && a.parts.len() == PARTS;
        let squares = |mean: f64| -> f64 {
            (0..PARTS).map(|part| (weight(part) / all * (of(part) - mean)).powi(2)).sum()
        };
        let error = if is_whole {
            let mean: f64 = (0..PARTS).map(|part| weight(part) / all * of(part)).sum();
            2.0 * (squares(mean) * PARTS as f64 / (PARTS as f64 - 1.0)).sqrt()
        } else {
            0.0
        };
        Estimate { value, error: error + self.0.sampling.map_or(0.0, |sample| sample.error) }
    }

    fn findings(&self, prices: Option<&Prices>) -> Vec<Finding> {
        let most = self.access().max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
        let Some(most) = most else { return Vec::new() };
        if most.read_hit_ratio < SMALL {
            let nothing = Finding::NothingToGain { best: most.into() };
            let gains = |flash: &FlashGain| is_gain(&flash.difference);
            return [nothing]
                .into_iter()
                .chain(self.flash().filter(gains).map(Finding::Flash))
                .collect();
        }
        let knee = self.knee();
        let cheapest = prices.map(|prices| self.cheapest(prices));
        let size = match (&cheapest, &knee) {
            (Some(Finding::Cheapest { choice: Some(choice), .. }), _)
            | (_, Some(Finding::Knee { choice, .. })) => choice.capacity_blocks,
            _ => most.capacity_blocks,
        };
        let mut all: Vec<Finding> =
            self.unfiltered().into_iter().chain(cheapest).chain(knee).collect();
        all.extend(self.policy_gains());
        all.extend(["auto", "eviction"].iter().filter_map(|name| self.placement(name, size)));
        all.extend(self.lru_wasted());
        all.extend(self.flash().map(Finding::Flash));
        all.extend(self.enough().map(|figure| Finding::Enough { choice: figure.into() }));
        all.extend(self.find("opt", size).map(|opt| Finding::Bound {
            read_hit_ratio: 1.0 - self.0.cold_reads as f64 / self.0.reads.max(1) as f64,
            opt: opt.into(),
        }));
        all
    }

    /// Whether the trace looks as if it had been taken above the client's cache, though nobody
    /// says so.
    fn unfiltered(&self) -> Option<Finding> {
        let smallest = *self.sizes().first()?;
        let lru = self.find("lru", smallest).filter(|lru| lru.read_hit_ratio >= UNFILTERED)?;
        self.0.upper.is_none().then(|| Finding::Unfiltered { lru: lru.into() })
    }

    /// The first size at which the best is within [`SMALL`] of the best at any larger one. None if
    /// that is only the largest, which says nothing, unless it holds what can be held.
    fn enough(&self) -> Option<&'a Figure> {
        let best: Vec<&Figure> = self.sizes().iter().filter_map(|&s| self.best(s)).collect();
        let most = best.iter().map(|figure| figure.read_hit_ratio).fold(0.0, f64::max);
        let first = best.iter().position(|figure| figure.read_hit_ratio >= most - SMALL)?;
        let bound = 1.0 - self.0.cold_reads as f64 / self.0.reads.max(1) as f64;
        (first + 1 < best.len() || most >= bound - SMALL).then(|| best[first])
    }

    fn knee(&self) -> Option<Finding> {
        let end = self.enough()?;
        let sizes = self.sizes();
        let (last, top) = (f64::from(end.capacity_blocks), end.read_hit_ratio);
        let height = |figure: &&Figure| {
            figure.read_hit_ratio / top - f64::from(figure.capacity_blocks) / last
        };
        let before = sizes.iter().filter(|&&size| size <= end.capacity_blocks);
        let curve = before.filter_map(|&size| self.best(size));
        let knee = curve.max_by(|a, b| height(a).total_cmp(&height(b)))?;
        let gib = |blocks: f64| blocks * f64::from(self.0.block_bytes) / (1_u64 << 30) as f64;
        let size = f64::from(knee.capacity_blocks);
        let after = gib(last - size);
        Some(Finding::Knee {
            choice: knee.into(),
            per_gib_before: knee.read_hit_ratio / gib(size),
            per_gib_after: if after > 0.0 { (top - knee.read_hit_ratio) / after } else { 0.0 },
            enough_blocks: end.capacity_blocks,
        })
    }

    /// The smallest flash within [`SMALL`] of the largest that was simulated.
    fn flash(&self) -> Option<FlashGain> {
        let all = &self.0.flash;
        let most = all.iter().map(|flash| flash.read_hit_ratio).fold(0.0, f64::max);
        let flash = all.iter().find(|flash| flash.read_hit_ratio >= most - SMALL)?;
        let memory = self.find(&flash.policy, flash.memory_blocks)?;
        let both = Figure {
            read_hit_ratio: flash.read_hit_ratio,
            parts: flash.parts.clone(),
            ..memory.clone()
        };
        let curve = &self.0.lru;
        let as_much = curve.iter().find(|point| point.read_hit_ratio >= flash.read_hit_ratio);
        Some(FlashGain {
            memory: memory.into(),
            flash_blocks: flash.flash_blocks,
            read_hit_ratio: flash.read_hit_ratio,
            difference: self.hits(&both, memory),
            written_per_hit: flash.flash_written as f64 / flash.flash_hits.max(1) as f64,
            lru_blocks: as_much.map(|point| point.capacity_blocks),
            is_filled: true,
        })
    }

    fn lru_wasted(&self) -> Option<Finding> {
        let is_small = |ratio: f64| ratio < SMALL;
        let small = self.0.lru.iter().take_while(|point| is_small(point.read_hit_ratio));
        let up_to_blocks = small.last()?.capacity_blocks;
        let sizes = self.sizes();
        let size = sizes.iter().rfind(|&&size| size <= up_to_blocks)?;
        let lru = self.find("lru", *size)?;
        let best = self.best(*size).filter(|best| best.policy != "lru").map(Choice::from);
        Some(Finding::LruWasted { lru: lru.into(), up_to_blocks, best })
    }

    fn policy_gains(&self) -> Option<Finding> {
        let others = self.access().filter(|figure| figure.policy != "lru");
        let pairs = others.filter_map(|f| Some((f, self.find("lru", f.capacity_blocks)?)));
        let mut rows: Vec<_> = pairs.map(|(f, lru)| (f, lru, self.hits(f, lru))).collect();
        rows.sort_by(|a, b| b.2.value.total_cmp(&a.2.value));
        let Some(&(figure, lru, difference)) = rows.iter().find(|row| is_gain(&row.2)) else {
            let &(figure, lru, difference) = rows.first()?;
            let (choice, base) = (figure.into(), lru.into());
            return Some(Finding::NoPolicyGains { choice, base, difference });
        };
        let beside = rows.iter().filter(|row| {
            let is_other = row.0.policy != figure.policy;
            is_other && row.0.capacity_blocks == figure.capacity_blocks && is_gain(&row.2)
        });
        let equals = beside.filter(|row| !is_gain(&self.hits(figure, row.0)));
        let equals = equals.map(|row| row.0.policy.clone()).collect();
        let curve = &self.0.lru;
        let as_much = curve.iter().find(|point| point.read_hit_ratio >= figure.read_hit_ratio);
        let gains = rows.iter().filter(|row| is_gain(&row.2)).map(|row| row.0.capacity_blocks);
        let mut sizes: Vec<u32> = gains.collect();
        sizes.sort_unstable();
        sizes.dedup();
        Some(Finding::PolicyGains {
            choice: figure.into(),
            base: lru.into(),
            difference,
            saved: self.disk(lru, figure),
            equals,
            lru_blocks: as_much.map(|point| point.capacity_blocks),
            sizes,
        })
    }

    fn placement(&self, placement: &str, size: u32) -> Option<Finding> {
        let all = self.0.figures.iter().filter(|figure| figure.placement == placement);
        // At the size that is advised, or of a long trace at the only one.
        let far = |figure: &&Figure| figure.capacity_blocks.abs_diff(size);
        let nearest = all.clone().min_by_key(far)?.capacity_blocks;
        let at = all.filter(|figure| figure.capacity_blocks == nearest);
        let figure = at.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio))?;
        let access = self.best(nearest)?;
        Some(Finding::Placement {
            choice: figure.into(),
            base: access.into(),
            hits: self.hits(figure, access),
            disk: self.disk(figure, access),
        })
    }

    /// The cheapest configuration. One that is not cheaper by more than the error of the
    /// difference is none: the smaller, and LRU, win.
    fn cheapest(&self, prices: &Prices) -> Finding {
        let study = self.0;
        let without = prices.cost(study.block_bytes, 0, study.reads);
        let error = |Estimate { value, error }: Estimate| {
            prices.share(study, error.max(if value == 0.0 { 0.0 } else { SMALL }))
        };
        let total = |figure: &Figure| prices.of(study, figure).total;
        let mut all: Vec<&Figure> = study.figures.iter().filter(|f| !f.is_opt()).collect();
        all.sort_by(|a, b| total(a).total_cmp(&total(b)));
        let Some(&least) = all.first() else {
            return Finding::Cheapest { choice: None, cost: without, without, error: 0.0 };
        };
        let is_near =
            |figure: &&&Figure| total(figure) - total(least) <= error(self.disk(figure, least));
        let simpler = |figure: &&&Figure| {
            let plain = figure.is_access() && figure.policy == "lru";
            (figure.capacity_blocks, !plain, !figure.is_access())
        };
        let near = all.iter().filter(is_near).min_by_key(simpler).copied().unwrap_or(least);
        let nothing = Figure {
            read_hit_ratio: 0.0,
            disk_reads: study.reads,
            reloads: 0,
            parts: near
                .parts
                .iter()
                .map(|part| Part { read_hits: 0, reloads: 0, ..*part })
                .collect(),
            ..near.clone()
        };
        let error = error(self.disk(&nothing, near));
        let pays = without.total - total(near) > error;
        let cost = if pays { prices.of(study, near) } else { without };
        Finding::Cheapest { choice: pays.then(|| near.into()), cost, without, error }
    }

    fn assumptions(&self) -> Vec<Assumption> {
        let study = self.0;
        let client = match &study.upper {
            Some(upper) => Assumption::Client {
                policy: upper.policy.clone(),
                capacity_blocks: upper.capacity_blocks,
            },
            None => Assumption::BelowClient,
        };
        let evictions = match study.figures.iter().any(|figure| !figure.is_access()) {
            true => Assumption::EvictionsKnown,
            false => Assumption::EvictionsUnknown,
        };
        let cold = study.cold_reads as f64 / study.reads.max(1) as f64;
        let mut all = vec![client, evictions, Assumption::ColdAndThrough { cold }];
        all.extend(
            study.sampling.map(|Sample { rate, error }| Assumption::Sampled { rate, error }),
        );
        all
    }
}
