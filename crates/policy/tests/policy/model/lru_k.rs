//! LRU-K: the block whose K-th last uncorrelated reference is oldest goes.

use super::{Block, Model, Params, Step, name, part, sorted};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    /// HIST_1 .. HIST_K, the newest first; 0 = none.
    hist: Vec<u64>,
    /// Time of the last reference of any kind.
    last: u64,
    /// Order of the last access or place: the last tie-break.
    touched: u64,
}

#[derive(Clone)]
pub struct LruK {
    c: usize,
    k: usize,
    crp: f64,
    ghost_share: f64,
    now: u64,
    touches: u64,
    pages: Vec<Page>,
    /// (block, HIST), oldest first.
    ghost: Vec<(Block, Vec<u64>)>,
}

impl LruK {
    pub fn new(c: usize, p: Params) -> LruK {
        LruK {
            c,
            k: p.get("k", 2.0) as usize,
            crp: p.get("crp", 0.0),
            ghost_share: p.get("ghost", 4.0),
            now: 0,
            touches: 0,
            pages: Vec::new(),
            ghost: Vec::new(),
        }
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.pages.iter().position(|p| p.b == b)
    }

    fn remember(&mut self, b: Block, hist: Vec<u64>) {
        self.ghost.push((b, hist));
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.ghost.len() > part(self.ghost_share, self.c) {
            self.ghost.remove(0);
        }
    }

    fn recall(&mut self, b: Block) -> Option<Vec<u64>> {
        let i = self.ghost.iter().position(|g| g.0 == b)?;
        Some(self.ghost.remove(i).1)
    }

    /// The victim at time t.
    fn choose(&self, t: u64) -> usize {
        let all = 0..self.pages.len();
        let eligible = |i: &usize| (t - self.pages[*i].last) as f64 > self.crp;
        let by_history = |&i: &usize| {
            let p = &self.pages[i];
            (p.hist[self.k - 1], p.last, p.touched)
        };
        let by_last = |&i: &usize| (self.pages[i].last, self.pages[i].touched);
        let found = all.clone().filter(eligible).min_by_key(by_history);
        found.or_else(|| all.min_by_key(by_last)).unwrap()
    }

    fn evict(&mut self, t: u64) -> Block {
        let i = self.choose(t);
        let page = self.pages.remove(i);
        self.remember(page.b, page.hist);
        page.b
    }

    fn insert(&mut self, b: Block, hist: Vec<u64>) -> Step {
        let mut evicted = None;
        if self.pages.len() >= self.c {
            evicted = Some(self.evict(self.now));
        }
        self.touches += 1;
        self.pages.push(Page { b, hist, last: self.now, touched: self.touches });
        Step::miss(evicted)
    }
}

impl Model for LruK {
    fn access(&mut self, b: Block) -> Step {
        self.now += 1;
        let t = self.now;
        if let Some(i) = self.find(b) {
            self.touches += 1;
            let page = &mut self.pages[i];
            if (t - page.last) as f64 > self.crp {
                let correlated = page.last - page.hist[0];
                for j in (1..self.k).rev() {
                    let before = page.hist[j - 1];
                    page.hist[j] = if before != 0 { before + correlated } else { 0 };
                }
                page.hist[0] = t;
            }
            page.last = t;
            page.touched = self.touches;
            return Step::hit();
        }
        let mut hist = vec![0; self.k];
        if let Some(old) = self.recall(b) {
            hist[1..].copy_from_slice(&old[..self.k - 1]);
        }
        hist[0] = t;
        self.insert(b, hist)
    }

    fn take(&mut self, b: Block) {
        if let Some(i) = self.find(b) {
            // A reference, and then it is gone.
            self.access(b);
            let page = self.pages.remove(i);
            self.remember(b, page.hist);
        }
    }

    fn note(&mut self, b: Block) {
        if self.find(b).is_some() {
            return;
        }
        self.now += 1;
        let mut hist = vec![0; self.k];
        if let Some(old) = self.recall(b) {
            hist[1..].copy_from_slice(&old[..self.k - 1]);
        }
        hist[0] = self.now;
        self.remember(b, hist);
    }

    fn place(&mut self, b: Block) -> Step {
        if let Some(i) = self.find(b) {
            self.touches += 1;
            self.pages[i].last = self.now;
            self.pages[i].touched = self.touches;
            return Step::hit();
        }
        let hist = match self.recall(b) {
            Some(old) => old,
            None => {
                let mut fresh = vec![0; self.k];
                fresh[0] = self.now;
                fresh
            }
        };
        self.insert(b, hist)
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
            evicted.push(self.evict(self.now));
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
        if self.pages.len() < self.c {
            return None;
        }
        Some(self.pages[self.choose(self.now + 1)].b)
    }

    fn state(&self) -> Value {
        let hist: Map<_, _> = self.pages.iter().map(|p| (name(p.b), json!(p.hist))).collect();
        let ghost: Map<_, _> = self.ghost.iter().map(|g| (name(g.0), json!(g.1))).collect();
        json!({ "hist": hist, "ghost": ghost })
    }
}
