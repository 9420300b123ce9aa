//! AUTO: several policies side by side; the cache evicts the resident block with the fewest votes.

use super::{Block, Model, Params, Step, model, names, remove, sorted};
use serde_json::{Value, json};

const MEMBERS: [&str; 6] = ["lirs", "lfu", "fbr", "mq", "s3-fifo", "w-tinylfu"];

/// Those of the members that differ from their defaults.
fn parameters(name: &str) -> &'static [(&'static str, f64)] {
    if name == "fbr" { &[("new", 0.3), ("old", 0.25)] } else { &[] }
}

pub struct Auto {
    c: u32,
    memory: f64,
    margin: f64,
    members: Vec<Box<dyn Model>>,
    scores: Vec<f64>,
    votes: Vec<f64>,
    since: u32,
    /// Whether a block stayed at the last hit that placed nothing.
    keeps: bool,
    /// In the order of their last reference, or of the last time that a member evicted them.
    residents: Vec<Block>,
}

impl Auto {
    pub fn new(c: u32, p: Params<'_>) -> Auto {
        let mut auto = Auto {
            c,
            memory: p.get("memory", 16.0),
            margin: p.get("margin", 0.005),
            members: MEMBERS.iter().map(|name| model(name, parameters(name), c)).collect(),
            scores: vec![0.0; MEMBERS.len()],
            votes: Vec::new(),
            since: 0,
            keeps: false,
            residents: Vec::new(),
        };
        auto.scores[0] = p.get("head", 0.01) * f64::from(c);
        auto.vote();
        auto
    }

    fn vote(&mut self) {
        let best = self.scores.iter().copied().fold(0.0, f64::max);
        let behind = |score: &f64| (best - score) / (self.margin * f64::from(self.c));
        let mut later = 1.0;
        self.votes.clear();
        for score in &self.scores {
            let mut vote = 1.0 / (1.0 + behind(score) / 1024.0);
            // To the power of 1024.
            for _ in 0..10 {
                vote = vote * vote;
            }
            self.votes.push(vote * later);
            later -= 1.0 / 1024.0;
        }
    }

    /// Whether each member holds b.
    fn holders(&self, b: Block) -> Vec<bool> {
        self.members.iter().map(|member| member.resident().contains(&b)).collect()
    }

    /// b is the last of the residents with its holders.
    fn renew(&mut self, b: Block) {
        remove(&mut self.residents, b);
        self.residents.push(b);
    }

    /// A member evicted these.
    fn left(&mut self, evicted: &[Block]) {
        for &b in evicted {
            if self.residents.contains(&b) {
                self.renew(b);
            }
        }
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
            self.left(&step.evicted);
        }
        self.renew(b);
        self.since += 1;
        Step { hit, evicted: self.end() }
    }

    /// The first of these with the fewest votes. Of holders with equal votes, those with the lower
    /// binary number count as fewer.
    fn fewest(&self, blocks: &[(Block, Vec<bool>)]) -> Block {
        let rank = |holders: &[bool]| {
            let held = || holders.iter().enumerate().filter(|(_, holds)| **holds);
            let votes: f64 = held().map(|(i, _)| self.votes[i]).sum();
            (votes, held().map(|(i, _)| 1 << i).sum::<u32>())
        };
        let mut best = &blocks[0];
        for block in blocks {
            if rank(&block.1) < rank(&best.1) {
                best = block;
            }
        }
        best.0
    }

    fn held(&self) -> Vec<(Block, Vec<bool>)> {
        self.residents.iter().map(|&b| (b, self.holders(b))).collect()
    }

    fn end(&mut self) -> Vec<Block> {
        let mut evicted = Vec::new();
        while self.residents.len() > self.c as usize {
            let b = self.fewest(&self.held());
            remove(&mut self.residents, b);
            evicted.push(b);
        }
        if self.since >= (self.c / 8).max(1) {
            self.vote();
            let age = f64::from(self.since) / f64::from(self.c);
            let fade = self.memory / (self.memory + std::f64::consts::LN_2 * age);
            self.scores.iter_mut().for_each(|score| *score *= fade);
            self.since = 0;
        }
        evicted
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
            self.left(&step.evicted);
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
            self.left(&evicted);
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

    /// As if each member had evicted its own victim.
    fn victim(&self) -> Option<Block> {
        if self.residents.len() < self.c as usize {
            return None;
        }
        let mut held = self.held();
        for (i, member) in self.members.iter().enumerate() {
            let victim = member.victim();
            if let Some(at) = held.iter().position(|(b, _)| Some(*b) == victim) {
                let (b, mut holders) = held.remove(at);
                holders[i] = false;
                held.push((b, holders));
            }
        }
        Some(self.fewest(&held))
    }

    fn state(&self) -> Value {
        let highest = self.votes.iter().copied().fold(0.0, f64::max);
        let leader = self.votes.iter().position(|&vote| vote == highest).unwrap();
        json!({ "leader": MEMBERS[leader], "residents": names(&self.residents) })
    }
}
