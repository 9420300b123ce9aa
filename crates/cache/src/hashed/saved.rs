//! A hashed cache as bytes and back: which blocks it knows, and what its policy remembers of them.
//! Which frame a block has is not part of it, and the data is not: whoever loads a cache finds the
//! frames empty.
//!
//! The bytes, all whole numbers LEB128 (`memo.rs`): capacity, number of residents, number of known
//! blocks; the blocks, residents first in the policy's order, each as its distance from the one
//! before; then the policy's own.

use super::HashedCache;
use crate::memo::{Memo, Refused};
use crate::policy::Policy;

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
    fn carry(&mut self, memo: &mut Memo<'_>) -> Result<(), Refused> {
        memo.number(&mut self.capacity, 1..=u32::MAX)?;
        memo.number(&mut self.residents, 0..=self.capacity)?;
        let mut known = self.blocks.len() as u64;
        let most = u64::from(self.capacity).saturating_mul(KNOWN_MAX).min(u64::from(u32::MAX >> 1));
        memo.number(&mut known, u64::from(self.residents)..=most)?;
        if memo.is_loading() {
            // Each takes a byte at least.
            if known > memo.rest().len() as u64 {
                return Err(Refused(format!("{known} blocks are not there")));
            }
            self.blocks = vec![0; known as usize];
        }
        let mut before = 0;
        self.blocks.iter_mut().try_for_each(|block| memo.run(&mut before, block))
    }

    /// The head that `bytes` begin with, and the rest of them.
    fn load(bytes: &[u8]) -> Result<(Self, &[u8]), Refused> {
        let mut head = Self { capacity: 0, residents: 0, blocks: Vec::new() };
        let mut memo = Memo::loading(bytes, 0);
        head.carry(&mut memo)?;
        Ok((head, memo.rest()))
    }
}

impl HashedCache {
    /// Which blocks are known, and all that the policy remembers.
    ///
    /// # Errors
    /// The policy cannot be saved (OPT), or something in it is not as it should be.
    pub fn save(&mut self) -> Result<Vec<u8>, Refused> {
        let residents = self.policy.residents();
        let count = residents.len() as u32;
        let mut memo = Memo::saving(self.handles.count() as usize, residents);
        self.policy.carry(&mut memo)?;
        let (policy, order) = memo.saved();
        let mut head = Head {
            capacity: self.policy.capacity(),
            residents: count,
            blocks: order.into_iter().map(|entry| self.handles.slot(entry).block).collect(),
        };
        let mut memo = Memo::saving(0, Vec::new());
        head.carry(&mut memo)?;
        let (mut bytes, _) = memo.saved();
        bytes.extend_from_slice(&policy);
        Ok(bytes)
    }

    /// A cache that goes on where the one that was saved stopped; `policy` is a new one of the same
    /// parameters and capacity. Every resident block has a frame, with nothing in it. The memory
    /// that this takes is bounded by the length of `bytes`, wherever they come from.
    ///
    /// # Errors
    /// The bytes are damaged, or of another policy, other parameters or another capacity.
    pub fn load(policy: Box<dyn Policy>, seed: u64, bytes: &[u8]) -> Result<Self, Refused> {
        let (head, rest) = Head::load(bytes)?;
        if head.capacity != policy.capacity() {
            let (theirs, ours) = (head.capacity, policy.capacity());
            return Err(Refused(format!(
                "it is of a cache of {theirs} blocks, this one has {ours}"
            )));
        }
        let known = head.blocks.len() as u32;
        let mut cache = Self::new(policy, seed);
        cache.policy.grow(known);
        for (number, &block) in (0..).zip(&head.blocks) {
            if cache.enter(block) != number {
                return Err(Refused(format!("block {block} is there twice")));
            }
        }
        let mut memo = Memo::loading(rest, known);
        cache.policy.carry(&mut memo)?;
        if !memo.rest().is_empty() {
            return Err(Refused(format!("{} bytes are left over", memo.rest().len())));
        }
        for entry in 0..head.residents {
            cache.handles.give_frame(entry);
        }
        cache.validate().map_err(Refused)?;
        Ok(cache)
    }

    /// The blocks that were resident when `bytes` were saved, in the policy's order: what can still
    /// be used by a cache that cannot load them.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn residents_of(bytes: &[u8]) -> Result<Vec<u64>, Refused> {
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
