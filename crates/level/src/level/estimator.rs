//! Infers the evictions of a client that tells nothing, by emulating its cache. A list of the
//! blocks that it read or wrote last stands for its content; a block that falls off the end counts
//! as evicted. All of this is ours.
//!
//! The length of the list is learned. A client does not request what it has. So the distances, in
//! requests, between two reads of a block begin where its cache ends. The list gets the length that
//! leaves few repeated reads (`EARLY`) at smaller distances. The client's own hits do not show: a
//! block that it uses all the time looks evicted.
//!
//! The quality shows in part. A read of a block that the list holds proves that an eviction was
//! missed; a read of a block that fell off confirms the inferred eviction; a write of a block that
//! fell off, with no read between, proves that the inference was wrong. The shares are precision
//! and recall. If either is below [`CONFIDENT`], the caller should not act on the inferred
//! evictions.

use crate::bounded_lru_map::BoundedLruMap;

/// Share of repeated reads that may come at distances smaller than the list's length.
const EARLY: f64 = 0.02;

/// Least precision and least recall to act on.
pub const CONFIDENT: f64 = 0.75;

/// Bins of distances per doubling.
const STEPS: f64 = 4.0;

/// Emulates a client's cache.
pub struct Estimator {
    /// What the client is believed to hold.
    held: BoundedLruMap<()>,
    /// The recently requested blocks, with the number of the request, and whether the block was
    /// inferred to be evicted since.
    asked: BoundedLruMap<(u64, bool)>,
    requests: u64,
    /// Repeated reads by distance in requests.
    distances: [f64; 160],
    confirmed: f64,
    refuted: f64,
    late: f64,
    size: u32,
    period: u64,
}

impl Estimator {
    /// For a client whose cache has at most `most` blocks, at least 1.
    pub fn new(most: u32, seed: u64) -> Self {
        let most = most.max(1);
        Self {
            held: BoundedLruMap::new(most, seed),
            asked: BoundedLruMap::new(most.saturating_mul(4), seed),
            requests: 0,
            distances: [0.0; 160],
            confirmed: 0.0,
            refuted: 0.0,
            late: 0.0,
            size: most,
            period: u64::from(most.max(64)),
        }
    }

    /// Notes that the client reads or writes a block. Appends the inferred evictions to `evicted`.
    pub fn observe(&mut self, block: u64, is_write: bool, evicted: &mut Vec<u64>) {
        self.requests += 1;
        let before = self.asked.get(block);
        let is_held = self.held.get(block).is_some();
        if let Some((request, was_evicted)) = before {
            if !is_write {
                let distance = (self.requests - request) as f64;
                self.distances[(distance.log2() * STEPS) as usize % self.distances.len()] += 1.0;
                self.late += f64::from(u8::from(is_held));
            }
            if was_evicted {
                *if is_write { &mut self.refuted } else { &mut self.confirmed } += 1.0;
            }
        }
        if let Some(asked) = self.asked.touch(block) {
            *asked = (self.requests, false);
        }
        self.held.touch(block);
        while self.held.len() > self.size {
            let Some((gone, ())) = self.held.pop_oldest() else { break };
            evicted.push(gone);
            if let Some((_, was_evicted)) = self.asked.get_mut(gone) {
                *was_evicted = true;
            }
        }
        if self.requests % self.period == 0 {
            self.review();
        }
    }

    fn review(&mut self) {
        let all: f64 = self.distances.iter().sum();
        let mut early = 0.0;
        let at = self.distances.iter().position(|&count| {
            early += count;
            early > EARLY * all
        });
        if let Some(at) = at {
            let size = (at as f64 / STEPS).exp2();
            self.size = (size as u32).clamp(1, self.held.max());
        }
        self.distances.iter_mut().for_each(|count| *count /= 2.0);
        for count in [&mut self.confirmed, &mut self.refuted, &mut self.late] {
            *count /= 2.0;
        }
    }

    /// Blocks that the client's cache is believed to hold.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Of the recent inferred evictions that showed right or wrong, the share that was right; 1 if
    /// none showed.
    pub fn precision(&self) -> f64 {
        share(self.confirmed, self.refuted)
    }

    /// Of the recent evictions that showed, the share that had been inferred; 1 if none showed.
    pub fn recall(&self) -> f64 {
        share(self.confirmed, self.late)
    }

    /// Whether to act on what is inferred.
    pub fn is_confident(&self) -> bool {
        self.requests > self.period && self.precision().min(self.recall()) >= CONFIDENT
    }
}

fn share(right: f64, wrong: f64) -> f64 {
    if right + wrong < 1.0 { 1.0 } else { right / (right + wrong) }
}
