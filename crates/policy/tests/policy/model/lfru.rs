//! LFRU (also LRFU): a decaying sum over all past references, between LRU and LFU.

use super::{Block, Model, Params, Step, name, part, sorted};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    /// Combined recency and frequency, as of `last`.
    crf: f64,
    last: u64,
    /// Order of the last access or place: the last tie-break.
    touched: u64,
}

#[derive(Clone)]
pub struct Lfru {
    c: usize,
    /// As given; otherwise `decay` through c.
    lambda: Option<f64>,
    decay: f64,
    ghost_share: f64,
    now: u64,
    touches: u64,
    pages: Vec<Page>,
    /// (block, CRF, LAST), oldest first.
    ghost: Vec<(Block, f64, u64)>,
}

impl Lfru {
    pub fn new(c: usize, p: Params) -> Lfru {
        Lfru {
            c,
            lambda: p.find("lambda"),
            decay: p.get("decay", 0.05),
            ghost_share: p.get("ghost", 4.0),
            now: 0,
            touches: 0,
            pages: Vec::new(),
            ghost: Vec::new(),
        }
    }

    fn lambda(&self) -> f64 {
        self.lambda.unwrap_or(self.decay / self.c as f64)
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.pages.iter().position(|p| p.b == b)
    }

    /// One more reference now, after CRF as of `last`.
    fn referenced(&self, crf: f64, last: u64) -> f64 {
        1.0 + crf * (-self.lambda() * (self.now - last) as f64).exp2()
    }

    fn key(&self, page: &Page) -> f64 {
        page.crf.log2() + self.lambda() * page.last as f64
    }

    fn remember(&mut self, b: Block, crf: f64, last: u64) {
        self.ghost.push((b, crf, last));
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.ghost.len() > part(self.ghost_share, self.c) {
            self.ghost.remove(0);
        }
    }

    fn recall(&mut self, b: Block) -> Option<(f64, u64)> {
        let i = self.ghost.iter().position(|g| g.0 == b)?;
        let (_, crf, last) = self.ghost.remove(i);
        Some((crf, last))
    }

    fn choose(&self) -> usize {
        let order = |&i: &usize, &j: &usize| {
            let (x, y) = (&self.pages[i], &self.pages[j]);
            let keys = self.key(x).total_cmp(&self.key(y));
            keys.then(x.last.cmp(&y.last)).then(x.touched.cmp(&y.touched))
        };
        (0..self.pages.len()).min_by(order).unwrap()
    }

    fn evict(&mut self) -> Block {
        let i = self.choose();
        let page = self.pages.remove(i);
        self.remember(page.b, page.crf, page.last);
        page.b
    }

    fn insert(&mut self, b: Block, crf: f64, last: u64) -> Step {
        let full = self.pages.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.touches += 1;
        self.pages.push(Page { b, crf, last, touched: self.touches });
        Step::miss(evicted)
    }
}

impl Model for Lfru {
    fn access(&mut self, b: Block) -> Step {
        self.now += 1;
        if let Some(i) = self.find(b) {
            self.touches += 1;
            let crf = self.referenced(self.pages[i].crf, self.pages[i].last);
            self.pages[i] = Page { b, crf, last: self.now, touched: self.touches };
            return Step::hit();
        }
        let crf = match self.recall(b) {
            Some((crf, last)) => self.referenced(crf, last),
            None => 1.0,
        };
        self.insert(b, crf, self.now)
    }

    fn take(&mut self, b: Block) {
        if let Some(i) = self.find(b) {
            let page = self.pages.remove(i);
            self.now += 1;
            let crf = self.referenced(page.crf, page.last);
            self.remember(b, crf, self.now);
        }
    }

    fn note(&mut self, b: Block) {
        if self.find(b).is_some() {
            return;
        }
        self.now += 1;
        let crf = match self.recall(b) {
            Some((crf, last)) => self.referenced(crf, last),
            None => 1.0,
        };
        self.remember(b, crf, self.now);
    }

    fn place(&mut self, b: Block) -> Step {
        if let Some(i) = self.find(b) {
            self.touches += 1;
            self.pages[i].touched = self.touches;
            return Step::hit();
        }
        let (crf, last) = self.recall(b).unwrap_or((1.0, self.now));
        self.insert(b, crf, last)
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
        let pages = self.pages.iter();
        let crf: Map<_, _> = pages.map(|p| (name(p.b), json!([p.crf, p.last]))).collect();
        json!({ "crf_last": crf })
    }
}
