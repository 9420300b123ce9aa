//! The answers of a session whose client runs the level above of the same scheme: three areas
//! behind the window, which the client reads. The first answers the request that the last message
//! announced: what happens to its blocks. The second tells which block comes up in exchange for
//! those that went down; the third gives its data. docs/developer/hints.md has the format.
//!
//! Also here: the session of a volume that has a level below. While a block may still come up from
//! there, the next request waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use undercroft_hints::{ANSWER_AREA_BYTES, ANSWER_AREAS, Hint, LevelGrant, Passed};
use undercroft_nbd::{Command, Failure, Reply, Request, Session};

use crate::volume::Volume;
use crate::volume::clients::Caller;

/// Most answers that wait for their requests; beyond that the oldest are sent without waiting.
const NEXT_MAX: usize = 1024;

/// Total length of the areas in bytes.
pub(super) const AREAS: u64 = ANSWER_AREAS * ANSWER_AREA_BYTES;

/// The level grant of a volume, if it is a level, with areas from byte `answers_base` on.
pub(super) fn grant(volume: &Volume, answers_base: u64) -> Option<LevelGrant> {
    let config = volume.config();
    let scheme = config.placement.scheme()?.to_string();
    let below = config.lower.as_ref().map_or(0, |lower| lower.blocks());
    Some(LevelGrant { scheme, blocks: below + u64::from(config.cache_blocks), answers_base })
}

/// The answer areas of a session.
pub(super) struct LevelAnswers {
    volume: Arc<Volume>,
    /// The first block that the last message announced.
    asked: Option<u64>,
    /// Answers for announced requests, by the first block of each.
    next: VecDeque<Next>,
    /// The last block that came up, until its data are fetched.
    parcel: Option<(Passed, Bytes)>,
    /// Whether no further request will come.
    is_over: bool,
}

/// An answer that waits for its request.
struct Next {
    block: u64,
    reply: Reply,
    length: u64,
}

impl Next {
    fn give(self, passed: &[Passed]) {
        self.reply.data(vec![records(passed, self.length)]);
    }
}

impl LevelAnswers {
    pub(super) fn new(volume: &Arc<Volume>) -> Self {
        Self {
            volume: Arc::clone(volume),
            asked: None,
            next: VecDeque::new(),
            parcel: None,
            is_over: false,
        }
    }

    /// A message arrived.
    pub(super) fn message(&mut self, hints: &[Hint]) {
        self.asked = hints.iter().find_map(|hint| match hint {
            Hint::Ask(asked) => Some(asked.block),
            _ => None,
        });
    }

    /// A request in the areas, from their byte `from` on.
    pub(super) fn request(&mut self, request: Request, from: u64, caller: Caller) {
        let Request { command, length, reply, .. } = request;
        let (area, within) = (from / ANSWER_AREA_BYTES, from % ANSWER_AREA_BYTES);
        let is_read = matches!(command, Command::Read { .. });
        if !is_read || within != 0 || length > ANSWER_AREA_BYTES {
            let text = "answers are read, each from the beginning of its area".to_owned();
            return reply.fail(Failure::Invalid, text);
        }
        match area {
            0 => {
                let next = Next { block: self.asked.take().unwrap_or(u64::MAX), reply, length };
                if next.block == u64::MAX || self.is_over {
                    return next.give(&[]);
                }
                self.next.push_back(next);
                if self.next.len() > NEXT_MAX {
                    if let Some(oldest) = self.next.pop_front() {
                        oldest.give(&[]);
                    }
                }
            }
            1 => {
                self.parcel = self.volume.exchange(caller);
                let passed = self.parcel.as_ref().map(|(passed, _)| *passed);
                reply.data(vec![records(passed.as_slice(), length)]);
            }
            // The data come with their record, so that they are not taken for another block's.
            _ => match self.parcel.take() {
                Some((passed, data)) if (Passed::BYTES + data.len()) as u64 == length => {
                    reply.data(vec![records(&[passed], Passed::BYTES as u64), data]);
                }
                _ => reply.fail(Failure::Invalid, "no such block came up".to_owned()),
            },
        }
    }

    /// No further request will come: all waiting answers are sent without one. (The connection does
    /// not end before everything is answered.)
    pub(super) fn no_more(&mut self) {
        self.is_over = true;
        self.next.drain(..).for_each(|next| next.give(&[]));
    }

    /// A request to the volume: if its answer is awaited in an area, that is sent after its own
    /// reply.
    pub(super) fn ride(&mut self, mut request: Request, caller: Caller) -> Request {
        let is_asked = matches!(request.command, Command::Read { .. } | Command::Write { .. });
        if self.next.is_empty() || !is_asked || request.length == 0 {
            return request;
        }
        let blocks = self.volume.blocks_of(request.offset, request.length);
        let at = self.next.iter().position(|next| blocks.contains(&next.block));
        let Some(next) = at.and_then(|at| self.next.remove(at)) else { return request };
        let (inner, awaited) = Reply::detached();
        let reply = std::mem::replace(&mut request.reply, inner);
        let volume = Arc::clone(&self.volume);
        tokio::spawn(async move {
            reply.answer(awaited.await);
            let most = next.length as usize / Passed::BYTES;
            next.give(&volume.take_answers(caller, blocks, most));
        });
        request
    }
}

/// Encodes records, padded with zeroes, which end them.
fn records(passed: &[Passed], length: u64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(length as usize);
    passed.iter().for_each(|&passed| Hint::Pass(passed).put(&mut bytes));
    bytes.resize(length as usize, 0);
    bytes.freeze()
}

/// A session that serves requests one after another, each when the level below is settled.
pub(super) struct SettledSession {
    /// A request, or `None` if no further ones will come.
    requests: UnboundedSender<Option<Request>>,
    owed: Arc<AtomicU64>,
}

impl SettledSession {
    /// The channel needs no limit: the connection limits the requests in flight.
    pub(super) fn new(volume: &Arc<Volume>, session: Box<dyn Session>) -> Self {
        let (sender, receiver) = unbounded_channel();
        let owed = Arc::new(AtomicU64::new(0));
        tokio::spawn(pass_on(Arc::clone(volume), session, receiver, Arc::clone(&owed)));
        Self { requests: sender, owed }
    }
}

impl Session for SettledSession {
    fn submit(&mut self, request: Request) {
        // If the task is gone, the request is dropped, which answers it.
        let _ = self.requests.send(Some(request));
    }

    fn owed(&mut self) -> u64 {
        self.owed.swap(0, Ordering::Relaxed)
    }

    fn no_more(&mut self, _: bool) {
        let _ = self.requests.send(None);
    }
}

async fn pass_on(
    volume: Arc<Volume>,
    mut session: Box<dyn Session>,
    mut requests: UnboundedReceiver<Option<Request>>,
    owed: Arc<AtomicU64>,
) {
    while let Some(request) = requests.recv().await {
        let Some(request) = request else {
            session.no_more(false);
            continue;
        };
        volume.is_settled().await;
        session.submit(request);
        session.end_of_batch();
        owed.fetch_add(session.owed(), Ordering::Relaxed);
    }
}
