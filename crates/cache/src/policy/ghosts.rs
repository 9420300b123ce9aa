//! A ghost memory: what LFU, FBR, LRU-K, LFRU and MQ (there called Q_out) keep of the blocks that
//! they no longer hold. A bounded FIFO, one list of the policy's own arena; what is remembered
//! about a block stays in the payload of its node, whose default means "unknown".

use super::registry::{Kind, Parameter};
use super::{Departures, Entry, Fate};
use crate::lists::Lists;

/// The usual parameter. The size is the one that TPDS 2004 gives MQ's Q_out.
pub(super) const GHOST: Parameter = Parameter {
    name: "ghost",
    kind: Kind::Real(0.0, 1000.0),
    default: "4",
    help: "evicted blocks remembered, times the capacity; 0 remembers none",
};

/// The bound of a ghost memory, and the list that it is.
#[derive(Clone)]
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

    /// An unlinked entry was evicted: it becomes the newest ghost, if there are any.
    #[inline(always)]
    pub(super) fn evict<T>(&self, lists: &mut Lists<T>, entry: Entry, out: &mut Departures)
    where
        T: Copy + Default,
    {
        out.push(entry, if self.max > 0 { Fate::Remembered } else { Fate::Evicted });
        self.keep(lists, entry, out);
    }

    /// Makes an unlinked entry the newest ghost, if there are any; else it is unknown from now on.
    #[inline(always)]
    pub(super) fn keep<T>(&self, lists: &mut Lists<T>, entry: Entry, out: &mut Departures)
    where
        T: Copy + Default,
    {
        if self.max > 0 {
            lists.push_back(self.list, entry);
            self.trim(lists, out);
        } else {
            *lists.data_mut(entry) = T::default();
        }
    }

    /// Adopts another capacity of the cache and drops the oldest ghosts that are now too many.
    pub(super) fn resize<T>(&mut self, lists: &mut Lists<T>, capacity: u32, out: &mut Departures)
    where
        T: Copy + Default,
    {
        self.max = Self::new(self.list, self.times, capacity).max;
        self.trim(lists, out);
    }

    #[inline(always)]
    fn trim<T: Copy + Default>(&self, lists: &mut Lists<T>, out: &mut Departures) {
        while lists.len(self.list) > self.max {
            if let Some(oldest) = lists.pop_front(self.list) {
                *lists.data_mut(oldest) = T::default();
                out.push(oldest, Fate::Forgotten);
            }
        }
    }

    /// Checks the bound.
    pub(super) fn check<T: Copy + Default>(&self, lists: &Lists<T>) -> Result<(), String> {
        match lists.len(self.list) {
            len if len > self.max => Err(format!("{len} ghosts, {} allowed", self.max)),
            _ => Ok(()),
        }
    }
}
