//! A ghost memory: what LFU, FBR, LRU-K, LFRU and MQ (there called Q_out) keep of the blocks that
//! they no longer hold. A bounded FIFO, one list of the policy's own; what is remembered about a
//! block stays with the policy's other knowledge of it, until it is forgotten.

use super::registry::{Kind, Parameter};
use super::{Entry, EvictionKind, Evictions};
use crate::lists::Lists;

/// The usual parameter. The size is the one that TPDS 2004 gives MQ's Q_out.
pub(super) const GHOST: Parameter = Parameter {
    name: "ghost",
    kind: Kind::Real(0.0, 1000.0),
    default: "4",
    help: "evicted blocks remembered, times the capacity; 0 remembers none",
};

/// Lists of which one may be a ghost memory.
pub(super) trait GhostList {
    /// Number of entries in `list`.
    fn len(&self, list: u32) -> u32;

    /// Puts an entry that is in no list at the newest end of `list`.
    fn remember(&mut self, list: u32, entry: Entry);

    /// Takes the oldest entry out of `list`.
    fn pop(&mut self, list: u32) -> Option<Entry>;

    /// Nothing is known any more of an entry that is in no list.
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

/// The bound of a ghost memory, and the list that it is.
#[derive(Clone, Debug)]
pub(super) struct Ghosts {
    list: u32,
    times: f64,
    max: u32,
}

impl Ghosts {
    /// At most `times` times the capacity, in `list`.
    pub(super) fn new(list: u32, times: f64, capacity: u32) -> Self {
        Self { list, times, max: (times * f64::from(capacity)) as u32 }
    }

    /// An entry, by now in no list, was evicted: it becomes the newest ghost, if there are any.
    #[inline(always)]
    pub(super) fn evict(&self, lists: &mut impl GhostList, entry: Entry, out: &mut Evictions) {
        out.push(
            entry,
            if self.max > 0 { EvictionKind::Remembered } else { EvictionKind::Evicted },
        );
        self.keep(lists, entry, out);
    }

    /// Makes an entry of no list the newest ghost, if there are any; else it is unknown from now
    /// on.
    #[inline(always)]
    pub(super) fn keep(&self, lists: &mut impl GhostList, entry: Entry, out: &mut Evictions) {
        if self.max > 0 {
            lists.remember(self.list, entry);
            self.trim(lists, out);
        } else {
            lists.forget(entry);
        }
    }

    /// Adopts another capacity of the cache and drops the oldest ghosts that are now too many.
    pub(super) fn resize(
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
    pub(super) fn check(&self, lists: &impl GhostList) -> Result<(), String> {
        match lists.len(self.list) {
            len if len > self.max => Err(format!("{len} ghosts, {} allowed", self.max)),
            _ => Ok(()),
        }
    }
}
