//! CAR: ARC with clocks in the place of the recency lists.

use super::{Block, Model, Step, name, names, remove, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    bit: bool,
}

#[derive(Clone)]
pub struct Car {
    c: usize,
    p: f64,
    /// Head of the clock first.
    t1: Vec<Page>,
    t2: Vec<Page>,
    /// LRU end first.
    b1: Vec<Block>,
    b2: Vec<Block>,
}

impl Car {
    pub fn new(c: usize) -> Car {
        Car { c, p: 0.0, t1: Vec::new(), t2: Vec::new(), b1: Vec::new(), b2: Vec::new() }
    }

    fn count(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn total(&self) -> usize {
        self.count() + self.b1.len() + self.b2.len()
    }

    fn holds(&self, b: Block) -> bool {
        self.t1.iter().chain(&self.t2).any(|p| p.b == b)
    }

    fn replace(&mut self) -> Block {
        loop {
            let from_t1 = self.t1.len() as f64 >= self.p.max(1.0);
            let page = if from_t1 { self.t1.remove(0) } else { self.t2.remove(0) };
            if page.bit {
                self.t2.push(Page { b: page.b, bit: false });
                continue;
            }
            if from_t1 {
                self.b1.push(page.b)
            } else {
                self.b2.push(page.b)
            }
            return page.b;
        }
    }

    /// The miss path; `adapt` is false for a block that is placed.
    fn admit(&mut self, b: Block, adapt: bool) -> Step {
        let full = self.count() >= self.c;
        let evicted = full.then(|| self.replace());
        let page = Page { b, bit: false };
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&b) {
            if adapt {
                self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
            }
            remove(&mut self.b1, b);
            self.t2.push(page);
        } else if self.b2.contains(&b) {
            if adapt {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            }
            remove(&mut self.b2, b);
            self.t2.push(page);
        } else {
            if self.t1.len() + self.b1.len() == self.c {
                self.b1.remove(0);
            } else if self.total() == 2 * self.c {
                self.b2.remove(0);
            }
            self.t1.push(page);
        }
        Step::miss(evicted)
    }

    fn fit_ghosts(&mut self) {
        while self.t1.len() + self.b1.len() > self.c && !self.b1.is_empty() {
            self.b1.remove(0);
        }
        while self.total() > 2 * self.c && !self.b2.is_empty() {
            self.b2.remove(0);
        }
    }
}

impl Model for Car {
    fn access(&mut self, b: Block) -> Step {
        match self.t1.iter_mut().chain(&mut self.t2).find(|p| p.b == b) {
            Some(page) => {
                page.bit = true;
                Step::hit()
            }
            None => self.admit(b, true),
        }
    }

    fn take(&mut self, b: Block) {
        if self.t1.iter().any(|p| p.b == b) {
            self.t1.retain(|p| p.b != b);
            self.b1.push(b);
        } else if self.t2.iter().any(|p| p.b == b) {
            self.t2.retain(|p| p.b != b);
            self.b2.push(b);
        }
    }

    fn place(&mut self, b: Block) -> Step {
        if self.holds(b) { Step::hit() } else { self.admit(b, false) }
    }

    fn discard(&mut self, b: Block) {
        self.t1.retain(|p| p.b != b);
        self.t2.retain(|p| p.b != b);
        remove(&mut self.b1, b);
        remove(&mut self.b2, b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.p = self.p.min(self.c as f64);
        self.fit_ghosts();
        let mut evicted = Vec::new();
        while self.count() > self.c {
            evicted.push(self.replace());
            self.fit_ghosts();
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.t1.iter().chain(&self.t2).map(|p| p.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted([&self.b1[..], &self.b2[..]].concat())
    }

    fn victim(&self) -> Option<Block> {
        if self.count() >= self.c { Some(self.clone().replace()) } else { None }
    }

    fn state(&self) -> Value {
        let clock = |list: &[Page]| -> Vec<Value> {
            list.iter().map(|p| json!([name(p.b), u8::from(p.bit)])).collect()
        };
        json!({
            "T1": clock(&self.t1),
            "T2": clock(&self.t2),
            "B1": names(&self.b1),
            "B2": names(&self.b2),
            "p": self.p,
        })
    }
}
