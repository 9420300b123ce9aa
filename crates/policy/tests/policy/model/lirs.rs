//! LIRS: stack S by recency, queue Q of resident HIR blocks, both variants of `top`.

use super::{Block, Model, Params, Step, name, names, part, remove, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Lirs {
    c: usize,
    hirs_share: f64,
    nonres_share: f64,
    /// The variant `top=keep`.
    keep: bool,
    /// All entries of S, top first.
    s: Vec<Block>,
    /// The LIR blocks; all of them are in S.
    lir: Vec<Block>,
    /// Resident HIR blocks, front first.
    q: Vec<Block>,
    /// Non-resident entries, the oldest first; all of them are in S.
    nonres: Vec<Block>,
}

impl Lirs {
    pub fn new(c: usize, p: Params) -> Lirs {
        Lirs {
            c,
            hirs_share: p.get("hirs", 0.01),
            nonres_share: p.get("nonres", 2.0),
            keep: p.get("top", 0.0) != 0.0,
            s: Vec::new(),
            lir: Vec::new(),
            q: Vec::new(),
            nonres: Vec::new(),
        }
    }

    fn l_lirs(&self) -> usize {
        if self.keep {
            part(1.0 - self.hirs_share, self.c).min(self.c - 1)
        } else {
            let l_hirs = (self.hirs_share * self.c as f64).round() as usize;
            self.c - l_hirs.max(1).min(self.c)
        }
    }

    fn count(&self) -> usize {
        self.lir.len() + self.q.len()
    }

    /// To the top of S, wherever b was.
    fn lift(&mut self, b: Block) {
        remove(&mut self.s, b);
        self.s.insert(0, b);
    }

    /// To the end of Q, wherever b was.
    fn requeue(&mut self, b: Block) {
        remove(&mut self.q, b);
        self.q.push(b);
    }

    /// Removes from the bottom of S what is not LIR.
    fn trim(&mut self) {
        while let Some(&bottom) = self.s.last() {
            if self.lir.contains(&bottom) {
                return;
            }
            self.s.pop();
            remove(&mut self.nonres, bottom);
        }
    }

    fn bound(&mut self) {
        while self.nonres.len() > part(self.nonres_share, self.c) {
            let oldest = self.nonres.remove(0);
            remove(&mut self.s, oldest);
        }
    }

    fn prune(&mut self) {
        self.trim();
        if self.keep {
            self.bound();
        }
    }

    /// The bottom LIR becomes a resident HIR at the end of Q, outside S.
    fn demote(&mut self) {
        let bottom = self.s.pop().expect("a LIR at the bottom");
        assert!(remove(&mut self.lir, bottom), "the bottom of S is LIR");
        self.q.push(bottom);
        self.prune();
    }

    fn evict(&mut self) -> Block {
        if self.q.is_empty() {
            self.demote();
        }
        let x = self.q.remove(0);
        if self.s.contains(&x) {
            self.nonres.push(x);
        }
        if !self.keep {
            self.bound();
            self.prune();
        }
        x
    }

    /// b, not resident or a resident HIR just out of Q, becomes LIR on top of S.
    fn promote(&mut self, b: Block) {
        self.lift(b);
        self.lir.push(b);
        if self.lir.len() > self.l_lirs() {
            self.demote();
        }
        self.prune();
    }

    fn admit(&mut self, b: Block) -> Step {
        remove(&mut self.nonres, b); // its entry stays in S
        let full = self.count() >= self.c;
        let evicted = full.then(|| self.evict());
        let in_s = self.s.contains(&b);
        if self.l_lirs() == 0 {
            self.q.push(b);
        } else if self.lir.len() < self.l_lirs() && !in_s {
            self.s.insert(0, b);
            self.lir.push(b);
        } else if in_s {
            self.promote(b);
        } else {
            self.s.insert(0, b);
            self.q.push(b);
        }
        Step::miss(evicted)
    }

    fn lir_hit(&mut self, b: Block) {
        let was_bottom = self.s.last() == Some(&b);
        self.lift(b);
        if was_bottom || !self.keep {
            self.prune();
        }
    }

    fn hir_hit(&mut self, b: Block) {
        let on_top = self.s.first() == Some(&b);
        if self.l_lirs() == 0 {
            self.requeue(b);
        } else if self.s.contains(&b) && !(on_top && self.keep) {
            remove(&mut self.q, b);
            self.promote(b);
        } else {
            self.lift(b);
            self.requeue(b);
        }
    }

    /// With no LIR left, S holds nothing.
    fn empty_without_lir(&mut self) {
        if self.lir.is_empty() {
            self.s.clear();
            self.nonres.clear();
        }
    }
}

impl Model for Lirs {
    fn access(&mut self, b: Block) -> Step {
        let step = if self.lir.contains(&b) {
            self.lir_hit(b);
            Step::hit()
        } else if self.q.contains(&b) {
            self.hir_hit(b);
            Step::hit()
        } else {
            self.admit(b)
        };
        self.empty_without_lir();
        step
    }

    fn take(&mut self, b: Block) {
        if remove(&mut self.lir, b) || remove(&mut self.q, b) {
            if self.s.contains(&b) {
                self.nonres.push(b);
            }
            self.trim();
            self.bound();
        }
    }

    fn place(&mut self, b: Block) -> Step {
        let step = if self.lir.contains(&b) {
            self.lir_hit(b);
            Step::hit()
        } else if self.q.contains(&b) {
            if self.l_lirs() > 0 {
                self.lift(b);
            }
            self.requeue(b);
            Step::hit()
        } else {
            self.admit(b)
        };
        self.empty_without_lir();
        step
    }

    fn discard(&mut self, b: Block) {
        let known = [&self.s, &self.q].into_iter().any(|list| list.contains(&b));
        if !known {
            return;
        }
        for list in [&mut self.s, &mut self.lir, &mut self.q, &mut self.nonres] {
            remove(list, b);
        }
        self.trim();
        self.bound();
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        let grows = capacity as usize >= self.c;
        self.c = capacity as usize;
        if grows {
            return Vec::new();
        }
        while self.lir.len() > self.l_lirs() {
            self.demote();
        }
        self.bound();
        let mut evicted = Vec::new();
        while self.count() > self.c {
            evicted.push(self.evict());
        }
        self.trim();
        self.bound();
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted([&self.lir[..], &self.q[..]].concat())
    }

    fn remembered(&self) -> Vec<Block> {
        sorted(self.nonres.clone())
    }

    fn victim(&self) -> Option<Block> {
        if self.count() >= self.c { Some(self.clone().evict()) } else { None }
    }

    fn state(&self) -> Value {
        let status = |b: Block| {
            if self.lir.contains(&b) {
                "L"
            } else if self.q.contains(&b) {
                "H"
            } else {
                "N"
            }
        };
        let s: Vec<_> = self.s.iter().map(|&b| json!([name(b), status(b)])).collect();
        json!({ "S_top_to_bottom": s, "Q_front_to_end": names(&self.q) })
    }
}
