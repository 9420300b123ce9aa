//! OPT (Belady): the block whose next reference is farthest goes. Needs the string in advance.

use super::{Block, Model, Step, name, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    /// Index of the next reference, `usize::MAX` if there is none.
    next: usize,
    /// Order of the last access or place.
    touched: u64,
}

pub struct Opt {
    c: usize,
    refs: Vec<Block>,
    /// Index of the next reference to be made.
    pos: usize,
    touches: u64,
    pages: Vec<Page>,
}

impl Opt {
    pub fn new(refs: &[Block], c: usize) -> Opt {
        Opt { c, refs: refs.to_vec(), pos: 0, touches: 0, pages: Vec::new() }
    }

    /// Index of the first reference to b from the current position on.
    fn next_reference(&self, b: Block) -> usize {
        (self.pos..self.refs.len()).find(|&i| self.refs[i] == b).unwrap_or(usize::MAX)
    }

    /// Farthest next reference first; at infinity the one touched longest ago.
    fn choose(&self) -> usize {
        let mut best = 0;
        for i in 1..self.pages.len() {
            let (x, y) = (&self.pages[i], &self.pages[best]);
            if x.next > y.next || (x.next == y.next && x.touched < y.touched) {
                best = i;
            }
        }
        best
    }

    fn evict(&mut self) -> Block {
        let i = self.choose();
        self.pages.remove(i).b
    }

    fn insert(&mut self, b: Block) -> Step {
        let full = self.pages.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.touches += 1;
        let next = self.next_reference(b);
        self.pages.push(Page { b, next, touched: self.touches });
        Step::miss(evicted)
    }
}

impl Model for Opt {
    fn access(&mut self, b: Block) -> Step {
        assert_eq!(self.refs.get(self.pos), Some(&b), "OPT was promised another string");
        self.pos += 1;
        match self.pages.iter().position(|p| p.b == b) {
            Some(i) => {
                self.touches += 1;
                let next = self.next_reference(b);
                self.pages[i].next = next;
                self.pages[i].touched = self.touches;
                Step::hit()
            }
            None => self.insert(b),
        }
    }

    fn take(&mut self, b: Block) {
        self.pages.retain(|p| p.b != b);
    }

    fn place(&mut self, b: Block) -> Step {
        if self.pages.iter().any(|p| p.b == b) {
            return Step::hit();
        }
        self.insert(b)
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        let mut evicted = Vec::new();
        while self.pages.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.pages.iter().map(|p| p.b).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.pages.len() >= self.c { Some(self.pages[self.choose()].b) } else { None }
    }

    fn state(&self) -> Value {
        json!({ "resident": self.pages.iter().map(|p| name(p.b)).collect::<Vec<_>>() })
    }
}
