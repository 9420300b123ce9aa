//! What a connection has reserved of the server's budget, and what of it its requests use.
//!
//! A request is charged when it is let in, before memory is taken for it, until the last byte of
//! its answer was sent. If the connection ends before that, the request has what it was charged
//! until it ends itself (`reply.rs`).

use std::sync::Arc;
use std::task::Context;

use crate::reply::{Answers, Ticket, charge};

/// The purse of one connection.
pub(super) struct Purse {
    answers: Arc<Answers>,
    /// Bytes that are reserved.
    held: u64,
    /// Those of them that the request was charged whose data is still arriving.
    arriving: u64,
    /// And those of requests in flight.
    in_flight: u64,
    /// And those of answers that were not sent yet.
    unsent: u64,
    /// How much there was no room for; 0 if it does not wait.
    waits_for: u64,
}

impl Purse {
    pub(super) fn new(answers: Arc<Answers>) -> Purse {
        Purse { answers, held: 0, arriving: 0, in_flight: 0, unsent: 0, waits_for: 0 }
    }

    /// Bytes that its requests are charged.
    pub(super) fn charged(&self) -> u64 {
        self.arriving + self.in_flight + self.unsent
    }

    /// Whether so many bytes can be charged. If not, it has to wait for them.
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
                // Who waits keeps nothing that others may wait for.
                self.give_back();
                self.waits_for = bytes;
            }
        }
        self.waits_for == 0
    }

    /// A request is let in, for which there is room; its data may still have to arrive.
    #[inline]
    pub(super) fn let_in(&mut self, charge: u64) {
        self.arriving += charge;
    }

    /// It is here, and will be answered.
    #[inline]
    pub(super) fn begun(&mut self, charge: u64) {
        self.arriving -= charge;
        self.in_flight += charge;
    }

    /// It was answered.
    #[inline]
    pub(super) fn answered(&mut self, ticket: &Ticket) {
        self.in_flight -= ticket.charge;
        self.unsent += ticket.charge;
    }

    /// Answers of so many bytes were sent.
    pub(super) fn sent(&mut self, charge: u64) {
        self.unsent -= charge;
    }

    /// Whether there was no room for what came last.
    pub(super) fn is_short(&self) -> bool {
        self.waits_for > 0
    }

    /// Whether it waits for room still; its task is woken when there is.
    pub(super) fn waits(&mut self, cx: &mut Context<'_>) -> bool {
        if self.waits_for > 0 && self.answers.share.wait(self.waits_for, cx.waker()) {
            self.held += self.answers.share.granted();
            self.waits_for = 0;
        }
        self.waits_for > 0
    }

    /// The connection goes to sleep: what it does not use is for others.
    pub(super) fn give_back(&mut self) {
        let spare = self.held - self.charged();
        if spare > 0 {
            self.answers.share.release(spare);
            self.held -= spare;
        }
    }
}

impl Drop for Purse {
    fn drop(&mut self) {
        let Purse { answers, held, in_flight, waits_for, .. } = self;
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
