//! Doubly linked lists over entry handles, in one arena; used by many policies.
//!
//! A node has two 32-bit links and a payload chosen by the policy. Each list is a ring closed by a
//! sentinel node, so linking and unlinking need no branch for missing neighbours. The sentinels are
//! at the start of the arena; the node of entry `e` is at `e + number of lists`.
//!
//! Invariants (checked by [`Lists::check`]):
//! 1. forward and backward traversal of a list visit the same entries, `len(list)` of them;
//! 2. an entry is in at most one list; an entry in no list has `next == UNLINKED`.

use crate::Entry;
use crate::snapshot::{Snapshot, SnapshotError};

/// `next` of a node that is in no list.
const UNLINKED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    prev: u32,
    next: u32,
    data: T,
}

/// A fixed number of lists over entries `0..entries`, with a payload of type `T` for each entry.
#[derive(Clone, Debug)]
pub struct Lists<T = ()> {
    nodes: Vec<Node<T>>,
    lens: Vec<u32>,
}

impl<T: Copy + Default> Lists<T> {
    /// `lists` empty lists over no entries yet.
    pub fn new(lists: u32) -> Self {
        let nodes = (0..lists).map(|i| Node { prev: i, next: i, data: T::default() }).collect();
        Self { nodes, lens: vec![0; lists as usize] }
    }

    /// Takes memory for the handles below `entries`, and no more.
    pub fn reserve(&mut self, entries: u32) {
        let nodes = self.lens.len() + entries as usize;
        self.nodes.reserve_exact(nodes.saturating_sub(self.nodes.len()));
    }

    /// Makes the handles below `entries` valid; new ones are unlinked, with a default payload.
    pub fn grow(&mut self, entries: u32) {
        let nodes = self.lens.len() + entries as usize;
        if nodes > self.nodes.len() {
            let fresh = Node { prev: UNLINKED, next: UNLINKED, data: T::default() };
            self.nodes.resize(nodes, fresh);
        }
    }

    /// Number of valid handles.
    pub fn entries(&self) -> u32 {
        (self.nodes.len() - self.lens.len()) as u32
    }

    /// Number of lists.
    pub fn count(&self) -> u32 {
        self.base()
    }

    #[inline(always)]
    fn base(&self) -> u32 {
        self.lens.len() as u32
    }

    #[inline(always)]
    fn node_of(&self, entry: Entry) -> u32 {
        entry + self.base()
    }

    #[inline(always)]
    fn entry_of(&self, node: u32) -> Option<Entry> {
        node.checked_sub(self.base())
    }

    /// Number of entries in `list`.
    #[inline(always)]
    pub fn len(&self, list: u32) -> u32 {
        self.lens[list as usize]
    }

    /// Whether `entry` is in some list.
    #[inline(always)]
    pub fn linked(&self, entry: Entry) -> bool {
        self.nodes[self.node_of(entry) as usize].next != UNLINKED
    }

    /// The data of an entry, in a list or not.
    #[inline(always)]
    pub fn data(&self, entry: Entry) -> T {
        self.nodes[self.node_of(entry) as usize].data
    }

    /// The data of an entry, to be changed.
    #[inline(always)]
    pub fn data_mut(&mut self, entry: Entry) -> &mut T {
        let node = self.node_of(entry) as usize;
        &mut self.nodes[node].data
    }

    /// The first entry of `list`.
    #[inline(always)]
    pub fn front(&self, list: u32) -> Option<Entry> {
        self.entry_of(self.nodes[list as usize].next)
    }

    /// The last entry of `list`.
    #[inline(always)]
    pub fn back(&self, list: u32) -> Option<Entry> {
        self.entry_of(self.nodes[list as usize].prev)
    }

    /// The neighbour of a linked `entry` toward the back of its list.
    #[inline(always)]
    pub fn next(&self, entry: Entry) -> Option<Entry> {
        self.entry_of(self.nodes[self.node_of(entry) as usize].next)
    }

    /// The neighbour of a linked `entry` toward the front of its list.
    #[inline(always)]
    pub fn prev(&self, entry: Entry) -> Option<Entry> {
        self.entry_of(self.nodes[self.node_of(entry) as usize].prev)
    }

    #[inline(always)]
    fn link(&mut self, node: u32, prev: u32, next: u32) {
        let it = &mut self.nodes[node as usize];
        debug_assert_eq!(it.next, UNLINKED, "an entry is in at most one list");
        it.prev = prev;
        it.next = next;
        self.nodes[prev as usize].next = node;
        self.nodes[next as usize].prev = node;
    }

