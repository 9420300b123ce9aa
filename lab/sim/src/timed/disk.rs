//! A disk that serves one request at a time, in order of arrival. Reloads wait in a queue of their
//! own until the disk is idle, or are treated like demand, as configured.

use std::collections::{HashMap, VecDeque};

use undercroft_level::placement::ReloadQueue;

use crate::ReloadTime;

/// A task of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A read for this slot.
    Read(usize),
    /// A write for this slot.
    Write(usize),
    /// A reload of this block.
    Reload(u64),
}

/// A reload that was issued.
#[derive(Default)]
struct Flight {
    is_unwanted: bool,
    /// Slots that wait for its data.
    waiting: Vec<usize>,
}

pub(super) struct Disk {
    service_ns: u64,
    time: ReloadTime,
    queue: VecDeque<Work>,
    /// The task in service, and the time at which it ends.
    serving: Option<(Work, u64)>,
    pub(super) reloads: ReloadQueue,
    flights: HashMap<u64, Flight>,
    /// Nanoseconds in which it read, wrote and reloaded.
    pub(super) busy_ns: [u64; 3],
}

/// The result of a finished reload.
pub(super) struct Reloaded {
    /// No client read or wrote the block in the meantime: place it.
    pub(super) is_wanted: bool,
    pub(super) waiting: Vec<usize>,
}

impl Disk {
    pub(super) fn new(service_ns: u64, time: ReloadTime, max_reloads: u32) -> Self {
        Self {
            service_ns,
            time,
            queue: VecDeque::new(),
            serving: None,
            reloads: ReloadQueue::new(max_reloads, 0),
            flights: HashMap::new(),
            busy_ns: [0; 3],
        }
    }

    /// Queues a task. Returns how long it must wait for a reload in service, in nanoseconds.
    pub(super) fn push(&mut self, work: Work, now: u64) -> u64 {
        self.queue.push_back(work);
        match self.serving {
            Some((Work::Reload(_), done)) => done - now,
            _ => 0,
        }
    }

    /// Queues a reload.
    pub(super) fn push_reload(&mut self, block: u64) {
        // Do not queue a second reload of a block, even if the first will be stale: a reload may
        // always be left out.
        if self.flights.contains_key(&block) {
            return;
        }
        self.reloads.push(block);
        if self.time == ReloadTime::Demand {
            if let Some(block) = self.reloads.pop() {
                self.flights.insert(block, Flight::default());
                self.queue.push_back(Work::Reload(block));
            }
        }
    }

    /// Notes that a block is read: its reload is no longer wanted.
    pub(super) fn drop_demanded(&mut self, block: u64) {
        self.reloads.drop_demanded(block);
        self.spoil(block);
    }

    /// Notes that a block is written: its reload is no longer wanted.
    pub(super) fn drop_written(&mut self, block: u64) {
        self.reloads.drop_written(block);
        self.spoil(block);
    }

    fn spoil(&mut self, block: u64) {
        if let Some(flight) = self.flights.get_mut(&block) {
            flight.is_unwanted = true;
        }
    }

    /// Restarts the counts of reloads after a warm-up.
    pub(super) fn restart_counts(&mut self) {
        self.reloads.restart_counts(self.flights.len() as u64);
    }

    /// Lets a slot wait for the reload of its block, if that was issued.
    pub(super) fn join(&mut self, block: u64, slot: usize) -> bool {
        let Some(flight) = self.flights.get_mut(&block) else { return false };
        flight.waiting.push(slot);
        true
    }

    /// Starts the next task if the disk is idle. Returns the time at which it ends.
    pub(super) fn start(&mut self, now: u64) -> Option<u64> {
        if self.serving.is_some() {
            return None;
        }
        let next = self.queue.pop_front().or_else(|| {
            let block = self.reloads.pop()?;
            self.flights.insert(block, Flight::default());
            Some(Work::Reload(block))
        })?;
        let kind = match next {
            Work::Read(_) => 0,
            Work::Write(_) => 1,
            Work::Reload(_) => 2,
        };
        self.busy_ns[kind] += self.service_ns;
        let done = now + self.service_ns;
        self.serving = Some((next, done));
        Some(done)
    }

    /// Ends the task in service, and returns it.
    pub(super) fn done(&mut self) -> Option<Work> {
        self.serving.take().map(|(work, _)| work)
    }

    /// Ends a reload.
    pub(super) fn reloaded(&mut self, block: u64) -> Reloaded {
        let flight = self.flights.remove(&block).unwrap_or_default();
        Reloaded { is_wanted: !flight.is_unwanted, waiting: flight.waiting }
    }
}
