//! FBR: frequency with the locality of the newest part of the stack factored out.

use super::{Block, Model, Params, Step, name, part, sorted};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    count: u64,
}

#[derive(Clone)]
pub struct Fbr {
    c: usize,
    new_share: f64,
    old_share: f64,
    c_max: f64,
    a_max: f64,
    ghost_share: f64,
    /// Most recently used first: index = stack position.
    stack: Vec<Page>,
    /// (block, count), oldest first.
    ghost: Vec<(Block, u64)>,
}

impl Fbr {
    pub fn new(c: usize, p: Params) -> Fbr {
        Fbr {
            c,
            new_share: p.get("new", 0.01),
            old_share: p.get("old", 0.95),
            c_max: p.get("cmax", 8.0),
            a_max: p.get("amax", 100.0),
            ghost_share: p.get("ghost", 4.0),
            stack: Vec::new(),
            ghost: Vec::new(),
        }
    }

    fn n_new(&self) -> usize {
        part(self.new_share, self.c)
    }

    fn n_old(&self) -> usize {
        part(self.old_share, self.c).max(1)
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.stack.iter().position(|p| p.b == b)
    }

    fn remember(&mut self, b: Block, count: u64) {
        self.ghost.push((b, count));
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.ghost.len() > part(self.ghost_share, self.c) {
            self.ghost.remove(0);
        }
    }

    fn recall(&mut self, b: Block) -> Option<u64> {
        let i = self.ghost.iter().position(|g| g.0 == b)?;
        Some(self.ghost.remove(i).1)
    }

    fn choose(&self) -> usize {
        let last = self.stack.len() - 1;
        let first_old = self.stack.len().saturating_sub(self.n_old());
        let mut best = None;
        for i in (first_old..=last).rev() {
            let count = self.stack[i].count;
            if count as f64 > self.c_max {
                continue;
            }
            if best.is_none_or(|j: usize| count < self.stack[j].count) {
                best = Some(i);
            }
        }
        best.unwrap_or(last)
    }

    fn evict(&mut self) -> Block {
        let i = self.choose();
        let page = self.stack.remove(i);
        self.remember(page.b, page.count);
        page.b
    }

    fn insert(&mut self, b: Block, count: u64) -> Step {
        let full = self.stack.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.stack.insert(0, Page { b, count });
        Step::miss(evicted)
    }

    fn age(&mut self) {
        let sum: u64 = self.stack.iter().map(|p| p.count).sum();
        if sum as f64 > self.a_max * self.stack.len() as f64 {
            for page in &mut self.stack {
                page.count = page.count.div_ceil(2);
            }
        }
    }
}

impl Model for Fbr {
    fn access(&mut self, b: Block) -> Step {
        let step = match self.find(b) {
            Some(i) => {
                let is_new = i < self.n_new();
                let mut page = self.stack.remove(i);
                if !is_new {
                    page.count += 1;
                }
                self.stack.insert(0, page);
                Step::hit()
            }
            None => {
                let count = self.recall(b).unwrap_or(0) + 1;
                self.insert(b, count)
            }
        };
        self.age();
        step
    }

    fn take(&mut self, b: Block) {
        if let Some(i) = self.find(b) {
            let is_new = i < self.n_new();
            let page = self.stack.remove(i);
            self.remember(b, if is_new { page.count } else { page.count + 1 });
        }
    }

    fn note(&mut self, b: Block) {
        if self.find(b).is_some() {
            return;
        }
        let count = self.recall(b).unwrap_or(0) + 1;
        self.remember(b, count);
    }

    fn place(&mut self, b: Block) -> Step {
        let step = match self.find(b) {
            Some(i) => {
                let page = self.stack.remove(i);
                self.stack.insert(0, page);
                Step::hit()
            }
            None => {
                let count = self.recall(b).unwrap_or(1);
                self.insert(b, count)
            }
        };
        self.age();
        step
    }

    fn discard(&mut self, b: Block) {
        self.stack.retain(|p| p.b != b);
        self.ghost.retain(|g| g.0 != b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.trim_ghost();
        let mut evicted = Vec::new();
        while self.stack.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.stack.iter().map(|p| p.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.ghost.iter().map(|g| g.0).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.stack.len() >= self.c { Some(self.stack[self.choose()].b) } else { None }
    }

    fn state(&self) -> Value {
        let stack: Vec<_> = self.stack.iter().map(|p| name(p.b)).collect();
        let count: Map<_, _> = self.stack.iter().map(|p| (name(p.b), json!(p.count))).collect();
        let ghost: Map<_, _> = self.ghost.iter().map(|g| (name(g.0), json!(g.1))).collect();
        json!({ "stack_mru_to_lru": stack, "count": count, "ghost": ghost })
    }
}
