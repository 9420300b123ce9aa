//! CLOCK, with one reference bit or a k-bit counter, in list form: the front is at the hand.

use super::{Block, Model, Params, Step, name, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    counter: u32,
}

#[derive(Clone)]
pub struct Clock {
    c: usize,
    max: u32,
    /// The page at the hand first.
    ring: Vec<Page>,
}

impl Clock {
    pub fn new(c: usize, p: Params) -> Clock {
        let bits = p.get("bits", 1.0) as u32;
        Clock { c, max: (1 << bits) - 1, ring: Vec::new() }
    }

    fn evict(&mut self) -> Block {
        loop {
            let mut page = self.ring.remove(0);
            if page.counter == 0 {
                return page.b;
            }
            page.counter -= 1;
            self.ring.push(page);
        }
    }

    fn admit(&mut self, b: Block) -> Step {
        let full = self.ring.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.ring.push(Page { b, counter: 0 });
        Step::miss(evicted)
    }
}

impl Model for Clock {
    fn access(&mut self, b: Block) -> Step {
        match self.ring.iter_mut().find(|p| p.b == b) {
            Some(page) => {
                page.counter = (page.counter + 1).min(self.max);
                Step::hit()
            }
            None => self.admit(b),
        }
    }

    fn take(&mut self, b: Block) {
        self.ring.retain(|p| p.b != b);
    }

    fn place(&mut self, b: Block) -> Step {
        match self.ring.iter().any(|p| p.b == b) {
            true => Step::hit(),
            false => self.admit(b),
        }
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        let mut evicted = Vec::new();
        while self.ring.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.ring.iter().map(|p| p.b).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.ring.len() >= self.c { Some(self.clone().evict()) } else { None }
    }

    fn state(&self) -> Value {
        let ring: Vec<_> = self.ring.iter().map(|p| json!([name(p.b), p.counter])).collect();
        json!({ "ring_from_hand": ring })
    }
}
