//! The link between a client and the servers: one block at a time, in order of sending, in either
//! direction. A small message, such as a request or a hint, takes no time but waits for its turn.

pub(super) struct Link {
    /// Time of a block in nanoseconds; 0 for a link without a limit.
    block_ns: u64,
    free_at: u64,
    /// Nanoseconds for which the link carried requested and written blocks, and evicted blocks.
    pub(super) demand_ns: u64,
    pub(super) demotions_ns: u64,
}

impl Link {
    pub(super) fn new(block_ns: u64) -> Self {
        Self { block_ns, free_at: 0, demand_ns: 0, demotions_ns: 0 }
    }

    /// The time at which a small message sent now arrives.
    pub(super) fn send_small(&self, now: u64) -> u64 {
        self.free_at.max(now)
    }

    /// Sends a requested or written block. Returns the time at which it arrives.
    pub(super) fn send_demand(&mut self, now: u64) -> u64 {
        self.demand_ns += self.block_ns;
        self.send(now)
    }

    /// Sends an evicted block. Returns the time at which it arrives.
    pub(super) fn send_demotion(&mut self, now: u64) -> u64 {
        self.demotions_ns += self.block_ns;
        self.send(now)
    }

    fn send(&mut self, now: u64) -> u64 {
        self.free_at = self.free_at.max(now) + self.block_ns;
        self.free_at
    }
}
