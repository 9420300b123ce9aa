//! Residents ordered by count, and by last use within a count; used by LFU. One chain of slots is
//! divided into buckets of equal count, which form a chain too.
//!
//! Counting a use moves a slot to the end of the next bucket. A slot that is alone in its bucket,
//! as the most used blocks are, usually changes the count of the bucket and keeps its place.
//!
//! Node 0 and bucket 0 are sentinels, before the first and after the last. The sentinel's count is
//! the largest, so a search ends there.
//!
//! Invariants (checked by [`Ranking::check`]):
//! 1. the counts of the buckets rise from front to back, and within a bucket the stamps do, if they
//!    are kept; no two slots have the same stamp;
//! 2. a bucket is never empty; it knows its length and its newest slot, each slot its bucket;
//! 3. slots and buckets that are in no chain are in `free_slots` and `free_buckets`.

use crate::Entry;
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};

const SENTINEL: u32 = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    prev: u32,
    next: u32,
    bucket: u32,
    entry: Entry,
}

/// The slots of one count: the part of the chain that ends with `newest`.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    count: u64,
    newest: u32,
    len: u32,
    prev: u32,
    next: u32,
}

/// A set of slots, each with an entry and a count.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    free_slots: Vec<u32>,
    free_buckets: Vec<u32>,
    len: u32,
    /// Time of the last use of each slot, if stamps are kept.
    stamps: Vec<u64>,
    is_stamped: bool,
    /// Number of uses, if stamps are kept.
    uses: u64,
}

impl Ranking {
    /// [`Ranking::recount`] can change counts only if the ranking `is_stamped`: otherwise only the
    /// chain has the order within a bucket.
    pub(crate) fn new(is_stamped: bool) -> Self {
        let end = Bucket { count: u64::MAX, newest: SENTINEL, len: 0, prev: 0, next: 0 };
        Self {
            nodes: vec![Node::default()],
            buckets: vec![end],
            free_slots: Vec::new(),
            free_buckets: Vec::new(),
            len: 0,
            stamps: vec![0],
            is_stamped,
            uses: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Number of slots, at least 1.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// The lowest slot in the order.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<u32> {
        Some(self.nodes[SENTINEL as usize].next).filter(|&slot| slot != SENTINEL)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, slot: u32) -> Entry {
        self.nodes[slot as usize].entry
    }

    #[inline(always)]
    pub(crate) fn count(&self, slot: u32) -> u64 {
        self.buckets[self.nodes[slot as usize].bucket as usize].count
    }

    /// A value that depends on a slot. Reading it early prefetches the slot.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) -> u32 {
        self.nodes[slot as usize].bucket
    }

