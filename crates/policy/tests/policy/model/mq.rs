//! MQ (Multi-Queue): frequency decides the queue, a life time lets blocks sink again.

use super::aware::Aware;
use super::{Block, Model, Params, Step, name, names, part, remove, sorted};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone)]
struct Page {
    b: Block,
    count: u64,
    queue: usize,
    expire: u64,
    last: u64,
}

#[derive(Clone)]
struct Record {
    b: Block,
    count: u64,
    last: u64,
}

pub struct Mq {
    c: usize,
    out_share: f64,
    /// Adapt the life time.
    adaptive: bool,
    /// The adaptation period if a test fixes it.
    fixed_period: Option<u64>,
    life_time: u64,
    now: u64,
    pages: Vec<Page>,
    /// Q_0 .. Q_{m-1}, head (oldest) first.
    queues: Vec<Vec<Block>>,
    /// Q_out, head (oldest) first.
    out: Vec<Record>,
    /// Distances beyond c, by the logarithm of their bin.
    hist: BTreeMap<u32, u64>,
    /// Sinkings, for the worked example: (time, block, from, to).
    moves: Vec<(u64, Block, usize, usize)>,
    aware: Aware,
}

impl Mq {
    /// `lifetime` fixes the life time; without it, it adapts from c on. `period` is for tests.
    pub fn new(c: usize, p: Params) -> Mq {
        let fixed = p.find("lifetime");
        Mq {
            c,
            out_share: p.get("qout", 4.0),
            adaptive: fixed.is_none(),
            fixed_period: p.find("period").map(|x| x as u64),
            life_time: fixed.unwrap_or(c as f64) as u64,
            now: 0,
            pages: Vec::new(),
            queues: vec![Vec::new(); p.get("m", 8.0) as usize],
            out: Vec::new(),
            hist: BTreeMap::new(),
            moves: Vec::new(),
            aware: Aware::optional(p),
        }
    }

    fn find(&self, b: Block) -> Option<usize> {
        self.pages.iter().position(|p| p.b == b)
    }

    fn queue_of(&self, count: u64) -> usize {
        (count.ilog2() as usize).min(self.queues.len() - 1)
    }

    fn remember(&mut self, b: Block, count: u64, last: u64) {
        self.out.push(Record { b, count, last });
        self.trim_ghost();
    }

    fn trim_ghost(&mut self) {
        while self.out.len() > part(self.out_share, self.c) {
            self.out.remove(0);
        }
    }

    fn recall(&mut self, b: Block) -> Option<Record> {
        let i = self.out.iter().position(|r| r.b == b)?;
        Some(self.out.remove(i))
    }

    fn unlink(&mut self, i: usize) -> Page {
        let page = self.pages.remove(i);
        remove(&mut self.queues[page.queue], page.b);
        page
    }

    fn choose(&self) -> Block {
        self.aware.choose(self.c, &self.queues.concat())
    }

    fn evict(&mut self) -> Block {
        let i = self.find(self.choose()).unwrap();
        let page = self.unlink(i);
        self.remember(page.b, page.count, page.last);
        page.b
    }

    /// Into the queue its count asks for, evicting first if there is no room.
    fn insert(&mut self, b: Block, count: u64, last: u64) -> Option<Block> {
        let full = self.pages.len() >= self.c;
        let evicted = full.then(|| self.evict());
        let queue = self.queue_of(count);
        self.queues[queue].push(b);
        self.pages.push(Page { b, count, queue, expire: self.now + self.life_time, last });
        evicted
    }

    /// Statistics of a reference to a block last referenced at `last`.
    fn measure(&mut self, last: u64) {
        let d = self.now - last;
        if d > self.c as u64 {
            let mut bin = 0;
            while (1u64 << bin) < d {
                bin += 1;
            }
            *self.hist.entry(bin).or_insert(0) += 1;
        }
    }

