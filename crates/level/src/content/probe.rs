//! Gray-box probing: infers policy and size of a cache below from the requests that it was sent and
//! the times of its replies (after Arpaci-Dusseau & Arpaci-Dusseau, SOSP 2001, who do so for
//! operating systems; the procedure is ours).
//!
//! [`Prober`] keeps the recent requests and replays them to emulations of several policies and
//! sizes (`search.rs`). The emulation that predicts the replies best is the result. Each request
//! costs a bounded number of steps.
//!
//! Not here: which replies were fast (`latencies.rs`), and active probing (`undercroft probe`).

use std::collections::VecDeque;

use super::emulation::Copy;
use super::search::{Candidate, Request, Search};
use super::source::News;
use undercroft_policy::{Spec, WriteMode};

/// Number of requests that are kept.
const HISTORY: usize = 1 << 16;

/// Requests before the first search. The number doubles for each later search.
const FIRST_SEARCH: usize = 1 << 13;

/// Most emulation steps at each request.
const STEPS_A_REQUEST: u32 = 64;

/// Infers policy and size of a cache below.
pub struct Prober {
    mode: WriteMode,
    history: VecDeque<Request>,
    seen: u64,
    next_search: u64,
    search: Option<Search>,
    found: Option<Candidate>,
    copy: Option<Copy>,
}

impl Prober {
    /// Creates a prober without knowledge. `mode`: what writes do at the cache below.
    pub fn new(mode: WriteMode) -> Self {
        Self {
            mode,
            history: VecDeque::new(),
            seen: 0,
            next_search: FIRST_SEARCH as u64,
            search: None,
            found: None,
            copy: None,
        }
    }

    /// Notes an answered request. `hit`: whether it was a hit, if known.
    pub fn request(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        self.note(block, is_write, hit);
        if self.search.is_none() && self.seen >= self.next_search {
            self.next_search = self.seen * 2;
            self.search = Search::new(&self.history, self.mode);
        }
        let Some(search) = &mut self.search else { return };
        if search.step(STEPS_A_REQUEST) {
            self.finish();
        }
    }

    /// Notes an answered request like [`request`](Self::request), but leaves the search to
    /// [`conclude`](Self::conclude).
    pub fn note(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        self.seen += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Request { block, is_write, hit });
    }

    fn finish(&mut self) {
        let Some(search) = self.search.take() else { return };
        self.found = search.result();
        let copy = self.found.as_ref().and_then(|found| {
            let spec = Spec::parse(found.policy).ok()?;
            Copy::new(&spec, found.blocks, self.mode, None).ok()
        });
        // Bring the emulation to the state after all remembered requests.
        self.copy = copy.map(|mut copy| {
            let mut news = News::default();
            for request in &self.history {
                copy.request(request.block, request.is_write, &mut news);
                news.blocks.clear();
            }
            copy
        });
    }

    /// Searches now, however long it takes. Returns what the cache below seems to be; `None` if too
    /// few replies were known hits or misses.
    pub fn conclude(&mut self) -> Option<&Candidate> {
        if let Some(mut search) = Search::new(&self.history, self.mode) {
            while !search.step(u32::MAX) {}
            self.search = Some(search);
            self.finish();
        }
        self.found.as_ref()
    }

    /// The result of the last search.
    pub fn found(&self) -> Option<&Candidate> {
        self.found.as_ref()
    }

    /// Takes the emulation of the result out; `None` the second time.
    pub(crate) fn take_copy(&mut self) -> Option<Copy> {
        self.copy.take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::search::POLICIES;
    use super::*;
    use crate::hashed::HashedCache;
    use undercroft_policy::Context;

    fn cache(text: &str, blocks: u32) -> HashedCache {
        let spec = Spec::parse(text).expect(text);
        HashedCache::new(spec.build(&Context::new(blocks)).expect(text), 0)
    }

    /// Sends the requests of a client with a cache, some of whose blocks are used more than others,
    /// to a cache below. One reply in `wrong_one_in` is mistaken for the other kind. Returns what
    /// the prober infers.
    fn probed(policy: &str, blocks: u32, wrong_one_in: u64) -> Candidate {
        let (mut upper, mut lower) = (cache("lru", 200), cache(policy, blocks));
        let mut prober = Prober::new(WriteMode::Allocate);
        let mut x = 11_u64;
        let mut random = move || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x >> 33
        };
        for _ in 0..60_000 {
            let share = (random() % 1_000_000) as f64 / 1e6;
            let block = (4000.0 * share * share) as u64;
            if upper.reference(block, false, WriteMode::Allocate, || false).hit {
                continue;
            }
            let hit = lower.reference(block, false, WriteMode::Allocate, || false).hit;
            let is_wrong = random() % wrong_one_in == 0;
            prober.note(block, false, Some(hit != is_wrong));
        }
        prober.conclude().expect("replies of both kinds").clone()
    }

    #[test]
    fn a_simulated_cache_is_found_out() {
        for policy in POLICIES {
            for blocks in [300, 700, 1500] {
                let found = probed(policy, blocks, 1000);
                let error = f64::from(found.blocks) / f64::from(blocks) - 1.0;
                println!("{policy} {blocks}: {found:?}, {error:+.3}");
                assert!(error.abs() < 0.03, "{policy} {blocks}: {found:?}");
                assert_eq!(found.policy, policy, "{blocks}: {found:?}");
                assert!(!found.is_least);
            }
        }
    }

    #[test]
    fn one_that_is_not_known_and_noise_are_borne() {
        for policy in ["arc", "s3-fifo"] {
            let found = probed(policy, 700, 1000);
            println!("{policy}: {found:?}");
            assert!((350..1400).contains(&found.blocks), "{policy}: {found:?}");
        }
        let found = probed("lru", 700, 10);
        assert!((650..750).contains(&found.blocks) && found.policy == "lru", "{found:?}");
        // The cache holds all blocks.
        let found = probed("lru", 5000, 1000);
        assert!(found.is_least, "{found:?}");
    }

    #[test]
    fn the_steps_of_a_search_are_bounded_and_end() {
        let mut lower = cache("lru", 50);
        let mut prober = Prober::new(WriteMode::Allocate);
        let mut found = None;
        for step in 0..400_000_u64 {
            let block = step.wrapping_mul(step) % 97;
            let hit = lower.reference(block, false, WriteMode::Allocate, || false).hit;
            prober.request(block, false, Some(hit));
            if let (None, Some(one)) = (&found, prober.found()) {
                found = Some((step, one.clone()));
            }
        }
        assert!(found.is_some() && prober.take_copy().is_some(), "{found:?}");
    }
}
