//! The memory that a connection has reserved from the server's budget, and how much of it its
//! requests use.
//!
//! A request is charged when it is admitted, before memory is allocated for it, until the last byte
//! of its answer has been sent. If the connection ends earlier, the request keeps its charge until
//! it ends itself (`reply.rs`).

use std::sync::Arc;
use std::task::Context;

use crate::reply::{Answers, Ticket, charge};

/// The account of one connection.
pub(super) struct Reservation {
    answers: Arc<Answers>,
    /// Bytes reserved.
    held: u64,
    /// Those of them charged to the request whose data are arriving.
    arriving: u64,
    /// Those charged to requests in flight.
    in_flight: u64,
    /// Those charged to answers that have not been sent.
    unsent: u64,
    /// Bytes that it waits for; 0 if it does not wait.
    waits_for: u64,
}

impl Reservation {
    pub(super) fn new(answers: Arc<Answers>) -> Reservation {
        Reservation { answers, held: 0, arriving: 0, in_flight: 0, unsent: 0, waits_for: 0 }
    }

    /// Bytes charged to its requests.
    pub(super) fn charged(&self) -> u64 {
        self.arriving + self.in_flight + self.unsent
    }

    /// Whether `bytes` bytes can be charged. If not, the connection must wait for them.
    #[inline]
    pub(super) fn has(&mut self, bytes: u64) -> bool {
        self.held - self.charged() >= bytes || self.reserve(bytes)
    }

    #[cold]
    fn reserve(&mut self, bytes: u64) -> bool {
        let missing = bytes - (self.held - self.charged());
        match self.answers.share.reserve(missing) {
            Some(reserved) => self.held += reserved,
            None => {
                // A waiting connection keeps nothing that others may be waiting for.
                self.give_back();
                self.waits_for = bytes;
            }
        }
        self.waits_for == 0
    }

    /// Charges an admitted request, for which there is room; its data may still have to arrive.
    #[inline]
    pub(super) fn admit(&mut self, charge: u64) {
        self.arriving += charge;
    }

    /// A request has arrived completely, and is started.
    #[inline]
    pub(super) fn begun(&mut self, charge: u64) {
        self.arriving -= charge;
        self.in_flight += charge;
    }

    /// A request was answered.
    #[inline]
    pub(super) fn answered(&mut self, ticket: &Ticket) {
        self.in_flight -= ticket.charge;
        self.unsent += ticket.charge;
    }

    /// Answers with this total charge were sent.
    pub(super) fn sent(&mut self, charge: u64) {
        self.unsent -= charge;
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
        let spare = self.held - self.charged();
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
