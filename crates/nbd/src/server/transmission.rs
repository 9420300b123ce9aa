//! The transmission phase: one task per connection.
//!
//! The task starts all requests that one read brought together, and sends all available answers in
//! one vectored write. An answer given inside [`Session::serve`] is found in the same turn of the
//! loop, so it wakes no task.
//!
//! Connections share threads and take turns: a connection that has done a turn's work yields to the
//! others. A request that costs more than a turn is served at once, and compensated by turns in
//! which nothing is started.
//!
//! Invariants:
//! 1. No request is admitted while a limit is reached: the number of requests in flight, the charge
//!    of these and of unsent answers on this connection, and the server's budget.
//! 2. The task sleeps only after each of read, answers and send has reported that it must wait, or
//!    has nothing to wait for.
//! 3. A client that receives nothing keeps no frames. If others wait for the memory that is held
//!    for it, it does not keep its connection either (`stall_timer.rs`).

use std::sync::Arc;
use std::task::{Context, Poll};

use super::Inner;
use super::busy_poll;
use super::encode::{put_answer, put_failure};
use super::inbox::{Inbox, Incoming};
use super::offer::{Checked, Misfit, Offer, REQUEST_BYTES};
use super::reservation::Reservation;
use super::stall_timer::StallTimer;
use crate::link::{Ended, Link, Transport};
use crate::outbox::Outbox;
use crate::reply::{Answer, Answers, Reply, Ticket};
use crate::service::{Failure, Request, Session};
use crate::task_queue::Stop;
use crate::wire::{CMD_FLAG_FUA, RequestHeader};

/// The work of a turn, in blocks read or written: less than a tenth of a millisecond. The data of a
/// turn are sent before the next turn, while they are in the processor's cache.
const TURN: u64 = 128;

/// Bytes whose sending costs as much as one block.
const SENT_FOR_ONE: u64 = 16 << 10;

/// Requests and answers for which an idle connection keeps memory.
const KEPT: usize = 32;

/// One connection in transmission.
pub(crate) struct Transmission {
    transport: Box<dyn Transport>,
    session: Box<dyn Session>,
    offer: Offer,
    inbox: Inbox,
    outbox: Outbox,
    answers: Arc<Answers>,
    /// Requests that arrived together; empty between turns.
    requests: Vec<Request>,
    /// Answers just taken; empty between turns.
    taken: Vec<(Ticket, Answer)>,
    stop: Stop,
    /// Whether no further requests are read: the client disconnected, or the stream ended.
    closing: bool,
    /// Whether the stream ended without a disconnect request.
    is_gone: bool,
    /// Whether the session was told that no more requests come.
    is_told: bool,
    /// Total weight of the requests in flight.
    in_flight: usize,
    reservation: Reservation,
    stall_timer: StallTimer,
    /// Work done that has not been compensated by turns.
    work_debt: u64,
    max_requests: usize,
    max_bytes: u64,
}

impl Transmission {
    pub(crate) fn new(
        link: Link,
        session: Box<dyn Session>,
        offer: Offer,
        answers: Arc<Answers>,
        server: &Inner,
    ) -> Transmission {
        let options = &server.options;
        Transmission {
            transport: link.transport,
            session,
            offer,
            inbox: Inbox::new(link.input, Arc::clone(&server.aside)),
            outbox: Outbox::default(),
            reservation: Reservation::new(Arc::clone(&answers)),
            answers,
            requests: Vec::new(),
            taken: Vec::new(),
            stop: Stop::No,
            closing: false,
            is_gone: false,
            is_told: false,
            in_flight: 0,
            stall_timer: StallTimer::new(options.stall),
            work_debt: 0,
            max_requests: options.max_requests,
            max_bytes: options.max_bytes,
        }
    }

