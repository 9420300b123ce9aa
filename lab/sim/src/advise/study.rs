//! The figures: the exact LRU curve of what arrives, and a simulation for each policy, placement
//! and size, on all cores.
//!
//! What the client's cache passes on is computed once. Levels that place at the access run on it
//! alone; other placements need the client too.

use std::sync::Arc;

use rayon::prelude::*;
use undercroft_level::DenseLevel;
use undercroft_policy::{Context, Future, Reference, Spec, WriteMode};
use undercroft_random::hash;
use undercroft_trace::DenseTrace;

use super::{CurvePoint, Figure, FlashFigure, PARTS, Part, Question, Sample, Study, Upper};
use crate::curve::{Curve, LruStack, adjusted};
use crate::drive::drive_in_parts;
use crate::tree::{SoFar, counts_in_parts};
use crate::{Config, Error, LevelConfig, Lowest};

/// Doublings of the size up to the one where nothing more is gained.
const DOUBLINGS: u32 = 7;

/// Points of the LRU curve between the sizes.
const CURVE_POINTS: u32 = 96;

/// Sizes of flash that are simulated, in those of memory.
const FLASH_BY_MEMORY: [u32; 3] = [2, 4, 8];

/// Placements that act on evictions.
const PLACEMENTS: [&str; 2] = ["auto", "eviction"];

/// What remains to be gained by LRU at the largest size.
const REST: f64 = 0.005;

