//! The exact LRU curve, from stack depths.

use undercroft_policy::Reference;

use super::Curve;
use crate::stack::StackDepths;

/// Computes the LRU curve from a stream of references.
#[derive(Default)]
pub struct LruStack {
    curve: Curve,
    depths: StackDepths,
    /// The depths of the references fed last.
    found: Vec<Option<u32>>,
}

impl LruStack {
    /// Creates an empty stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds references, whose entries are below `entries`.
    pub fn feed(&mut self, entries: u32, refs: &[Reference]) {
        self.depths.grow(entries);
        for refs in refs.chunks(1 << 16) {
            self.found.clear();
            self.depths.references(refs.iter().map(|r| r.entry()), &mut self.found);
            for (reference, &depth) in refs.iter().zip(&self.found) {
                self.curve.count(depth, reference.is_write());
            }
        }
    }

    /// The curve of everything fed.
    pub fn finish(self) -> Curve {
        self.curve
    }
}