    /// Inserts an entry, which is in no list, at the front of `list`.
    #[inline(always)]
    pub fn push_front(&mut self, list: u32, entry: Entry) {
        let first = self.nodes[list as usize].next;
        self.link(self.node_of(entry), list, first);
        self.lens[list as usize] += 1;
    }

    /// Inserts an entry, which is in no list, at the back of `list`.
    #[inline(always)]
    pub fn push_back(&mut self, list: u32, entry: Entry) {
        let last = self.nodes[list as usize].prev;
        self.link(self.node_of(entry), last, list);
        self.lens[list as usize] += 1;
    }

    /// Inserts an entry, which is in no list, in front of `next`, which is in `list`.
    #[inline(always)]
    pub fn insert_before(&mut self, list: u32, entry: Entry, next: Entry) {
        let next = self.node_of(next);
        let prev = self.nodes[next as usize].prev;
        self.link(self.node_of(entry), prev, next);
        self.lens[list as usize] += 1;
    }

    /// Removes `entry` from `list`; it must be in that list.
    #[inline(always)]
    pub fn remove(&mut self, list: u32, entry: Entry) {
        let node = self.node_of(entry) as usize;
        let Node { prev, next, .. } = self.nodes[node];
        debug_assert_ne!(next, UNLINKED, "removed from a list it is not in");
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        self.nodes[node].next = UNLINKED;
        self.lens[list as usize] -= 1;
    }

    /// Removes the first entry of `list`.
    #[inline(always)]
    pub fn pop_front(&mut self, list: u32) -> Option<Entry> {
        let entry = self.front(list)?;
        self.remove(list, entry);
        Some(entry)
    }

    /// Moves an entry of `list` to its back; cheap when it is there already.
    #[inline(always)]
    pub fn move_to_back(&mut self, list: u32, entry: Entry) {
        let node = self.node_of(entry);
        let Node { prev, next, .. } = self.nodes[node as usize];
        debug_assert_ne!(next, UNLINKED, "moved within a list it is not in");
        if next == list {
            return;
        }
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        let last = self.nodes[list as usize].prev;
        let it = &mut self.nodes[node as usize];
        it.prev = last;
        it.next = list;
        self.nodes[last as usize].next = node;
        self.nodes[list as usize].prev = node;
    }

    /// The entries of `list`, front to back.
    pub fn iter(&self, list: u32) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.front(list), |&entry| self.next(entry))
    }

    /// Saves or loads `list`; `data` saves or loads each payload.
    pub fn save_load(
        &mut self,
        list: u32,
        snapshot: &mut Snapshot<'_>,
        data: impl FnMut(&mut Snapshot<'_>, &mut T) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let saved = self.iter(list).map(|entry| (entry, self.data(entry)));
        for (entry, data) in snapshot.entries_with(self.len(list), saved, data)? {
            self.push_back(list, entry);
            *self.data_mut(entry) = data;
        }
        Ok(())
    }

    /// A value that depends on the node of `entry`. Reading it early prefetches the node.
    #[inline(always)]
    pub fn prefetch(&self, entry: Entry) -> u32 {
        self.nodes[self.node_of(entry) as usize].next
    }

    /// Checks the structural invariants in the head of this file.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = vec![false; self.entries() as usize];
        for list in 0..self.base() {
            let mut count = 0;
            let mut prev = list;
            let mut node = self.nodes[list as usize].next;
            while node != list {
                let entry = self.entry_of(node).ok_or("a list runs into another's sentinel")?;
                if std::mem::replace(&mut seen[entry as usize], true) {
                    return Err(format!("entry {entry} is linked twice"));
                }
                if self.nodes[node as usize].prev != prev {
                    return Err(format!("entry {entry} in list {list}: prev and next disagree"));
                }
                count += 1;
                prev = node;
                node = self.nodes[node as usize].next;
            }
            if self.nodes[list as usize].prev != prev || count != self.len(list) {
                return Err(format!("list {list}: holds {count}, counts {}", self.len(list)));
            }
        }
        match seen.iter().enumerate().find(|&(e, &s)| s != self.linked(e as Entry)) {
            Some((entry, _)) => Err(format!("entry {entry}: linked mark and lists disagree")),
            None => Ok(()),
        }
    }
}
