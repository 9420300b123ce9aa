//! Naive models, written from the specification with plain vectors: DEMOTE and Hint-K, and what the
//! models beside this file share. The front of a vector gives way first.

use super::bidifilter_model::BiDiFilter;
use super::hfa_model::HfaModel;
use super::promote_model::{Promote, PromoteArc};
use super::tandem_model::Tandem;

/// Takes a block out of a list, if it is there.
pub(crate) fn without(list: &mut Vec<u32>, x: u32) {
    list.retain(|&y| y != x);
}

/// How often blocks were referenced: at most 15 times each, all halved after 10 times as many
/// references as a cache has blocks.
pub(crate) struct Counts {
    of: [u32; 64],
    counted: usize,
    sample: usize,
}

impl Counts {
    pub(crate) fn new(blocks: usize) -> Self {
        Self { of: [0; 64], counted: 0, sample: 10 * blocks }
    }

    pub(crate) fn add(&mut self, x: u32) {
        if self.of[x as usize] < 15 {
            self.of[x as usize] += 1;
            self.counted += 1;
            if self.counted >= self.sample {
                self.counted /= 2;
                self.of.iter_mut().for_each(|count| *count /= 2);
            }
        }
    }

    pub(crate) fn of(&self, x: u32) -> u32 {
        self.of[x as usize]
    }
}

/// The options of a scheme, as written.
pub(crate) struct Options<'a>(&'a str);

impl<'a> Options<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        let pairs = self.0.split(',').filter_map(|word| word.split_once('='));
        pairs.into_iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    pub(crate) fn number(&self, key: &str, usual: f64) -> f64 {
        self.get(key).map_or(usual, |value| value.parse().unwrap())
    }
}

pub(crate) enum Model {
    Demote(Demote),
    Promote(Promote),
    PromoteArc(PromoteArc),
    HintK(HintK),
    Hfa(HfaModel),
    BiDiFilter(BiDiFilter),
    Tandem(Tandem),
}

impl Model {
    pub(crate) fn new(text: &str, sizes: &[u32], seed: u64) -> Self {
        let options = Options(text);
        match text.split(',').next().unwrap() {
            "demote" => Self::Demote(Demote::new(&options, sizes)),
            "promote" => Self::Promote(Promote::new(&options, sizes, seed)),
            "promote-arc" => Self::PromoteArc(PromoteArc::new(&options, sizes, seed)),
            "hint-k" => Self::HintK(HintK {
                k: options.number("steps", 4.0) as usize,
                sizes: sizes.to_vec(),
                levels: vec![Vec::new(); sizes.len()],
                history: vec![Vec::new(); 64],
                arrival_counts: options.get("arrival") != Some("nothing"),
                moved: (0, 0),
            }),
            "bidifilter" => Self::BiDiFilter(BiDiFilter::new(&options, sizes)),
            "tandem" => Self::Tandem(Tandem::new(&options, sizes)),
            name => Self::Hfa(HfaModel::new(name, &options, sizes, seed)),
        }
    }

    /// The level that had the block.
    pub(crate) fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        match self {
            Self::Demote(model) => model.reference(x, is_write),
            Self::Promote(model) => model.reference(x, is_write),
            Self::PromoteArc(model) => model.reference(x, is_write),
            Self::HintK(model) => model.reference(x),
            Self::Hfa(model) => model.reference(x, is_write),
            Self::BiDiFilter(model) => model.reference(x),
            Self::Tandem(model) => model.reference(x, is_write),
        }
    }

    /// Blocks that the last reference sent down and up.
    pub(crate) fn moved(&self) -> (usize, usize) {
        match self {
            Self::Demote(model) => (model.down, 0),
            Self::Promote(model) => (0, model.up),
            Self::PromoteArc(model) => (0, model.up),
            Self::HintK(model) => model.moved,
            Self::Hfa(model) => model.moved,
            Self::BiDiFilter(model) => model.moved,
            Self::Tandem(model) => (model.down, 0),
        }
    }

    pub(crate) fn held(&self, level: usize) -> Vec<u32> {
        let mut held = match self {
            Self::Demote(model) => model.levels[level].concat(),
            Self::Promote(model) => model.levels[level].clone(),
            Self::PromoteArc(model) => model.held(level),
            Self::HintK(model) => model.levels[level].clone(),
            Self::Hfa(model) => model.held(level),
            Self::BiDiFilter(model) => model.held(level),
            Self::Tandem(model) => model.held(level),
        };
        held.sort_unstable();
        held
    }
}

