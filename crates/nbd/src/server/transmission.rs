//! The transmission phase: one task a connection.
//!
//! The task begins every request that one read brought, all together, and sends all answers that
//! are there in one vectored write. An answer given inside [`Session::serve`] is found by the same
//! turn of the loop, so it wakes nobody.
//!
//! Invariants:
//! 1. `in_flight` counts requests begun and not yet encoded, `charged` their bytes. While a limit
//!    is reached nothing more is read, so memory is bounded by the limits and one payload.
//! 2. The task sleeps only after each of read, answers and send has said that it must wait, or
//!    has nothing to wait for.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::ServerOptions;
use super::busy_poll;
use super::encode::{put_answer, put_failure};
use super::inbox::{Inbox, Incoming};
use super::offer::{Checked, Offer};
use crate::link::{Ended, Link, Transport};
use crate::mailbox::Stop;
use crate::outbox::Outbox;
use crate::reply::{Answer, Answers, Reply, Ticket};
use crate::service::{Failure, Request, Session};
use crate::wire::{CMD_FLAG_FUA, RequestHeader};

/// Bytes of requests that are begun together. What a batch reads is sent before the next one is
/// begun, while it is near the processor.
const BATCH_BYTES: u64 = 512 << 10;

/// One connection in transmission.
pub(crate) struct Transmission {
    transport: Box<dyn Transport>,
    session: Box<dyn Session>,
    offer: Offer,
    inbox: Inbox,
    outbox: Outbox,
    mailbox: Arc<Answers>,
    /// Requests that arrived together; empty between turns.
    requests: Vec<Request>,
    /// Answers just taken; empty between turns.
    answers: Vec<(Ticket, Answer)>,
    stop: Stop,
    /// No more requests will be taken: good-bye was said, or the stream ended.
    closing: bool,
    in_flight: usize,
    charged: u64,
    max_requests: usize,
    max_bytes: u64,
}

impl Transmission {
    pub(crate) fn new(
        link: Link,
        session: Box<dyn Session>,
        offer: Offer,
        options: &ServerOptions,
        mailbox: Arc<Answers>,
    ) -> Transmission {
        Transmission {
            transport: link.transport,
            session,
            offer,
            inbox: Inbox::new(link.input),
            outbox: Outbox::default(),
            mailbox,
            requests: Vec::new(),
            answers: Vec::new(),
            stop: Stop::No,
            closing: false,
            in_flight: 0,
            charged: 0,
            max_requests: options.max_requests,
            max_bytes: options.max_bytes,
        }
    }

    /// Serves requests until the client leaves or the server stops. The transport comes back to
    /// be closed, and the session is dropped.
    pub(crate) async fn run(mut self) -> Result<Box<dyn Transport>, Ended> {
        let result = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.mailbox.close();
        result.map(|()| self.transport)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        loop {
            let read = self.poll_requests(cx)?;
            self.stop = self.mailbox.take(&mut self.answers);
            let answered = self.encode();
            let queued = self.outbox.bytes();
            let idle = match self.outbox.poll_send(cx, &mut *self.transport) {
                Poll::Ready(result) => result.map(|()| self.in_flight == 0)?,
                Poll::Pending => false,
            };
            let sent = self.outbox.bytes() < queued;
            let over = self.closing || self.stop == Stop::Drain;
            if self.stop == Stop::Now || (over && idle) {
                return Poll::Ready(Ok(()));
            }
            let progress = read || answered || sent;
            if !progress && self.mailbox.sleep(cx.waker(), self.stop) {
                busy_poll::waits_for_others(!idle);
                return Poll::Pending;
            }
        }
    }

    /// Whether a limit is reached.
    fn full(&self) -> bool {
        self.in_flight >= self.max_requests || self.charged + self.outbox.bytes() >= self.max_bytes
    }

    /// Begins what is buffered, or else reads once and begins what came; whether there was
    /// anything.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        if self.closing {
            return Ok(false);
        }
        if self.begin_batch()? {
            return Ok(true);
        }
        if self.full() {
            return Ok(false);
        }
        match self.inbox.poll_read(cx, &mut *self.transport) {
            Poll::Pending => return Ok(false),
            Poll::Ready(result) => self.closing = result? == 0,
        }
        self.begin_batch()?;
        Ok(true)
    }

    /// Begins the complete requests that are buffered, up to a batch; whether there was any.
    fn begin_batch(&mut self) -> Result<bool, Ended> {
        let mut any = false;
        let most = self.charged.saturating_add(BATCH_BYTES);
        while !self.closing && !self.full() && self.charged < most {
            match self.inbox.next(&self.offer)? {
                None => break,
                Some(Incoming::Disconnect) => self.closing = true,
                Some(Incoming::Refused(header, (failure, text))) => {
                    put_failure(&mut self.outbox, &self.offer, header.cookie, failure, text);
                }
                Some(Incoming::Request(header, _)) if self.stop != Stop::No => {
                    let (failure, text) = (Failure::ShuttingDown, "the server is going away");
                    put_failure(&mut self.outbox, &self.offer, header.cookie, failure, text);
                }
                Some(Incoming::Request(header, checked)) => self.admit(header, checked),
            }
            any = true;
        }
        if !self.requests.is_empty() {
            self.session.serve(&mut self.requests);
        }
        Ok(any)
    }

    #[inline]
    fn admit(&mut self, header: RequestHeader, checked: Checked) {
        let RequestHeader { cookie, offset, length, .. } = header;
        let Checked { command, wants, charge } = checked;
        self.in_flight += 1;
        self.charged += charge;
        let ticket = Ticket { cookie, offset, length, wants, charge };
        let durable = header.flags & CMD_FLAG_FUA != 0;
        let reply = Reply::new(Arc::clone(&self.mailbox), ticket);
        self.requests.push(Request { command, offset, length, durable, reply });
    }

    /// Encodes the answers just taken; whether there was any.
    fn encode(&mut self) -> bool {
        let any = !self.answers.is_empty();
        for (ticket, answer) in self.answers.drain(..) {
            self.in_flight -= 1;
            self.charged -= ticket.charge;
            put_answer(&mut self.outbox, &self.offer, &ticket, answer);
        }
        any
    }
}
