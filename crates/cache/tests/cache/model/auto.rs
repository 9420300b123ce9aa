//! AUTO: several policies side by side; the cache keeps what the leader keeps, and evicts surplus.

use super::{Block, Model, Params, Step, model, names, remove, sorted};
use serde_json::{Value, json};

const MEMBERS: [&str; 6] = ["lirs", "lfu", "fbr", "mq", "s3-fifo", "w-tinylfu"];

pub struct Auto {
    c: u32,
    memory: f64,
    margin: f64,
    members: Vec<Box<dyn Model>>,
    scores: Vec<f64>,
    leader: usize,
    since: u32,
    /// Whether a block stayed at the last hit that placed nothing.
    keeps: bool,
    /// Least recently used first.
    residents: Vec<Block>,
    /// First to leave first.
    surplus: Vec<Block>,
}

impl Auto {
    pub fn new(c: u32, p: Params<'_>) -> Auto {
        Auto {
            c,
            memory: p.get("memory", 16.0),
            margin: p.get("margin", 0.005),
            members: MEMBERS.iter().map(|name| model(name, &[], c)).collect(),
            scores: vec![0.0; MEMBERS.len()],
            leader: 0,
            since: 0,
            keeps: false,
            residents: Vec::new(),
            surplus: Vec::new(),
        }
    }

    fn leader_holds(&self, b: Block) -> bool {
        self.members[self.leader].resident().contains(&b)
    }

    /// b is the most recently used resident.
    fn renew(&mut self, b: Block) {
        remove(&mut self.residents, b);
        self.residents.push(b);
    }

    /// The leader evicted these.
    fn left(&mut self, evicted: &[Block]) {
        self.surplus.extend(evicted.iter().filter(|b| self.residents.contains(b)));
    }

    /// A reference that places nothing.
    fn around(&mut self, b: Block) {
        for (member, score) in self.members.iter_mut().zip(&mut self.scores) {
            if !member.resident().contains(&b) {
                member.note(b);
                continue;
            }
            *score += 1.0;
            if self.keeps {
                member.touch(b);
            } else {
                member.take(b);
            }
        }
        self.since += 1;
    }

    fn refer(&mut self, b: Block, is_write: bool) -> Step {
        let hit = self.residents.contains(&b);
        for i in 0..self.members.len() {
            let step = self.members[i].access(b);
            self.scores[i] += f64::from(u8::from(step.hit && !is_write));
            if i == self.leader {
                self.left(&step.evicted);
            }
        }
        self.renew(b);
        self.since += 1;
        Step { hit, evicted: self.end() }
    }

    fn end(&mut self) -> Vec<Block> {
        let members = &self.members[self.leader].resident();
        self.surplus.retain(|b| self.residents.contains(b) && !members.contains(b));
        let mut evicted = Vec::new();
        while self.residents.len() > self.c as usize {
            let b = self.surplus.remove(0);
            remove(&mut self.residents, b);
            evicted.push(b);
        }
        if self.since >= (self.c / 8).max(1) {
            self.review();
        }
        evicted
    }

    fn review(&mut self) {
        let highest = self.scores.iter().copied().fold(0.0, f64::max);
        let best = self.scores.iter().position(|&score| score == highest).unwrap();
        if highest > self.scores[self.leader] + self.margin * f64::from(self.c) {
            self.leader = best;
            self.surplus =
                self.residents.iter().copied().filter(|&b| !self.leader_holds(b)).collect();
        }
        let age = f64::from(self.since) / f64::from(self.c);
        let fade = self.memory / (self.memory + std::f64::consts::LN_2 * age);
        self.scores.iter_mut().for_each(|score| *score *= fade);
        self.since = 0;
    }
}

impl Model for Auto {
    fn access(&mut self, b: Block) -> Step {
        self.refer(b, false)
    }

    fn write(&mut self, b: Block) -> Step {
        self.refer(b, true)
    }

    fn touch(&mut self, b: Block) {
        self.keeps = true;
        self.renew(b);
        self.around(b);
        self.end();
    }

    fn take(&mut self, b: Block) {
        if remove(&mut self.residents, b) {
            self.keeps = false;
            self.around(b);
            self.end();
        }
    }

    fn note(&mut self, b: Block) {
        if !self.residents.contains(&b) {
            self.around(b);
            self.end();
        }
    }

    fn place(&mut self, b: Block) -> Step {
        let hit = self.residents.contains(&b);
        for i in 0..self.members.len() {
            let step = self.members[i].place(b);
            if i == self.leader {
                self.left(&step.evicted);
            }
        }
        self.renew(b);
        Step { hit, evicted: self.end() }
    }

    fn discard(&mut self, b: Block) {
        self.members.iter_mut().for_each(|member| member.discard(b));
        remove(&mut self.residents, b);
        self.end();
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity;
        for i in 0..self.members.len() {
            let evicted = self.members[i].resize(capacity);
            if i == self.leader {
                self.left(&evicted);
            }
        }
        self.end()
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.residents.clone())
    }

    fn remembered(&self) -> Vec<Block> {
        let known = self.members.iter().flat_map(|m| [m.resident(), m.remembered()].concat());
        let mut all = sorted(known.filter(|b| !self.residents.contains(b)).collect());
        all.dedup();
        all
    }

    fn victim(&self) -> Option<Block> {
        if self.residents.len() < self.c as usize {
            return None;
        }
        self.surplus.first().copied().or_else(|| self.members[self.leader].victim())
    }

    fn state(&self) -> Value {
        json!({ "leader": MEMBERS[self.leader], "surplus": names(&self.surplus) })
    }
}