    /// The end of every reference: time, Adjust, and now and then a new life time.
    fn tick(&mut self) {
        self.now += 1;
        for k in 1..self.queues.len() {
            let Some(&x) = self.queues[k].first() else { continue };
            let i = self.find(x).unwrap();
            if self.pages[i].expire < self.now {
                self.queues[k].remove(0);
                self.queues[k - 1].push(x);
                self.pages[i].queue = k - 1;
                self.pages[i].expire = self.now + self.life_time;
                self.moves.push((self.now, x, k, k - 1));
            }
        }
        let period = self.fixed_period.unwrap_or((self.c as u64).max(16));
        if self.adaptive && self.now % period == 0 {
            self.adapt();
        }
    }

    fn adapt(&mut self) {
        let Some(&most) = self.hist.values().max() else { return };
        let (bin, _) = self.hist.iter().find(|(_, n)| **n == most).unwrap();
        self.life_time = 1 << bin;
        for n in self.hist.values_mut() {
            *n /= 2;
        }
        self.hist.retain(|_, n| *n > 0);
    }
}

impl Model for Mq {
    fn access(&mut self, b: Block) -> Step {
        let step = match self.find(b) {
            Some(i) => {
                let page = self.unlink(i);
                self.measure(page.last);
                self.insert(b, page.count + 1, self.now);
                Step::hit()
            }
            None => {
                let mut count = 0;
                if let Some(record) = self.recall(b) {
                    self.measure(record.last);
                    count = record.count;
                }
                Step::miss(self.insert(b, count + 1, self.now))
            }
        };
        self.tick();
        step
    }

    fn take(&mut self, b: Block) {
        if let Some(i) = self.find(b) {
            let page = self.unlink(i);
            self.measure(page.last);
            self.remember(b, page.count + 1, self.now);
            self.tick();
        }
    }

    fn note(&mut self, b: Block) {
        if self.find(b).is_some() {
            return;
        }
        let mut count = 0;
        if let Some(record) = self.recall(b) {
            self.measure(record.last);
            count = record.count;
        }
        self.remember(b, count + 1, self.now);
        self.tick();
    }

    fn place(&mut self, b: Block) -> Step {
        if let Some(i) = self.find(b) {
            let queue = self.pages[i].queue;
            remove(&mut self.queues[queue], b);
            self.queues[queue].push(b);
            self.pages[i].expire = self.now + self.life_time;
            return Step::hit();
        }
        let (count, last) = match self.recall(b) {
            Some(record) => (record.count, record.last),
            None => (1, self.now),
        };
        Step::miss(self.insert(b, count, last))
    }

    fn discard(&mut self, b: Block) {
        if let Some(i) = self.find(b) {
            self.unlink(i);
        }
        self.recall(b);
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
        sorted(self.out.iter().map(|r| r.b).collect())
    }

    fn learn(&mut self, b: Block, holds: bool) {
        self.aware.learn(b, holds);
    }

    fn victim(&self) -> Option<Block> {
        if self.pages.len() >= self.c { Some(self.choose()) } else { None }
    }

    fn state(&self) -> Value {
        let queues: Vec<_> = self.queues.iter().map(|q| names(q)).collect();
        let pages = || self.pages.iter();
        let entries: Map<_, _> =
            pages().map(|p| (name(p.b), json!([p.count, p.queue, p.expire]))).collect();
        let counts: Map<_, _> = pages().map(|p| (name(p.b), json!(p.count))).collect();
        let out: Map<_, _> = self.out.iter().map(|r| (name(r.b), json!(r.count))).collect();
        let hist: Map<_, _> = self.hist.iter().map(|(k, n)| (k.to_string(), json!(n))).collect();
        let moves: Vec<_> = self.moves.iter().map(|m| json!([m.0, name(m.1), m.2, m.3])).collect();
        json!({
            "queues": queues,
            "entry_ref_queue_expire": entries,
            "ref": counts,
            "qout": out,
            "moves": moves,
            "life_time": self.life_time,
            "hist_bins_log2": hist,
        })
    }
}
