//! AUTO by the specification: a list of blocks for each class and age bucket, everything else
//! counted anew whenever it is needed.

use super::{Block, Model, Params, Step, part, sorted};
use serde_json::{Value, json};

const ENDS: [u64; 12] = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256];
const BUCKETS: usize = 13;
const CLASSES: usize = 48;

#[derive(Clone, Debug)]
struct Known {
    b: Block,
    last: u64,
    count: u64,
    /// Class by the last distance: 0 if referenced once.
    distance: usize,
    written: bool,
    sampled: bool,
}

impl Known {
    fn class(&self, learned: bool) -> usize {
        if !learned {
            return self.distance;
        }
        // The number of steps 2, 3, 4, 6, 8, 12, ... that the count has reached.
        let steps = (1..=12).flat_map(|octave: u32| [1 << octave, 3 << (octave - 1)]);
        2 * steps.take(23).filter(|&step| self.count >= step).count() + usize::from(self.written)
    }
}

fn bucket(age: u64) -> usize {
    ENDS.iter().position(|&end| age < end).unwrap_or(12)
}

type Keys = Vec<[u64; BUCKETS]>;

/// Blocks in order: by class and bucket, the newest first.
#[derive(Clone, Debug)]
struct Order {
    learned: bool,
    keys: Keys,
    cells: Vec<Vec<Vec<Known>>>,
}

impl Order {
    fn new(learned: bool, keys: Keys) -> Order {
        Order { learned, keys, cells: vec![vec![Vec::new(); BUCKETS]; CLASSES] }
    }

    fn all(&self) -> Vec<Known> {
        self.cells.iter().flatten().flatten().cloned().collect()
    }

    fn insert(&mut self, block: Known, age: u64) {
        let class = block.class(self.learned);
        self.cells[class][bucket(age)].insert(0, block);
    }

    fn find(&self, b: Block) -> Option<Known> {
        self.all().into_iter().find(|block| block.b == b)
    }

    fn remove(&mut self, b: Block) -> bool {
        let before = self.all().len();
        self.cells.iter_mut().flatten().for_each(|cell| cell.retain(|block| block.b != b));
        self.all().len() < before
    }

    fn first(&self) -> Option<Block> {
        let mut cells: Vec<_> =
            (0..CLASSES).flat_map(|c| (0..BUCKETS).map(move |a| (c, a))).collect();
        cells.retain(|&(c, a)| !self.cells[c][a].is_empty());
        let (c, a) = cells.into_iter().min_by_key(|&(c, a)| (self.keys[c][a], c, a))?;
        let gains = a < 12 && self.keys[c][a + 1] > self.keys[c][a];
        let cell = &self.cells[c][a];
        if gains { cell.first() } else { cell.last() }.map(|block| block.b)
    }

    fn grow_older(&mut self, tick: u64) {
        for class in &mut self.cells {
            for a in (0..12).rev() {
                while class[a].last().is_some_and(|block| tick - block.last >= ENDS[a]) {
                    let oldest = class[a].pop().unwrap();
                    class[a + 1].insert(0, oldest);
                }
            }
        }
    }

    /// Blocks stay in the bucket that they are in.
    fn change_table(&mut self, learned: bool, keys: Keys) {
        let mut all: Vec<(usize, Known)> = Vec::new();
        for class in &self.cells {
            for (a, cell) in class.iter().enumerate() {
                all.extend(cell.iter().map(|block| (a, block.clone())));
            }
        }
        *self = Order::new(learned, keys);
        all.sort_by_key(|(_, block)| block.last);
        for (a, block) in all {
            let class = block.class(learned);
            self.cells[class][a].insert(0, block);
        }
    }
}

type Row = [f64; BUCKETS];

/// What became of the blocks of a class: read, written, not known.
type Fates = [Row; 3];

fn sum(fates: &[Fates]) -> Fates {
    let mut total = Fates::default();
    for fates in fates {
        for kind in 0..3 {
            for a in 0..BUCKETS {
                total[kind][a] += fates[kind][a];
            }
        }
    }
    total
}

