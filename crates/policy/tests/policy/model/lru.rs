//! LRU: one recency list, the oldest goes; LRU-CA: or an old one that the neighbour holds.

use super::aware::Aware;
use super::{Block, Model, Step, names, remove, sorted};
use serde_json::{Value, json};

pub struct Lru {
    c: usize,
    /// Oldest first.
    list: Vec<Block>,
    aware: Aware,
}

impl Lru {
    pub fn new(c: usize, aware: Aware) -> Lru {
        Lru { c, list: Vec::new(), aware }
    }

    fn evict(&mut self) -> Block {
        let b = self.aware.choose(self.c, &self.list);
        remove(&mut self.list, b);
        b
    }
}

impl Model for Lru {
    fn access(&mut self, b: Block) -> Step {
        if remove(&mut self.list, b) {
            self.list.push(b);
            return Step::hit();
        }
        let full = self.list.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.list.push(b);
        Step::miss(evicted)
    }

    fn take(&mut self, b: Block) {
        remove(&mut self.list, b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        let mut evicted = Vec::new();
        while self.list.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.list.clone())
    }

    fn learn(&mut self, b: Block, holds: bool) {
        self.aware.learn(b, holds);
    }

    fn victim(&self) -> Option<Block> {
        let full = self.list.len() >= self.c;
        full.then(|| self.aware.choose(self.c, &self.list))
    }

    fn state(&self) -> Value {
        json!({ "lru_to_mru": names(&self.list) })
    }
}
