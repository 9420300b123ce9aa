//! Which clients hold which blocks, if several clients share data. The last-copy rule of TPDS 2004
//! needs it: a block that a client evicts while another client has it needs no place below.
//!
//! Only blocks that some client holds take memory.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Most clients of a cluster: one bit for each.
pub const MAX_HOLDERS: usize = 64;

/// The clients that are believed to hold each block, numbered from 0.
pub struct Holders {
    held: HashMap<u64, u64, FixedState>,
}

impl Holders {
    /// An empty map. `seed` makes the index unpredictable for clients that choose the block
    /// numbers; it changes nothing else.
    pub fn new(seed: u64) -> Self {
        Self { held: HashMap::with_hasher(FixedState::with_seed(seed)) }
    }

    /// Notes that a client holds a block.
    ///
    /// # Panics
    /// `client` is not below [`MAX_HOLDERS`]. This holds for all methods.
    pub fn add(&mut self, client: usize, block: u64) {
        *self.held.entry(block).or_default() |= bit(client);
    }

    /// Notes that a client no longer holds a block. Returns whether no client holds it now.
    pub fn remove(&mut self, client: usize, block: u64) -> bool {
        let Some(held) = self.held.get_mut(&block) else { return true };
        *held &= !bit(client);
        let is_last = *held == 0;
        if is_last {
            self.held.remove(&block);
        }
        is_last
    }

    /// The client with the smallest number, other than `client`, that holds a block.
    pub fn peer(&self, client: usize, block: u64) -> Option<usize> {
        let others = self.held.get(&block)? & !bit(client);
        (others != 0).then(|| others.trailing_zeros() as usize)
    }

    /// Whether any client holds a block.
    pub fn is_held(&self, block: u64) -> bool {
        self.held.contains_key(&block)
    }

    /// Number of blocks that clients hold.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no client holds any block.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

fn bit(client: usize) -> u64 {
    assert!(client < MAX_HOLDERS, "client {client} of at most {MAX_HOLDERS}");
    1 << client
}