    /// Serves requests until the client leaves or the server stops. Returns the transport, to be
    /// closed; the session is dropped.
    pub(crate) async fn run(mut self) -> Result<Box<dyn Transport>, Ended> {
        let turn = |cx: &mut Context<'_>| {
            self.work_debt = self.work_debt.saturating_sub(TURN);
            let poll = self.poll(cx);
            self.inbox.end_turn();
            poll
        };
        std::future::poll_fn(turn).await.map(|()| self.transport)
    }

    /// One turn.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        loop {
            let read = self.poll_requests(cx)?;
            self.stop = self.answers.queue.take(&mut self.taken);
            let answered = self.encode();
            let sent = self.outbox.send(cx, &mut *self.transport)?;
            self.reservation.sent(sent.charge);
            self.work_debt += sent.bytes / SENT_FOR_ONE;
            self.stall_timer.moved(sent.bytes);
            let idle = sent.is_all && self.in_flight == 0;
            let over = self.closing || self.stop == Stop::Drain;
            if over && !self.is_told {
                self.is_told = true;
                self.session.no_more(self.is_gone);
                continue;
            }
            if self.stop == Stop::Now || (over && idle) {
                return Poll::Ready(Ok(()));
            }
            if self.work_debt >= TURN {
                return rest(cx);
            }
            if read || answered || sent.bytes > 0 {
                continue;
            }
            let is_stuck = !self.outbox.is_empty() || self.inbox.is_amid_data();
            let (held, share) = (self.reservation.charged(), &self.answers.share);
            if self.stall_timer.ends(cx, is_stuck, held, &mut self.outbox, share) {
                let text = "the client takes and sends nothing, and others wait for the memory";
                return Poll::Ready(Err(Ended::Refused(text.to_owned())));
            }
            if self.answers.queue.sleep(cx.waker(), self.stop) {
                self.reservation.give_back();
                if idle {
                    self.shrink();
                }
                busy_poll::waits_for_others(!idle);
                return Poll::Pending;
            }
        }
    }

    /// Whether a limit of the connection is reached.
    #[inline]
    fn full(&self) -> bool {
        self.in_flight >= self.max_requests || self.reservation.charged() >= self.max_bytes
    }

    /// Starts the buffered requests, or else reads once and starts what came. Returns whether there
    /// was anything.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        if self.closing || self.work_debt >= TURN || self.reservation.waits(cx) {
            return Ok(false);
        }
        let room = self.session.room(cx.waker());
        if self.begin_batch(room)? {
            return Ok(true);
        }
        if self.reservation.is_short() {
            // Room may have become free meanwhile.
            return Ok(!self.reservation.waits(cx));
        }
        // Without room it reads on as far as the inbox goes, to notice a client that leaves.
        let may_not_read = self.full() || room == 0 && self.inbox.is_laden();
        if may_not_read && !self.inbox.is_amid_data() {
            return Ok(false);
        }
        match self.inbox.poll_read(cx, &mut *self.transport) {
            Poll::Pending => return Ok(false),
            Poll::Ready(result) => {
                let count = result?;
                self.stall_timer.moved(count as u64);
                self.is_gone = count == 0;
                self.closing = self.is_gone;
            }
        }
        self.begin_batch(room)?;
        Ok(true)
    }

    /// Starts the completely buffered requests, as far as the turn and the session's `room` allow.
    /// Returns whether there were any.
    fn begin_batch(&mut self, room: usize) -> Result<bool, Ended> {
        let mut any = false;
        loop {
            let has_no_room = self.full() || self.requests.len() >= room;
            let is_full = has_no_room && !self.inbox.is_amid_data();
            if self.closing || self.work_debt >= TURN || is_full {
                break;
            }
            match self.inbox.next(&self.offer, |charge| self.reservation.admit(charge))? {
                None => break,
                Some(Incoming::Disconnect) => self.closing = true,
                Some(Incoming::Refused(header, misfit)) => self.refuse(&header, misfit),
                Some(Incoming::Request(header, checked)) => self.begin(header, checked),
            }
            any = true;
        }
        if !self.requests.is_empty() {
            self.work_debt += self.session.serve(&mut self.requests);
        }
        Ok(any)
    }

    fn refuse(&mut self, header: &RequestHeader, (failure, text): Misfit) {
        self.work_debt += 1;
        put_failure(&mut self.outbox, &self.offer, header.cookie, failure, text);
        self.outbox.charge(REQUEST_BYTES);
    }

    #[inline]
    fn begin(&mut self, header: RequestHeader, checked: Checked) {
        let RequestHeader { cookie, offset, length, .. } = header;
        let Checked { command, wants, one_extent, charge, weight, work } = checked;
        self.reservation.begun(charge);
        self.in_flight += weight;
        self.work_debt += work;
        let ticket = Ticket { cookie, offset, length, wants, one_extent, charge, weight };
        let durable = header.flags & CMD_FLAG_FUA != 0;
        let reply = Reply::new(Arc::clone(&self.answers), ticket);
        if self.stop != Stop::No {
            return reply.fail(Failure::ShuttingDown, "the server is going away".to_owned());
        }
        self.requests.push(Request { command, offset, length, durable, reply });
    }

    /// Encodes the answers just taken; returns whether there were any.
    fn encode(&mut self) -> bool {
        let any = !self.taken.is_empty();
        for (ticket, answer) in self.taken.drain(..) {
            self.in_flight -= ticket.weight;
            self.reservation.answered(ticket.charge);
            put_answer(&mut self.outbox, &self.offer, &ticket, answer);
        }
        any
    }

    /// Frees memory that only many requests need.
    fn shrink(&mut self) {
        if self.taken.capacity() > KEPT || self.requests.capacity() > KEPT {
            self.taken.shrink_to(KEPT);
            self.requests.shrink_to(KEPT);
            self.outbox.shrink(KEPT);
            self.answers.queue.shrink(KEPT);
        }
    }
}

/// Yields, so that other connections have their turns and sockets are checked, and resumes later.
fn rest<T>(cx: &mut Context<'_>) -> Poll<T> {
    use std::future::Future;
    let rest = std::pin::pin!(tokio::task::yield_now());
    // The first poll returns pending, and wakes the task.
    let _ = rest.poll(cx);
    Poll::Pending
}
