//! Links between caches that carry a limited number of demoted blocks per second, one after the
//! other. The client makes one request after the other, without pauses. A read waits for the
//! demotions ahead of it.

use crate::DemotionCost;

pub(super) struct Links {
    /// Time of a block on a link; `None` if links are not modelled.
    block_ms: Option<f64>,
    /// The time at which the link below each cache becomes idle.
    free_at: Vec<f64>,
    now: f64,
    waited: f64,
}

impl Links {
    pub(super) fn new(nodes: usize, cost: DemotionCost) -> Self {
        let block_ms = match cost {
            DemotionCost::Link(rate) => Some(1000.0 / rate),
            DemotionCost::Free | DemotionCost::RoundTrip => None,
        };
        Self { block_ms, free_at: vec![0.0; nodes], now: 0.0, waited: 0.0 }
    }

    pub(super) fn restart(&mut self) {
        self.waited = 0.0;
    }

    /// Serves a read that goes down to the cache that has the block, or to the disk; it takes
    /// `own_ms` without waiting.
    pub(super) fn read(&mut self, path: &[usize], found: Option<usize>, own_ms: f64) {
        if self.block_ms.is_none() {
            return;
        }
        let start = self.now;
        // The link of the last cache leads to the disk, and carries no demotions.
        for &node in path {
            if found == Some(node) {
                break;
            }
            self.now = self.now.max(self.free_at[node]);
        }
        self.waited += self.now - start;
        self.now += own_ms;
    }

    /// Sends a block from a cache to the one below.
    pub(super) fn demote(&mut self, above: usize) {
        if let Some(block_ms) = self.block_ms {
            self.free_at[above] = self.free_at[above].max(self.now) + block_ms;
        }
    }

    pub(super) fn waited_ms(&self) -> f64 {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::Links;
    use crate::DemotionCost;

    #[test]
    fn a_read_waits_for_the_demotions_ahead_of_it() {
        let mut links = Links::new(2, DemotionCost::Link(1000.0));
        links.read(&[0, 1], None, 10.0);
        (0..3).for_each(|_| links.demote(0));
        links.read(&[0, 1], Some(0), 0.5);
        assert_eq!(links.waited_ms(), 0.0, "a hit above the link");
        links.read(&[0, 1], Some(1), 2.0);
        assert_eq!(links.waited_ms(), 2.5, "three blocks of 1 ms, half a millisecond later");
        links.read(&[0, 1], None, 2.0);
        assert_eq!(links.waited_ms(), 2.5);
    }
}