/// Simulates what `question` asks for on a trace. `progress` receives shares of the work, as they
/// are done.
///
/// # Errors
/// A policy cannot be made, a sample has no blocks, or a spooled trace cannot be read back.
pub fn study(
    trace: &DenseTrace,
    question: &Question,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Study, Error> {
    let arriving = Arriving::new(trace, question.upper.as_ref())?;
    progress(0.1);
    let curve = arriving.curve();
    let sizes = match question.sizes.is_empty() {
        true => sizes(&curve, arriving.cold, trace.unique(), question.block_bytes),
        false => question.sizes.clone(),
    };
    let rate = (question.exact_requests as f64 / arriving.refs.len().max(1) as f64).min(1.0);
    let sampled = (rate < 1.0).then(|| arriving.sample(rate));
    let played = sampled.as_ref().unwrap_or(&arriving);
    let policies = policies(&question.policies)?;
    let jobs = policies.iter().flat_map(|policy| sizes.iter().map(move |&size| (policy, size)));
    let jobs: Vec<_> = jobs.collect();
    let future = Arc::new(Future::new(played.refs.iter().map(|r| r.entry()).collect())?);
    let step = if question.evictions.is_some() { 0.3 } else { 0.9 } / jobs.len() as f64;
    let run = |&(policy, capacity): &(&Spec, u32)| {
        let level = LevelConfig { capacity, policy: policy.clone() };
        let figure = played.figure(&level, rate, &future);
        progress(step);
        figure
    };
    let mut figures = jobs.par_iter().map(run).collect::<Result<Vec<_>, _>>()?;
    let sampling = sampled.as_ref().map(|_| {
        let lru = figures.iter().filter(|figure| figure.policy == "lru");
        let off = |f: &Figure| (f.read_hit_ratio - curve.read_hit_ratio(f.capacity_blocks)).abs();
        Sample { rate, error: lru.map(off).fold(0.0, f64::max) }
    });
    if question.evictions.is_some() {
        figures.extend(placed(trace, question, &sizes, progress)?);
    }
    let flash = with_flash(trace, question, (&figures, &sizes))?;
    Ok(Study {
        block_bytes: question.block_bytes,
        reads: curve.reads,
        writes: curve.writes,
        cold_reads: arriving.cold,
        unique_blocks: trace.unique().into(),
        upper: arriving.upper.clone(),
        sampling,
        lru: thinned(&curve, &sizes),
        figures,
        flash,
    })
}

/// LRU and OPT, and what was asked for.
fn policies(wanted: &[Spec]) -> Result<Vec<Spec>, Error> {
    let mut all = vec![Spec::parse("lru")?];
    for spec in wanted.iter().cloned().chain([Spec::parse("opt")?]) {
        if !all.contains(&spec) {
            all.push(spec);
        }
    }
    Ok(all)
}

/// Powers of two, in bytes, up to the first at which LRU gains no more than [`REST`] by any larger
/// size.
fn sizes(curve: &Curve, cold: u64, unique: u32, block_bytes: u32) -> Vec<u32> {
    let most = 1.0 - cold as f64 / curve.reads.max(1) as f64;
    let block = u64::from(block_bytes.next_power_of_two());
    let all = u64::from(unique.max(1)).next_power_of_two();
    // The first size that all blocks fit into is the last that can matter.
    let blocks = |step: u64| u32::try_from(step * block / u64::from(block_bytes)).ok();
    let steps = (0..=all.ilog2()).map(|log2| 1_u64 << log2);
    let mut chosen: Vec<u32> = steps.filter_map(blocks).collect();
    let is_enough = |size: &u32| curve.read_hit_ratio(*size) >= most - REST;
    let last = chosen.iter().position(is_enough).unwrap_or(chosen.len() - 1);
    chosen.truncate(last + 1);
    chosen.split_off(chosen.len().saturating_sub(DOUBLINGS as usize))
}

/// The curve at `sizes`, and at sizes between nothing and the largest.
fn thinned(curve: &Curve, sizes: &[u32]) -> Vec<CurvePoint> {
    let hits = curve.read_hits();
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let steps = (0..=CURVE_POINTS).map(|i| f64::from(i) / f64::from(CURVE_POINTS));
    // In equal ratios, from a thousandth on: that is how sizes are drawn.
    let spread = steps.map(|step| (f64::from(largest) * 1000_f64.powf(step - 1.0)).round() as u32);
    let mut all: Vec<u32> = spread.chain(sizes.iter().copied()).map(|size| size.max(1)).collect();
    all.sort_unstable();
    all.dedup();
    let at = |capacity_blocks: u32| CurvePoint {
        capacity_blocks,
        read_hit_ratio: hits[(capacity_blocks as usize).min(hits.len() - 1)] as f64
            / curve.reads.max(1) as f64,
    };
    all.into_iter().map(at).collect()
}

/// The references that reach the cache.
struct Arriving<'a> {
    trace: &'a DenseTrace,
    upper: Option<Upper>,
    refs: Vec<Reference>,
    /// How many had arrived at the end of each of [`PARTS`] equal parts of the trace.
    ends: Vec<usize>,
    /// Reads of blocks that no one requested before.
    cold: u64,
    /// Reads of all blocks, if these are a sample.
    all_reads: u64,
}

impl<'a> Arriving<'a> {
    fn new(trace: &'a DenseTrace, upper: Option<&LevelConfig>) -> Result<Self, Error> {
        let level = |config: &LevelConfig| -> Result<DenseLevel, Error> {
            config.check_alone("the client's cache must have an online policy")?;
            let mut level = config.level()?;
            level.bind(0, (0..trace.unique()).map(|number| trace.names().name(number)));
            Ok(level)
        };
        let mut client = upper.map(level).transpose()?;
        let (mut refs, mut ends) = (Vec::new(), Vec::new());
        let mut coming = Vec::new();
        drive_in_parts(trace, PARTS, |_, part, is_end| {
            coming.clear();
            coming.extend(part.iter().map(|r| Reference::new(r.block(), r.is_write())));
            match &mut client {
                Some(client) => client.replay(trace.unique(), &coming, Some(&mut refs)),
                None => refs.extend_from_slice(&coming),
            }
            if is_end {
                ends.push(refs.len());
            }
        })?;
        let mut met = vec![false; trace.unique() as usize];
        let is_first = |r: &&Reference| !std::mem::replace(&mut met[r.entry() as usize], true);
        let cold = refs.iter().filter(is_first).filter(|r| !r.is_write()).count() as u64;
        let all_reads = refs.iter().filter(|r| !r.is_write()).count() as u64;
        let upper = upper.zip(client.as_ref()).map(|(config, client)| Upper {
            policy: config.policy.to_string(),
            capacity_blocks: config.capacity,
            reads: client.counts().reads,
            read_hits: client.counts().read_hits,
        });
        Ok(Self { trace, upper, refs, ends, cold, all_reads })
    }

