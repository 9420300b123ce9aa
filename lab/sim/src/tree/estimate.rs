//! Evictions that are inferred by emulating the client, and how well they were.

use undercroft_level::Estimator;
use undercroft_policy::Reference;

use super::Tree;
use crate::EstimateOutcome;

/// An emulated client, and the quality of the emulation.
pub(super) struct Estimate {
    estimator: Estimator,
    evicted: Vec<u64>,
    inferred: u64,
    right: u64,
    references: u64,
    by_access: u64,
}

impl Estimate {
    /// A client that requests so many blocks: its cache is no larger.
    pub(super) fn new(blocks: u32) -> Self {
        let estimator = Estimator::new(blocks, 0);
        Self { estimator, evicted: Vec::new(), inferred: 0, right: 0, references: 0, by_access: 0 }
    }

    /// Serves a reference, and places what is inferred to be evicted by it. While too little is
    /// known, blocks are placed at their access.
    pub(super) fn serve(&mut self, tree: &mut Tree, reference: Reference) {
        let by_access = !self.estimator.is_confident();
        tree.set_access_based(by_access);
        let found = tree.refer(reference);
        self.references += 1;
        self.by_access += u64::from(by_access);
        if found == Some(0) && !tree.clients().is_empty() && !reference.is_write() {
            return;
        }
        self.evicted.clear();
        let block = reference.entry().into();
        self.estimator.observe(block, reference.is_write(), &mut self.evicted);
        for &block in &self.evicted {
            self.inferred += 1;
            let holds = tree.clients().first().is_some_and(|top| top.frame(block).is_some());
            self.right += u64::from(!holds);
        }
        if !by_access {
            self.evicted.iter().for_each(|&block| tree.client_evicted(block));
        }
    }

    pub(super) fn restart_counts(&mut self) {
        (self.inferred, self.right) = (0, 0);
        (self.references, self.by_access) = (0, 0);
    }

    /// `is_simulated`: whether the true client was there to compare with.
    pub(super) fn outcome(&self, is_simulated: bool) -> EstimateOutcome {
        EstimateOutcome {
            client_blocks: self.estimator.size(),
            precision: self.estimator.precision(),
            recall: self.estimator.recall(),
            true_precision: is_simulated.then(|| self.right as f64 / self.inferred.max(1) as f64),
            fallback: self.by_access as f64 / self.references.max(1) as f64,
        }
    }
}
