//! Any number of lists of entries, each entry in at most one, for the schemes that move blocks
//! between levels. The lists are linked, so both ends of each can be read. The
//! [`Queues`](undercroft_policy::containers::queues::Queues) of policies are faster, but at most
//! four.
//!
//! Invariants (checked by [`ListQueues::check`]): an entry is linked exactly if it names a list,
//! and then it is in that list.

use undercroft_policy::Entry;
use undercroft_policy::containers::lists::Lists;

/// `list` of an entry in no list.
const NOWHERE: u8 = u8::MAX;

/// Linked lists over entries.
#[derive(Clone, Debug)]
pub(crate) struct ListQueues {
    lists: Lists,
    /// The list of each entry, or `NOWHERE`.
    list: Vec<u8>,
}

impl ListQueues {
    /// `lists` empty lists, fewer than 255, over no entries yet.
    pub(crate) fn new(lists: u32) -> Self {
        assert!(lists < u32::from(NOWHERE));
        Self { lists: Lists::new(lists), list: Vec::new() }
    }

    /// Makes handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
        self.list.resize(self.lists.entries() as usize, NOWHERE);
    }

    /// Number of entries in `list`.
    #[inline(always)]
    pub(crate) fn len(&self, list: u32) -> u32 {
        self.lists.len(list)
    }

    /// Whether `entry` is in `list`.
    #[inline(always)]
    pub(crate) fn is_in(&self, list: u32, entry: Entry) -> bool {
        self.list_of(entry) == Some(list)
    }

    /// The list that `entry` is in.
    #[inline(always)]
    pub(crate) fn list_of(&self, entry: Entry) -> Option<u32> {
        Some(self.list[entry as usize]).filter(|&list| list != NOWHERE).map(u32::from)
    }

    /// The oldest entry of `list`.
    #[inline(always)]
    pub(crate) fn front(&self, list: u32) -> Option<Entry> {
        self.lists.front(list)
    }

    /// The newest entry of `list`.
    #[inline(always)]
    pub(crate) fn back(&self, list: u32) -> Option<Entry> {
        self.lists.back(list)
    }

    /// The entries of `list`, oldest first.
    pub(crate) fn iter(&self, list: u32) -> impl Iterator<Item = Entry> + '_ {
        self.lists.iter(list)
    }

    /// Inserts an entry, which is in no list, at the newest end of `list`.
    #[inline(always)]
    pub(crate) fn push(&mut self, list: u32, entry: Entry) {
        self.lists.push_back(list, entry);
        self.list[entry as usize] = list as u8;
    }

    /// Removes the oldest entry of `list`.
    #[inline(always)]
    pub(crate) fn pop(&mut self, list: u32) -> Option<Entry> {
        let oldest = self.lists.pop_front(list)?;
        self.list[oldest as usize] = NOWHERE;
        Some(oldest)
    }

    /// Removes an entry from its list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        if let Some(list) = self.list_of(entry) {
            self.lists.remove(list, entry);
            self.list[entry as usize] = NOWHERE;
        }
    }

    /// Moves an entry of `list` to its newest end.
    #[inline(always)]
    pub(crate) fn renew(&mut self, list: u32, entry: Entry) {
        self.lists.move_to_back(list, entry);
    }

    /// The entries of `list`, oldest first, as text.
    pub(crate) fn text(&self, list: u32) -> String {
        format!("{:?}", self.iter(list).collect::<Vec<_>>())
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        for list in 0..self.lists.count() {
            if let Some(entry) = self.iter(list).find(|&e| !self.is_in(list, e)) {
                return Err(format!("entry {entry} is in list {list} and says it is elsewhere"));
            }
        }
        let wrong = |&e: &Entry| self.lists.linked(e) != self.list_of(e).is_some();
        match (0..self.lists.entries()).find(wrong) {
            Some(entry) => Err(format!("entry {entry}: its list and the lists disagree")),
            None => self.lists.check(),
        }
    }
}
