//! What was given to whom, and when: by this a server judges what clients tell it. Hints take
//! another way than data, so they may come late; and a block that a client sends down is taken only
//! if it must be what the server has, too.
//!
//! Each client of a volume has a bit. A block that has fallen out of the memory, which is bounded,
//! was delivered long ago: nothing is held against a hint about it, and no data of it is taken.

use crate::recent::Recent;

/// Clients that are told apart; what is delivered to others is not remembered.
pub const MAX_CLIENTS: u8 = 64;

/// Fewest blocks remembered: clients may be larger than the cache.
const LEAST_REMEMBERED: u32 = 1 << 16;

#[derive(Clone, Copy, Default)]
struct Delivery {
    /// A bit for each client that got the block as it is now, or wrote it.
    holders: u64,
    /// Of the last read, in microseconds.
    read_us: u64,
    /// Of the last write, in microseconds.
    written_us: u64,
}

/// The blocks delivered of late. Times are microseconds of any one clock.
pub struct Deliveries {
    recent: Recent<Delivery>,
}

/// What a hint that a client evicted a block is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As far as is known the client held it last.
    Last,
    /// Another client holds it still.
    HeldByOthers,
    /// The block was read after that: somebody has it again.
    Stale,
}

impl Deliveries {
    /// For a cache of `capacity` blocks. `seed` makes the index unpredictable for clients that
    /// choose the block numbers; it changes nothing else.
    pub fn new(capacity: u32, seed: u64) -> Self {
        let max = capacity.saturating_mul(2).max(LEAST_REMEMBERED);
        Self { recent: Recent::new(max, seed) }
    }

    /// A read of a block is served to a client; of a part it does not have the block by that.
    pub fn read(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64) {
        if let Some(delivery) = self.recent.touch(block) {
            delivery.holders |= if is_whole { bit(client) } else { 0 };
            delivery.read_us = now_us;
        }
    }

    /// A client writes a block, all of it or a part. Nobody else has it then; the client itself
    /// has it if it wrote all, or had the rest.
    pub fn write(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64) {
        if let Some(delivery) = self.recent.touch(block) {
            let own = bit(client);
            delivery.holders = if is_whole { own } else { delivery.holders & own };
            delivery.written_us = now_us;
        }
    }

    /// A client evicted a block at a time: what that is worth, given who is connected.
    pub fn evict(&mut self, block: u64, client: u8, at_us: u64, connected: u64) -> Standing {
        let Some(mut delivery) = self.recent.get(block) else { return Standing::Last };
        if delivery.read_us > at_us {
            return Standing::Stale;
        }
        delivery.holders &= !bit(client);
        self.recent.set(block, delivery);
        let others = delivery.holders & connected != 0;
        if others { Standing::HeldByOthers } else { Standing::Last }
    }

    /// Whether what a client has of a block must be what the server has: it was delivered to this
    /// client or written by it, and nobody changed it since. `sent_us`: when the client's copy
    /// arrived; a write since then, even the client's own, is newer.
    pub fn may_take(&self, block: u64, client: u8, sent_us: u64) -> bool {
        let known = |delivery: Delivery| {
            delivery.holders & bit(client) != 0 && delivery.written_us < sent_us
        };
        self.recent.get(block).is_some_and(known)
    }

    /// Somebody changed a range other than by writing: nobody is known to have its blocks.
    pub fn forget_within(&mut self, blocks: &std::ops::RangeInclusive<u64>) {
        let count = (blocks.end() - blocks.start()).saturating_add(1);
        if count <= self.recent.len().into() {
            blocks.clone().for_each(|block| _ = self.recent.remove(block));
        } else {
            self.recent.retain(|block| !blocks.contains(&block));
        }
    }

    /// A client's bit goes to another.
    pub fn forget_client(&mut self, client: u8) {
        self.recent.change_all(|delivery| delivery.holders &= !bit(client));
    }

    /// Checks the invariants of the memory.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.recent.check()
    }
}

fn bit(client: u8) -> u64 {
    if client < MAX_CLIENTS { 1 << client } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_judged_by_what_was_delivered() {
        let mut d = Deliveries::new(10, 1);
        d.read(7, 0, true, 100);
        d.read(7, 1, true, 120);
        assert_eq!(d.evict(7, 0, 110, 3), Standing::Stale, "read at 120");
        assert_eq!(d.evict(7, 0, 130, 3), Standing::HeldByOthers);
        assert_eq!(d.evict(7, 1, 130, 3), Standing::Last);
        d.read(7, 0, true, 200);
        d.read(7, 1, true, 210);
        assert_eq!(d.evict(7, 0, 220, 1), Standing::Last, "the other one has gone");
        assert_eq!(d.evict(99, 0, 0, 3), Standing::Last, "unknown");
        d.read(8, 1, true, 300);
        d.forget_client(1);
        assert_eq!(d.evict(8, 0, 310, 3), Standing::Last);
        d.validate().unwrap();
    }

    #[test]
    fn data_is_taken_from_who_must_have_it_only() {
        let mut d = Deliveries::new(10, 1);
        assert!(!d.may_take(5, 0, 50), "unknown");
        d.read(5, 0, true, 10);
        d.read(5, 1, true, 10);
        assert!(d.may_take(5, 0, 50) && d.may_take(5, 1, 50) && !d.may_take(5, 2, 50));
        d.write(5, 1, true, 20);
        assert!(!d.may_take(5, 0, 50), "its copy is old");
        assert!(d.may_take(5, 1, 50));
        assert!(!d.may_take(5, 1, 20) && !d.may_take(5, 1, 19), "sent before it was written");
        d.write(5, 1, false, 60);
        assert!(d.may_take(5, 1, 70), "it had the rest");
        d.write(6, 1, false, 60);
        assert!(!d.may_take(6, 1, 70), "it wrote a part of what it did not have");
        d.evict(5, 1, 80, 3);
        assert!(!d.may_take(5, 1, 90), "it said that it has it no more");
        d.read(5, 9, true, 100);
        d.forget_within(&(5..=5));
        assert!(!d.may_take(5, 9, 110));
        d.read(5, 9, true, 100);
        d.forget_within(&(0..=u64::MAX));
        assert!(!d.may_take(5, 9, 110));
        d.read(4, 0, false, 150);
        assert!(!d.may_take(4, 0, 160), "it has a part");
        d.read(5, 64, true, 200);
        assert!(!d.may_take(5, 64, 210), "too many clients to tell apart");
    }
}
