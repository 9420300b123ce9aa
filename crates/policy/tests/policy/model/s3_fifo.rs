//! S3-FIFO: a small queue, a main queue and a ghost of what the small queue dropped.

use super::{Block, Model, Params, Step, name, names, part, remove, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    counter: u32,
}

#[derive(Clone)]
pub struct S3Fifo {
    c: usize,
    small_share: f64,
    threshold: u32,
    /// All three: oldest first.
    s: Vec<Page>,
    m: Vec<Page>,
    g: Vec<Block>,
}

impl S3Fifo {
    pub fn new(c: usize, p: Params) -> S3Fifo {
        S3Fifo {
            c,
            small_share: p.get("small", 0.1),
            threshold: p.get("threshold", 2.0) as u32,
            s: Vec::new(),
            m: Vec::new(),
            g: Vec::new(),
        }
    }

    fn s_target(&self) -> usize {
        part(self.small_share, self.c).max(1).min(self.c)
    }

    fn m_target(&self) -> usize {
        self.c - self.s_target()
    }

    fn count(&self) -> usize {
        self.s.len() + self.m.len()
    }

    fn holds(&self, b: Block) -> bool {
        self.s.iter().chain(&self.m).any(|p| p.b == b)
    }

    fn remember(&mut self, b: Block) {
        self.g.push(b);
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.g.len() > self.m_target() {
            self.g.remove(0);
        }
    }

    fn evict(&mut self) -> Block {
        if self.s.len() >= self.s_target() || self.m.is_empty() {
            self.evict_s()
        } else {
            self.evict_m()
        }
    }

    fn evict_s(&mut self) -> Block {
        while !self.s.is_empty() {
            let page = self.s.remove(0);
            if page.counter < self.threshold || self.m_target() == 0 {
                self.remember(page.b);
                return page.b;
            }
            let mut evicted = None;
            if self.m.len() >= self.m_target() {
                evicted = Some(self.evict_m());
            }
            self.m.push(Page { b: page.b, counter: 0 });
            if let Some(x) = evicted {
                return x;
            }
        }
        self.evict_m()
    }

    fn evict_m(&mut self) -> Block {
        loop {
            let mut page = self.m.remove(0);
            if page.counter == 0 {
                return page.b;
            }
            page.counter -= 1;
            self.m.push(page);
        }
    }

    fn admit(&mut self, b: Block) -> Step {
        let known = remove(&mut self.g, b);
        let mut evicted = Vec::new();
        while self.count() >= self.c {
            evicted.push(self.evict());
        }
        let page = Page { b, counter: 0 };
        if known {
            self.m.push(page)
        } else {
            self.s.push(page)
        }
        Step::miss(evicted)
    }
}

impl Model for S3Fifo {
    fn access(&mut self, b: Block) -> Step {
        match self.s.iter_mut().chain(&mut self.m).find(|p| p.b == b) {
            Some(page) => {
                page.counter = (page.counter + 1).min(3);
                Step::hit()
            }
            None => self.admit(b),
        }
    }

    fn take(&mut self, b: Block) {
        if self.holds(b) {
            self.s.retain(|p| p.b != b);
            self.m.retain(|p| p.b != b);
            self.remember(b);
        }
    }

    fn place(&mut self, b: Block) -> Step {
        if self.holds(b) { Step::hit() } else { self.admit(b) }
    }

    fn discard(&mut self, b: Block) {
        self.s.retain(|p| p.b != b);
        self.m.retain(|p| p.b != b);
        remove(&mut self.g, b);
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
        sorted(self.s.iter().chain(&self.m).map(|p| p.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.g.clone())
    }

    fn victim(&self) -> Option<Block> {
        if self.count() >= self.c { Some(self.clone().evict()) } else { None }
    }

    fn state(&self) -> Value {
        let queue = |list: &[Page]| -> Vec<Value> {
            list.iter().map(|p| json!([name(p.b), p.counter])).collect()
        };
        json!({
            "S_old_to_new": queue(&self.s),
            "M_old_to_new": queue(&self.m),
            "G": names(&self.g),
        })
    }
}