/// The chances to be read and written in each bucket: 8 blocks more had the expected ones.
fn chances(fates: &Fates, expected: &[Row; 2]) -> [Row; 2] {
    let mut result = [Row::default(); 2];
    for a in 0..BUCKETS {
        let later = (a..BUCKETS).rev();
        let at_risk = later.fold(8.0, |sum, i| sum + (fates[0][i] + fates[1][i] + fates[2][i]));
        for kind in 0..2 {
            result[kind][a] =
                (fates[kind][a] + 8.0 * expected[kind][a]) / (at_risk - fates[2][a] / 2.0);
        }
    }
    result
}

fn assumed(returns: f64, median: f64, steep: bool) -> [Row; 2] {
    let away = |ticks: u64| {
        let x = ticks as f64 / (median * 16.0);
        let power = if steep { x * x * x.sqrt() } else { x * x };
        1.0 - returns + returns / (1.0 + power)
    };
    let mut read = Row::default();
    for a in 0..BUCKETS {
        let start = if a == 0 { 0 } else { ENDS[a - 1] };
        let end = if a == 12 { 1.0 - returns } else { away(ENDS[a]) };
        read[a] = 1.0 - end / away(start);
    }
    [read, Row::default()]
}

/// The best rate of read hits over all stays that begin in each bucket, to an eighth of an octave.
fn keys(chances: &[Row; 2]) -> [u64; BUCKETS] {
    let mut keys = [0; BUCKETS];
    // From the beginning: expected hits and ticks until the start of each bucket.
    let (mut hits, mut stay, mut left) = (vec![0.0], vec![0.0], 1.0);
    for a in 0..BUCKETS {
        let start = if a == 0 { 0 } else { ENDS[a - 1] };
        let width = if a == 12 { 256.0 } else { (ENDS[a] - start) as f64 };
        let gone = chances[0][a] + chances[1][a];
        hits.push(hits[a] + left * chances[0][a]);
        stay.push(stay[a] + width * left * (1.0 - gone / 2.0));
        left *= 1.0 - gone;
    }
    for from in 0..BUCKETS {
        let rates =
            (from + 1..=BUCKETS).map(|to| (hits[to] - hits[from]) / (stay[to] - stay[from]));
        let best = rates.fold(0.0, f64::max);
        // Exponent and three bits of the fraction.
        keys[from] = best.to_bits() >> 49;
    }
    keys
}

fn fixed_keys() -> Keys {
    let mut table = vec![keys(&assumed(0.05, 3.0, true))];
    table.extend((0..6).map(|d| keys(&assumed(0.99, 0.1875 * f64::from(1 << d), true))));
    table.resize(CLASSES, [0; BUCKETS]);
    table
}

struct Miniature {
    order: Order,
    hits: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
    Keep,
    Take,
    Place,
}

pub struct Auto {
    c: usize,
    ghost: f64,
    review: u64,
    least: usize,
    order: Order,
    /// Oldest first.
    ghosts: Vec<Known>,
    /// By class: read, written, forgotten.
    fates: Vec<Fates>,
    fixed: Miniature,
    learned: Miniature,
    drawn: u64,
    tick: u64,
    in_tick: u64,
    ticks: u64,
}

impl Auto {
    pub fn new(c: usize, p: Params<'_>) -> Auto {
        let mut auto = Auto {
            c,
            ghost: p.get("ghost", 4.0),
            review: p.get("review", 1024.0) as u64,
            least: p.get("miniature", 512.0) as usize,
            order: Order::new(false, fixed_keys()),
            ghosts: Vec::new(),
            fates: vec![Fates::default(); CLASSES],
            fixed: Miniature { order: Order::new(false, fixed_keys()), hits: 2.0 },
            learned: Miniature { order: Order::new(true, fixed_keys()), hits: 0.0 },
            drawn: 0,
            tick: 0,
            in_tick: 0,
            ticks: 0,
        };
        auto.learned.order.keys = auto.learned_keys();
        auto
    }

    fn one_in(&self) -> usize {
        (self.c / self.least).clamp(1, 16)
    }

    fn length(&self) -> u64 {
        (self.c as u64 / 16).max(16)
    }