/// DEMOTE (3.1). A level is a list of segments; all but an adaptive array have one.
pub(crate) struct Demote {
    levels: Vec<Vec<Vec<u32>>>,
    sizes: Vec<Vec<usize>>,
    array: String,
    demote_first: bool,
    normalised: bool,
    /// (level, block) pairs that came by a demotion and were not read since.
    came_down: Vec<(usize, u32)>,
    ghosts: Vec<[Vec<u32>; 2]>,
    hits: Vec<[u32; 2]>,
    down: usize,
}

impl Demote {
    fn new(options: &Options<'_>, sizes: &[u32]) -> Self {
        let array = options.get("array").unwrap_or("mrulru").to_string();
        let segments = |(i, &c): (usize, &u32)| {
            if i == 0 || array != "seg" {
                return vec![c as usize];
            }
            let uniform = options.get("segments") == Some("uniform");
            let end = |n: u32| if uniform { c * n / 10 } else { c * (2_u32.pow(n) - 1) / 1023 };
            (0..10).map(|n| (end(n + 1) - end(n)) as usize).collect()
        };
        let sizes: Vec<Vec<usize>> = sizes.iter().enumerate().map(segments).collect();
        Self {
            levels: sizes.iter().map(|s| vec![Vec::new(); s.len()]).collect(),
            demote_first: options.get("order") == Some("demote-first"),
            normalised: options.get("entrance") == Some("normalised"),
            array,
            came_down: Vec::new(),
            ghosts: vec![[Vec::new(), Vec::new()]; sizes.len()],
            hits: vec![[1, 1]; sizes.len()],
            sizes,
            down: 0,
        }
    }

    fn has(&self, level: usize, x: u32) -> bool {
        self.levels[level].iter().any(|segment| segment.contains(&x))
    }

    /// Brings x to a level: what is ejected.
    fn bring(&mut self, level: usize, x: u32, is_demotion: bool) -> Option<u32> {
        let had = self.has(level, x);
        let segments = self.sizes[level].len();
        let mut at = segments - 1;
        let mut at_front = false;
        if segments > 1 {
            for kind in 0..2 {
                if !is_demotion && self.ghosts[level][kind].contains(&x) {
                    self.hits[level][kind] += 1;
                    self.ghosts[level][kind].retain(|&y| y != x);
                    self.ghosts[level][kind].push(x);
                }
            }
            if !had {
                let [r, d] = self.hits[level];
                let own = if is_demotion { d } else { r };
                let whole = if self.normalised { r.max(d) } else { r + d };
                let room = self.sizes[level].iter().position(|&size| size > 0).unwrap();
                at = ((10 * own / whole) as usize).min(9).max(room);
            }
            let ghosts = &mut self.ghosts[level][usize::from(is_demotion)];
            ghosts.retain(|&y| y != x);
            if ghosts.len() == self.sizes[level].iter().sum::<usize>() {
                ghosts.remove(0);
            }
            ghosts.push(x);
        } else if level > 0 && !is_demotion && self.array == "mrulru" {
            at_front = true;
        }
        self.levels[level].iter_mut().for_each(|segment| segment.retain(|&y| y != x));
        let mut ejected = None;
        if at_front {
            let full = self.levels[level][0].len() == self.sizes[level][0];
            ejected = full.then(|| self.levels[level][0].remove(0));
            self.levels[level][0].insert(0, x);
        } else {
            let mut falling = Some(x);
            for i in (0..=at).rev() {
                if let Some(y) = falling.take() {
                    self.levels[level][i].push(y);
                    if self.levels[level][i].len() > self.sizes[level][i] {
                        falling = Some(self.levels[level][i].remove(0));
                    }
                }
            }
            ejected = ejected.or(falling);
        }
        self.came_down.retain(|&pair| pair != (level, x));
        if is_demotion {
            self.came_down.push((level, x));
        }
        ejected
    }

