//! MRU: the block used last before the newcomer goes (fetch and discard).

use super::{Block, Model, Step, names, remove, sorted};
use serde_json::{Value, json};

pub struct Mru {
    c: usize,
    /// Oldest first.
    list: Vec<Block>,
}

impl Mru {
    pub fn new(c: usize) -> Mru {
        Mru { c, list: Vec::new() }
    }
}

impl Model for Mru {
    fn access(&mut self, b: Block) -> Step {
        if remove(&mut self.list, b) {
            self.list.push(b);
            return Step::hit();
        }
        let mut evicted = None;
        if self.list.len() >= self.c {
            evicted = self.list.pop();
        }
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
            evicted.extend(self.list.pop());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.list.clone())
    }

    fn victim(&self) -> Option<Block> {
        if self.list.len() >= self.c { self.list.last().copied() } else { None }
    }

    fn state(&self) -> Value {
        json!({ "lru_to_mru": names(&self.list) })
    }
}
