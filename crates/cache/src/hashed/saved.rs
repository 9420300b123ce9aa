//! A hashed cache as bytes and back: which blocks it knows, and what its policy remembers of them.
//! Which frame a block has is not part of it, and the data is not: whoever loads a cache finds the
//! frames empty.
//!
//! The bytes, all whole numbers LEB128 (`snapshot.rs`): capacity, number of residents, number of
//! known blocks; the blocks, residents first in the policy's order, each as its distance from the
//! one before; then the policy's own.

use super::HashedCache;
use crate::policy::Policy;
use crate::snapshot::{Snapshot, SnapshotError};

/// Most blocks that a policy of the registry knows for each block of its capacity: the residents,
/// and ghosts as far as parameters go.
const KNOWN_MAX: u64 = 1001;

/// What stands before the policy's own.
struct Head {
    capacity: u32,
    residents: u32,
    blocks: Vec<u64>,
}

impl Head {
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.number(&mut self.capacity, 1..=u32::MAX)?;
        snapshot.number(&mut self.residents, 0..=self.capacity)?;
        let mut known = self.blocks.len() as u64;
        let most = u64::from(self.capacity).saturating_mul(KNOWN_MAX).min(u64::from(u32::MAX >> 1));
        snapshot.number(&mut known, u64::from(self.residents)..=most)?;
        if snapshot.is_loading() {
            // Each takes a byte at least.
            if known > snapshot.rest().len() as u64 {
                return Err(SnapshotError::new(format!("{known} blocks are not there")));
            }
            self.blocks = vec![0; known as usize];
        }
        let mut before = 0;
        self.blocks.iter_mut().try_for_each(|block| snapshot.run(&mut before, block))
    }

    /// The head that `bytes` begin with, and the rest of them.
    fn load(bytes: &[u8]) -> Result<(Self, &[u8]), SnapshotError> {
        let mut head = Self { capacity: 0, residents: 0, blocks: Vec::new() };
        let mut snapshot = Snapshot::loading(bytes, 0);
        head.save_load(&mut snapshot)?;
        Ok((head, snapshot.rest()))
    }
}

impl HashedCache {
    /// Which blocks are known, and all that the policy remembers.
    ///
    /// # Errors
    /// The policy cannot be saved (OPT), or something in it is not as it should be.
    pub fn save(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let residents = self.policy.residents();
        let count = residents.len() as u32;
        let mut snapshot = Snapshot::saving(self.handles.count() as usize, residents);
        self.policy.save_load(&mut snapshot)?;
        let (policy, order) = snapshot.saved();
        let mut head = Head {
            capacity: self.policy.capacity(),
            residents: count,
            blocks: order.into_iter().map(|entry| self.handles.slot(entry).block).collect(),
        };
        let mut snapshot = Snapshot::saving(0, Vec::new());
        head.save_load(&mut snapshot)?;
        let (mut bytes, _) = snapshot.saved();
        bytes.extend_from_slice(&policy);
        Ok(bytes)
    }

    /// A cache that goes on where the one that was saved stopped; `policy` is a new one of the same
    /// parameters and capacity. Every resident block has a frame, with nothing in it. The memory
    /// that this takes is bounded by the length of `bytes`, wherever they come from.
    ///
    /// # Errors
    /// The bytes are damaged, or of another policy, other parameters or another capacity.
    pub fn load(policy: Box<dyn Policy>, seed: u64, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (head, rest) = Head::load(bytes)?;
        if head.capacity != policy.capacity() {
            let (theirs, ours) = (head.capacity, policy.capacity());
            return Err(SnapshotError::new(format!(
                "it is of a cache of {theirs} blocks, this one has {ours}"
            )));
        }
        let known = head.blocks.len() as u32;
        let mut cache = Self::new(policy, seed);
        cache.policy.grow(known);
        for (number, &block) in (0..).zip(&head.blocks) {
            if cache.enter(block) != number {
                return Err(SnapshotError::new(format!("block {block} is there twice")));
            }
        }
        let mut snapshot = Snapshot::loading(rest, known);
        cache.policy.save_load(&mut snapshot)?;
        if !snapshot.rest().is_empty() {
            return Err(SnapshotError::new(format!(
                "{} bytes are left over",
                snapshot.rest().len()
            )));
        }
        for entry in 0..head.residents {
            cache.handles.give_frame(entry);
        }
        cache.validate().map_err(SnapshotError)?;
        Ok(cache)
    }

    /// The blocks that were resident when `bytes` were saved, in the policy's order: what can still
    /// be used by a cache that cannot load them.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn residents_of(bytes: &[u8]) -> Result<Vec<u64>, SnapshotError> {
        let (head, _) = Head::load(bytes)?;
        let mut blocks = head.blocks;
        blocks.truncate(head.residents as usize);
        Ok(blocks)
    }

    /// All blocks that are known, resident or remembered, in no particular order.
    pub fn known(&self) -> impl Iterator<Item = u64> + '_ {
        self.handles.entries().map(|entry| self.handles.slot(entry).block)
    }
}
