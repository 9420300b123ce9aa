//! A naive model of D-HFA, P-HFA and H-HFA, written from section 3.4 of the specification: vectors,
//! searched from end to end, hotness compared as it is stored.

use super::models::{Options, khv};
use super::promote_model::Chances;

#[derive(Clone, Default)]
struct Block {
    hits: u64,
    loaded: u64,
    updated: u64,
    moved: bool,
    h: f64,
    /// Moves, newest first: 2 promoted, 1 demoted.
    history: Vec<u32>,
}

#[derive(Default)]
struct Level {
    size: usize,
    c1: usize,
    /// Front: head.
    q1: Vec<u32>,
    q2: Vec<u32>,
    /// (block, slot, moves) in the order of insertion.
    t_out: Vec<(u32, u64, u32)>,
    cold: u64,
    warm: u64,
}

#[derive(PartialEq)]
enum Kind {
    D,
    P,
    H,
}

pub(crate) struct HfaModel {
    kind: Kind,
    k: u64,
    period: u64,
    f_min: f64,
    entries: usize,
    fixed: bool,
    expires: bool,
    by_hint: bool,
    /// Whether Q2 keeps to its own size (A15).
    hard: bool,
    /// Whether the arrival from the disk is a promotion, for H-HFA.
    arrival_counts: bool,
    levels: Vec<Level>,
    blocks: Vec<Block>,
    chances: Chances,
    now: u64,
    pub(crate) moved: (usize, usize),
}

impl HfaModel {
    pub(crate) fn new(name: &str, options: &Options<'_>, sizes: &[u32], seed: u64) -> Self {
        let kind = match name {
            "d-hfa" => Kind::D,
            "p-hfa" => Kind::P,
            "h-hfa" => Kind::H,
            other => panic!("no model of {other}"),
        };
        let k = options.number("k", 6.0) as u64;
        let share = options.number("hot", 0.5);
        let level = |&size: &u32| {
            let c1 = ((f64::from(size) * share) as usize).max(1).min(size as usize - 1);
            Level { size: size as usize, c1: if k == 0 { 0 } else { c1 }, ..Level::default() }
        };
        Self {
            kind,
            k,
            period: options.number("period", 1000.0) as u64,
            f_min: options.number("fmin", 1.0),
            entries: options.number("entries", 1.0) as usize,
            fixed: options.get("partition") == Some("fixed"),
            expires: options.get("hotness") != Some("stays"),
            by_hint: options.get("rise") == Some("hint"),
            hard: options.get("queues") == Some("hard"),
            arrival_counts: options.get("arrival") != Some("nothing"),
            levels: sizes.iter().map(level).collect(),
            blocks: vec![Block::default(); 64],
            chances: Chances::new(options, sizes, seed),
            now: 0,
            moved: (0, 0),
        }
    }

    pub(crate) fn held(&self, level: usize) -> Vec<u32> {
        [&self.levels[level].q1[..], &self.levels[level].q2[..]].concat()
    }

    fn slot(&self) -> u64 {
        (self.now - 1) / self.period
    }

    fn f(&self, i: usize, x: u32) -> f64 {
        let count = |slot: u64| {
            let found = self.levels[i].t_out.iter().find(|e| e.0 == x && e.1 == slot);
            found.map_or(0.0, |e| f64::from(e.2))
        };
        let terms = (0..self.k.min(self.slot() + 1))
            .map(|j| 0.5_f64.powi(j as i32) * count(self.slot() - j));
        terms.sum()
    }

    fn record(&mut self, i: usize, x: u32) {
        let (slot, k, entries) = (self.slot(), self.k, self.entries);
        let t_out = &mut self.levels[i].t_out;
        if k == 0 || entries == 0 {
            return;
        }
        if let Some(e) = t_out.iter_mut().find(|e| e.0 == x && e.1 == slot) {
            e.2 += 1;
            return;
        }
        if t_out.len() == entries {
            t_out.retain(|e| e.1 + k > slot);
        }
        if t_out.len() == entries {
            let oldest = t_out.iter().map(|e| e.1).min().unwrap();
            let fewest = t_out.iter().filter(|e| e.1 == oldest).map(|e| e.2).min().unwrap();
            let at = t_out.iter().position(|e| (e.1, e.2) == (oldest, fewest)).unwrap();
            t_out.remove(at);
        }
        t_out.push((x, slot, 1));
    }