    fn learned_keys(&self) -> Keys {
        let known: Vec<_> = self.order.all().into_iter().chain(self.ghosts.clone()).collect();
        let mut fates = self.fates.clone();
        for (class, fates) in fates.iter_mut().enumerate() {
            for (a, lost) in fates[2].iter_mut().enumerate() {
                let here = |block: &&Known| {
                    block.class(true) == class && bucket(self.tick - block.last) == a
                };
                *lost += known.iter().filter(here).count() as f64;
            }
        }
        let of_kind = |kind: usize| -> Vec<Fates> {
            fates.iter().skip(2 + kind).step_by(2).copied().collect()
        };
        let kinds = [sum(&of_kind(0)), sum(&of_kind(1))];
        let both = chances(&sum(&kinds), &assumed(0.7, 0.1875, false));
        let kinds = kinds.map(|fates| chances(&fates, &both));
        let once = assumed(0.2, 2.0, false);
        (0..CLASSES)
            .map(|class| {
                let expected = if class < 2 { once } else { kinds[class % 2] };
                keys(&chances(&fates[class], &expected))
            })
            .collect()
    }

    fn draw(&mut self) -> bool {
        self.drawn += 1;
        let mut x = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        u128::from(x) * (self.one_in() as u128) < 1 << 64
    }

    /// Takes a block out of residents or ghosts, whether it was resident, and what was known of it.
    fn recall(&mut self, b: Block) -> (bool, Option<Known>) {
        if let Some(known) = self.order.find(b) {
            self.order.remove(b);
            return (true, Some(known));
        }
        let at = self.ghosts.iter().position(|ghost| ghost.b == b);
        (false, at.map(|at| self.ghosts.remove(at)))
    }

    /// The block after a reference.
    fn referenced(&mut self, b: Block, known: Option<Known>, how: Use) -> Known {
        let written = how == Use::Write;
        let mut now = match known {
            None => {
                let sampled = self.draw();
                Known { b, last: self.tick, count: 1, distance: 0, written, sampled }
            }
            Some(known) => {
                let age = self.tick - known.last;
                self.fates[known.class(true)][usize::from(written)][bucket(age)] += 1.0;
                let distance = 1 + [4, 8, 16, 32, 64].iter().filter(|&&end| age >= end).count();
                Known { last: self.tick, count: known.count + 1, distance, written, ..known }
            }
        };
        now.count = now.count.min(u64::from(u16::MAX));
        self.miniatures(&now, how);
        now
    }

    fn miniatures(&mut self, block: &Known, how: Use) {
        if !block.sampled {
            return;
        }
        let (capacity, age) = ((self.c / self.one_in()).max(1), self.tick - block.last);
        for miniature in [&mut self.fixed, &mut self.learned] {
            let held = miniature.order.remove(block.b);
            if held && !matches!(how, Use::Write | Use::Place) {
                miniature.hits += 1.0;
            }
            let stays = match how {
                Use::Keep => held,
                Use::Take => false,
                _ => true,
            };
            if stays {
                while miniature.order.all().len() >= capacity {
                    let first = miniature.order.first().unwrap();
                    miniature.order.remove(first);
                }
                miniature.order.insert(block.clone(), age);
            }
        }
    }

    fn forget_miniature(&mut self, b: Block) {
        self.fixed.order.remove(b);
        self.learned.order.remove(b);
    }

    fn remember(&mut self, block: Known) {
        self.ghosts.push(block);
        self.trim();
    }

    fn trim(&mut self) {
        while self.ghosts.len() > part(self.ghost, self.c) {
            let oldest = self.ghosts.remove(0);
            let age = self.tick - oldest.last;
            self.fates[oldest.class(true)][2][bucket(age)] += 1.0;
            self.forget_miniature(oldest.b);
        }
    }

    fn evict(&mut self) -> Block {
        let b = self.order.first().unwrap();
        let block = self.order.find(b).unwrap();
        self.order.remove(b);
        self.remember(block);
        b
    }

    fn room(&mut self) -> Vec<Block> {
        if self.order.all().len() >= self.c { vec![self.evict()] } else { Vec::new() }
    }

