//! What a trace holds besides reads and writes of data: counted by reason, for every format alike.

use std::ops::{Add, AddAssign};

/// Why something in a trace is no record: it moves no data, or not known in which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An operation that is neither a read nor a write: a flush, a discard, a deletion.
    Operation,
    /// A request of length zero.
    Empty,
    /// A request of which the trace does not say whether it is a read or a write, as one that was
    /// never answered.
    Unmarked,
    /// An eviction that a client told, where evictions are not asked for.
    Eviction,
}

/// How many requests of a trace are no records, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    counts: [u64; 4],
}

impl Reason {
    const ALL: [Reason; 4] = [Reason::Operation, Reason::Empty, Reason::Unmarked, Reason::Eviction];

    /// One word, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Operation => "operation",
            Reason::Empty => "empty",
            Reason::Unmarked => "unmarked",
            Reason::Eviction => "eviction",
        }
    }

    /// Words that continue "17 records".
    pub fn words(self) -> &'static str {
        match self {
            Reason::Operation => "that neither read nor write",
            Reason::Empty => "of length zero",
            Reason::Unmarked => "not marked as read or write",
            Reason::Eviction => "of evictions that clients told",
        }
    }
}

impl LeftOut {
    /// So many for one reason.
    pub fn of(reason: Reason, count: u64) -> LeftOut {
        let mut left_out = LeftOut::default();
        left_out.count(reason, count);
        left_out
    }

    /// Counts `count` more.
    pub fn count(&mut self, reason: Reason, count: u64) {
        self.counts[reason as usize] += count;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The reasons that occurred, and how often.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> + use<> {
        Reason::ALL.into_iter().zip(self.counts).filter(|&(_, count)| count > 0)
    }
}

impl Add for LeftOut {
    type Output = LeftOut;

    fn add(mut self, other: LeftOut) -> LeftOut {
        self += other;
        self
    }
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, other: LeftOut) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }
}
