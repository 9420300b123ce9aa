//! 2Q, full version: A1in and A1out filter what enters Am.

use super::aware::Aware;
use super::{Block, Model, Params, Step, names, part, remove, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct TwoQ {
    c: usize,
    in_share: f64,
    out_share: f64,
    /// FIFO, oldest first.
    a1in: Vec<Block>,
    /// Ids only, oldest first.
    a1out: Vec<Block>,
    /// LRU first.
    am: Vec<Block>,
    aware: Aware,
}

impl TwoQ {
    pub fn new(c: usize, p: Params) -> TwoQ {
        TwoQ {
            c,
            in_share: p.get("kin", 0.25),
            out_share: p.get("kout", 0.5),
            a1in: Vec::new(),
            a1out: Vec::new(),
            am: Vec::new(),
            aware: Aware::optional(p),
        }
    }

    fn count(&self) -> usize {
        self.a1in.len() + self.am.len()
    }

    fn victim_is_in_a1in(&self) -> bool {
        let k_in = part(self.in_share, self.c).max(1);
        self.a1in.len() > k_in || self.am.is_empty()
    }

    fn remember(&mut self, b: Block) {
        self.a1out.push(b);
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.a1out.len() > part(self.out_share, self.c).max(1) {
            self.a1out.remove(0);
        }
    }

    fn next_victim(&self) -> Block {
        if self.victim_is_in_a1in() { self.a1in[0] } else { self.am[0] }
    }

    fn choose(&self) -> Block {
        if self.aware.is_off() {
            return self.next_victim();
        }
        let mut rest = self.clone();
        let mut order = Vec::new();
        while rest.count() > 0 {
            order.push(rest.next_victim());
            rest.leave(order[order.len() - 1]);
        }
        self.aware.choose(self.c, &order)
    }

    fn leave(&mut self, x: Block) {
        if remove(&mut self.a1in, x) {
            self.remember(x);
        } else {
            remove(&mut self.am, x);
        }
    }

    fn evict(&mut self) -> Block {
        let x = self.choose();
        self.leave(x);
        x
    }

    fn admit(&mut self, b: Block) -> Step {
        let known = remove(&mut self.a1out, b);
        let full = self.count() >= self.c;
        let evicted = full.then(|| self.evict());
        if known {
            self.am.push(b)
        } else {
            self.a1in.push(b)
        }
        Step::miss(evicted)
    }
}

impl Model for TwoQ {
    fn access(&mut self, b: Block) -> Step {
        if remove(&mut self.am, b) {
            self.am.push(b);
            return Step::hit();
        }
        if self.a1in.contains(&b) {
            return Step::hit();
        }
        self.admit(b)
    }

    fn take(&mut self, b: Block) {
        if remove(&mut self.a1in, b) || remove(&mut self.am, b) {
            self.remember(b);
        }
    }

    fn discard(&mut self, b: Block) {
        remove(&mut self.a1in, b);
        remove(&mut self.a1out, b);
        remove(&mut self.am, b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.trim_ghost();
        let mut evicted = Vec::new();
        while self.count() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted([&self.a1in[..], &self.am[..]].concat())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.a1out.clone())
    }

    fn learn(&mut self, b: Block, holds: bool) {
        self.aware.learn(b, holds);
    }

    fn victim(&self) -> Option<Block> {
        if self.count() < self.c { None } else { Some(self.choose()) }
    }

    fn state(&self) -> Value {
        json!({
            "a1in": names(&self.a1in),
            "a1out": names(&self.a1out),
            "am_lru_to_mru": names(&self.am),
        })
    }
}