    /// A slot that is not in the order.
    #[inline(always)]
    pub(crate) fn free_slot(&mut self) -> u32 {
        self.free_slots.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            if self.is_stamped {
                self.stamps.push(0);
            }
            self.nodes.len() as u32 - 1
        })
    }

    #[inline(always)]
    fn stamp(&mut self, slot: u32) {
        if self.is_stamped {
            self.uses += 1;
            self.stamps[slot as usize] = self.uses;
        }
    }

    fn stamp_of(&self, slot: u32) -> Option<u64> {
        self.is_stamped.then(|| self.stamps[slot as usize])
    }

    /// Counts another use.
    #[inline(always)]
    pub(crate) fn promote(&mut self, slot: u32) {
        let bucket = self.nodes[slot as usize].bucket;
        let Bucket { count, len, next, .. } = self.buckets[bucket as usize];
        if len == 1 && self.buckets[next as usize].count != count + 1 {
            self.buckets[bucket as usize].count = count + 1;
            self.stamp(slot);
        } else {
            let below = self.pull(slot);
            self.rank(slot, count + 1, below);
        }
    }

    /// Makes a slot the newest of its count.
    pub(crate) fn renew(&mut self, slot: u32) {
        let count = self.count(slot);
        let below = self.pull(slot);
        self.rank(slot, count, below);
    }

    /// Inserts an entry in a slot that is not in the order.
    #[inline(always)]
    pub(crate) fn insert(&mut self, slot: u32, entry: Entry, count: u64) {
        self.nodes[slot as usize].entry = entry;
        self.rank(slot, count, SENTINEL);
        self.len += 1;
    }

    /// Removes a slot from the order. Returns its count.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) -> u64 {
        let count = self.count(slot);
        self.pull(slot);
        self.len -= 1;
        count
    }

    /// Frees a slot that is not in the order.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free_slots.push(slot);
    }

    /// Unlinks a slot. Returns its bucket, or, if that is empty now, the one below: where a search
    /// for a count that is not smaller may start.
    #[inline(always)]
    fn pull(&mut self, slot: u32) -> u32 {
        let nodes = &mut self.nodes[..];
        let Node { prev, next, bucket, .. } = nodes[slot as usize];
        nodes[prev as usize].next = next;
        nodes[next as usize].prev = prev;
        let buckets = &mut self.buckets[..];
        let left = &mut buckets[bucket as usize];
        left.len -= 1;
        if left.len > 0 {
            if left.newest == slot {
                left.newest = prev;
            }
            return bucket;
        }
        let Bucket { prev: lower, next: higher, .. } = *left;
        buckets[lower as usize].next = higher;
        buckets[higher as usize].prev = lower;
        self.free_buckets.push(bucket);
        lower
    }

    /// Links a slot as the newest of its count. The search starts above bucket `below`, which is
    /// the sentinel or has a count that is not larger.
    #[inline(always)]
    fn rank(&mut self, slot: u32, count: u64, mut below: u32) {
        let buckets = &mut self.buckets[..];
        let mut higher = buckets[below as usize].next;
        while buckets[higher as usize].count <= count {
            below = higher;
            higher = buckets[below as usize].next;
        }
        let lower = &mut buckets[below as usize];
        let prev = lower.newest;
        let bucket = if lower.count == count {
            lower.newest = slot;
            lower.len += 1;
            below
        } else {
            self.insert_bucket(Bucket { count, newest: slot, len: 1, prev: below, next: higher })
        };
        let nodes = &mut self.nodes[..];
        let next = std::mem::replace(&mut nodes[prev as usize].next, slot);
        nodes[next as usize].prev = slot;
        let entry = nodes[slot as usize].entry;
        nodes[slot as usize] = Node { prev, next, bucket, entry };
        self.stamp(slot);
    }

    #[inline(always)]
    fn insert_bucket(&mut self, data: Bucket) -> u32 {
        let bucket = self.free_buckets.pop().unwrap_or_else(|| {
            self.buckets.push(data);
            self.buckets.len() as u32 - 1
        });
        let buckets = &mut self.buckets[..];
        buckets[bucket as usize] = data;
        buckets[data.prev as usize].next = bucket;
        buckets[data.next as usize].prev = bucket;
        bucket
    }

    /// Changes all counts. The function must keep their order, and may make different counts equal:
    /// such buckets are merged by last use. O(n log n).
    #[cold]
    pub(crate) fn recount(&mut self, count: impl Fn(u64) -> u64) {
        let new = |slot| (count(self.count(slot)), self.stamps[slot as usize], slot);
        let mut order: Vec<_> = self.iter().map(new).collect();
        // A stable sort recognises the sorted runs of the buckets.
        order.sort();
        debug_assert!(self.is_stamped);
        self.nodes[SENTINEL as usize] = Node::default();
        self.buckets.truncate(1);
        self.buckets[SENTINEL as usize].next = SENTINEL;
        self.buckets[SENTINEL as usize].prev = SENTINEL;
        self.free_buckets.clear();
        for (count, stamp, slot) in order {
            self.rank(slot, count, self.buckets[SENTINEL as usize].prev);
            self.stamps[slot as usize] = stamp;
        }
    }

    /// The slots in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |&slot: &u32| Some(self.nodes[slot as usize].next).filter(|&s| s != SENTINEL);
        std::iter::successors(self.front(), next)
    }

    /// Saves or loads the order. `placed` is called with every loaded entry and its slot.
    pub(crate) fn save_load(
        &mut self,
        snapshot: &mut Snapshot<'_>,
        mut placed: impl FnMut(Entry, u32) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.uses)?;
        let (uses, is_stamped) = (self.uses, self.is_stamped);
        let stamp = |slot| self.stamp_of(slot).unwrap_or_default();
        let saved = self.iter().map(|slot| (self.entry(slot), (self.count(slot), stamp(slot))));
        for (entry, (count, stamp)) in
            snapshot.entries_with(self.len, saved, |snapshot, (count, stamp)| {
                snapshot.number(count, 1..=CLOCK_MAX)?;
                if is_stamped { snapshot.number(stamp, 1..=uses) } else { Ok(()) }
            })?
        {
            let last = self.buckets[SENTINEL as usize].prev;
            if last != SENTINEL && self.buckets[last as usize].count > count {
                return Err(SnapshotError::new(format!("entry {entry} is out of order")));
            }
            let slot = self.free_slot();
            placed(entry, slot)?;
            self.nodes[slot as usize].entry = entry;
            self.rank(slot, count, last);
            self.len += 1;
            if is_stamped {
                self.stamps[slot as usize] = stamp;
            }
        }
        self.uses = uses;
        Ok(())
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut slot, mut slots, mut buckets) = (SENTINEL, 0, 0);
        let (mut below, mut last_count) = (SENTINEL, 0);
        while self.buckets[below as usize].next != SENTINEL {
            let at = self.buckets[below as usize].next;
            let bucket = self.buckets[at as usize];
            let mut last_stamp = 0;
            for _ in 0..bucket.len {
                let prev = slot;
                slot = self.nodes[prev as usize].next;
                let node = self.nodes[slot as usize];
                if slot == SENTINEL || node.prev != prev || node.bucket != at {
                    return Err(format!("ranking: slot {slot} is not where it should be"));
                }
                let stamp = if self.is_stamped { self.stamps[slot as usize] } else { 0 };
                if self.is_stamped && stamp <= last_stamp {
                    return Err(format!("ranking: slot {slot} was used before the one in front"));
                }
                last_stamp = stamp;
            }
            if bucket.prev != below || bucket.newest != slot || bucket.len == 0 {
                return Err(format!("ranking: bucket {at} ends elsewhere"));
            }
            if bucket.count <= last_count {
                return Err(format!("ranking: the bucket of {} is out of order", bucket.count));
            }
            (below, last_count) = (at, bucket.count);
            (slots, buckets) = (slots + bucket.len as usize, buckets + 1);
        }
        let ends = self.nodes[SENTINEL as usize].prev == slot
            && self.nodes[slot as usize].next == SENTINEL
            && self.buckets[SENTINEL as usize].prev == below;
        let lost = slots + self.free_slots.len() + 1 != self.nodes.len()
            || buckets + self.free_buckets.len() + 1 != self.buckets.len();
        let mut stamps: Vec<_> = self.iter().filter_map(|slot| self.stamp_of(slot)).collect();
        stamps.sort_unstable();
        let unique = stamps.is_sorted_by(|a, b| a < b) && stamps.iter().all(|&s| s <= self.uses);
        match () {
            () if !unique => Err("ranking: two uses have the same stamp".into()),
            () if !ends => Err("ranking: a chain does not end".into()),
            () if lost => Err("ranking: slots or buckets are lost".into()),
            () if slots != self.len as usize => Err(format!("ranking: {slots} slots are counted")),
            () => Ok(()),
        }
    }
}
