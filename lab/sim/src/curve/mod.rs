//! Miss ratio curves: hits at every cache size from one pass over the trace.
//!
//! LRU and OPT are stack algorithms (Mattson et al. 1970): the content of a cache of any size is
//! the top of one stack. So the depth of a block at its reference shows which sizes hit. Other
//! policies have sampled curves.

mod any;
mod lru;
mod opt;
mod sampled;

pub use any::{check_rate, curve, exact_curve};
pub use lru::LruStack;
pub use opt::opt_curve;
pub(crate) use sampled::adjusted;
pub use sampled::{Point, sampled_curve};

/// Hits of one stack algorithm at all sizes: a histogram of the depths at which blocks were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// `read_depths[d]`: reads that found their block at depth `d` (1 = top; 0 is unused).
    read_depths: Vec<u64>,
    /// `write_depths[d]`: writes that found their block at depth `d`.
    write_depths: Vec<u64>,
    /// Blocks read.
    pub reads: u64,
    /// Blocks written.
    pub writes: u64,
}

impl Curve {
    fn count(&mut self, depth: Option<u32>, is_write: bool) {
        let (total, depths) = if is_write {
            (&mut self.writes, &mut self.write_depths)
        } else {
            (&mut self.reads, &mut self.read_depths)
        };
        *total += 1;
        if let Some(depth) = depth {
            let depth = depth as usize;
            if depth >= depths.len() {
                depths.resize((depth + 1).next_power_of_two(), 0);
            }
            depths[depth] += 1;
        }
    }

    /// Read and write hits of a cache of `capacity` blocks.
    pub fn hits(&self, capacity: u32) -> (u64, u64) {
        let sum = |depths: &[u64]| depths.iter().take(capacity as usize + 1).sum();
        (sum(&self.read_depths), sum(&self.write_depths))
    }

    /// Read hits of every size: element `c` belongs to a cache of `c` blocks. It ends where a
    /// larger cache has no more hits.
    pub fn read_hits(&self) -> Vec<u64> {
        let used = self.read_depths.iter().rposition(|&count| count > 0).map_or(1, |last| last + 1);
        let running = |sum: &mut u64, &count: &u64| {
            *sum += count;
            Some(*sum)
        };
        let mut hits: Vec<u64> = self.read_depths.iter().take(used).scan(0, running).collect();
        if hits.is_empty() {
            hits.push(0);
        }
        hits
    }

    /// Read hits / reads of a cache of `capacity` blocks.
    pub fn read_hit_ratio(&self, capacity: u32) -> f64 {
        if self.reads == 0 { 0.0 } else { self.hits(capacity).0 as f64 / self.reads as f64 }
    }
}