    fn heat(&self, f: f64, hits: u64, stay: u64) -> f64 {
        if self.k == 0 {
            return 0.0;
        }
        f / (self.k * self.period) as f64 + hits as f64 / stay as f64
    }

    fn h(&self, x: u32) -> f64 {
        self.blocks[x as usize].h
    }

    fn khv(&self, x: u32) -> f64 {
        khv(&self.blocks[x as usize].history, 4)
    }

    fn full(&self, i: usize) -> bool {
        self.levels[i].q1.len() + self.levels[i].q2.len() == self.levels[i].size
    }

    /// Blocks that Q2 may hold now.
    fn places_of_q2(&self, i: usize) -> usize {
        let Level { size, c1, q1, .. } = &self.levels[i];
        if self.hard { size - c1 } else { size - q1.len() }
    }

    fn has_q2_room(&self, i: usize) -> bool {
        self.levels[i].q2.len() < self.places_of_q2(i)
    }

    /// Place in a queue by hotness: behind the last block that is hotter.
    fn place_by_heat(&self, queue: &[u32], x: u32) -> usize {
        queue.iter().position(|&y| self.h(y) <= self.h(x)).unwrap_or(queue.len())
    }

    fn put_q1(&mut self, i: usize, x: u32) {
        let by_heat = self.kind != Kind::D;
        let at = if by_heat { self.place_by_heat(&self.levels[i].q1, x) } else { 0 };
        self.levels[i].q1.insert(at, x);
    }

    fn put_q2(&mut self, i: usize, x: u32) {
        let by_heat = self.kind == Kind::D;
        let at = if by_heat { self.place_by_heat(&self.levels[i].q2, x) } else { 0 };
        self.levels[i].q2.insert(at, x);
    }

    fn out(&mut self, i: usize, x: u32) {
        self.levels[i].q1.retain(|&y| y != x);
        self.levels[i].q2.retain(|&y| y != x);
    }

    /// The next to go of Q2: its tail; by KHV: the smallest, nearest the tail among equals.
    fn q2_victim(&self, i: usize) -> Option<u32> {
        let q2 = &self.levels[i].q2;
        if self.kind != Kind::H {
            return q2.last().copied();
        }
        let least = q2.iter().map(|&x| self.khv(x)).fold(f64::INFINITY, f64::min);
        q2.iter().rev().copied().find(|&x| self.khv(x) == least)
    }

    /// The last to go of Q2: its head; by KHV: the largest, nearest the head among equals.
    fn q2_head(&self, i: usize) -> u32 {
        let q2 = &self.levels[i].q2;
        if self.kind != Kind::H {
            return q2[0];
        }
        let most = q2.iter().map(|&x| self.khv(x)).fold(0.0, f64::max);
        q2.iter().copied().find(|&x| self.khv(x) == most).unwrap()
    }

    fn q1_tail(&self, i: usize) -> Option<u32> {
        self.levels[i].q1.last().copied()
    }

    fn take_victim(&mut self, i: usize) -> Option<u32> {
        let victim = self.q2_victim(i).or(self.q1_tail(i));
        victim.iter().for_each(|&v| self.out(i, v));
        victim
    }

    fn receive(&mut self, i: usize, x: u32, moved: bool, hint: f64, exchanges: bool) {
        let f = self.f(i, x).max(hint);
        let heat = self.heat(f, 0, 1);
        let remembered =
            self.levels[i].t_out.iter().any(|e| e.0 == x && e.1 + self.k > self.slot());
        let block = &mut self.blocks[x as usize];
        *block = Block {
            hits: 0,
            loaded: self.now,
            updated: self.now,
            moved,
            h: heat,
            history: std::mem::take(&mut block.history),
        };
        let hot = if self.kind == Kind::H { remembered } else { f > self.f_min };
        let hot = hot && self.levels[i].c1 > 0;
        if !hot {
            let victim = if self.has_q2_room(i) { None } else { self.take_victim(i) };
            self.put_q2(i, x);
            self.leave(i, victim, exchanges);
            return;
        }
        let victim = self.insert_q1(i, x);
        self.leave(i, victim, exchanges);
        if exchanges && i > 0 && self.kind == Kind::D {
            self.exchange(i, x, heat);
        }
    }

