//! CLOCK-CA: a block of the neighbour without the bit, among those from the hand on that may be
//! looked at, is taken from where it is. Else, or if it is CLOCK's own victim, CLOCK's hand goes
//! round.

use super::aware::Aware;
use super::{Block, Model, Step, name, sorted};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct ClockCa {
    c: usize,
    /// With the reference bit, the page at the hand first.
    ring: Vec<(Block, bool)>,
    aware: Aware,
}

impl ClockCa {
    pub fn new(c: usize, aware: Aware) -> ClockCa {
        ClockCa { c, ring: Vec::new(), aware }
    }

    fn evict_held(&mut self) -> Option<Block> {
        let mut passed_clear = false;
        for at in 0..self.aware.window(self.c).min(self.ring.len()) {
            let (b, bit) = self.ring[at];
            if !bit && self.aware.holds(b) {
                return passed_clear.then(|| self.ring.remove(at).0);
            }
            passed_clear |= !bit;
        }
        None
    }

    fn evict(&mut self) -> Block {
        if let Some(b) = self.evict_held() {
            return b;
        }
        loop {
            let (b, bit) = self.ring.remove(0);
            if !bit {
                return b;
            }
            self.ring.push((b, false));
        }
    }

    fn admit(&mut self, b: Block) -> Step {
        let full = self.ring.len() >= self.c;
        let evicted = full.then(|| self.evict());
        self.ring.push((b, false));
        Step::miss(evicted)
    }
}

impl Model for ClockCa {
    fn access(&mut self, b: Block) -> Step {
        match self.ring.iter_mut().find(|page| page.0 == b) {
            Some(page) => {
                page.1 = true;
                Step::hit()
            }
            None => self.admit(b),
        }
    }

    fn take(&mut self, b: Block) {
        self.ring.retain(|page| page.0 != b);
    }

    fn place(&mut self, b: Block) -> Step {
        match self.ring.iter().any(|page| page.0 == b) {
            true => Step::hit(),
            false => self.admit(b),
        }
    }

    fn resize(&mut self, capacity: u32) -> Vec<Block> {
        self.c = capacity as usize;
        let mut evicted = Vec::new();
        while self.ring.len() > self.c {
            evicted.push(self.evict());
        }
        evicted
    }

    fn resident(&self) -> Vec<Block> {
        sorted(self.ring.iter().map(|page| page.0).collect())
    }

    fn learn(&mut self, b: Block, holds: bool) {
        self.aware.learn(b, holds);
    }

    fn victim(&self) -> Option<Block> {
        (self.ring.len() >= self.c).then(|| self.clone().evict())
    }

    fn state(&self) -> Value {
        let ring: Vec<_> = self.ring.iter().map(|page| json!([name(page.0), page.1])).collect();
        json!({ "ring_from_hand": ring })
    }
}
