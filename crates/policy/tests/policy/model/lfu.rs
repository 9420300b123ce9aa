//! LFU with a memory of the counts of evicted blocks, and its aged form.

use super::{Block, Model, Params, Step, name, part, sorted};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    count: u64,
    /// Order of the last access or place.
    touched: u64,
}

#[derive(Clone)]
pub struct Lfu {
    c: usize,
    ghost_share: f64,
    age_share: f64,
    refs: u64,
    touches: u64,
    pages: Vec<Page>,
    /// (block, count), oldest first.
    ghost: Vec<(Block, u64)>,
}

impl Lfu {
    pub fn new(c: usize, p: Params) -> Lfu {
        Lfu {
            c,
            ghost_share: p.get("ghost", 4.0),
            age_share: p.get("age", 0.0),
            refs: 0,
            touches: 0,
            pages: Vec::new(),
            ghost: Vec::new(),
        }
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.pages.iter().position(|p| p.b == b)
    }

    fn touch(&mut self, i: usize) {
        self.touches += 1;
        self.pages[i].touched = self.touches;
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

    /// The count the ghost remembers; its record goes.
    fn recall(&mut self, b: Block) -> Option<u64> {
        let i = self.ghost.iter().position(|g| g.0 == b)?;
        Some(self.ghost.remove(i).1)
    }

    fn choose(&self) -> usize {
        (0..self.pages.len()).min_by_key(|&i| (self.pages[i].count, self.pages[i].touched)).unwrap()
    }

    fn evict(&mut self) -> Block {
        let i = self.choose();
        let page = self.pages.remove(i);
        self.remember(page.b, page.count);
        page.b
    }

    fn insert(&mut self, b: Block, count: u64) -> Step {
        let full = self.pages.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.touches += 1;
        self.pages.push(Page { b, count, touched: self.touches });
        Step::miss(evicted)
    }

    fn age(&mut self) {
        if self.age_share <= 0.0 {
            return;
        }
        let period = part(self.age_share, self.c).max(1) as u64;
        if self.refs % period != 0 {
            return;
        }
        for page in &mut self.pages {
            page.count = (page.count / 2).max(1);
        }
        for record in &mut self.ghost {
            record.1 = (record.1 / 2).max(1);
        }
    }
}

impl Model for Lfu {
    fn access(&mut self, b: Block) -> Step {
        self.refs += 1;
        let step = match self.find(b) {
            Some(i) => {
                self.pages[i].count += 1;
                self.touch(i);
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
            let page = self.pages.remove(i);
            self.remember(b, page.count + 1);
            self.refs += 1;
            self.age();
        }
    }

    fn note(&mut self, b: Block) {
        if self.find(b).is_none() {
            let count = self.recall(b).unwrap_or(0) + 1;
            self.remember(b, count);
            self.refs += 1;
            self.age();
        }
    }

    fn place(&mut self, b: Block) -> Step {
        if let Some(i) = self.find(b) {
            self.touch(i);
            return Step::hit();
        }
        let count = self.recall(b).unwrap_or(1);
        self.insert(b, count)
    }

    fn discard(&mut self, b: Block) {
        self.pages.retain(|p| p.b != b);
        self.ghost.retain(|g| g.0 != b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        self.trim_ghost();
        let mut evicted = Vec::new();
        while self.pages.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.pages.iter().map(|p| p.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.ghost.iter().map(|g| g.0).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.pages.len() >= self.c { Some(self.pages[self.choose()].b) } else { None }
    }

    fn state(&self) -> Value {
        let freq: Map<_, _> = self.pages.iter().map(|p| (name(p.b), json!(p.count))).collect();
        let ghost: Map<_, _> = self.ghost.iter().map(|g| (name(g.0), json!(g.1))).collect();
        json!({ "freq": freq, "ghost": ghost })
    }
}
