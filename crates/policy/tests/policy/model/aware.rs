//! Content awareness, written plainly: of the blocks that would go next, the first that the
//! neighbour holds.

use super::{Block, Params};

#[derive(Clone)]
pub struct Aware {
    /// Share of the capacity that is looked at; none if the policy is not content-aware.
    alpha: Option<f64>,
    held: Vec<Block>,
}

impl Aware {
    /// Of a policy that always is.
    pub fn always(p: Params) -> Aware {
        Aware { alpha: Some(p.get("alpha", 0.5)), held: Vec::new() }
    }

    /// Of a policy with the parameter `ca`.
    pub fn optional(p: Params) -> Aware {
        let is_aware = p.find("ca").is_some_and(|ca| ca > 0.0);
        Aware { alpha: is_aware.then(|| p.get("alpha", 0.5)), held: Vec::new() }
    }

    /// Of a policy that never is.
    pub fn never() -> Aware {
        Aware { alpha: None, held: Vec::new() }
    }

    pub fn is_off(&self) -> bool {
        self.alpha.is_none()
    }

    pub fn learn(&mut self, b: Block, holds: bool) {
        self.held.retain(|&x| x != b);
        if holds {
            self.held.push(b);
        }
    }

    pub fn holds(&self, b: Block) -> bool {
        self.held.contains(&b)
    }

    pub fn window(&self, c: usize) -> usize {
        ((self.alpha.unwrap_or(0.0) * c as f64).ceil() as usize).max(1)
    }

    /// Which of these, listed in the order in which they would go, goes.
    pub fn choose(&self, c: usize, order: &[Block]) -> Block {
        let mut first = order.iter().take(self.window(c));
        *first.find(|&&b| self.holds(b)).unwrap_or(&order[0])
    }
}
