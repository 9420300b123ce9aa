//! A ghost memory: what LFU, FBR, LRU-K, LFRU and MQ (there called Q_out) keep of evicted blocks.
//! It is a bounded FIFO in one of the policy's lists. The policy keeps what it remembers of a block
//! with its other data, until the block is forgotten.

use crate::containers::lists::Lists;
use crate::registry::{Kind, Parameter};
use crate::{Entry, EvictionKind, Evictions};

/// The parameter for the size; its default is the size of MQ's Q_out in TPDS 2004.
pub(crate) const GHOST: Parameter = Parameter {
    name: "ghost",
    kind: Kind::Real(0.0, 1000.0),
    default: "4",
    help: "evicted blocks remembered, times the capacity; 0 remembers none",
};

/// Lists, one of which may be a ghost memory.
pub(crate) trait GhostList {
    /// Number of entries in `list`.
    fn len(&self, list: u32) -> u32;

    /// Inserts an entry, which is in no list, at the newest end of `list`.
    fn remember(&mut self, list: u32, entry: Entry);

    /// Removes the oldest entry of `list`.
    fn pop(&mut self, list: u32) -> Option<Entry>;

    /// Clears all data of an entry, which is in no list.
    fn forget(&mut self, entry: Entry);
}

impl<T: Copy + Default> GhostList for Lists<T> {
    #[inline(always)]
    fn len(&self, list: u32) -> u32 {
        self.len(list)
    }

    #[inline(always)]
    fn remember(&mut self, list: u32, entry: Entry) {
        self.push_back(list, entry);
    }

    #[inline(always)]
    fn pop(&mut self, list: u32) -> Option<Entry> {
        self.pop_front(list)
    }

    #[inline(always)]
    fn forget(&mut self, entry: Entry) {
        *self.data_mut(entry) = T::default();
    }
}

/// The bound of a ghost memory, and its list.
#[derive(Clone, Debug)]
pub(crate) struct Ghosts {
    list: u32,
    times: f64,
    max: u32,
}

impl Ghosts {
    /// At most `times` times the capacity, in the list `list`.
    pub(crate) fn new(list: u32, times: f64, capacity: u32) -> Self {
        Self { list, times, max: (times * f64::from(capacity)) as u32 }
    }

    /// An entry, which is in no list, was evicted. It becomes the newest ghost, unless the bound is
    /// 0.
    #[inline(always)]
    pub(crate) fn evict(&self, lists: &mut impl GhostList, entry: Entry, out: &mut Evictions) {
        out.push(
            entry,
            if self.max > 0 { EvictionKind::Remembered } else { EvictionKind::Evicted },
        );
        self.keep(lists, entry, out);
    }

    /// Makes an entry, which is in no list, the newest ghost; forgets it if the bound is 0.
    #[inline(always)]
    pub(crate) fn keep(&self, lists: &mut impl GhostList, entry: Entry, out: &mut Evictions) {
        if self.max > 0 {
            lists.remember(self.list, entry);
            self.trim(lists, out);
        } else {
            lists.forget(entry);
        }
    }

    /// Adopts another capacity of the cache, and drops the oldest ghosts beyond the new bound.
    pub(crate) fn resize(
        &mut self,
        lists: &mut impl GhostList,
        capacity: u32,
        out: &mut Evictions,
    ) {
        self.max = Self::new(self.list, self.times, capacity).max;
        self.trim(lists, out);
    }

    #[inline(always)]
    fn trim(&self, lists: &mut impl GhostList, out: &mut Evictions) {
        while lists.len(self.list) > self.max {
            if let Some(oldest) = lists.pop(self.list) {
                lists.forget(oldest);
                out.push(oldest, EvictionKind::Forgotten);
            }
        }
    }

    /// Checks the bound.
    pub(crate) fn check(&self, lists: &impl GhostList) -> Result<(), String> {
        match lists.len(self.list) {
            len if len > self.max => Err(format!("{len} ghosts, {} allowed", self.max)),
            _ => Ok(()),
        }
    }
}
