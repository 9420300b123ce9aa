//! Requests that are over: collected while a shard is locked, answered and counted when it is not.

use std::time::Instant;

use smallvec::SmallVec;
use undercroft_nbd::{CommandKind, Replies};

use crate::answer::told;
use crate::clock;
use crate::counters::{Latencies, Source};
use crate::job::Finished;

/// By what a request is counted.
type Kind = (CommandKind, Source, Instant);

/// What has ended since the last answers were given.
#[derive(Default)]
pub(crate) struct Endings {
    replies: Replies,
    /// Those that arrived and end together are counted together.
    runs: SmallVec<[(Kind, u64); 2]>,
}

impl Endings {
    /// Where so many have room.
    pub(crate) fn with_capacity(requests: usize) -> Self {
        Self { replies: Replies::with_capacity(requests), ..Self::default() }
    }

    /// Takes one.
    #[inline(always)]
    pub(crate) fn push(&mut self, finished: Finished) {
        let Finished { reply, outcome, operation, source, started } = finished;
        let kind = (operation, source, started);
        match self.runs.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => self.runs.push((kind, 1)),
        }
        self.replies.add(reply, told(outcome));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Records how long they took and answers them all; how many they were.
    pub(crate) fn answer(self, latencies: &Latencies) -> u64 {
        let (now, mut all) = (clock::now(), 0);
        for ((operation, source, started), count) in self.runs {
            let time = now.saturating_duration_since(started);
            latencies.of(operation, source).record(time, count);
            all += count;
        }
        self.replies.send();
        all
    }
}

impl Extend<Finished> for Endings {
    fn extend<I: IntoIterator<Item = Finished>>(&mut self, all: I) {
        all.into_iter().for_each(|finished| self.push(finished));
    }
}
