//! What a trace asks for: request mix, working set, reuse distances, frequencies, and what a cache
//! above makes of it (`docs/user/characterize.md`). One pass over the trace; memory grows with the
//! distinct blocks only, of which a sample can be taken.
//!
//! One file for each metric; `report.rs` has the results. What is kept by block is looked up for a
//! whole chunk of the trace, one metric after the other: the processor then waits for many of these
//! random reads at once.

mod bins;
mod distances;
mod frequency;
mod idle;
mod report;
mod requests;
mod split;
mod working_set;

use undercroft_level::DenseLevel;
use undercroft_policy::Reference;
use undercroft_trace::{BlockStream, Counts, Ref};

use crate::evictions::EvictionSource;
use crate::{Error, LevelConfig, LevelSpec, Size};

use report::scaled;

pub use crate::stack::StackDepths;
pub use bins::{Hill, Histogram, bin};
pub use distances::Distances;
pub use frequency::{Concentration, Frequencies, FrequencyRow};
pub use idle::IdleDistances;
pub use report::{
    BinRow, BlockReport, Characterization, DistanceReport, IdleReport, RequestReport, Sampling,
    SizeRow, SplitReport, TraceFacts, UpperReport, WorkingSetReport,
};
pub use requests::{RequestCounter, Requests, watch};
pub use split::{Cells, Split};
pub use working_set::{Window, WorkingSet};

/// What to find out, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of one step of an address, for a trace of numbers that were regrouped into blocks.
    pub unit_bytes: Option<u32>,
    /// Share of the blocks that the stream keeps; 1 is exact.
    pub rate: f64,
    /// Most distinct blocks of the stream.
    pub max_blocks: u32,
    /// Caches whose hits are split by distance.
    pub caches: Vec<LevelConfig>,
    /// A cache above: what it passes on is described. Not with a sample.
    pub upper: Option<LevelConfig>,
}

/// A cache for [`Config`]. The trace is read once, so its blocks are not known before.
///
/// # Errors
/// The size is a share of the blocks, or the cache cannot be made.
pub fn level(spec: &LevelSpec, block_bytes: u32) -> Result<LevelConfig, Error> {
    match spec.size {
        Size::Percent(_) => Err(Error::Request(format!(
            "{spec}: the trace is read only once, so its blocks are not known before: give a size \
             in bytes or blocks"
        ))),
        _ => spec.config(block_bytes, 0),
    }
}

/// Reads a stream to its end and describes it. `requests` counts the records of its reader, and the
/// stream must carry origins, and evictions if it has them. `None`: there are more distinct blocks
/// than `config` allows.
///
/// # Errors
/// The trace is damaged or empty, a cache cannot be made, a cache above is combined with a sample,
/// a sample holds no blocks, or none are allowed.
pub fn characterize(
    stream: &mut BlockStream,
    requests: &RequestCounter,
    config: &Config,
    mut progress: impl FnMut(u64),
) -> Result<Option<Characterization>, Error> {
    if config.max_blocks == 0 {
        return Err(Error::Request("at most 0 distinct blocks: expected 1 or more".into()));
    }
    let mut run = Run::new(stream, config)?;
    let mut refs = Vec::new();
    while stream.next_chunk(&mut refs)? {
        if stream.unique() > config.max_blocks {
            return Ok(None);
        }
        run.chunk(stream, &refs);
        progress(stream.seen().records);
    }
    if config.rate < 1.0 && stream.unique() == 0 && stream.seen().references() > 0 {
        return Err(Error::empty_sample(config.rate));
    }
    let requests = requests.report(stream.meta(), config.unit_bytes.unwrap_or(config.block_bytes));
    Ok(Some(run.finish(stream, requests)))
}

/// A cache above, and what it let through.
struct Upper {
    level: DenseLevel,
    config: LevelConfig,
    /// Block numbers for which the policy has names.
    bound: u32,
    /// References passed on.
    passed: u64,
}

impl Upper {
    /// Serves a reference. What it misses, and writes, go to `below`.
    fn serve(
        &mut self,
        entries: u32,
        arrival: Arrival,
        below: &mut Vec<Arrival>,
        evictions: &mut Vec<(u64, u32)>,
    ) {
        let is_hit = self.level.reference(entries, arrival.reference);
        if !is_hit || arrival.reference.is_write() {
            self.passed += 1;
            below.push(Arrival { position: self.passed, ..arrival });
        }
        evictions.extend(self.level.evicted().map(|block| (self.passed, block)));
    }
}