    fn eject(&mut self, level: usize, ejected: Option<u32>) {
        if let Some(y) = ejected {
            if level + 1 < self.levels.len() && self.came_down.contains(&(level, y)) {
                self.descend(level + 1, y);
            }
        }
    }

    fn descend(&mut self, level: usize, x: u32) {
        self.down += 1;
        let ejected = self.bring(level, x, true);
        self.eject(level, ejected);
    }

    fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        self.down = 0;
        let hit = self.has(0, x);
        let victim = self.bring(0, x, true);
        if hit {
            return Some(0);
        }
        if let (true, Some(victim)) = (self.demote_first, victim) {
            self.descend(1, victim);
        }
        let mut found = None;
        let mut ejected = Vec::new();
        for level in 1..self.levels.len() {
            let had = self.has(level, x);
            if had || !is_write {
                ejected.push((level, self.bring(level, x, false)));
            }
            if had {
                found = Some(level);
                break;
            }
        }
        ejected.into_iter().for_each(|(level, gone)| self.eject(level, gone));
        if let (false, Some(victim)) = (self.demote_first, victim) {
            self.descend(1, victim);
        }
        found
    }
}

/// Hint-K (3.3) with our value.
pub(crate) struct HintK {
    k: usize,
    sizes: Vec<u32>,
    levels: Vec<Vec<u32>>,
    /// Moves of each block, newest first: 2 promoted, 1 demoted.
    history: Vec<Vec<u32>>,
    /// Whether the arrival from the disk is a promotion.
    arrival_counts: bool,
    moved: (usize, usize),
}

/// KHV: the sum of 2^-(j-1) w(move j) over the last K moves.
pub(crate) fn khv(history: &[u32], k: usize) -> f64 {
    history.iter().take(k).enumerate().map(|(j, &w)| f64::from(w) / 2_f64.powi(j as i32)).sum()
}

impl HintK {
    fn value(&self, x: u32) -> f64 {
        khv(&self.history[x as usize], self.k)
    }

    /// The block of smallest value, the least recently used among equals.
    fn weakest(&self, level: usize) -> Option<u32> {
        let mut best: Option<u32> = None;
        for &x in &self.levels[level] {
            if best.is_none_or(|b| self.value(x) < self.value(b)) {
                best = Some(x);
            }
        }
        best
    }

    fn insert(&mut self, level: usize, x: u32) {
        let full = self.levels[level].len() == self.sizes[level] as usize;
        let victim = if full { self.weakest(level) } else { None };
        self.levels[level].retain(|&y| Some(y) != victim);
        self.levels[level].push(x);
        let Some(victim) = victim else { return };
        if level + 1 == self.levels.len() {
            self.history[victim as usize].clear();
            return;
        }
        self.history[victim as usize].insert(0, 1);
        self.moved.0 += 1;
        self.insert(level + 1, victim);
    }

    fn reference(&mut self, x: u32) -> Option<usize> {
        self.moved = (0, 0);
        let found = self.levels.iter().position(|level| level.contains(&x));
        let Some(i) = found else {
            self.history[x as usize].extend(self.arrival_counts.then_some(2));
            self.insert(0, x);
            return None;
        };
        self.levels[i].retain(|&y| y != x);
        let rises = i > 0
            && (self.levels[i - 1].len() < self.sizes[i - 1] as usize
                || self.weakest(i - 1).is_some_and(|w| self.value(x) > self.value(w)));
        if rises {
            self.history[x as usize].insert(0, 2);
            self.moved.1 += 1;
            self.insert(i - 1, x);
        } else {
            self.levels[i].push(x);
        }
        found
    }
}
