//! The task that appends changes to a write log: those that wait together in one batch, and one
//! batch after another. A batch waits until the ring has room.

use std::io;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::format::{DATA_MAX, ENTRIES_MAX, PAGE, header_bytes};
use super::ring::{Batch, entries_max};
use super::{Mode, PATIENCE, Queued, Shared, State, gone};

/// Appends until the store is closed.
pub(super) async fn append(shared: Arc<Shared>) {
    while let Some(changes) = next(&shared).await {
        append_these(&shared, changes).await;
    }
    let queued = std::mem::take(&mut shared.state().queue);
    answer_all(queued.into_iter().filter_map(|one| one.answer), || Err(gone()));
}

/// Waits for changes, and for room for them in the ring. `None`: the store is closed.
async fn next(shared: &Shared) -> Option<Vec<Queued>> {
    loop {
        {
            let mut state = shared.state();
            if state.is_over {
                return None;
            }
            let count = state.next_batch(shared.ring.bytes);
            if count > 0 {
                state.is_appending = true;
                return Some(state.queue.drain(..count).collect());
            }
        }
        shared.queued.notified().await;
    }
}

impl State {
    /// How many of the waiting changes go into the next batch, if the ring has room for it now.
    fn next_batch(&self, ring_bytes: u64) -> usize {
        let most = entries_max(ring_bytes).saturating_sub(self.entries).min(ENTRIES_MAX);
        let (mut count, mut data_bytes) = (0, 0);
        for change in self.queue.iter().take(most) {
            let more = change.entry.data_bytes();
            if data_bytes + more > DATA_MAX {
                break;
            }
            (count, data_bytes) = (count + 1, data_bytes + more);
        }
        let bytes = header_bytes(count) + data_bytes.next_multiple_of(PAGE);
        if bytes <= ring_bytes - self.used() { count } else { 0 }
    }

    /// What was appended is in the log.
    fn appended(&mut self, batch: Batch) -> io::Result<()> {
        if let Mode::Failed(why) = &self.mode {
            // What is in the log may be in the store by now, and the log given up.
            return Err(io::Error::other(why.clone()));
        }
        batch.runs().for_each(|run| self.overlay.insert(run));
        self.end = batch.end;
        self.entries += batch.entries.len();
        self.batches.push_back(batch);
        Ok(())
    }
}

async fn append_these(shared: &Arc<Shared>, changes: Vec<Queued>) {
    let (mut entries, mut data, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for Queued { entry, data: pieces, answer } in changes {
        entries.push(entry);
        data.extend(pieces);
        answers.extend(answer);
    }
    let (start, durable) = {
        let state = shared.state();
        (state.end, state.durable)
    };
    let (batch, bytes) = Batch::new(shared.writer, start, durable, entries, data);
    // It may take effect after it was given up, so the log knows when it has ended.
    let own = Arc::clone(shared);
    let mut write = tokio::spawn(async move { own.ring.write(start.position, bytes).await });
    let mut result = match timeout(PATIENCE, &mut write).await {
        Ok(written) => written.unwrap_or_else(|error| Err(io::Error::other(error))),
        Err(late) => {
            shared.state().late = Some(write);
            Err(late.into())
        }
    };
    if let Err(error) = &result {
        shared.fail(error);
    }
    {
        let mut state = shared.state();
        result = result.and_then(|()| state.appended(batch));
        state.is_appending = false;
    }
    answer_all(answers, || match &result {
        Ok(()) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    });
    shared.work.notify_one();
    shared.moved.notify_waiters();
}

pub(super) fn answer_all(
    answers: impl IntoIterator<Item = oneshot::Sender<io::Result<()>>>,
    result: impl Fn() -> io::Result<()>,
) {
    // Whoever does not wait any more needs no answer.
    answers.into_iter().for_each(|answer| _ = answer.send(result()));
}
