//! From figures to findings: pure functions. A difference counts only if it is larger than its
//! error and than [`SMALL`].

use serde::Serialize;

use super::price::{Cost, Prices};
use super::{Figure, PARTS, SMALL, Sample, Study};

/// An LRU hit ratio at the smallest size above which a trace is hardly one from below a cache.
const UNFILTERED: f64 = 0.25;

/// What the figures of a study say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The findings, the answer first.
    pub findings: Vec<Finding>,
    /// What the figures rest on, and cannot know.
    pub assumptions: Vec<Assumption>,
}

/// A configuration, with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Policy with its parameters.
    pub policy: String,
    /// When blocks are placed.
    pub placement: String,
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Read hits / reads that arrive.
    pub read_hit_ratio: f64,
    /// Blocks read from the disk, reloads included.
    pub disk_reads: u64,
}

/// A difference of two shares of the reads that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference: 0.01 is one point.
    pub gain: f64,
    /// Two standard errors, by how much eight parts of the trace differ, and that of a sample.
    pub error: f64,
}

/// Something that figures show.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// The trace is said to be from below the client's cache, and does not look so: every other
    /// figure changes if it was taken above.
    Unfiltered {
        /// LRU at the smallest size, which serves more than a trace from below a cache has.
        lru: Choice,
    },
    /// No policy serves one read in a hundred at any size.
    NothingToGain {
        /// The best that was found.
        best: Choice,
    },
    /// The cheapest configuration at the given prices.
    Cheapest {
        /// The configuration; `None`: no cache is cheaper.
        choice: Option<Choice>,
        /// Its cost.
        cost: Cost,
        /// The cost without a cache.
        without: Cost,
        /// Error of the difference between the two.
        error: f64,
    },
    /// The knee of the curve of the best policies: the size at which it lies highest above the
    /// straight line from no cache to the first size from which nothing is gained.
    Knee {
        /// The configuration.
        choice: Choice,
        /// Hit ratio per GiB up to it.
        per_gib_before: f64,
        /// Hit ratio per GiB from it to `enough_blocks`.
        per_gib_after: f64,
        /// The first size from which nothing is gained.
        enough_blocks: u32,
    },
    /// What no cache can exceed.
    Bound {
        /// 1 - cold reads / reads that arrive.
        read_hit_ratio: f64,
        /// OPT at the size that is advised, or at the largest.
        opt: Choice,
    },
    /// LRU serves less than one read in a hundred up to this size.
    LruWasted {
        /// LRU at the largest size of the study with so little.
        lru: Choice,
        /// The exact end of the range, in blocks.
        up_to_blocks: u32,
        /// The best policy there, if it gains.
        best: Option<Choice>,
    },
    /// A policy serves more than LRU, where its gain is largest.
    PolicyGains {
        /// The policy.
        choice: Choice,
        /// LRU at the same size.
        lru: Choice,
        /// The gain over LRU.
        difference: Difference,
        /// Policies that do not differ from it.
        equals: Vec<String>,
        /// The size with which LRU serves as much, in blocks; `None`: none of the sizes studied.
        lru_blocks: Option<u32>,
        /// The sizes at which some policy gains over LRU, in blocks.
        sizes: Vec<u32>,
    },
    /// No policy serves more than LRU at any size.
    NoPolicyGains {
        /// The largest difference.
        choice: Choice,
        /// LRU at the same size.
        lru: Choice,
        /// The difference.
        difference: Difference,
    },
    /// What a placement that acts on evictions changes, beside the best at the access.
    Placement {
        /// The best policy with this placement.
        choice: Choice,
        /// The best policy that places at the access.
        access: Choice,
        /// The difference in hit ratio.
        hits: Difference,
        /// The difference in blocks read from the disk, as a share of the reads that arrive.
        disk: Difference,
    },
    /// From this size on nothing is gained.
    Enough {
        /// The best policy there; the simplest of several.
        choice: Choice,
    },
}

/// What the figures rest on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Assumption {
    /// The client has the simulated cache.
    Client {
        /// Its policy.
        policy: String,
        /// Its size in blocks.
        capacity_blocks: u32,
    },
    /// The trace was taken below the client's cache.
    BelowClient,
    /// Evictions are known.
    EvictionsKnown,
    /// Nothing tells what the client evicts.
    EvictionsUnknown,
    /// The cache was empty at the beginning, and writes go through.
    ColdAndThrough {
        /// Share of the reads that arrive that are the first of their blocks.
        cold: f64,
    },
    /// The figures are estimates.
    Sampled(Sample),
}

impl Difference {
    /// The difference of two figures of one study in hit ratio.
    pub fn of_hits(study: &Study, a: &Figure, b: &Figure) -> Self {
        let gain = a.read_hit_ratio - b.read_hit_ratio;
        Self::new(study, gain, a, b, |figure, part| {
            let part = &figure.parts[part];
            part.read_hits as f64 / part.reads.max(1) as f64
        })
    }

