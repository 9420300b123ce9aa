//! A queue of messages from other threads for the task of a connection: answers in a server, calls
//! in a client.
//!
//! A running task checks its queue before it sleeps. So only the first message for a sleeping task
//! wakes it; a message for a running task costs an uncontended lock. All messages that have arrived
//! are taken together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// How urgently the task must end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Not at all.
    #[default]
    No,
    /// Finish what was started, and start nothing new.
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
    /// The task's waker while it sleeps.
    sleeper: Option<Waker>,
    stop: Stop,
    closed: bool,
}

impl<T> TaskQueue<T> {
    pub(crate) fn new() -> TaskQueue<T> {
        let state = State { messages: Vec::new(), sleeper: None, stop: Stop::No, closed: false };
        TaskQueue { state: Mutex::new(state) }
    }

    /// A poisoned lock is sound: nothing that runs under it panics half-way.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; returns it as an error if the queue is closed.
    pub(crate) fn push(&self, message: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return Err(message);
        }
        state.messages.push(message);
        wake(state);
        Ok(())
    }

    /// Whether messages will still be read.
    pub(crate) fn is_open(&self) -> bool {
        !self.lock().closed
    }

    /// Adds messages in order; returns them if the queue is closed.
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
        wake(state);
        Vec::new()
    }

    /// Frees memory that only many messages need.
    pub(crate) fn shrink(&self, to: usize) {
        self.lock().messages.shrink_to(to);
    }

    /// Asks the task to end; a lower urgency than before has no effect.
    pub(crate) fn stop(&self, stop: Stop) {
        let mut state = self.lock();
        state.stop = state.stop.max(stop);
        wake(state);
    }

    /// Moves all messages into `into`, which must be empty; for the running task.
    pub(crate) fn take(&self, into: &mut Vec<T>) -> Stop {
        debug_assert!(into.is_empty());
        let mut state = self.lock();
        state.sleeper = None;
        std::mem::swap(&mut state.messages, into);
        state.stop
    }

    /// Asks whether the task may sleep. It may not if something came since [`Self::take`].
    pub(crate) fn sleep(&self, waker: &Waker, known: Stop) -> bool {
        let mut state = self.lock();
        if !state.messages.is_empty() || state.stop != known {
            return false;
        }
        state.sleeper = Some(waker.clone());
        true
    }

    /// Closes the queue when the task ends, and returns the remaining messages; later ones are
    /// refused.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        state.sleeper = None;
        std::mem::take(&mut state.messages)
    }
}

/// Wakes the task, if it sleeps, without the lock.
#[inline]
fn wake<T>(mut state: MutexGuard<'_, State<T>>) {
    let sleeper = state.sleeper.take();
    drop(state);
    if let Some(waker) = sleeper {
        waker.wake();
    }
}