    fn refer(&mut self, b: Block, how: Use) -> Step {
        let (hit, known) = self.recall(b);
        let evicted = if hit { Vec::new() } else { self.room() };
        let now = self.referenced(b, known, how);
        self.order.insert(now, 0);
        self.end_reference();
        Step { hit, evicted }
    }

    fn pass(&mut self, b: Block) {
        let (_, known) = self.recall(b);
        let now = self.referenced(b, known, Use::Take);
        self.remember(now);
        self.end_reference();
    }

    fn end_reference(&mut self) {
        self.in_tick += 1;
        if self.in_tick < self.length() {
            return;
        }
        self.in_tick = 0;
        self.tick += 1;
        self.ticks += 1;
        for order in [&mut self.order, &mut self.fixed.order, &mut self.learned.order] {
            order.grow_older(self.tick);
        }
        if self.ticks >= self.review.div_ceil(self.length()).max(2) {
            self.review();
        }
    }

    fn review(&mut self) {
        let keys = self.learned_keys();
        let fade = 192.0 / (192.0 + std::f64::consts::LN_2 * self.ticks as f64);
        self.ticks = 0;
        self.fates.iter_mut().flatten().flatten().for_each(|count| *count *= fade);
        self.learned.order.keys = keys.clone();
        let ahead = self.learned.hits - self.fixed.hits;
        self.learned.hits *= fade;
        self.fixed.hits *= fade;
        if !self.order.learned && ahead > 2.0 {
            self.order.change_table(true, keys);
        } else if self.order.learned && ahead < -2.0 {
            self.order.change_table(false, fixed_keys());
        } else if self.order.learned {
            self.order.keys = keys;
        }
    }
}

impl Model for Auto {
    fn access(&mut self, b: Block) -> Step {
        self.refer(b, Use::Read)
    }

    fn write(&mut self, b: Block) -> Step {
        self.refer(b, Use::Write)
    }

    fn touch(&mut self, b: Block) {
        self.refer(b, Use::Keep);
    }

    fn take(&mut self, b: Block) {
        if self.order.find(b).is_some() {
            self.pass(b);
        }
    }

    fn note(&mut self, b: Block) {
        if self.order.find(b).is_none() {
            self.pass(b);
        }
    }

    fn place(&mut self, b: Block) -> Step {
        let (hit, known) = self.recall(b);
        let evicted = if hit { Vec::new() } else { self.room() };
        let now = known.unwrap_or_else(|| {
            let sampled = self.draw();
            Known { b, last: self.tick, count: 1, distance: 0, written: false, sampled }
        });
        self.miniatures(&now, Use::Place);
        let age = self.tick - now.last;
        self.order.insert(now, age);
        Step { hit, evicted }
    }

    fn discard(&mut self, b: Block) {
        self.recall(b);
        self.forget_miniature(b);
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        let before = self.one_in();
        self.c = capacity as usize;
        self.trim();
        let mut evicted = Vec::new();
        while self.order.all().len() > self.c {
            evicted.push(self.evict());
        }
        if self.one_in() != before {
            // The sample is drawn anew: residents by class and age, then the ghosts.
            for b in self.order.all().into_iter().chain(self.ghosts.clone()).map(|block| block.b) {
                let sampled = self.draw();
                let residents = self.order.cells.iter_mut().flatten().flatten();
                residents
                    .chain(&mut self.ghosts)
                    .filter(|x| x.b == b)
                    .for_each(|x| x.sampled = sampled);
            }
            self.fixed.order = Order::new(false, fixed_keys());
            self.learned.order = Order::new(true, self.learned.order.keys.clone());
        }
        let capacity = (self.c / self.one_in()).max(1);
        for miniature in [&mut self.fixed, &mut self.learned] {
            while miniature.order.all().len() > capacity {
                let first = miniature.order.first().unwrap();
                miniature.order.remove(first);
            }
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.order.all().iter().map(|block| block.b).collect())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.ghosts.iter().map(|block| block.b).collect())
    }

    fn victim(&self) -> Option<Block> {
        if self.order.all().len() >= self.c { self.order.first() } else { None }
    }

    fn state(&self) -> Value {
        json!({ "learned": self.order.learned })
    }
}
