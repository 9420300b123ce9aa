//! Which clients hold which blocks, where several share data: what the last-copy rule of TPDS 2004
//! goes by. A block that a client evicts while another has it needs no place below.
//!
//! Memory is what the clients hold and no more: a block that nobody has is not here.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Most clients of a cluster: a bit each.
pub const MAX_HOLDERS: usize = 64;

/// The clients that are believed to hold each block. Clients are numbered from 0.
pub struct Holders {
    held: HashMap<u64, u64, FixedState>,
}

impl Holders {
    /// Nobody holds anything. `seed` makes the index unpredictable for clients that choose the
    /// block numbers; it changes nothing else.
    pub fn new(seed: u64) -> Self {
        Self { held: HashMap::with_hasher(FixedState::with_seed(seed)) }
    }

    /// A client has a block from now on.
    ///
    /// # Panics
    /// `client` is not below [`MAX_HOLDERS`]; so for all methods.
    pub fn add(&mut self, client: usize, block: u64) {
        *self.held.entry(block).or_default() |= bit(client);
    }

    /// A client has a block no longer: whether nobody has it now.
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

    /// Whether some client has a block.
    pub fn is_held(&self, block: u64) -> bool {
        self.held.contains_key(&block)
    }

    /// Number of blocks that some client holds.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

fn bit(client: usize) -> u64 {
    assert!(client < MAX_HOLDERS, "client {client} of at most {MAX_HOLDERS}");
    1 << client
}