    fn insert_q1(&mut self, i: usize, x: u32) -> Option<u32> {
        if self.levels[i].q1.len() < self.levels[i].c1 {
            let victim = if self.full(i) { self.take_victim(i) } else { None };
            self.put_q1(i, x);
            return victim;
        }
        let tail = self.levels[i].q1.pop().unwrap();
        self.put_q1(i, x);
        if self.levels[i].q2.len() < self.levels[i].size - self.levels[i].c1 {
            self.put_q2(i, tail);
            return None;
        }
        let hits = |y: u32| self.blocks[y as usize].hits;
        let least = self.levels[i].q2.iter().map(|&y| hits(y)).min().unwrap();
        if hits(tail) <= least {
            return Some(tail);
        }
        let victim = self.take_victim(i);
        self.put_q2(i, tail);
        victim
    }

    fn leave(&mut self, i: usize, victim: Option<u32>, exchanges: bool) {
        let Some(x) = victim else { return };
        if self.kind == Kind::P || i + 1 == self.levels.len() {
            self.blocks[x as usize] = Block::default();
            return;
        }
        self.blocks[x as usize].history.insert(0, 1);
        if self.blocks[x as usize].moved {
            self.record(i, x);
        }
        self.moved.0 += 1;
        let hint = self.f(i, x);
        self.receive(i + 1, x, true, hint, exchanges);
    }

    /// `heat`: that of x when it came, since x may be gone by now.
    fn exchange(&mut self, i: usize, x: u32, heat: f64) {
        let q1 = &self.levels[i].q1;
        let most = q1.iter().map(|&y| self.h(y)).fold(0.0, f64::max);
        let Some(y) = q1.iter().copied().find(|&y| self.h(y) == most) else { return };
        if self.now - self.blocks[y as usize].updated > self.period {
            self.update(i, y);
        }
        if y == x || self.h(y) <= heat {
            return;
        }
        self.rise(i, i - 1, y);
    }

    /// Moves x from level i up to level j: an exchange of D, or a hit of H.
    fn rise(&mut self, i: usize, j: usize, x: u32) {
        self.out(i, x);
        if self.blocks[x as usize].moved {
            self.record(i, x);
        }
        self.moved.1 += 1;
        let hint = self.f(i, x);
        self.receive(j, x, true, hint, false);
    }

    fn update(&mut self, i: usize, x: u32) {
        let f = self.f(i, x);
        let block = &self.blocks[x as usize];
        let h = self.heat(f, block.hits, (self.now - block.loaded).max(1));
        let block = &mut self.blocks[x as usize];
        (block.h, block.updated) = (h, self.now);
    }

    fn hit(&mut self, i: usize, x: u32) {
        let was_hot = self.levels[i].q1.contains(&x);
        self.out(i, x);
        self.blocks[x as usize].hits += 1;
        self.update(i, x);
        if was_hot {
            self.put_q1(i, x);
        } else if self.levels[i].c1 > 0 && !self.by_hint {
            let victim = self.insert_q1(i, x);
            self.leave(i, victim, true);
        } else {
            self.put_q2(i, x);
        }
    }

