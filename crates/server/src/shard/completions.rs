//! Requests that are done: collected while a shard is locked, answered and counted after it is
//! unlocked.

use std::time::Instant;

use smallvec::SmallVec;
use undercroft_nbd::{CommandKind, Replies};

use crate::answer::told;
use crate::clock;
use crate::counters::{Latencies, Source};
use crate::job::Completion;

/// What a request is counted by.
type Kind = (CommandKind, Source, Instant);

/// Requests that have ended since the last answers were sent.
#[derive(Default)]
pub(crate) struct Completions {
    replies: Replies,
    /// Number of requests for each kind; requests of one kind that end together share an entry.
    runs: SmallVec<[(Kind, u64); 2]>,
}

impl Completions {
    /// With room for `requests` requests.
    pub(crate) fn with_capacity(requests: usize) -> Self {
        Self { replies: Replies::with_capacity(requests), ..Self::default() }
    }

    /// Adds a request.
    #[inline(always)]
    pub(crate) fn push(&mut self, finished: Completion) {
        let Completion { reply, outcome, operation, source, started } = finished;
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

    /// Records their latencies and sends all answers; returns their number.
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

impl Extend<Completion> for Completions {
    fn extend<I: IntoIterator<Item = Completion>>(&mut self, all: I) {
        all.into_iter().for_each(|finished| self.push(finished));
    }
}
