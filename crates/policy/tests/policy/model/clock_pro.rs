//! CLOCK-Pro in list form: each hand is the matching entry nearest the tail.

use super::{Block, Model, Step, name, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
struct Entry {
    b: Block,
    hot: bool,
    resident: bool,
    test: bool,
    bit: bool,
}

#[derive(Clone)]
pub struct ClockPro {
    c: usize,
    /// Target number of resident cold pages.
    m_c: usize,
    /// Tail first, head (newest) last.
    list: Vec<Entry>,
}

impl ClockPro {
    pub fn new(c: usize) -> ClockPro {
        ClockPro { c, m_c: 1, list: Vec::new() }
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.list.iter().position(|e| e.b == b)
    }

    fn residents(&self) -> usize {
        self.list.iter().filter(|e| e.resident).count()
    }

    fn non_residents(&self) -> usize {
        self.list.iter().filter(|e| !e.resident).count()
    }

    fn hot(&self) -> usize {
        self.list.iter().filter(|e| e.hot).count()
    }

    fn more_cold(&mut self) {
        self.m_c = (self.m_c + 1).min((self.c - 1).max(1));
    }

    fn fewer_cold(&mut self) {
        self.m_c = (self.m_c - 1).max(1);
    }

    fn fit(&mut self) {
        while self.hot() > self.c - self.m_c {
            self.run_hot();
        }
    }

    /// Evicts the victim; hands may run many times before.
    fn evict(&mut self) -> Block {
        loop {
            if let Some(x) = self.run_cold() {
                return x;
            }
        }
    }

    fn run_cold(&mut self) -> Option<Block> {
        let i = self.list.iter().position(|e| !e.hot && e.resident).expect("a cold page");
        let mut x = self.list.remove(i);
        if x.bit {
            x.bit = false;
            if x.test {
                x.test = false;
                x.hot = true;
                self.list.push(x);
                self.more_cold();
                self.fit();
            } else {
                x.test = true;
                self.list.push(x);
            }
            return None;
        }
        let b = x.b;
        if x.test {
            x.resident = false;
            self.list.insert(i, x);
            self.bound_non_residents();
        }
        Some(b)
    }

    fn bound_non_residents(&mut self) {
        if self.non_residents() > self.c {
            let y = self.list.iter().position(|e| e.test).expect("an entry in test");
            self.end_test(y);
        }
    }

    /// Whether the entry left the list.
    fn end_test(&mut self, y: usize) -> bool {
        self.fewer_cold();
        self.list[y].test = false;
        if self.list[y].resident {
            return false;
        }
        self.list.remove(y);
        true
    }

    fn run_hot(&mut self) {
        let mut i = 0;
        while !self.list[i].hot {
            let gone = self.list[i].test && self.end_test(i);
            if !gone {
                i += 1;
            }
        }
        let mut x = self.list.remove(i);
        if x.bit {
            x.bit = false;
        } else {
            x.hot = false;
            x.test = false;
        }
        self.list.push(x);
    }

    /// The miss path; `adapt` is false for a block that is placed.
    fn admit(&mut self, b: Block, adapt: bool) -> Step {
        let was_full = self.residents() >= self.c;
        let mut evicted = Vec::new();
        while self.residents() >= self.c {
            evicted.push(self.evict());
        }
        let mut entry = Entry { b, hot: true, resident: true, test: false, bit: false };
        if let Some(i) = self.find(b) {
            self.list.remove(i);
            if adapt {
                self.more_cold();
            }
            self.list.push(entry);
            self.fit();
        } else if !was_full && self.hot() < self.c - self.m_c {
            self.list.push(entry);
        } else {
            entry.hot = false;
            entry.test = true;
            self.list.push(entry);
        }
        Step::miss(evicted)
    }

    fn is_resident(&self, b: Block) -> bool {
        self.list.iter().any(|e| e.b == b && e.resident)
    }
}

impl Model for ClockPro {
    fn access(&mut self, b: Block) -> Step {
        match self.list.iter_mut().find(|e| e.b == b && e.resident) {
            Some(entry) => {
                entry.bit = true;
                Step::hit()
            }
            None => self.admit(b, true),
        }
    }

    fn take(&mut self, b: Block) {
        if !self.is_resident(b) {
            return;
        }
        let i = self.find(b).unwrap();
        if self.list[i].test {
            self.list[i].resident = false;
            self.list[i].bit = false;
            self.bound_non_residents();
        } else {
            self.list.remove(i);
        }
    }

    fn place(&mut self, b: Block) -> Step {
        if self.is_resident(b) { Step::hit() } else { self.admit(b, false) }
    }

    fn discard(&mut self, b: Block) {
        self.list.retain(|e| e.b != b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        let grows = capacity as usize >= self.c;
        self.c = capacity as usize;
        if grows {
            return Vec::new();
        }
        self.m_c = self.m_c.clamp(1, (self.c - 1).max(1));
        self.fit();
        while self.non_residents() > self.c {
            let i = self.list.iter().position(|e| !e.resident).unwrap();
            self.list.remove(i);
        }
        let mut evicted = Vec::new();
        while self.residents() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.list.iter().filter(|e| e.resident).map(|e| e.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.list.iter().filter(|e| !e.resident).map(|e| e.b).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.residents() >= self.c { Some(self.clone().evict()) } else { None }
    }

    fn state(&self) -> Value {
        let entry = |e: &Entry| {
            let kind = if e.hot { "hot" } else { "cold" };
            let residence = if e.resident { "res" } else { "nonres" };
            let test = if e.test { "test" } else { "-" };
            json!([name(e.b), kind, residence, test, u8::from(e.bit)])
        };
        let list: Vec<_> = self.list.iter().map(entry).collect();
        json!({ "list_tail_to_head": list, "m_c": self.m_c })
    }
}
