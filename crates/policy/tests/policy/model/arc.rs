//! ARC: two recency lists, two ghosts, and a target that learns from ghost hits.

use super::aware::Aware;
use super::{Block, Model, Step, names, remove, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Arc {
    c: usize,
    p: f64,
    /// All four lists: LRU end first.
    t1: Vec<Block>,
    t2: Vec<Block>,
    b1: Vec<Block>,
    b2: Vec<Block>,
    aware: Aware,
}

impl Arc {
    pub fn new(c: usize, aware: Aware) -> Arc {
        let [t1, t2, b1, b2] = [const { Vec::new() }; 4];
        Arc { c, p: 0.0, t1, t2, b1, b2, aware }
    }

    fn count(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn total(&self) -> usize {
        self.count() + self.b1.len() + self.b2.len()
    }

    fn next_victim(&self, in_b2: bool) -> Block {
        let t1 = self.t1.len() as f64;
        let from_t1 = !self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p));
        if from_t1 || self.t2.is_empty() { self.t1[0] } else { self.t2[0] }
    }

    fn choose(&self, in_b2: bool) -> Block {
        if self.aware.is_off() {
            return self.next_victim(in_b2);
        }
        let mut rest = self.clone();
        let mut order = Vec::new();
        while rest.count() > 0 {
            order.push(rest.next_victim(in_b2));
            rest.leave(order[order.len() - 1]);
        }
        self.aware.choose(self.c, &order)
    }

    fn leave(&mut self, x: Block) {
        if remove(&mut self.t1, x) {
            self.b1.push(x);
        } else if remove(&mut self.t2, x) {
            self.b2.push(x);
        }
    }

    /// REPLACE without its guard: one block leaves.
    fn replace(&mut self, in_b2: bool) -> Block {
        let x = self.choose(in_b2);
        self.leave(x);
        x
    }

    fn replace_if_full(&mut self, in_b2: bool) -> Option<Block> {
        if self.count() >= self.c { Some(self.replace(in_b2)) } else { None }
    }

    /// The miss path; `adapt` is false for a block that is placed.
    fn admit(&mut self, b: Block, adapt: bool) -> Step {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&b) {
            if adapt {
                self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
            }
            remove(&mut self.b1, b);
            let evicted = self.replace_if_full(false);
            self.t2.push(b);
            return Step::miss(evicted);
        }
        if self.b2.contains(&b) {
            if adapt {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            }
            remove(&mut self.b2, b);
            let evicted = self.replace_if_full(true);
            self.t2.push(b);
            return Step::miss(evicted);
        }
        let mut evicted = None;
        if self.t1.len() + self.b1.len() == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                evicted = self.replace_if_full(false);
            } else {
                let x = self.aware.choose(self.c, &self.t1);
                remove(&mut self.t1, x);
                evicted = Some(x);
            }
        } else if self.total() >= self.c {
            if self.total() == 2 * self.c {
                self.b2.remove(0);
            }
            evicted = self.replace_if_full(false);
        }
        self.t1.push(b);
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

impl Model for Arc {
    fn access(&mut self, b: Block) -> Step {
        if remove(&mut self.t1, b) || remove(&mut self.t2, b) {
            self.t2.push(b);
            return Step::hit();
        }
        self.admit(b, true)
    }

    fn take(&mut self, b: Block) {
        self.leave(b);
    }

    fn place(&mut self, b: Block) -> Step {
        if remove(&mut self.t1, b) {
            self.t1.push(b);
            return Step::hit();
        }
        if remove(&mut self.t2, b) {
            self.t2.push(b);
            return Step::hit();
        }
        self.admit(b, false)
    }

    fn discard(&mut self, b: Block) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            remove(list, b);
        }
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.p = self.p.min(self.c as f64);
        self.fit_ghosts();
        let mut evicted = Vec::new();
        while self.count() > self.c {
            evicted.push(self.replace(false));
            self.fit_ghosts();
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted([&self.t1[..], &self.t2[..]].concat())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted([&self.b1[..], &self.b2[..]].concat())
    }

    fn learn(&mut self, b: Block, holds: bool) {
        self.aware.learn(b, holds);
    }

    fn victim(&self) -> Option<Block> {
        self.clone().admit(Block::MAX, true).evicted.first().copied()
    }

    fn state(&self) -> Value {
        json!({
            "T1": names(&self.t1),
            "T2": names(&self.t2),
            "B1": names(&self.b1),
            "B2": names(&self.b2),
            "p": self.p,
        })
    }
}