    pub(crate) fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        self.now += 1;
        self.moved = (0, 0);
        self.expire();
        let n = self.levels.len();
        let found = (0..n).find(|&i| self.held(i).contains(&x));
        match self.kind {
            Kind::D => match found {
                Some(0) => self.hit(0, x),
                Some(i) => {
                    self.out(i, x);
                    if self.blocks[x as usize].moved {
                        self.record(i, x);
                    }
                    self.moved.1 += 1;
                    let hint = self.f(i, x);
                    self.receive(0, x, true, hint, true);
                }
                None => self.receive(0, x, false, 0.0, true),
            },
            Kind::H => match found {
                Some(i) if i > 0 && self.is_to_rise(i, x) => {
                    self.blocks[x as usize].history.insert(0, 2);
                    self.rise(i, i - 1, x);
                }
                Some(i) => self.hit(i, x),
                None => {
                    self.blocks[x as usize].history.extend(self.arrival_counts.then_some(2));
                    self.receive(0, x, false, 0.0, false);
                }
            },
            Kind::P => self.promote(found, x, is_write),
        }
        self.partition();
        found
    }

    fn is_to_rise(&self, i: usize, x: u32) -> bool {
        let weakest =
            self.levels[i - 1].q2.iter().map(|&y| self.khv(y)).fold(f64::INFINITY, f64::min);
        self.has_q2_room(i - 1) || self.khv(x) > weakest
    }

    fn promote(&mut self, found: Option<usize>, x: u32, is_write: bool) {
        let (levels, blocks) = (&self.levels, &self.blocks);
        let has_room: Vec<bool> = (0..levels.len()).map(|i| self.has_q2_room(i)).collect();
        let life = |i: usize| match (levels[i].q2.first(), levels[i].q2.last()) {
            (Some(&new), Some(&old)) if !has_room[i] => {
                let (new, old) = (&blocks[new as usize], &blocks[old as usize]);
                new.updated.saturating_sub(old.updated) as f64
            }
            _ => 0.0,
        };
        // Lives ride on requests, which get as far as the block is.
        let told = 1..found.map_or(levels.len(), |at| at + 1);
        self.chances.adapt(told, self.now, life);
        let mut i = if is_write { 1 } else { self.levels.len() };
        if let Some(at) = found {
            if is_write || !self.chances.passes(at) {
                self.hit(at, x);
                return;
            }
            self.out(at, x);
            self.record(at, x);
            i = at;
        }
        for j in (0..i).rev() {
            if self.f(j, x) > self.f_min || !self.chances.passes(j) {
                self.moved.1 += usize::from(found.is_some());
                self.receive(j, x, found.is_some(), 0.0, false);
                return;
            }
            self.record(j, x);
        }
    }

    fn expire(&mut self) {
        if !self.expires || self.k == 0 || (self.now - 1) % self.period != 0 {
            return;
        }
        for i in 0..self.levels.len() {
            let mut over: Vec<u32> = self.held(i);
            over.retain(|&x| {
                let block = &self.blocks[x as usize];
                block.h > 0.0 && (block.updated - 1) / self.period + self.k <= self.slot()
            });
            // Those found hot first cool first; no two at once but blocks that stay in place.
            over.sort_by_key(|&x| self.blocks[x as usize].updated);
            for x in over {
                let sorted_q1 = self.kind != Kind::D;
                let hot = self.levels[i].q1.contains(&x);
                if hot != sorted_q1 {
                    self.blocks[x as usize].h = 0.0;
                    continue;
                }
                // In a D-HFA's Q1 and the other's Q2 the order is another one.
                self.out(i, x);
                self.blocks[x as usize].h = 0.0;
                if hot { self.put_q1(i, x) } else { self.put_q2(i, x) }
            }
        }
    }

    fn partition(&mut self) {
        for i in 0..self.levels.len() {
            let cold = self.levels[i].q1.iter().filter(|&&x| self.h(x) == 0.0).count();
            let warm = self.levels[i].q2.iter().filter(|&&x| self.h(x) > 0.0).count();
            // Hard queues: a free place of Q1 is as good as a cold block there.
            let free = if self.hard { self.levels[i].c1 - self.levels[i].q1.len() } else { 0 };
            self.levels[i].cold += (cold + free) as u64;
            self.levels[i].warm += warm as u64;
            if self.now % self.period != 0 {
                continue;
            }
            let (cold, warm) = (self.levels[i].cold as f64, self.levels[i].warm as f64);
            (self.levels[i].cold, self.levels[i].warm) = (0, 0);
            if self.fixed || self.levels[i].c1 == 0 {
                continue;
            }
            let s = (cold / self.period as f64 - warm / self.period as f64).trunc() as i64;
            let size = self.levels[i].size as i64;
            self.levels[i].c1 = (self.levels[i].c1 as i64 - s).max(1).min(size - 1) as usize;
            while self.levels[i].q1.len() > self.levels[i].c1 {
                let x = self.levels[i].q1.pop().unwrap();
                self.put_q2(i, x);
            }
            while s < 0
                && self.levels[i].q1.len() < self.levels[i].c1
                && self.levels[i].q2.len() > self.levels[i].size - self.levels[i].c1
            {
                let by_khv = self.kind == Kind::H;
                let mut from_head = self.levels[i].q2.clone();
                if by_khv {
                    from_head.sort_by(|&a, &b| self.khv(b).total_cmp(&self.khv(a)));
                }
                let Some(x) = from_head.into_iter().find(|&x| self.h(x) > 0.0) else { break };
                self.out(i, x);
                if self.kind == Kind::D { self.levels[i].q1.push(x) } else { self.put_q1(i, x) }
            }
            // Hard queues: those that Q2 has no place for now, from its head to Q1's tail.
            while self.hard && self.levels[i].q2.len() > self.levels[i].size - self.levels[i].c1 {
                let x = self.q2_head(i);
                self.out(i, x);
                self.levels[i].q1.push(x);
            }
        }
    }
}
