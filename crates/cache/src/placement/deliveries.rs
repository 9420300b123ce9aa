//! What was given to whom, and when: by this a server judges what clients tell it. Hints take
//! another way than data, so they may come late; and a block that a client sends down is taken only
//! if it must be what the server has, too.
//!
//! Each client of a volume has a bit. What is remembered lies in sets of four by hash, near each
//! other in memory, since every read looks there; a new block takes the place of the one in its
//! set that was asked for or written longest ago. So the memory is bounded. Nothing is held against
//! a hint about a block that has fallen out, and no data of it is taken.

use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use foldhash::fast::FixedState;

/// Clients that are told apart; what is delivered to others is not remembered.
pub const MAX_CLIENTS: u8 = 64;

/// Blocks of a set.
const WAYS: usize = 4;

/// Fewest blocks remembered: clients may be larger than the cache.
const LEAST_REMEMBERED: u32 = 1 << 16;

/// All zero: nothing is there.
#[derive(Clone, Copy, Default)]
struct Delivery {
    block: u64,
    /// A bit for each client that got the block as it is now, or wrote it.
    holders: u64,
    /// Of the last read, in microseconds.
    read_us: u64,
    /// Of the last write, in microseconds.
    written_us: u64,
}

impl Delivery {
    fn is_of(&self, block: u64) -> bool {
        self.block == block && self.last_us() > 0
    }

    fn last_us(&self) -> u64 {
        self.read_us.max(self.written_us)
    }
}

/// The blocks delivered of late. Times are microseconds of any one clock.
pub struct Deliveries {
    sets: Vec<[Delivery; WAYS]>,
    hasher: FixedState,
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
    /// For a cache of `capacity` blocks. `seed` makes the sets unpredictable for clients that
    /// choose the block numbers; it changes nothing else.
    pub fn new(capacity: u32, seed: u64) -> Self {
        let blocks = capacity.saturating_mul(2).max(LEAST_REMEMBERED) as usize;
        let sets = blocks.div_ceil(WAYS).next_power_of_two();
        // All zero, so that memory is taken only as it is used.
        Self { sets: vec![[Delivery::default(); WAYS]; sets], hasher: FixedState::with_seed(seed) }
    }

    fn set(&self, block: u64) -> usize {
        self.hasher.hash_one(block) as usize & (self.sets.len() - 1)
    }

    fn get(&self, block: u64) -> Option<&Delivery> {
        self.sets[self.set(block)].iter().find(|delivery| delivery.is_of(block))
    }

    fn get_mut(&mut self, block: u64) -> Option<&mut Delivery> {
        let set = self.set(block);
        self.sets[set].iter_mut().find(|delivery| delivery.is_of(block))
    }

    /// What is known of a block, which takes a place if nothing is.
    fn enter(&mut self, block: u64) -> &mut Delivery {
        let place = self.set(block);
        let set = &mut self.sets[place];
        let known = set.iter().position(|delivery| delivery.is_of(block));
        let way = known.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&way| set[way].last_us()).unwrap_or(0);
            set[oldest] = Delivery { block, ..Delivery::default() };
            oldest
        });
        &mut set[way]
    }

    /// Brings near what is known of blocks, one after the other, so that the processor overlaps
    /// its waits for memory.
    pub fn warm(&self, blocks: &[u64]) {
        let near = |&block: &u64| self.sets[self.set(block)][0].block;
        std::hint::black_box(blocks.iter().fold(0, |sum, block| sum ^ near(block)));
    }

    /// A read of a block is served to a client; of a part it does not have the block by that.
    pub fn read(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64) {
        let delivery = self.enter(block);
        delivery.holders |= if is_whole { bit(client) } else { 0 };
        delivery.read_us = now_us.max(1);
    }

    /// A client writes a block, all of it or a part. Nobody else has it then; the client itself
    /// has it if it wrote all, or had the rest.
    pub fn write(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64) {
        let delivery = self.enter(block);
        let own = bit(client);
        delivery.holders = if is_whole { own } else { delivery.holders & own };
        delivery.written_us = now_us.max(1);
    }

    /// A client evicted a block at a time: what that is worth, given who is connected.
    #[inline]
    pub fn evict(&mut self, block: u64, client: u8, at_us: u64, connected: u64) -> Standing {
        let Some(delivery) = self.get_mut(block) else { return Standing::Last };
        if delivery.read_us > at_us.max(1) {
            return Standing::Stale;
        }
        delivery.holders &= !bit(client);
        let others = delivery.holders & connected != 0;
        if others { Standing::HeldByOthers } else { Standing::Last }
    }

    /// Who is known to hold a block: a bit for each client.
    pub fn holders(&self, block: u64) -> u64 {
        self.get(block).map_or(0, |delivery| delivery.holders)
    }

    /// Whether what a client has of a block must be what the server has: it was delivered to this
    /// client or written by it, and nobody changed it since. `sent_us`: when the client's copy
    /// arrived; a write since then, even the client's own, is newer.
    pub fn may_take(&self, block: u64, client: u8, sent_us: u64) -> bool {
        let known = |delivery: &Delivery| {
            delivery.holders & bit(client) != 0 && delivery.written_us < sent_us
        };
        self.get(block).is_some_and(known)
    }

    /// Somebody changed a range other than by writing: nobody is known to have its blocks.
    pub fn forget_within(&mut self, blocks: &RangeInclusive<u64>) {
        let count = (blocks.end() - blocks.start()).saturating_add(1);
        if count <= self.sets.len() as u64 {
            for block in blocks.clone() {
                if let Some(delivery) = self.get_mut(block) {
                    *delivery = Delivery::default();
                }
            }
        } else {
            let all = self.sets.iter_mut().flatten();
            all.filter(|one| blocks.contains(&one.block))
                .for_each(|one| *one = Delivery::default());
        }
    }

    /// A client's bit goes to another.
    pub fn forget_client(&mut self, client: u8) {
        self.sets.iter_mut().flatten().for_each(|delivery| delivery.holders &= !bit(client));
    }

    /// Checks that each block lies in its set, once.
    ///
    /// # Errors
    /// Says which does not.
    pub fn validate(&self) -> Result<(), String> {
        for (place, set) in self.sets.iter().enumerate() {
            for one in set.iter().filter(|one| one.last_us() > 0) {
                let times = set.iter().filter(|other| other.is_of(one.block)).count();
                if self.set(one.block) != place || times != 1 {
                    return Err(format!("block {} is {times} times in set {place}", one.block));
                }
            }
        }
        Ok(())
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

    #[test]
    fn memory_is_bounded_and_the_oldest_of_a_set_goes() {
        let mut d = Deliveries::new(10, 1);
        for block in 0..1_000_000 {
            d.read(block, 0, true, block + 1);
        }
        d.validate().unwrap();
        let kept = (0..1_000_000).filter(|&block| d.may_take(block, 0, u64::MAX)).count();
        let most = LEAST_REMEMBERED as usize;
        assert!((most * 99 / 100..=most).contains(&kept), "{kept}");
        let recent = (980_000..1_000_000).filter(|&block| d.may_take(block, 0, u64::MAX)).count();
        // Some sets get more than their share.
        assert!(recent > 19_400, "{recent}");
    }
}