/// A reference as it arrives, below the cache above if there is one.
#[derive(Clone, Copy)]
struct Arrival {
    reference: Reference,
    /// Position in the stream, from 1 on.
    position: u64,
    time_ns: u64,
    /// Position of the last reference to the block; 0 if there is none.
    last: u64,
}

impl Arrival {
    fn previous(&self) -> Option<u64> {
        (self.last > 0).then_some(self.last)
    }

    fn temporal_distance(&self) -> Option<u64> {
        self.previous().map(|previous| self.position - previous)
    }
}

/// All metrics of a trace that is being read.
struct Run<'a> {
    config: &'a Config,
    upper: Option<Upper>,
    source: Option<EvictionSource>,
    /// The references of the chunk.
    arrivals: Vec<Arrival>,
    /// Their stack distances.
    depths_found: Vec<Option<u32>>,
    /// Evictions of the chunk, in order: the position after which each is known, and the block.
    evictions: Vec<(u64, u32)>,
    /// Position of each block's last reference, from 1 on; 0 is none.
    last: Vec<u64>,
    depths: StackDepths,
    counts: Counts,
    stack: Distances,
    temporal: Distances,
    working_set: WorkingSet,
    frequencies: Frequencies,
    idle: Option<IdleDistances>,
    splits: Vec<Split>,
}

impl<'a> Run<'a> {
    fn new(stream: &BlockStream, config: &'a Config) -> Result<Self, Error> {
        let is_sample = config.rate < 1.0;
        if is_sample && config.upper.is_some() {
            let why = "a cache above cannot be combined with a sample: write what it passes on \
                       with trace filter, and describe that";
            return Err(Error::Request(why.into()));
        }
        let upper = config.upper.as_ref().map(|upper| -> Result<_, Error> {
            upper.check_alone("the cache above must have an online policy")?;
            Ok(Upper { level: upper.level()?, config: upper.clone(), bound: 0, passed: 0 })
        });
        let upper = upper.transpose()?;
        // Buffers say which block made room for which only if all blocks are seen.
        let has_source = !is_sample && upper.is_none();
        let source = has_source.then(|| EvictionSource::of(stream, config.block_bytes)).flatten();
        let splits = config.caches.iter().map(|cache| Split::new(cache, config.rate));
        Ok(Self {
            config,
            arrivals: Vec::new(),
            depths_found: Vec::new(),
            evictions: Vec::new(),
            last: Vec::new(),
            depths: StackDepths::default(),
            counts: Counts::default(),
            stack: Distances::new(is_sample),
            temporal: Distances::new(is_sample),
            working_set: WorkingSet::default(),
            frequencies: Frequencies::default(),
            idle: (source.is_some() || upper.is_some()).then(IdleDistances::default),
            splits: splits.collect::<Result<_, _>>()?,
            upper,
            source,
        })
    }

    fn chunk(&mut self, stream: &BlockStream, refs: &[Ref]) {
        let entries = stream.unique();
        self.arrivals.clear();
        self.evictions.clear();
        let arrivals = refs.iter().zip(stream.origins()).map(|(r, origin)| Arrival {
            reference: Reference::new(r.block(), r.is_write()),
            position: origin.position + 1,
            time_ns: origin.time_ns,
            last: 0,
        });
        match (&mut self.upper, &mut self.source) {
            (Some(upper), _) => {
                let names = upper.bound..entries;
                upper.level.bind(upper.bound, names.map(|entry| stream.names().name(entry)));
                upper.bound = entries;
                for arrival in arrivals {
                    upper.serve(entries, arrival, &mut self.arrivals, &mut self.evictions);
                }
            }
            (None, source) => {
                self.arrivals.extend(arrivals);
                if let Some(source) = source {
                    let mut known = |after, block| self.evictions.push((after, block));
                    source.chunk(stream, refs, &mut known);
                }
            }
        }
        self.count_by_block(entries);
        self.splits.iter_mut().for_each(|split| split.grow(stream.names()));
        self.count_in_order(entries);
    }

    /// The metrics that look up what is kept for each block.
    fn count_by_block(&mut self, entries: u32) {
        self.last.resize(entries as usize, 0);
        for arrival in &mut self.arrivals {
            let last = &mut self.last[arrival.reference.entry() as usize];
            arrival.last = std::mem::replace(last, arrival.position);
        }
        self.frequencies.grow(entries);
        let blocks = || self.arrivals.iter().map(|arrival| arrival.reference.entry());
        blocks().for_each(|block| self.frequencies.reference(block));
        self.depths.grow(entries);
        self.depths_found.clear();
        self.depths.references(blocks(), &mut self.depths_found);
        if let Some(idle) = &mut self.idle {
            idle.grow(entries);
            let mut evictions = self.evictions.iter().copied().peekable();
            for arrival in &self.arrivals {
                let is_before = |&(after, _): &(u64, u32)| after < arrival.position;
                while let Some((after, block)) = evictions.next_if(is_before) {
                    idle.evicted(block, after);
                }
                idle.reference(arrival.reference.entry(), arrival.position, arrival.previous());
            }
            evictions.for_each(|(after, block)| idle.evicted(block, after));
        }
    }

