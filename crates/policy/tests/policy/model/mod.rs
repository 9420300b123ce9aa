//! Naive reference models of the replacement policies: the oracle the engine is tested against.
//!
//! Written from the specification alone, as plainly as possible: vectors, linear search, no shared
//! machinery. What the specification leaves open is fixed in `DECISIONS.md` beside this file.
#![allow(unreachable_pub)]

use serde_json::Value;

mod arc;
mod auto;
mod aware;
mod car;
mod clock;
mod clock_ca;
mod clock_pro;
mod fbr;
mod fifo;
mod lfru;
mod lfu;
mod lirs;
mod lru;
mod lru_k;
mod mq;
mod mru;
mod opt;
mod s3_fifo;
mod sieve;
mod two_q;
mod w_tinylfu;

pub type Block = u32;

/// What one call did.
#[derive(Default, Debug, PartialEq, Clone)]
pub struct Step {
    pub hit: bool,
    pub evicted: Vec<Block>,
}

impl Step {
    pub fn hit() -> Step {
        Step { hit: true, evicted: Vec::new() }
    }

    pub fn miss(evicted: impl IntoIterator<Item = Block>) -> Step {
        Step { hit: false, evicted: evicted.into_iter().collect() }
    }
}

/// A replacement policy, seen from outside.
pub trait Model {
    /// A counted reference: hit, or miss and admit.
    fn access(&mut self, b: Block) -> Step;
    /// A counted reference by a write.
    fn write(&mut self, b: Block) -> Step {
        self.access(b)
    }
    /// A hit of b, which is resident, where misses place nothing.
    fn touch(&mut self, b: Block) {
        self.access(b);
    }
    /// b leaves for the upper level; its history is kept.
    fn take(&mut self, b: Block);
    /// A miss for b was served around the cache: nothing, where only residents are known.
    fn note(&mut self, _b: Block) {}
    /// The upper level evicted b: admit it without counting a reference; the same as an access
    /// where nothing is counted.
    fn place(&mut self, b: Block) -> Step {
        self.access(b)
    }
    /// b leaves every structure, ghosts included; not an eviction. The same as taking it where
    /// there is no ghost.
    fn discard(&mut self, b: Block) {
        self.take(b);
    }
    /// Changes the capacity; the blocks evicted, in order.
    fn resize(&mut self, capacity: u32) -> Vec<Block>;
    /// Resident blocks, sorted.
    fn resident(&self) -> Vec<Block>;
    /// Blocks the ghosts remember, sorted.
    fn remembered(&self) -> Vec<Block> {
        Vec::new()
    }
    /// The neighbour holds b from now on, or no longer.
    fn learn(&mut self, _b: Block, _holds: bool) {}
    /// What admitting a never-seen block would evict; None when there is room.
    fn victim(&self) -> Option<Block>;
    /// The state a worked example prints in its `extra` object.
    fn state(&self) -> Value;
}

/// The parameters of a policy, by the names of the command line.
#[derive(Clone, Copy)]
pub struct Params<'a>(&'a [(&'a str, f64)]);

impl Params<'_> {
    pub fn find(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    pub fn get(&self, name: &str, default: f64) -> f64 {
        self.find(name).unwrap_or(default)
    }
}

/// A model by its policy name. Everything but `opt`, which needs the future: see [`opt`].
pub fn model(name: &str, params: &[(&str, f64)], capacity: u32) -> Box<dyn Model> {
    assert!(capacity >= 1, "capacity 0");
    let c = capacity as usize;
    let p = Params(params);
    match name {
        "lru" => Box::new(lru::Lru::new(c, aware::Aware::never())),
        "lru-ca" => Box::new(lru::Lru::new(c, aware::Aware::always(p))),
        "mru" => Box::new(mru::Mru::new(c)),
        "fifo" => Box::new(fifo::Fifo::new(c)),
        "lfu" => Box::new(lfu::Lfu::new(c, p)),
        "fbr" => Box::new(fbr::Fbr::new(c, p)),
        "lru-k" => Box::new(lru_k::LruK::new(c, p)),
        "lfru" => Box::new(lfru::Lfru::new(c, p)),
        "2q" => Box::new(two_q::TwoQ::new(c, p)),
        "lirs" => Box::new(lirs::Lirs::new(c, p)),
        "arc" => Box::new(arc::Arc::new(c, aware::Aware::optional(p))),
        "car" => Box::new(car::Car::new(c)),
        "clock" => Box::new(clock::Clock::new(c, p)),
        "clock-ca" => Box::new(clock_ca::ClockCa::new(c, aware::Aware::always(p))),
        "clock-pro" => Box::new(clock_pro::ClockPro::new(c)),
        "mq" => Box::new(mq::Mq::new(c, p)),
        "sieve" => Box::new(sieve::Sieve::new(c)),
        "s3-fifo" => Box::new(s3_fifo::S3Fifo::new(c, p)),
        "auto" => Box::new(auto::Auto::new(c, p)),
        "w-tinylfu" => Box::new(w_tinylfu::WTinyLfu::new(c, p)),
        other => panic!("no model of {other}"),
    }
}

/// OPT over a reference string known in advance; the accesses must follow it.
pub fn opt(refs: &[Block], capacity: u32) -> Box<dyn Model> {
    Box::new(opt::Opt::new(refs, capacity as usize))
}

/// Floor of a share (or a multiple) of the capacity.
fn part(share: f64, c: usize) -> usize {
    (share * c as f64).floor() as usize
}

/// Where b stands in a list.
fn position(list: &[Block], b: Block) -> Option<usize> {
    list.iter().position(|&x| x == b)
}

/// Takes b out of a list; whether it was there.
fn remove(list: &mut Vec<Block>, b: Block) -> bool {
    match position(list, b) {
        Some(i) => {
            list.remove(i);
            true
        }
        None => false,
    }
}

fn sorted(mut list: Vec<Block>) -> Vec<Block> {
    list.sort_unstable();
    list
}

/// A block as the examples write it: a letter if it is one, otherwise its number.
fn name(b: Block) -> String {
    match u8::try_from(b) {
        Ok(letter) if letter.is_ascii_uppercase() => char::from(letter).to_string(),
        _ => b.to_string(),
    }
}

fn names(list: &[Block]) -> Vec<String> {
    list.iter().map(|&b| name(b)).collect()
}
