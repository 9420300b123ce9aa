//! Naive models of PROMOTE over LRU and over ARC, from the specification, with plain vectors.

use std::ops::Range;

use super::models::{Options, without};

/// SplitMix64, as the specification draws: one stream a level.
pub(crate) struct Coins(Vec<u64>);

impl Coins {
    pub(crate) fn new(seed: u64, levels: usize) -> Self {
        Self((0..levels as u64).map(|i| seed + i).collect())
    }

    pub(crate) fn draw(&mut self, level: usize) -> f64 {
        let state = &mut self.0[level];
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// PROMOTE's probabilities (3.2), for a line of levels.
pub(crate) struct Chances {
    coins: Coins,
    sizes: Vec<u32>,
    p: Vec<f64>,
    cap: Vec<f64>,
    previous: Vec<Option<f64>>,
    receipts: Vec<u32>,
    last: Vec<u64>,
    adapts: bool,
}

impl Chances {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32], seed: u64) -> Self {
        let sum = |to: usize| sizes[..to].iter().sum::<u32>() as f64;
        let cap: Vec<f64> = (0..sizes.len()).map(|i| sum(i) / sum(i + 1)).collect();
        let start = options.number("start", -1.0);
        let p = cap.iter().map(|&cap| if start < 0.0 { cap } else { start }).collect();
        Self {
            coins: Coins::new(seed, sizes.len()),
            sizes: sizes.to_vec(),
            p,
            cap,
            previous: vec![None; sizes.len()],
            receipts: vec![0; sizes.len()],
            last: vec![0; sizes.len()],
            adapts: options.get("probability") != Some("fixed"),
        }
    }

    /// Whether level i passes a block up.
    pub(crate) fn passes(&mut self, i: usize) -> bool {
        i > 0 && self.coins.draw(i) < self.p[i]
    }

    /// Whether level i passes a block up by the bound of sizes.
    fn passes_by_size(&mut self, i: usize) -> bool {
        i > 0 && self.coins.draw(i) < self.cap[i]
    }

    /// Of each of these levels the one above says its life.
    pub(crate) fn adapt(&mut self, told: Range<usize>, now: u64, life: impl Fn(usize) -> f64) {
        for i in told {
            let (upper, own) = (life(i - 1), life(i));
            let due = (now - self.last[i]) as f64 >= 0.05 * own && own > self.sizes[i] as f64 / 2.0;
            // An upper level that is not full has no life to tell (ours).
            if !self.adapts || !due || upper == 0.0 {
                continue;
            }
            self.last[i] = now;
            self.receipts[i] += 1;
            let r = upper / (upper + own);
            let worked = self.previous[i].is_some_and(|prev| {
                (r > 0.5 && prev - r >= 0.05 * (prev - 0.5))
                    || (r < 0.5 && r - prev >= 0.05 * (0.5 - prev))
            });
            if self.previous[i].is_none() || (self.receipts[i] % 2 == 0 && !worked) {
                let p = self.p[i];
                self.p[i] = (p + p * (1.0 - p) * (2.0 * r - 1.0)).max(0.0).min(self.cap[i]);
            }
            self.previous[i] = Some(r);
        }
    }
}

/// PROMOTE over LRU (3.2).
pub(crate) struct Promote {
    pub(crate) levels: Vec<Vec<u32>>,
    last: Vec<u64>,
    chances: Chances,
    now: u64,
    pub(crate) up: usize,
}

impl Promote {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32], seed: u64) -> Self {
        Self {
            levels: vec![Vec::new(); sizes.len()],
            last: vec![0; 64],
            chances: Chances::new(options, sizes, seed),
            now: 0,
            up: 0,
        }
    }

    fn own(&mut self, level: usize, x: u32) {
        if self.levels[level].len() == self.chances.sizes[level] as usize {
            self.levels[level].remove(0);
        }
        self.levels[level].push(x);
        self.last[x as usize] = self.now;
    }

    pub(crate) fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        self.now += 1;
        self.up = 0;
        let (levels, last, sizes) = (&self.levels, &self.last, self.chances.sizes.clone());
        let life = |i: usize| match (levels[i].last(), levels[i].first()) {
            (Some(&new), Some(&old)) if levels[i].len() == sizes[i] as usize => {
                (last[new as usize] - last[old as usize]) as f64
            }
            _ => 0.0,
        };
        let found = levels.iter().position(|level| level.contains(&x));
        // Lives ride on requests, which get as far as the block is.
        let told = 1..found.map_or(levels.len(), |at| at + 1);
        self.chances.adapt(told, self.now, life);
        if let Some(i) = found {
            let stays = is_write || !self.chances.passes(i);
            self.levels[i].retain(|&y| y != x);
            if stays {
                self.levels[i].push(x);
                self.last[x as usize] = self.now;
                return found;
            }
        } else if is_write {
            self.own(0, x);
            return found;
        }
        for j in (0..found.unwrap_or(self.levels.len())).rev() {
            if !self.chances.passes(j) {
                self.own(j, x);
                self.up += usize::from(found.is_some());
                break;
            }
        }
        found
    }
}