    /// The difference of two figures in blocks read from the disk.
    pub fn of_disk(study: &Study, a: &Figure, b: &Figure) -> Self {
        let reads = study.reads.max(1) as f64;
        let gain = (a.disk_reads as f64 - b.disk_reads as f64) / reads;
        Self::new(study, gain, a, b, |figure, part| {
            let part = &figure.parts[part];
            let disk = part.reads - part.read_hits + part.reloads;
            disk as f64 / part.reads.max(1) as f64
        })
    }

    fn new(
        study: &Study,
        gain: f64,
        a: &Figure,
        b: &Figure,
        share: impl Fn(&Figure, usize) -> f64,
    ) -> Self {
        let weight = |part: usize| b.parts.get(part).map_or(0.0, |part| part.reads as f64);
        let all: f64 = (0..PARTS).map(weight).sum();
        let of = |part: usize| share(a, part) - share(b, part);
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
        Self { gain, error: error + study.sampling.map_or(0.0, |sample| sample.error) }
    }

    /// Whether it is a gain that the figures carry.
    pub fn is_gain(&self) -> bool {
        self.gain > self.error.max(SMALL)
    }

    /// Whether it is none, in either direction.
    pub fn is_none(&self) -> bool {
        self.gain.abs() <= self.error.max(SMALL)
    }
}

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
        let is_better = |f: &&Figure| Difference::of_hits(self.0, f, lru).is_gain();
        let better = self.access().filter(|f| f.capacity_blocks == size).filter(is_better);
        let best = better.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
        Some(best.unwrap_or(lru))
    }

    fn findings(&self, prices: Option<&Prices>) -> Vec<Finding> {
        let most = self.access().max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
        let Some(most) = most else { return Vec::new() };
        if most.read_hit_ratio < SMALL {
            return vec![Finding::NothingToGain { best: most.into() }];
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
        let mut rows: Vec<_> =
            pairs.map(|(f, lru)| (f, lru, Difference::of_hits(self.0, f, lru))).collect();
        rows.sort_by(|a, b| b.2.gain.total_cmp(&a.2.gain));
        let Some(&(figure, lru, difference)) = rows.iter().find(|row| row.2.is_gain()) else {
            let &(figure, lru, difference) = rows.first()?;
            let (choice, lru) = (figure.into(), lru.into());
            return Some(Finding::NoPolicyGains { choice, lru, difference });
        };
        let beside = rows.iter().filter(|row| {
            let is_other = row.0.policy != figure.policy;
            is_other && row.0.capacity_blocks == figure.capacity_blocks && row.2.is_gain()
        });
        let equals = beside.filter(|row| Difference::of_hits(self.0, figure, row.0).is_none());
        let equals = equals.map(|row| row.0.policy.clone()).collect();
        let curve = &self.0.lru;
        let as_much = curve.iter().find(|point| point.read_hit_ratio >= figure.read_hit_ratio);
        let gains = rows.iter().filter(|row| row.2.is_gain()).map(|row| row.0.capacity_blocks);
        let mut sizes: Vec<u32> = gains.collect();
        sizes.sort_unstable();
        sizes.dedup();
        Some(Finding::PolicyGains {
            choice: figure.into(),
            lru: lru.into(),
            difference,
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
            access: access.into(),
            hits: Difference::of_hits(self.0, figure, access),
            disk: Difference::of_disk(self.0, figure, access),
        })
    }

    /// The cheapest configuration. One that is not cheaper by more than the error of the
    /// difference is none: the smaller, and LRU, win.
    fn cheapest(&self, prices: &Prices) -> Finding {
        let study = self.0;
        let without = prices.cost(study.block_bytes, 0, study.reads);
        let error = |difference: Difference| {
            prices.share(
                study,
                difference.error.max(if difference.gain == 0.0 { 0.0 } else { SMALL }),
            )
        };
        let total = |figure: &Figure| prices.of(study, figure).total;
        let mut all: Vec<&Figure> = study.figures.iter().filter(|f| !f.is_opt()).collect();
        all.sort_by(|a, b| total(a).total_cmp(&total(b)));
        let Some(&least) = all.first() else {
            return Finding::Cheapest { choice: None, cost: without, without, error: 0.0 };
        };
        let is_near = |figure: &&&Figure| {
            total(figure) - total(least) <= error(Difference::of_disk(study, figure, least))
        };
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
                .map(|part| super::Part { read_hits: 0, reloads: 0, ..*part })
                .collect(),
            ..near.clone()
        };
        let error = error(Difference::of_disk(study, &nothing, near));
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
        all.extend(study.sampling.map(Assumption::Sampled));
        all
    }
}