    /// The references to a share `rate` of the blocks.
    fn sample(&self, rate: f64) -> Self {
        let below = (rate * u64::MAX as f64) as u64;
        let names = self.trace.names();
        let is_in = |r: &&Reference| hash(names.name(r.entry())) < below;
        let mut refs = Vec::new();
        let ends = self.parts().map(|part| {
            refs.extend(part.iter().filter(is_in));
            refs.len()
        });
        let ends = ends.collect();
        Self { refs, ends, upper: self.upper.clone(), ..*self }
    }

    /// What arrived in each part of the trace.
    fn parts(&self) -> impl Iterator<Item = &[Reference]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.refs[start..end])
    }

    fn curve(&self) -> Curve {
        let mut stack = LruStack::new();
        stack.feed(self.trace.unique(), &self.refs);
        stack.finish()
    }

    /// A level that places at the access, if these are the references to a share `rate` of the
    /// blocks.
    fn figure(
        &self,
        level: &LevelConfig,
        rate: f64,
        future: &Arc<Future>,
    ) -> Result<Figure, Error> {
        let LevelConfig { capacity, policy } = level.of_sample(rate);
        let is_opt = policy.info().name == "opt";
        let context = Context { capacity, future: is_opt.then(|| future.clone()) };
        let mut run = DenseLevel::new(policy.build(&context)?, WriteMode::Allocate);
        run.bind(0, (0..self.trace.unique()).map(|number| self.trace.names().name(number)));
        let mut ends = Vec::new();
        for part in self.parts() {
            run.replay(self.trace.unique(), part, None);
            ends.push(SoFar { counts: *run.counts(), ..SoFar::default() });
        }
        let counts = *run.counts();
        let read_hit_ratio = adjusted(counts.read_hits, counts.reads, self.all_reads, rate);
        Ok(Figure {
            policy: level.policy.to_string(),
            placement: "access".into(),
            capacity_blocks: level.capacity,
            read_hit_ratio,
            disk_reads: ((1.0 - read_hit_ratio) * self.all_reads as f64).round() as u64,
            reloads: 0,
            parts: parts(&ends),
        })
    }
}