/// ARC at one level, as far as it does not decide who keeps a block. Vectors run from the oldest.
struct Arc {
    c: usize,
    p: f64,
    t1: Vec<u32>,
    t2: Vec<u32>,
    b1: Vec<u32>,
    b2: Vec<u32>,
}

impl Arc {
    fn holds(&self, x: u32) -> bool {
        self.t1.contains(&x) || self.t2.contains(&x)
    }

    fn is_full(&self) -> bool {
        self.t1.len() + self.t2.len() == self.c
    }

    /// A request for a block passes that may be a ghost here: whether it is.
    fn adapt(&mut self, x: u32) -> bool {
        let [b1, b2] = [self.b1.len() as f64, self.b2.len() as f64];
        if self.b1.contains(&x) {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
        } else if self.b2.contains(&x) {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
        } else {
            return false;
        }
        true
    }

    /// REPLACE of the paper.
    fn replace(&mut self, for_b2: bool) {
        let t1 = self.t1.len() as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.p || (for_b2 && t1 == self.p));
        if from_t1 || self.t2.is_empty() {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    /// Makes room for a block that comes here: cases II and III, IV A, IV B.
    fn make_room(&mut self, x: u32) {
        let for_b2 = self.b2.contains(&x);
        if for_b2 || self.b1.contains(&x) {
            without(&mut self.b1, x);
            without(&mut self.b2, x);
        } else if self.t1.len() + self.b1.len() == self.c {
            if self.b1.is_empty() {
                self.t1.remove(0);
            } else {
                self.b1.remove(0);
            }
        } else if [&self.t1, &self.t2, &self.b1, &self.b2].map(Vec::len).iter().sum::<usize>()
            == 2 * self.c
        {
            self.b2.remove(0);
        }
        if self.is_full() {
            self.replace(for_b2);
        }
    }
}

/// PROMOTE over ARC (3.2).
pub(crate) struct PromoteArc {
    levels: Vec<Arc>,
    last: Vec<u64>,
    chances: Chances,
    now: u64,
    pub(crate) up: usize,
}

impl PromoteArc {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32], seed: u64) -> Self {
        let lists = || (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let level = |&c: &u32| {
            let (t1, t2, b1, b2) = lists();
            Arc { c: c as usize, p: 0.0, t1, t2, b1, b2 }
        };
        Self {
            levels: sizes.iter().map(level).collect(),
            last: vec![0; 64],
            chances: Chances::new(options, sizes, seed),
            now: 0,
            up: 0,
        }
    }

    /// The owner takes a block into T2 if any level on its way knows it, else into T1.
    fn own(&mut self, level: usize, x: u32, is_known: bool) {
        let level = &mut self.levels[level];
        level.make_room(x);
        if is_known {
            level.t2.push(x)
        } else {
            level.t1.push(x)
        }
        self.last[x as usize] = self.now;
    }

    pub(crate) fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        self.now += 1;
        self.up = 0;
        let (levels, last) = (&self.levels, &self.last);
        // The life of T2 by its share of a full cache.
        let life = |i: usize| match (levels[i].t2.last(), levels[i].t2.first()) {
            (Some(&new), Some(&old)) if levels[i].is_full() => {
                let life = (last[new as usize] - last[old as usize]) as f64;
                life / (levels[i].t2.len() as f64 / levels[i].c as f64)
            }
            _ => 0.0,
        };
        let found = levels.iter().position(|level| level.holds(x));
        let told = 1..found.map_or(levels.len(), |at| at + 1);
        self.chances.adapt(told, self.now, life);
        let mut is_known = found.is_some();
        for level in &mut self.levels[..found.unwrap_or(self.chances.sizes.len())] {
            is_known |= level.adapt(x);
        }
        if let Some(i) = found {
            let stays = is_write || !self.chances.passes(i);
            without(&mut self.levels[i].t1, x);
            without(&mut self.levels[i].t2, x);
            if stays {
                self.levels[i].t2.push(x);
                self.last[x as usize] = self.now;
                return found;
            }
        } else if is_write {
            self.own(0, x, is_known);
            return found;
        }
        for j in (0..found.unwrap_or(self.levels.len())).rev() {
            let passes =
                if is_known { self.chances.passes(j) } else { self.chances.passes_by_size(j) };
            if !passes {
                self.own(j, x, is_known);
                self.up = usize::from(found.is_some());
                break;
            }
        }
        found
    }

    pub(crate) fn held(&self, level: usize) -> Vec<u32> {
        [&self.levels[level].t1[..], &self.levels[level].t2].concat()
    }
}
