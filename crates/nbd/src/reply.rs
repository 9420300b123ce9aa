//! The handle that a request is answered with, and the answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::piece::Pieces;
use crate::service::{Extent, Failure};

/// What a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; no data.
    Done,
    /// The data of a read, in pieces.
    Data(Pieces),
    /// The first bytes of a read that may be answered in several pieces; the rest is zero.
    Start(Pieces),
    /// For each context its key and extents.
    Extents(Vec<(u32, Vec<Extent>)>),
    /// It failed, with a text for people.
    Failed(Failure, String),
}

/// Which kind of answer a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    Data,
    Extents { one: bool },
}

/// What a connection remembers of a request while it is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) wants: Wants,
    /// Bytes that it counts for towards the limit of its connection.
    pub(crate) charge: u64,
}

/// Where the answers of a connection go.
pub(crate) type Answers = Mailbox<(Ticket, Answer)>;

enum Way {
    Connection(Arc<Answers>, Ticket),
    Awaited(oneshot::Sender<Answer>),
}

/// The handle to answer one request with: at once or later, from any thread. Dropping it unused
/// answers EIO. An answer that does not fit the request (data for a write, data of another length
/// than was asked) reaches the client as EIO.
pub struct Reply {
    way: Option<Way>,
    /// The way of another answer, that the request is done, which goes with it.
    rider: Option<Box<Way>>,
}

impl Reply {
    pub(crate) fn new(answers: Arc<Answers>, ticket: Ticket) -> Reply {
        Reply { way: Some(Way::Connection(answers, ticket)), rider: None }
    }

    /// A handle without any connection, and its answer to wait for: for callers of a
    /// [`Session`](crate::Session) other than the protocol, tests above all.
    pub fn detached() -> (Reply, Awaited) {
        let (sender, receiver) = oneshot::channel();
        (Reply { way: Some(Way::Awaited(sender)), rider: None }, Awaited { receiver })
    }

    /// The other request is done, and told so together with this answer, whatever that is: an
    /// answer that nobody waits for is not worth a packet of its own. One only rides on a handle.
    pub fn with(mut self, mut done: Reply) -> Reply {
        for before in [self.rider.take(), done.rider.take()].into_iter().flatten() {
            before.send(Answer::Done);
        }
        self.rider = done.way.take().map(Box::new);
        self
    }

    /// Done; no data.
    pub fn done(self) {
        self.answer(Answer::Done);
    }

    /// The data of a read: `length` bytes in pieces, sent from where they lie.
    pub fn data(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Data(pieces.into()));
    }

    /// The first bytes of a read whose client did not ask for one piece: the rest, of as many bytes
    /// as were asked for, is zero.
    pub fn start(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Start(pieces.into()));
    }

    /// The status of a range: for each selected context its key and extents. Extents go on from
    /// the request's offset, each at least 1 byte; the last one may pass the end of the request.
    pub fn extents(self, contexts: Vec<(u32, Vec<Extent>)>) {
        self.answer(Answer::Extents(contexts));
    }

    /// It failed; the text goes to clients that understand it.
    pub fn fail(self, failure: Failure, message: String) {
        self.answer(Answer::Failed(failure, message));
    }

    /// Any of these.
    pub fn answer(mut self, answer: Answer) {
        self.send(answer);
    }

    /// Gives many answers. Neighbours that go to one connection are left there together, which
    /// costs less than one by one.
    pub fn answer_all(answers: impl IntoIterator<Item = (Reply, Answer)>) {
        let mut rest = answers.into_iter().peekable();
        while let Some((mut reply, answer)) = rest.next() {
            let (mailbox, ticket) = match reply.way.take() {
                Some(Way::Connection(mailbox, ticket)) => (mailbox, ticket),
                other => {
                    reply.way = other;
                    reply.send(answer);
                    continue;
                }
            };
            let count = 1 + rest.size_hint().1.unwrap_or(0);
            // With room for some that ride.
            let mut together = Vec::with_capacity(count + count / 8);
            together.push((ticket, answer));
            reply.join_rider(&mailbox, &mut together);
            while let Some((mut next, answer)) = rest.next_if(|(next, _)| next.goes_to(&mailbox)) {
                if let Some(Way::Connection(_, ticket)) = next.way.take() {
                    together.push((ticket, answer));
                }
                next.join_rider(&mailbox, &mut together);
            }
            mailbox.push_all(together);
        }
    }

    /// The answer that rides takes its place among others that go to the same connection.
    #[inline]
    fn join_rider(&mut self, mailbox: &Arc<Answers>, together: &mut Vec<(Ticket, Answer)>) {
        let Some(rider) = self.rider.take() else { return };
        match *rider {
            Way::Connection(own, ticket) if Arc::ptr_eq(&own, mailbox) => {
                together.push((ticket, Answer::Done));
            }
            other => other.send(Answer::Done),
        }
    }

    fn goes_to(&self, mailbox: &Arc<Answers>) -> bool {
        matches!(&self.way, Some(Way::Connection(own, _)) if Arc::ptr_eq(own, mailbox))
    }

    fn send(&mut self, answer: Answer) {
        if let Some(way) = self.way.take() {
            way.send(answer);
        }
        if let Some(rider) = self.rider.take() {
            rider.send(Answer::Done);
        }
    }
}

impl Way {
    /// Nobody may be waiting any more: the client is gone, or the test lost interest.
    fn send(self, answer: Answer) {
        match self {
            Way::Connection(answers, ticket) => drop(answers.push((ticket, answer))),
            Way::Awaited(sender) => drop(sender.send(answer)),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.way.is_some() {
            self.send(Answer::Failed(Failure::Io, "the request was dropped".to_owned()));
        }
    }
}

/// The answer to come of a [detached](Reply::detached) handle.
#[derive(Debug)]
pub struct Awaited {
    receiver: oneshot::Receiver<Answer>,
}

impl Awaited {
    /// Waits for it on a thread that runs no asynchronous tasks.
    pub fn wait(self) -> Answer {
        self.receiver.blocking_recv().expect("a handle answers, at the latest when dropped")
    }

    /// The answer, if it was given already.
    pub fn now(&mut self) -> Option<Answer> {
        self.receiver.try_recv().ok()
    }
}

impl Future for Awaited {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let answer = Pin::new(&mut self.receiver).poll(cx);
        answer.map(|answer| answer.expect("a handle answers, at the latest when dropped"))
    }
}
