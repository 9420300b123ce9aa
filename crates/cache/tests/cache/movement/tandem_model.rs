//! A naive model of Tandem, from its rules in `docs/developer/algorithms.md`: plain vectors, LIRS
//! with whole stacks searched from end to end, exact counts.

use super::models::{Counts, Options, without};

/// LIRS with ghosts, as the paper has it. Vectors run from the oldest to the newest.
struct Directory {
    capacity: usize,
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
        let hir = ((hirs * capacity as f64).round() as usize).clamp(1, capacity);
        let most_lir = capacity - hir;
        let (lir, stack, queue, ghosts) = Default::default();
        Self { capacity, most_lir, lir, stack, queue, ghosts }
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
        let victim = is_full.then(|| self.queue.remove(0));
        if let Some(victim) = victim.filter(|victim| self.stack.contains(victim)) {
            self.ghosts.push(victim);
        }
        if self.ghosts.len() > 2 * self.capacity {
            let oldest = self.ghosts.remove(0);
            without(&mut self.stack, oldest);
        }
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
    counts: Counts,
    pub(crate) down: usize,
}

impl Tandem {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32]) -> Self {
        assert_eq!(options.get("sketch"), Some("exact"), "the model has no sketch");
        let [upper, lower] = [sizes[0] as usize, sizes[1] as usize];
        let window = ((options.number("window", 0.05) * upper as f64) as usize).max(1);
        let main = upper - window;
        Self {
            directory: Directory::new(main + lower, options.number("hirs", 0.1)),
            window: (Vec::new(), window),
            main: (Vec::new(), main),
            margin: options.number("margin", 2.0) as u32,
            counts: Counts::new(lower),
            down: 0,
        }
    }

    pub(crate) fn reference(&mut self, x: u32) -> Option<usize> {
        self.down = 0;
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
        if let Some(victim) = self.directory.access(x) {
            without(&mut self.main.0, victim);
        }
        if !is_kept && self.main.0.len() < self.main.1 {
            self.main.0.push(x);
            return None;
        }
        self.window.0.push(x);
        if self.window.0.len() > self.window.1 {
            let y = self.window.0.remove(0);
            self.leave_window(y);
        }
        is_kept.then_some(1)
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
            self.down = 1;
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
