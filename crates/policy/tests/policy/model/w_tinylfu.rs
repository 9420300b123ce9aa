//! W-TinyLFU with the exact frequency counter: a window, and a main cache that admits by frequency.

use super::{Block, Model, Params, Step, name, names, part, remove, sorted};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct WTinyLfu {
    c: usize,
    window_share: f64,
    protected_share: f64,
    /// All three lists: LRU end first.
    window: Vec<Block>,
    probation: Vec<Block>,
    protected: Vec<Block>,
    freq: BTreeMap<Block, u32>,
    /// Effective increments since the last halving.
    n: usize,
}

impl WTinyLfu {
    pub fn new(c: usize, p: Params) -> WTinyLfu {
        WTinyLfu {
            c,
            window_share: p.get("window", 0.01),
            protected_share: p.get("protected", 0.8),
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            freq: BTreeMap::new(),
            n: 0,
        }
    }

    fn main_size(&self) -> usize {
        part(1.0 - self.window_share, self.c)
    }

    fn window_size(&self) -> usize {
        self.c - self.main_size()
    }

    fn protected_size(&self) -> usize {
        part(self.protected_share, self.main_size())
    }

    fn main_count(&self) -> usize {
        self.probation.len() + self.protected.len()
    }

    fn frequency(&self, b: Block) -> u32 {
        self.freq.get(&b).copied().unwrap_or(0)
    }

    fn increment(&mut self, b: Block) {
        let count = self.freq.entry(b).or_insert(0);
        if *count >= 15 {
            return;
        }
        *count += 1;
        self.n += 1;
        if self.n >= 10 * self.c {
            for count in self.freq.values_mut() {
                *count /= 2;
            }
            self.freq.retain(|_, count| *count > 0);
            self.n /= 2;
        }
    }

    fn shrink_protected(&mut self) {
        while self.protected.len() > self.protected_size() {
            let x = self.protected.remove(0);
            self.probation.push(x);
        }
    }

    fn evict_main(&mut self) -> Block {
        if self.probation.is_empty() { self.protected.remove(0) } else { self.probation.remove(0) }
    }

    /// Moves what the window cannot hold on; the blocks evicted.
    fn shrink_window(&mut self) -> Vec<Block> {
        let mut evicted = Vec::new();
        while self.window.len() > self.window_size() {
            let candidate = self.window.remove(0);
            if self.main_count() < self.main_size() {
                self.probation.push(candidate);
                continue;
            }
            let victim = self.probation.first().or(self.protected.first()).copied();
            match victim {
                Some(x) if self.frequency(candidate) > self.frequency(x) => {
                    evicted.push(self.evict_main());
                    self.probation.push(candidate);
                }
                _ => evicted.push(candidate),
            }
        }
        evicted
    }

    fn admit(&mut self, b: Block) -> Step {
        self.window.push(b);
        Step::miss(self.shrink_window())
    }
}

impl Model for WTinyLfu {
    fn access(&mut self, b: Block) -> Step {
        self.increment(b);
        if remove(&mut self.window, b) {
            self.window.push(b);
        } else if remove(&mut self.protected, b) {
            self.protected.push(b);
        } else if remove(&mut self.probation, b) {
            self.protected.push(b);
            self.shrink_protected();
        } else {
            return self.admit(b);
        }
        Step::hit()
    }

    fn take(&mut self, b: Block) {
        if self.resident().contains(&b) {
            self.increment(b);
            self.discard(b);
        }
    }

    fn note(&mut self, b: Block) {
        if !self.resident().contains(&b) {
            self.increment(b);
        }
    }

    fn place(&mut self, b: Block) -> Step {
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            if remove(list, b) {
                list.push(b);
                return Step::hit();
            }
        }
        self.admit(b)
    }

    fn discard(&mut self, b: Block) {
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            remove(list, b);
        }
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.shrink_protected();
        let mut evicted = Vec::new();
        while self.main_count() > self.main_size() {
            evicted.push(self.evict_main());
        }
        evicted.extend(self.shrink_window());
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted([&self.window[..], &self.probation[..], &self.protected[..]].concat())
    }

    fn victim(&self) -> Option<Block> {
        let evicted = self.clone().access(Block::MAX).evicted;
        evicted.first().copied().filter(|&x| x != Block::MAX)
    }

    fn state(&self) -> Value {
        let freq: Map<_, _> = self.freq.iter().map(|(&b, n)| (name(b), json!(n))).collect();
        json!({
            "window": names(&self.window),
            "probation": names(&self.probation),
            "protected": names(&self.protected),
            "freq": freq,
        })
    }
}