    /// The metrics that go by the distances found.
    fn count_in_order(&mut self, entries: u32) {
        for (arrival, depth) in self.arrivals.iter().zip(&self.depths_found) {
            let &Arrival { reference, position, time_ns, .. } = arrival;
            let (entry, is_write) = (reference.entry(), reference.is_write());
            self.counts.reads += u64::from(!is_write);
            self.counts.writes += u64::from(is_write);
            let temporal = arrival.temporal_distance();
            let stack = depth.map(|depth| self.whole_distance(depth));
            self.temporal.add(entry, temporal);
            self.stack.add(entry, stack);
            let previous = arrival.previous().map(|previous| previous - 1);
            self.working_set.reference(position - 1, previous, time_ns, is_write);
            for split in &mut self.splits {
                split.reference(entries, reference, temporal, stack);
            }
        }
    }

    /// The distance in the whole trace of one in the sample (SHARDS).
    fn whole_distance(&self, depth: u32) -> u64 {
        match self.config.rate {
            1.0 => depth.into(),
            rate => (f64::from(depth) / rate).round() as u64,
        }
    }

    fn finish(self, stream: &BlockStream, requests: RequestReport) -> Characterization {
        let rate = self.config.rate;
        let is_sample = rate < 1.0;
        let kept = self.counts.references();
        let seen = stream.seen();
        // A reference of the sample stands for so many, and a block for so many.
        let scale = if is_sample { seen.references() as f64 / kept.max(1) as f64 } else { 1.0 };
        let block_scale = if is_sample { 1.0 / rate } else { 1.0 };
        let sampling = is_sample.then(|| {
            let expected = seen.references() as f64 * rate;
            let surplus = (kept as f64 / expected.max(1.0) - 1.0).abs();
            Sampling {
                rate,
                sampled_blocks: stream.unique().into(),
                sampled_requests: kept,
                share_error: surplus.max(self.stack.error()).max(self.temporal.error()).min(1.0),
            }
        });
        let counted = if is_sample { seen } else { self.counts };
        // Every block met was passed on by the cache above at least once: its first reference.
        let cold_requests = scaled(self.stack.cold(), block_scale);
        let blocks = BlockReport {
            requests: counted.references(),
            reads: counted.reads,
            writes: counted.writes,
            unique_blocks: scaled(stream.unique().into(), block_scale),
            cold_requests,
            cold_share: cold_requests as f64 / counted.references().max(1) as f64,
        };
        let source = match (&self.upper, &self.source) {
            (Some(_), _) => Some("upper"),
            (None, Some(source)) => Some(source.name()),
            (None, None) => None,
        };
        let mut windows = self.working_set.windows(stream.meta().has_time);
        windows.iter_mut().for_each(|window| window.scale(scale, block_scale));
        let mut frequency = self.frequencies.table();
        let mut concentration = self.frequencies.concentration();
        frequency.iter_mut().for_each(|row| row.blocks = scaled(row.blocks, block_scale));
        concentration.iter_mut().for_each(|row| row.blocks = scaled(row.blocks, block_scale));
        let distances = |of: &Distances| DistanceReport::new(&of.histogram(), kept, scale);
        let split = |(config, split): (&LevelConfig, &Split)| SplitReport {
            policy: config.policy.to_string(),
            capacity_blocks: config.capacity,
            by_temporal: split.by_temporal.scaled(scale),
            by_stack: split.by_stack.scaled(scale),
        };
        Characterization {
            sampling,
            requests,
            upper: self.upper.as_ref().map(|upper| UpperReport {
                policy: upper.config.policy.to_string(),
                capacity_blocks: upper.config.capacity,
                reads: upper.level.counts().reads,
                read_hits: upper.level.counts().read_hits,
            }),
            blocks,
            working_set: WorkingSetReport { window_requests: self.working_set.length(), windows },
            stack_distance: distances(&self.stack),
            temporal_distance: distances(&self.temporal),
            frequency,
            concentration,
            splits: self.config.caches.iter().zip(&self.splits).map(split).collect(),
            idle_distance: source
                .zip(self.idle)
                .map(|(source, idle)| IdleReport::new(&idle, source)),
        }
    }
}
