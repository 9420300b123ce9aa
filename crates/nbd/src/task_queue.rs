//! What other threads leave for the one task of a connection: answers in a server, calls in a
//! client.
//!
//! A task that runs looks into its queue before it sleeps, so only the first message for a
//! sleeping task wakes it, and one that was left while the task runs costs a lock that nobody
//! waits for. All messages that came together are taken together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// How urgently the task shall come to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Not at all.
    #[default]
    No,
    /// Finish what was begun, begin nothing.
    Drain,
    /// At once.
    Now,
}

/// Messages for one task.
#[derive(Debug)]
pub(crate) struct TaskQueue<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    messages: Vec<T>,
    /// The waker of the task, while it sleeps.
    sleeper: Option<Waker>,
    stop: Stop,
    closed: bool,
}

impl<T> TaskQueue<T> {
    pub(crate) fn new() -> TaskQueue<T> {
        let state = State { messages: Vec::new(), sleeper: None, stop: Stop::No, closed: false };
        TaskQueue { state: Mutex::new(state) }
    }

    /// Nothing that is called under the lock can panic half-way, so a poisoned one is sound.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message; gives it back if nobody will read it any more.
    pub(crate) fn push(&self, message: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return Err(message);
        }
        state.messages.push(message);
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
        Ok(())
    }

    /// Whether somebody will read what is left.
    pub(crate) fn is_open(&self) -> bool {
        !self.lock().closed
    }

    /// Leaves messages in their order; gives them back if nobody will read them any more.
    pub(crate) fn push_all(&self, mut messages: Vec<T>) -> Vec<T> {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return messages;
        }
        if state.messages.is_empty() {
            std::mem::swap(&mut state.messages, &mut messages);
        } else {
            state.messages.append(&mut messages);
        }
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
        Vec::new()
    }

    /// Gives memory back that only many messages need.
    pub(crate) fn shrink(&self, to: usize) {
        self.lock().messages.shrink_to(to);
    }

    /// Asks the task to end; a lesser urgency than before changes nothing.
    pub(crate) fn stop(&self, stop: Stop) {
        let mut state = self.lock();
        state.stop = state.stop.max(stop);
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
    }

    /// The task runs: moves all messages into `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> Stop {
        debug_assert!(into.is_empty());
        let mut state = self.lock();
        state.sleeper = None;
        std::mem::swap(&mut state.messages, into);
        state.stop
    }

    /// The task would sleep: whether it may. It may not if something came since [`Self::take`].
    pub(crate) fn sleep(&self, waker: &Waker, known: Stop) -> bool {
        let mut state = self.lock();
        if !state.messages.is_empty() || state.stop != known {
            return false;
        }
        state.sleeper = Some(waker.clone());
        true
    }

    /// The task ends: what was left and what will be left goes nowhere.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        state.sleeper = None;
        std::mem::take(&mut state.messages)
    }
}
