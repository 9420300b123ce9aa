//! A naive model of Tandem, from its rules in `docs/developer/algorithms.md`: plain vectors, LIRS
//! with whole stacks searched from end to end, exact counts.

use super::models::{Counts, Options, without};

/// LIRS with ghosts, as the paper has it. Vectors run from the oldest to the newest.
struct Directory {
    capacity: usize,
    hirs: f64,
    most_lir: usize,
    lir: Vec<u32>,
    /// All blocks that are remembered by their recency.
    stack: Vec<u32>,
    /// Resident blocks that are not LIR.
    queue: Vec<u32>,
    /// Blocks of the stack that are not resident, the one that left first in front.
    ghosts: Vec<u32>,
}

impl Directory {
    fn new(capacity: usize, hirs: f64) -> Self {
        let (lir, stack, queue, ghosts) = Default::default();
        Self { capacity, hirs, most_lir: Self::most_lir(capacity, hirs), lir, stack, queue, ghosts }
    }

    fn most_lir(capacity: usize, hirs: f64) -> usize {
        capacity - ((hirs * capacity as f64).round() as usize).clamp(1, capacity)
    }

    /// Other sizes from now on; the blocks that leave.
    fn set(&mut self, capacity: usize, hirs: f64) -> Vec<u32> {
        let shrinks = capacity < self.capacity || hirs != self.hirs;
        (self.capacity, self.hirs) = (capacity, hirs);
        self.most_lir = Self::most_lir(capacity, hirs);
        let mut left = Vec::new();
        if shrinks {
            while self.lir.len() > self.most_lir {
                self.rank_down();
            }
            self.bound_ghosts();
            while self.lir.len() + self.queue.len() > capacity {
                left.push(self.evict());
            }
            self.prune();
        }
        left
    }

    /// The block that leaves for another one. It is a ghost if its recency is remembered.
    fn evict(&mut self) -> u32 {
        let victim = self.queue.remove(0);
        if self.stack.contains(&victim) {
            self.ghosts.push(victim);
        }
        self.bound_ghosts();
        victim
    }

    fn bound_ghosts(&mut self) {
        while self.ghosts.len() > 2 * self.capacity {
            let oldest = self.ghosts.remove(0);
            without(&mut self.stack, oldest);
        }
    }

    fn has(&self, x: u32) -> bool {
        self.lir.contains(&x) || self.queue.contains(&x)
    }

    /// The bottom of the stack is LIR.
    fn prune(&mut self) {
        while self.stack.first().is_some_and(|x| !self.lir.contains(x)) {
            let x = self.stack.remove(0);
            without(&mut self.ghosts, x);
        }
    }

    /// The LIR block of the greatest recency is one no more.
    fn rank_down(&mut self) {
        let x = self.stack.remove(0);
        without(&mut self.lir, x);
        self.queue.push(x);
        self.prune();
    }

    fn put_on_top(&mut self, x: u32) {
        without(&mut self.stack, x);
        if !self.lir.is_empty() {
            self.stack.push(x);
        }
    }

    /// A reference; the block that leaves for it.
    fn access(&mut self, x: u32) -> Option<u32> {
        if self.lir.contains(&x) {
            self.put_on_top(x);
            self.prune();
            return None;
        }
        let is_recent = self.stack.contains(&x);
        if self.queue.contains(&x) {
            without(&mut self.queue, x);
            if !is_recent {
                self.queue.push(x);
            }
            self.rise(x, is_recent);
            return None;
        }
        without(&mut self.ghosts, x);
        let is_full = self.lir.len() + self.queue.len() == self.capacity;
        let victim = is_full.then(|| self.evict());
        if self.lir.len() < self.most_lir {
            self.lir.push(x);
            without(&mut self.stack, x);
            self.stack.push(x);
        } else {
            if !is_recent {
                self.queue.push(x);
            }
            self.rise(x, is_recent);
        }
        victim
    }

    /// A reference of a block that is not kept.
    fn pass_by(&mut self, x: u32) {
        without(&mut self.ghosts, x);
        self.put_on_top(x);
        if self.stack.contains(&x) {
            self.ghosts.push(x);
        }
        self.bound_ghosts();
    }

    /// A block that is not LIR becomes it if it was in the stack.
    fn rise(&mut self, x: u32, is_recent: bool) {
        self.put_on_top(x);
        if is_recent {
            self.lir.push(x);
            if self.lir.len() > self.most_lir {
                self.rank_down();
            }
        }
    }
}

/// Tandem: front of each vector, used longest ago.
pub(crate) struct Tandem {
    directory: Directory,
    window: (Vec<u32>, usize),
    main: (Vec<u32>, usize),
    margin: u32,
    is_selective: bool,
    counts: Counts,
    pub(crate) down: usize,
    wanted: usize,
    ghosts: Option<Ghosts>,
}

/// A window, a part for HIR blocks, and whether only frequent blocks are kept.
type Choice = (f64, f64, bool);

/// Tandems without data, for each of a few choices, and what they cost.
struct Ghosts {
    all: Vec<(Choice, Tandem, u64)>,
    turn: usize,
    seen: usize,
    chosen: usize,
}

impl Ghosts {
    fn new(options: &Options<'_>, sizes: &[u32]) -> Self {
        let choices = [
            (0.05, 0.1, false),
            (0.01, 0.005, false),
            (0.2, 0.25, false),
            (0.5, 1.0, false),
            (0.05, 0.4, false),
            (0.9, 0.5, false),
            (0.05, 0.1, true),
        ];
        let one = |choice: Choice| (choice, Tandem::fixed(options, sizes, choice), 0);
        let turn = (sizes[0] + sizes[1]) as usize;
        Self { all: choices.map(one).into(), turn, seen: 0, chosen: 0 }
    }

