//! Saves and loads a cache as bytes: which blocks it knows, and what its policy remembers of them.
//! Frames and data are not saved: after loading, the frames are empty.
//!
//! Format, all integers LEB128 (`crates/policy/src/snapshot.rs`): capacity, number of residents,
//! number of known blocks; then the blocks, residents first in the policy's order, each as its
//! distance from the one before; then the policy's state.

use super::KnownBlocks;
use undercroft_policy::{Policy, Snapshot, SnapshotError};

/// Most blocks that a policy of the registry knows for each block of its capacity: the resident
/// block, and the largest number of ghosts that its parameters allow.
const KNOWN_MAX: u64 = 1001;

/// The fields before the policy's state.
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
            // Each takes at least one byte.
            if known > snapshot.rest().len() as u64 {
                return Err(SnapshotError::new(format!("{known} blocks are not there")));
            }
            self.blocks = vec![0; known as usize];
        }
        let mut before = 0;
        self.blocks.iter_mut().try_for_each(|block| snapshot.run(&mut before, block))
    }

    /// Reads the head of `bytes`. Returns it and the remaining bytes.
    fn load(bytes: &[u8]) -> Result<(Self, &[u8]), SnapshotError> {
        let mut head = Self { capacity: 0, residents: 0, blocks: Vec::new() };
        let mut snapshot = Snapshot::loading(bytes, 0);
        head.save_load(&mut snapshot)?;
        Ok((head, snapshot.rest()))
    }
}

impl KnownBlocks {
    /// See [`HashedCache::save`](crate::HashedCache::save).
    pub(in crate::hashed) fn save(&mut self) -> Result<Vec<u8>, SnapshotError> {
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

    /// See [`HashedCache::load`](crate::HashedCache::load).
    pub(in crate::hashed) fn load(
        policy: Box<dyn Policy>,
        seed: u64,
        bytes: &[u8],
    ) -> Result<Self, SnapshotError> {
        let (head, rest) = Head::load(bytes)?;
        if head.capacity != policy.capacity() {
            let (theirs, ours) = (head.capacity, policy.capacity());
            return Err(SnapshotError::new(format!(
                "it is of a cache of {theirs} blocks, this one has {ours}"
            )));
        }
        let known = head.blocks.len() as u32;
        let mut loaded = Self::new(policy, seed);
        loaded.policy.grow(known);
        for (number, &block) in (0..).zip(&head.blocks) {
            if loaded.enter(block) != number {
                return Err(SnapshotError::new(format!("block {block} is there twice")));
            }
        }
        let mut snapshot = Snapshot::loading(rest, known);
        loaded.policy.save_load(&mut snapshot)?;
        if !snapshot.rest().is_empty() {
            return Err(SnapshotError::new(format!(
                "{} bytes are left over",
                snapshot.rest().len()
            )));
        }
        for entry in 0..head.residents {
            loaded.handles.give_frame(entry);
        }
        loaded.validate().map_err(SnapshotError::new)?;
        Ok(loaded)
    }

    /// The blocks that were resident when `bytes` were saved, in the policy's order. A cache that
    /// cannot load the bytes can still use these.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn residents_of(bytes: &[u8]) -> Result<Vec<u64>, SnapshotError> {
        let (head, _) = Head::load(bytes)?;
        let mut blocks = head.blocks;
        blocks.truncate(head.residents as usize);
        Ok(blocks)
    }
}
