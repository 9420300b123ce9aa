//! FIFO: the block inserted first goes; hits change nothing.

use super::{Block, Model, Step, names, remove, sorted};
use serde_json::{Value, json};

pub struct Fifo {
    c: usize,
    /// Oldest first.
    list: Vec<Block>,
}

impl Fifo {
    pub fn new(c: usize) -> Fifo {
        Fifo { c, list: Vec::new() }
    }
}

impl Model for Fifo {
    fn access(&mut self, b: Block) -> Step {
        if self.list.contains(&b) {
            return Step::hit();
        }
        let full = self.list.len() >= self.c;
        let evicted = full.then(|| self.list.remove(0));
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
            evicted.push(self.list.remove(0));
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.list.clone())
    }

    fn victim(&self) -> Option<Block> {
        if self.list.len() >= self.c { Some(self.list[0]) } else { None }
    }

    fn state(&self) -> Value {
        json!({ "old_to_new": names(&self.list) })
    }
}