    /// A round trip for each demotion and each read below, five for one of the disk. After a turn
    /// all costs lose a quarter, and a choice that costs 2 % less is taken.
    fn reference(&mut self, x: u32, is_write: bool) -> Option<Choice> {
        for (_, tandem, cost) in &mut self.all {
            let read = match tandem.reference(x, is_write) {
                _ if is_write => 0,
                Some(level) => level as u64,
                None => 5,
            };
            *cost += 256 * (read + tandem.down as u64);
        }
        self.seen += 1;
        if self.seen < self.turn {
            return None;
        }
        self.seen = 0;
        let costs: Vec<u64> = self.all.iter().map(|one| one.2).collect();
        let least = *costs.iter().min().unwrap();
        self.all.iter_mut().for_each(|one| one.2 = one.2 * 3 / 4);
        if least as f64 >= (1.0 - 0.02) * costs[self.chosen] as f64 {
            return None;
        }
        self.chosen = costs.iter().position(|&cost| cost == least).unwrap();
        Some(self.all[self.chosen].0)
    }
}

fn window_of(upper: usize, share: f64) -> usize {
    ((share * upper as f64) as usize).max(1)
}

impl Tandem {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32]) -> Self {
        let is_selective = options.get("admit") == Some("frequent");
        let choice = (options.number("window", 0.05), options.number("hirs", 0.1), is_selective);
        let ghosts = (options.get("adapt") == Some("ghosts")).then(|| Ghosts::new(options, sizes));
        Self { ghosts, ..Self::fixed(options, sizes, choice) }
    }

    fn fixed(options: &Options<'_>, sizes: &[u32], choice: Choice) -> Self {
        assert_eq!(options.get("sketch"), Some("exact"), "the model has no sketch");
        let [upper, lower] = [sizes[0] as usize, sizes[1] as usize];
        let (window, hirs, is_selective) = choice;
        let window = window_of(upper, window);
        let main = upper - window;
        Self {
            directory: Directory::new(main + lower, hirs),
            window: (Vec::new(), window),
            main: (Vec::new(), main),
            margin: options.number("margin", 2.0) as u32,
            is_selective,
            counts: Counts::new(lower),
            down: 0,
            wanted: window,
            ghosts: None,
        }
    }

    /// The window grows or shrinks by a block, and the main area with it.
    fn move_border(&mut self) {
        let (lower, hirs) = (self.directory.capacity - self.main.1, self.directory.hirs);
        if self.window.1 > self.wanted {
            (self.window.1, self.main.1) = (self.window.1 - 1, self.main.1 + 1);
            self.directory.set(self.main.1 + lower, hirs);
            if self.window.0.len() > self.window.1 {
                let y = self.window.0.remove(0);
                self.leave_window(y);
            }
        } else if self.window.1 < self.wanted {
            (self.window.1, self.main.1) = (self.window.1 + 1, self.main.1 - 1);
            for victim in self.directory.set(self.main.1 + lower, hirs) {
                without(&mut self.main.0, victim);
            }
            if self.main.0.len() > self.main.1 {
                self.main.0.remove(0);
                self.down += 1;
            }
        }
    }

    pub(crate) fn reference(&mut self, x: u32, is_write: bool) -> Option<usize> {
        self.down = 0;
        let change = self.ghosts.as_mut().and_then(|ghosts| ghosts.reference(x, is_write));
        if let Some((window, hirs, is_selective)) = change {
            self.is_selective = is_selective;
            self.wanted = window_of(self.window.1 + self.main.1, window);
            self.directory.set(self.directory.capacity, hirs);
        }
        self.move_border();
        self.counts.add(x);
        let is_kept = self.directory.has(x);
        for (list, _) in [&mut self.window, &mut self.main] {
            if list.contains(&x) {
                without(list, x);
                list.push(x);
                if is_kept {
                    self.directory.access(x);
                }
                return Some(0);
            }
        }
        if !is_kept && !self.admits(x) {
            self.directory.pass_by(x);
            self.enter_window(x);
            return None;
        }
        if let Some(victim) = self.directory.access(x) {
            without(&mut self.main.0, victim);
        }
        if !is_kept && self.main.0.len() < self.main.1 {
            self.main.0.push(x);
            return None;
        }
        self.enter_window(x);
        is_kept.then_some(1)
    }

    /// Only with a full directory does a block have to be as frequent as the next to leave.
    fn admits(&self, x: u32) -> bool {
        let directory = &self.directory;
        let is_full = directory.lir.len() + directory.queue.len() == directory.capacity;
        !self.is_selective || !is_full || self.counts.of(x) >= self.counts.of(directory.queue[0])
    }

    fn enter_window(&mut self, x: u32) {
        self.window.0.push(x);
        if self.window.0.len() > self.window.1 {
            let y = self.window.0.remove(0);
            self.leave_window(y);
        }
    }

    fn leave_window(&mut self, y: u32) {
        if !self.directory.has(y) || self.main.1 == 0 {
            return;
        }
        if self.main.0.len() == self.main.1 {
            let victim = self.main.0[0];
            let [ours, least] = [y, victim].map(|x| self.counts.of(x));
            if ours <= least + self.margin {
                return;
            }
            self.main.0.remove(0);
            self.down += 1;
        }
        self.main.0.push(y);
    }

    pub(crate) fn held(&self, level: usize) -> Vec<u32> {
        if level == 0 {
            return [&self.window.0[..], &self.main.0[..]].concat();
        }
        (0..64).filter(|x| self.directory.has(*x) && !self.main.0.contains(x)).collect()
    }
}
