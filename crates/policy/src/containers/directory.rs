//! The directory that ARC and CAR share: resident lists T1 (recently referenced once) and T2 (more
//! often), their ghost lists B1 and B2, and the target size `p` of T1.
//!
//! Invariants (checked by [`Directory::validate`]): `|T1| + |T2|` and `|T1| + |B1|` are at most the
//! capacity, all four lists together at most twice; 0 <= p <= capacity.

use super::queues::Queues;
use crate::content_aware::Neighbour;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions};

/// Entries referenced once recently.
pub const T1: u32 = 0;
/// Entries referenced more often.
pub const T2: u32 = 1;
/// Ghosts of T1.
pub const B1: u32 = 2;
/// Ghosts of T2.
pub const B2: u32 = 3;
pub(crate) const RESIDENT: u32 = 2;

/// The ghost list of T1 or T2.
#[inline(always)]
pub fn ghosts_of(list: u32) -> u32 {
    list + RESIDENT
}

/// The four lists, and the target.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Most resident entries.
    pub capacity: u32,
    /// Target size of T1.
    pub p: f64,
    /// Front: the oldest in the order of the policy.
    pub lists: Queues,
}

impl Directory {
    /// Creates four empty lists.
    pub fn new(capacity: u32) -> Self {
        Self::aware(capacity, None)
    }

    /// Creates four empty lists that know what a neighbour holds.
    pub(crate) fn aware(capacity: u32, neighbour: Option<Neighbour>) -> Self {
        // Entries leave T1 and T2 from anywhere, the ghost lists mostly from the front.
        Self { capacity, p: 0.0, lists: Queues::new([4, 4, 2, 2], neighbour) }
    }

    /// Number of resident entries.
    #[inline(always)]
    pub fn resident(&self) -> u32 {
        self.lists.len(T1) + self.lists.len(T2)
    }

    /// Whether as many are resident as may be.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.resident() == self.capacity
    }

    /// Whether the entry is resident.
    #[inline(always)]
    pub fn contains(&self, entry: Entry) -> bool {
        self.lists.is_below(RESIDENT, entry)
    }

    /// Whether the entry is a ghost.
    #[inline(always)]
    pub fn remembers(&self, entry: Entry) -> bool {
        self.lists.is_in(B1, entry) || self.lists.is_in(B2, entry)
    }

    /// Changes `p` for a reference to an entry that is still in the list `ghosts`.
    pub fn adapt(&mut self, ghosts: u32, whole_steps: bool) {
        let (b1, b2) = (f64::from(self.lists.len(B1)), f64::from(self.lists.len(B2)));
        let ratio = if ghosts == B1 { b2 / b1 } else { b1 / b2 };
        let step = if whole_steps { ratio.floor() } else { ratio }.max(1.0);
        self.p = if ghosts == B1 {
            (self.p + step).min(f64::from(self.capacity))
        } else {
            (self.p - step).max(0.0)
        };
    }

    /// Makes room in the directory for an unknown entry, by dropping at most one ghost. Do not call
    /// it when T1 alone fills the capacity.
    #[inline(always)]
    pub fn make_room_for_unknown(&mut self, out: &mut Evictions) {
        // Nearly always one of the two lists must drop a ghost, unpredictably which: no branch.
        let is_once_full = self.lists.len(T1) + self.lists.len(B1) == self.capacity;
        if is_once_full | (self.total() == 2 * u64::from(self.capacity)) {
            self.lists.forget(if is_once_full { B1 } else { B2 }, out);
        }
    }

    /// Turns a resident entry into a ghost of the list it was in.
    pub fn take(&mut self, entry: Entry) {
        if self.contains(entry) {
            let list = if self.lists.is_in(T1, entry) { T1 } else { T2 };
            self.lists.shift(ghosts_of(list), entry);
        }
    }

    /// Changes the capacity. If too many entries are then resident, the policy replaces them, and
    /// calls [`fit`](Self::fit) after each.
    pub fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.lists.resize(capacity);
        self.p = self.p.min(f64::from(capacity));
        self.fit(out);
    }

    /// Drops ghosts until the lists are within their bounds, as far as that helps.
    pub fn fit(&mut self, out: &mut Evictions) {
        let c = self.capacity;
        while self.lists.len(B1) > 0 && self.lists.len(T1) + self.lists.len(B1) > c {
            self.lists.forget(B1, out);
        }
        while self.lists.len(B2) > 0 && self.total() > 2 * u64::from(c) {
            self.lists.forget(B2, out);
        }
    }

    fn total(&self) -> u64 {
        (T1..=B2).map(|list| u64::from(self.lists.len(list))).sum()
    }

    /// T1, then T2, oldest first.
    pub fn residents(&self) -> Vec<Entry> {
        self.lists.iter(T1).chain(self.lists.iter(T2)).collect()
    }

    /// Saves or loads the target and the lists.
    pub(crate) fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.real(&mut self.p, 0.0..=f64::from(self.capacity))?;
        (T1..=B2).try_for_each(|list| self.lists.save_load(list, snapshot))
    }

    /// Checks the invariants in the head of this file.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        let c = self.capacity;
        let once = self.lists.len(T1) + self.lists.len(B1);
        if self.resident() > c || once > c || self.total() > 2 * u64::from(c) {
            return Err("more resident or remembered than allowed".into());
        }
        if !(0.0..=f64::from(c)).contains(&self.p) {
            return Err(format!("target {} for a capacity of {c}", self.p));
        }
        self.lists.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_real_or_cut() {
        for (whole_steps, up, down) in [(false, 1.5, 0.5), (true, 1.0, 0.0)] {
            let mut directory = Directory::new(8);
            directory.lists.grow(8);
            for (entry, list) in [B1, B1, B2, B2, B2].into_iter().enumerate() {
                directory.lists.push(list, entry as Entry);
            }
            directory.adapt(B1, whole_steps);
            assert_eq!(directory.p, up);
            // 2/3 is below the smallest step, which is 1.
            directory.adapt(B2, whole_steps);
            assert_eq!(directory.p, down);
        }
    }
}
