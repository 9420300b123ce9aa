//! The orders of HFA's queues: by recency, by hotness, and by the activity of Hint-K. The tail of a
//! queue gives way first.

use super::super::activity::{ByActivity, Steps};
use crate::Entry;
use crate::heap::{LazyHeap, Words};
use crate::lists::Lists;

/// What a queue orders a block by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// H of the paper, as stored.
    pub(super) heat: f64,
    /// The value of Hint-K.
    pub(super) activity: u32,
}

pub(super) enum Queue {
    Recency(Lists),
    Heat(ByHeat),
    Activity(ByActivity),
}

/// Blocks by falling hotness, the newest ahead among equals. Most blocks have none, and stand in a
/// list at the tail's end; the others are in a heap, which is in order when the list is empty.
pub(super) struct ByHeat {
    /// Front: came first.
    cold: Lists,
    warm: LazyHeap<Words>,
    came: u64,
}

impl ByHeat {
    /// After a change: the tail can be told without another one.
    #[inline(always)]
    fn find_tail(&mut self) {
        if self.cold.len(0) == 0 {
            self.warm.order();
        }
    }
}

impl Queue {
    pub(super) fn recency() -> Self {
        Self::Recency(Lists::new(1))
    }

    pub(super) fn heat() -> Self {
        Self::Heat(ByHeat { cold: Lists::new(1), warm: LazyHeap::new(), came: 0 })
    }

    pub(super) fn activity(steps: Steps) -> Self {
        Self::Activity(ByActivity::new(steps))
    }

    pub(super) fn grow(&mut self, entries: u32) {
        match self {
            Self::Recency(list) => list.grow(entries),
            Self::Heat(ByHeat { cold, warm, .. }) => {
                cold.grow(entries);
                warm.grow(entries);
            }
            Self::Activity(queue) => queue.grow(entries),
        }
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Recency(list) => list.len(0),
            Self::Heat(ByHeat { cold, warm, .. }) => cold.len(0) + warm.len(),
            Self::Activity(queue) => queue.len(),
        }
    }

    /// Puts a block where it belongs; by recency: at the head.
    pub(super) fn push(&mut self, entry: Entry, key: Key) {
        match self {
            Self::Recency(list) => list.push_back(0, entry),
            Self::Heat(queue) if key.heat == 0.0 => queue.cold.push_back(0, entry),
            Self::Heat(queue) => {
                queue.came += 1;
                // Numbers that are not negative are in the order of their bits.
                queue.warm.push(Words(key.heat.to_bits(), queue.came), entry);
                queue.find_tail();
            }
            Self::Activity(queue) => queue.push(entry, key.activity),
        }
    }

    /// Puts a block where it belongs, in the last place there is for it.
    pub(super) fn push_last(&mut self, entry: Entry, key: Key) {
        match self {
            Self::Recency(list) => list.push_front(0, entry),
            Self::Heat(queue) if key.heat == 0.0 => queue.cold.push_front(0, entry),
            Self::Heat(_) | Self::Activity(_) => self.push(entry, key),
        }
    }

    /// Takes out a block that was put in with `key`.
    pub(super) fn remove(&mut self, entry: Entry, key: Key) {
        match self {
            Self::Recency(list) => list.remove(0, entry),
            Self::Heat(queue) => {
                if key.heat == 0.0 {
                    queue.cold.remove(0, entry);
                } else {
                    queue.warm.remove(entry);
                }
                queue.find_tail();
            }
            Self::Activity(queue) => queue.remove(entry, key.activity),
        }
    }

    /// The block that gives way next.
    pub(super) fn tail(&self) -> Option<Entry> {
        match self {
            Self::Recency(list) => list.front(0),
            Self::Heat(queue) => {
                queue.cold.front(0).or_else(|| queue.warm.first().map(|(_, entry)| entry))
            }
            Self::Activity(queue) => queue.victim(),
        }
    }

    /// The head of a queue by recency.
    pub(super) fn newest(&self) -> Option<Entry> {
        match self {
            Self::Recency(list) => list.back(0),
            Self::Heat(_) | Self::Activity(_) => None,
        }
    }

    /// Up to `count` blocks that are warm, from the head on.
    pub(super) fn warm_from_head(&self, count: usize, warm: impl Fn(Entry) -> bool) -> Vec<Entry> {
        let is_warm = |&entry: &Entry| warm(entry);
        match self {
            Self::Recency(list) => list.iter_back(0).filter(is_warm).take(count).collect(),
            Self::Heat(queue) => {
                let mut all: Vec<_> = queue.warm.iter().map(|(Words(h, c), e)| (h, c, e)).collect();
                let colder = all.len().saturating_sub(count);
                if colder > 0 {
                    all.select_nth_unstable(colder);
                }
                all[colder..].sort_unstable();
                all[colder..].iter().rev().map(|&(.., entry)| entry).collect()
            }
            Self::Activity(queue) => queue.iter_back().filter(is_warm).take(count).collect(),
        }
    }

    /// All blocks from the tail on.
    pub(super) fn tail_first(&self) -> Vec<Entry> {
        match self {
            Self::Recency(list) => list.iter(0).collect(),
            Self::Heat(queue) => {
                let mut warm: Vec<_> = queue.warm.iter().collect();
                warm.sort_unstable_by_key(|&(Words(heat, came), _)| (heat, came));
                queue.cold.iter(0).chain(warm.into_iter().map(|(_, entry)| entry)).collect()
            }
            Self::Activity(queue) => queue.iter().collect(),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Recency(list) => list.check(),
            Self::Heat(ByHeat { cold, warm, .. }) => {
                cold.check()?;
                warm.check()
            }
            Self::Activity(queue) => queue.check(),
        }
    }
}
