//! MQ's queues as linked lists: what a neighbour is asked about.

use super::super::ghosts::GhostList;
use super::super::neighbour::{Held, Neighbour, Stretch, whole};
use super::queues::{NOWHERE, Queues, Uses};
use crate::Entry;
use crate::lists::Lists;
use crate::memo::CLOCK_MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    uses: Uses,
    /// When an unreferenced block falls: the queues below the head may have it in any order.
    expire_time: u64,
    queue: u32,
}

impl Default for Block {
    fn default() -> Self {
        Self { uses: Uses::default(), expire_time: 0, queue: NOWHERE }
    }
}

/// See [`Queues`].
#[derive(Clone)]
pub(super) struct Linked {
    m: u32,
    lists: Lists<Block>,
    neighbour: Held,
}

impl Linked {
    /// `m` queues of residents.
    pub(super) fn new(m: u32, neighbour: Held) -> Self {
        Self { m, lists: Lists::new(m + 1), neighbour }
    }
}

/// The queues from the lowest on.
fn order(lists: &Lists<Block>, m: u32) -> impl Iterator<Item = Stretch> {
    (0..m).map(|queue| whole(lists, queue))
}

impl GhostList for Linked {
    fn len(&self, queue: u32) -> u32 {
        self.lists.len(queue)
    }

    fn remember(&mut self, queue: u32, entry: Entry) {
        self.push(queue, entry, 0);
    }

    fn pop(&mut self, queue: u32) -> Option<Entry> {
        let entry = self.lists.front(queue)?;
        self.remove(entry);
        Some(entry)
    }

    fn forget(&mut self, entry: Entry) {
        *self.lists.data_mut(entry) = Block::default();
    }
}

impl Queues for Linked {
    const IS_AWARE: bool = true;
    const TIME_MAX: u64 = CLOCK_MAX;

    fn m(&self) -> u32 {
        self.m
    }

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
        self.neighbour.grow(entries);
    }

    fn entries(&self) -> u32 {
        self.lists.entries()
    }

    fn queue_of(&self, entry: Entry) -> u32 {
        self.lists.data(entry).queue
    }

    fn uses(&self, entry: Entry) -> Uses {
        self.lists.data(entry).uses
    }

    fn set_uses(&mut self, entry: Entry, uses: Uses) {
        self.lists.data_mut(entry).uses = uses;
    }

    fn push(&mut self, queue: u32, entry: Entry, expire_time: u64) {
        self.lists.push_back(queue, entry);
        let block = self.lists.data_mut(entry);
        (block.queue, block.expire_time) = (queue, expire_time);
    }

    fn remove(&mut self, entry: Entry) -> bool {
        let queue = self.queue_of(entry);
        let was_head = self.lists.front(queue) == Some(entry);
        self.neighbour.leaves(&self.lists, entry);
        self.lists.remove(queue, entry);
        self.lists.data_mut(entry).queue = NOWHERE;
        was_head
    }

    fn front(&mut self, queue: u32) -> Option<(Entry, u64)> {
        self.iter(queue).next()
    }

    fn iter(&self, queue: u32) -> impl Iterator<Item = (Entry, u64)> {
        self.lists.iter(queue).map(|entry| (entry, self.lists.data(entry).expire_time))
    }

    fn prefer(&mut self) -> Option<Entry> {
        self.neighbour.prefer(&self.lists, order(&self.lists, self.m))
    }

    fn would_prefer(&self) -> Option<Entry> {
        self.neighbour.would_prefer(&self.lists, order(&self.lists, self.m))
    }

    fn adopt(&mut self, capacity: u32) {
        self.neighbour.adopt(capacity);
    }

    fn learn(&mut self, entry: Entry, holds: bool) {
        self.neighbour.learn(&self.lists, entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.lists.warm_beside(entry)
    }

    fn check(&self) -> Result<(), String> {
        self.lists.check()?;
        self.neighbour.check(&self.lists)?;
        let mut named = (0..=self.m).flat_map(|k| self.lists.iter(k).map(move |e| (k, e)));
        if let Some((queue, entry)) = named.find(|&(k, e)| self.queue_of(e) != k) {
            return Err(format!("entry {entry} of queue {queue} says it is elsewhere"));
        }
        let mut unlinked = (0..self.entries()).filter(|&e| !self.lists.linked(e));
        match unlinked.find(|&e| self.queue_of(e) != NOWHERE) {
            Some(entry) => Err(format!("entry {entry} names a queue and is in none")),
            None => Ok(()),
        }
    }
}
