//! Links between caches that carry so many demoted blocks a second, one after the other. The client
//! asks for one block after the other, without a pause; a read waits for the demotions that are on
//! its way down.

use crate::DemotionCost;

pub(super) struct Links {
    /// Time of a block on a link; none: links are not modelled.
    block_ms: Option<f64>,
    /// When the link below each cache will have nothing more to carry.
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

    /// A read goes down a way to the cache that has the block, or to the disk: `own_ms` in all.
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

    /// A block sets out from a cache to the one below.
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
