//! The link between a client and the servers: one thing at a time, in the order of their coming,
//! in either direction. What is as small as a request or a hint takes no time, and waits its turn.

pub(super) struct Link {
    /// Time that a block takes; 0 where the link has no limit.
    block_ns: u64,
    free_at: u64,
    /// Time that it carried what was asked for or written, and evicted blocks.
    pub(super) demand_ns: u64,
    pub(super) demotions_ns: u64,
}

impl Link {
    pub(super) fn new(block_ns: u64) -> Self {
        Self { block_ns, free_at: 0, demand_ns: 0, demotions_ns: 0 }
    }

    /// When something small has been sent.
    pub(super) fn send_small(&self, now: u64) -> u64 {
        self.free_at.max(now)
    }

    /// Sends a block that was asked for or written: when it has arrived.
    pub(super) fn send_demand(&mut self, now: u64) -> u64 {
        self.demand_ns += self.block_ns;
        self.send(now)
    }

    /// Sends an evicted block: when it has arrived.
    pub(super) fn send_demotion(&mut self, now: u64) -> u64 {
        self.demotions_ns += self.block_ns;
        self.send(now)
    }

    fn send(&mut self, now: u64) -> u64 {
        self.free_at = self.free_at.max(now) + self.block_ns;
        self.free_at
    }
}
