//! Clients that reconnect: finds the newest connection of each client, and waits for the requests
//! of earlier ones (`generation.rs`).
//!
//! Each unanswered request holds the answer queue of its connection. When a connection has been
//! ended and its queue has no holder left, all its requests have ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::handshake::OptionError;
use crate::generation::{BUSY, ConnectionGeneration};
use crate::reply::Answers;
use crate::task_queue::Stop;
use crate::wire::REP_ERR_POLICY;

/// How long a new connection waits for earlier ones; then its client is told to try again.
const WAIT: Duration = Duration::from_secs(1);

/// How often that is checked.
const LOOK: Duration = Duration::from_millis(5);

/// The connections of all clients, by export and id.
#[derive(Default)]
pub(super) struct Lines {
    by_id: Mutex<HashMap<(String, u128), Vec<Member>>>,
}

/// A connection, with its number.
struct Member {
    number: u64,
    answers: Weak<Answers>,
}

/// Why a connection may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// Requests of an earlier connection have not ended.
    Busy,
    /// A newer connection exists.
    Late,
}

impl Lines {
    /// Starts a connection when all requests of earlier ones have ended.
    ///
    /// # Errors
    /// The refusal for the client, if that takes too long or a newer connection exists.
    pub(super) async fn begin(
        &self,
        export: &str,
        generation: ConnectionGeneration,
        answers: &Arc<Answers>,
    ) -> Result<(), OptionError> {
        let began = Instant::now();
        loop {
            let text = match self.enter(export, generation, answers) {
                Ok(()) => return Ok(()),
                Err(Early::Late) => "a newer connection of this client is open".to_owned(),
                Err(Early::Busy) if began.elapsed() < WAIT => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                Err(Early::Busy) => format!(
                    "{BUSY}requests of an earlier connection of this client are still under way; \
                     try again"
                ),
            };
            return Err((REP_ERR_POLICY, text));
        }
    }

    /// Tries to start a connection. Earlier ones are ended, and their requests that have not
    /// started are dropped.
    ///
    /// # Errors
    /// It may not start yet, or not at all.
    pub(super) fn enter(
        &self,
        export: &str,
        generation: ConnectionGeneration,
        answers: &Arc<Answers>,
    ) -> Result<(), Early> {
        let mut all = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, members| {
            members.retain(|member| member.answers.strong_count() > 0);
            !members.is_empty()
        });
        let ConnectionGeneration { id, number } = generation;
        let members = all.entry((export.to_owned(), id)).or_default();
        if members.iter().any(|member| member.number > number) {
            return Err(Early::Late);
        }
        let is_known =
            |member: &Member| std::ptr::eq(member.answers.as_ptr(), Arc::as_ptr(answers));
        if !members.iter().any(is_known) {
            members.push(Member { number, answers: Arc::downgrade(answers) });
        }
        let mut is_busy = false;
        for older in members.iter().filter(|member| member.number < number) {
            if let Some(answers) = older.answers.upgrade() {
                answers.queue.stop(Stop::Now);
                is_busy = true;
            }
        }
        if is_busy { Err(Early::Busy) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn answers() -> Arc<Answers> {
        Arc::new(Answers::new(Budget::new(1, 1).share("v")))
    }

    #[test]
    fn a_connection_waits_for_all_that_the_ones_before_have_begun() {
        let lines = Lines::default();
        let of = |number| ConnectionGeneration { id: 7, number };
        let (first, second) = (answers(), answers());
        assert_eq!(lines.enter("v", of(1), &first), Ok(()));
        let in_flight = Arc::clone(&first);
        assert_eq!(lines.enter("v", of(2), &second), Err(Early::Busy));
        assert_eq!(first.queue.take(&mut Vec::new()), Stop::Now, "the old one is ended");
        drop(first);
        assert_eq!(lines.enter("v", of(2), &second), Err(Early::Busy), "a request is left");
        drop(in_flight);
        assert_eq!(lines.enter("v", of(2), &second), Ok(()));
        assert_eq!(second.queue.take(&mut Vec::new()), Stop::No);
        // A connection that was delayed comes too late.
        assert_eq!(lines.enter("v", of(1), &answers()), Err(Early::Late));
        // With an equal number, of another client or of another export: no connection is ended.
        assert_eq!(lines.enter("v", of(2), &answers()), Ok(()));
        assert_eq!(lines.enter("v", ConnectionGeneration { id: 8, number: 9 }, &answers()), Ok(()));
        assert_eq!(lines.enter("w", of(9), &answers()), Ok(()));
        assert_eq!(second.queue.take(&mut Vec::new()), Stop::No);
        drop(second);
        assert_eq!(lines.enter("v", of(1), &answers()), Ok(()), "nothing is kept of who has gone");
        assert_eq!(lines.by_id.lock().unwrap().len(), 1);
    }
}