/// Placements that act on evictions: every policy at one size, and the best of each placement at
/// the other sizes too, unless the trace is too long for that. Such runs take several times as long
/// as others.
fn placed(
    trace: &DenseTrace,
    question: &Question,
    sizes: &[u32],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<Figure>, Error> {
    let run = |policy: &Spec, placement: &str, capacity: u32| {
        let level = LevelConfig { capacity, policy: policy.clone() };
        let levels = question.upper.iter().cloned().chain([level]).collect();
        let evictions = question.evictions.clone().unwrap_or_default();
        let config = Config { levels, rule: placement.parse()?, evictions, ..Config::default() };
        let ends = counts_in_parts(trace, &config, PARTS)?;
        let SoFar { counts, reloads, .. } = ends.last().copied().unwrap_or_default();
        Ok(Figure {
            policy: policy.to_string(),
            placement: placement.into(),
            capacity_blocks: capacity,
            read_hit_ratio: counts.read_hits as f64 / counts.reads.max(1) as f64,
            disk_reads: counts.reads - counts.read_hits + reloads,
            reloads,
            parts: parts(&ends),
        })
    };
    let all = |jobs: &[(&Spec, &str, u32)], share: f64| {
        let step = share / jobs.len().max(1) as f64;
        let run = |&(policy, placement, size): &(&Spec, &str, u32)| {
            let figure = run(policy, placement, size);
            progress(step);
            figure
        };
        jobs.par_iter().map(run).collect::<Result<Vec<Figure>, Error>>()
    };
    let first = middle(sizes);
    let mut policies = policies(&question.policies)?;
    policies.retain(|policy| policy.info().name != "opt");
    let each = |policy| PLACEMENTS.map(|placement| (policy, placement));
    let pairs: Vec<(&Spec, &str)> = policies.iter().flat_map(each).collect();
    let jobs: Vec<_> = pairs.iter().map(|&(policy, name)| (policy, name, first)).collect();
    let mut figures = all(&jobs, 0.2)?;
    if trace.len() > question.exact_requests {
        return Ok(figures);
    }
    let best = PLACEMENTS.map(|placement| {
        // Of equal ones the first.
        let of = figures.iter().rev().filter(|figure| figure.placement == placement);
        let best = of.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
        (best.map(|figure| figure.policy.clone()), placement)
    });
    let is_best = |policy: String, placement: &str| best.contains(&(Some(policy), placement));
    let bests = pairs.iter().filter(|pair| is_best(pair.0.to_string(), pair.1));
    let others: Vec<u32> = sizes.iter().copied().filter(|&size| size != first).collect();
    let of = |&(policy, placement)| others.iter().map(move |&size| (policy, placement, size));
    let jobs: Vec<_> = bests.flat_map(of).collect();
    figures.extend(all(&jobs, 0.4)?);
    let rank = |figure: &Figure| {
        let is_other = !is_best(figure.policy.clone(), &figure.placement);
        (is_other, figure.policy.clone(), figure.placement.clone())
    };
    figures.sort_by_cached_key(|figure| (rank(figure), figure.capacity_blocks));
    Ok(figures)
}

/// About a quarter of the largest size: near the knee of most curves.
fn middle(sizes: &[u32]) -> u32 {
    sizes[sizes.len() * 2 / 3]
}

/// Flash below memory of a middle size with the policy that does best there.
fn with_flash(
    trace: &DenseTrace,
    question: &Question,
    (figures, sizes): (&[Figure], &[u32]),
) -> Result<Vec<FlashFigure>, Error> {
    let memory_blocks = middle(sizes);
    let at = figures.iter().filter(|f| f.capacity_blocks == memory_blocks && f.is_access());
    let best = at.filter(|f| !f.is_opt());
    let best = best.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio));
    let Some(best) = best.filter(|_| trace.len() <= question.exact_requests) else {
        return Ok(Vec::new());
    };
    let memory = LevelConfig { capacity: memory_blocks, policy: Spec::parse(&best.policy)? };
    let run = |times: &u32| {
        let flash_blocks = memory_blocks.saturating_mul(*times);
        let levels = question.upper.iter().cloned().chain([memory.clone()]).collect();
        let flash = Some(format!("{flash_blocks}blk").parse()?);
        let lowest = Lowest { flash, ..Lowest::default() };
        let block_bytes = question.block_bytes;
        let config = Config { levels, lowest, block_bytes, ..Config::default() };
        let ends = counts_in_parts(trace, &config, PARTS)?;
        let SoFar { counts, flash, .. } = ends.last().copied().unwrap_or_default();
        Ok(FlashFigure {
            policy: best.policy.clone(),
            memory_blocks,
            flash_blocks,
            read_hit_ratio: (counts.read_hits + flash.hits) as f64 / counts.reads.max(1) as f64,
            flash_hits: flash.hits,
            flash_written: flash.written,
            parts: parts(&ends),
        })
    };
    FLASH_BY_MEMORY.par_iter().map(run).collect()
}

/// What was counted in each part, from the counts at the ends of the parts.
fn parts(ends: &[SoFar]) -> Vec<Part> {
    let mut before = Part::default();
    let part = |&SoFar { counts, reloads, flash }: &SoFar| {
        let read_hits = counts.read_hits + flash.hits;
        let now = Part { reads: counts.reads, read_hits, reloads };
        let part = Part {
            reads: now.reads - before.reads,
            read_hits: now.read_hits - before.read_hits,
            reloads: now.reloads - before.reloads,
        };
        before = now;
        part
    };
    ends.iter().map(part).collect()
}
