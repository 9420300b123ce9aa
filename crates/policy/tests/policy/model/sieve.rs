//! SIEVE: a queue, a visited bit and a hand that stays where it stopped.

use super::{Block, Model, Step, name, names, sorted};
use serde_json::{Map, Value, json};

#[derive(Clone)]
struct Page {
    b: Block,
    visited: bool,
}

#[derive(Clone)]
pub struct Sieve {
    c: usize,
    /// Newest (head) first.
    queue: Vec<Page>,
    hand: Option<Block>,
}

impl Sieve {
    pub fn new(c: usize) -> Sieve {
        Sieve { c, queue: Vec::new(), hand: None }
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.queue.iter().position(|p| p.b == b)
    }

    /// b leaves; a hand that stood on it goes one toward the head.
    fn unlink(&mut self, b: Block) {
        let Some(i) = self.find(b) else { return };
        if self.hand == Some(b) {
            self.hand = if i == 0 { None } else { Some(self.queue[i - 1].b) };
        }
        self.queue.remove(i);
    }

    fn evict(&mut self) -> Block {
        let tail = self.queue.len() - 1;
        let mut i = match self.hand {
            Some(b) => self.find(b).unwrap(),
            None => tail,
        };
        while self.queue[i].visited {
            self.queue[i].visited = false;
            i = if i == 0 { tail } else { i - 1 };
        }
        let x = self.queue[i].b;
        self.hand = Some(x);
        self.unlink(x);
        x
    }

    fn admit(&mut self, b: Block) -> Step {
        let full = self.queue.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.queue.insert(0, Page { b, visited: false });
        Step::miss(evicted)
    }
}

impl Model for Sieve {
    fn access(&mut self, b: Block) -> Step {
        match self.find(b) {
            Some(i) => {
                self.queue[i].visited = true;
                Step::hit()
            }
            None => self.admit(b),
        }
    }

    fn take(&mut self, b: Block) {
        self.unlink(b);
    }

    fn place(&mut self, b: Block) -> Step {
        match self.find(b) {
            Some(_) => Step::hit(),
            None => self.admit(b),
        }
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        let mut evicted = Vec::new();
        while self.queue.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.queue.iter().map(|p| p.b).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.queue.len() >= self.c { Some(self.clone().evict()) } else { None }
    }

    fn state(&self) -> Value {
        let queue: Vec<Block> = self.queue.iter().map(|p| p.b).collect();
        let bit = |p: &Page| (name(p.b), json!(u8::from(p.visited)));
        let visited: Map<_, _> = self.queue.iter().map(bit).collect();
        json!({
            "queue_new_to_old": names(&queue),
            "visited": visited,
            "hand": self.hand.map(name),
        })
    }
}
