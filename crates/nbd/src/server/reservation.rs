//! The memory that a connection has reserved from the server's budget, and how much of it its
//! requests use.
//!
//! A request is charged when it is admitted, before memory is allocated for it, until the last byte
//! of its answer has been sent. If the connection ends earlier, the request keeps its charge until
//! it ends itself (`reply.rs`).

use std::sync::Arc;
use std::task::Context;

use crate::reply::{Answers, charge};

/// The account of one connection.
pub(super) struct Reservation {
    answers: Arc<Answers>,
    /// Bytes reserved.
    held: u64,
    /// Those of them charged to requests whose answers have not been sent.
    charged: u64,
    /// Those of them charged to requests that have not been answered.
    in_flight: u64,
    /// Bytes that it waits for; 0 if it does not wait.
    waits_for: u64,
}

impl Reservation {
    pub(super) fn new(answers: Arc<Answers>) -> Reservation {
        Reservation { answers, held: 0, charged: 0, in_flight: 0, waits_for: 0 }
    }

    /// Bytes charged to its requests.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// Charges a request, whose data may still have to arrive. If there is no room, the connection
    /// must wait.
    #[inline]
    pub(super) fn admit(&mut self, charge: u64) -> bool {
        let has_room = self.held - self.charged >= charge || self.reserve(charge);
        if has_room {
            self.charged += charge;
        }
        has_room
    }

    #[cold]
    fn reserve(&mut self, bytes: u64) -> bool {
        let reserved = self.answers.share.reserve(bytes - (self.held - self.charged));
        match reserved {
            Some(more) => self.held += more,
            // A waiting connection keeps nothing that others may be waiting for.
            None => self.give_back(),
        }
        self.waits_for = if reserved.is_some() { 0 } else { bytes };
        reserved.is_some()
    }

    /// A request with this charge has arrived completely, and is started.
    #[inline]
    pub(super) fn begun(&mut self, charge: u64) {
        self.in_flight += charge;
    }

    /// A request with this charge was answered.
    #[inline]
    pub(super) fn answered(&mut self, charge: u64) {
        self.in_flight -= charge;
    }

    /// Answers with this total charge were sent.
    pub(super) fn sent(&mut self, charge: u64) {
        self.charged -= charge;
    }

    /// Whether there was no room for the last request.
    pub(super) fn is_short(&self) -> bool {
        self.waits_for > 0
    }

    /// Whether it still waits for room; its task is woken when there is room.
    pub(super) fn waits(&mut self, cx: &mut Context<'_>) -> bool {
        if self.waits_for > 0 && self.answers.share.wait(self.waits_for, cx.waker()) {
            self.held += self.answers.share.granted();
            self.waits_for = 0;
        }
        self.waits_for > 0
    }

    /// Releases unused bytes when the connection goes to sleep.
    pub(super) fn give_back(&mut self) {
        let spare = self.held - self.charged;
        if spare > 0 {
            self.answers.share.release(spare);
            self.held -= spare;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Reservation { answers, held, in_flight, waits_for, .. } = self;
        let share = &answers.share;
        if *waits_for > 0 {
            share.leave_line();
        }
        let left = answers.queue.close();
        let late = *in_flight - charge(&left);
        drop(left);
        share.release(*held + share.granted() - late);
    }
}
