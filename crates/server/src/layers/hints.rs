//! Hints: the layer of sessions that have opted in to the context `x-undercroft:coop`
//! (`layout.rs`). It takes the requests of the window out, and has the volume apply evictions
//! before the requests with which they came.
//!
//! Clients that cannot be changed have a second way, `exports/control.rs`.

pub(crate) mod layout;
pub(crate) mod window;

use std::sync::Arc;

use undercroft_hints::{Hint, parse_evictions};
use undercroft_nbd::{
    Answer, Command, Context, Export, ExportInfo, Failure, Peer, Refusal, Reply, Request, Session,
};

use crate::layers::hints::layout::{COOP, Status, WINDOW, WindowLayout, is_opted_in};
use crate::layers::hints::window::Window;
use crate::layers::volume::{self, VolumeExport};
use crate::volume::hint_batch::HintBatch;
use crate::volume::hint_dispatch::ReceivedHints;
use crate::volume::{RESIDENCY_BLOCKS, Volume};

/// A volume as an export whose clients may opt in to hints.
pub(crate) struct HintedExport {
    export: VolumeExport,
    layout: WindowLayout,
    status: Status,
    epoch: u64,
}

impl HintedExport {
    /// `epoch` changes with every start of the server.
    pub(crate) fn new(volume: Arc<Volume>, status: Status, epoch: u64, may_write: bool) -> Self {
        let layout = WindowLayout::of_volume(&volume, may_write);
        Self { export: VolumeExport(volume), layout, status, epoch }
    }
}

impl Export for HintedExport {
    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo {
        let mut info = self.export.info(peer, contexts);
        if is_opted_in(contexts) {
            info.size = self.layout.told_size(contexts);
        }
        info
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let mut contexts = self.export.contexts(query);
        contexts.extend(self.layout.contexts(query, &self.export.0, self.epoch));
        contexts
    }

    fn connect(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        if !is_opted_in(contexts) {
            return self.export.connect(peer, contexts);
        }
        let (base, status) = (self.layout.base(), Arc::clone(&self.status));
        Ok(Box::new(Hints::connect(&self.export.0, contexts, base, status)?))
    }
}

/// The layer for hints.
struct Hints {
    next: Box<dyn Session>,
    window: Window,
    base: u64,
    /// Size of the volume when the session began: the window stays where it was announced.
    size: u64,
    /// Whether base:allocation was selected too.
    allocation: bool,
    /// Whether hints that ride wait for their request, as `order` says.
    reads_first: bool,
    /// The reply to a message that is sent together with that of its request.
    unanswered: Option<Reply>,
    /// A message about evictions by the next request, and whether that request has come.
    riding: Option<(ReceivedHints, bool)>,
    /// The evictions told with the current batch of requests.
    evictions: HintBatch,
    /// The requests of the batch for the volume.
    batch: Vec<Request>,
}

impl Hints {
    /// Begins a session with the volume.
    ///
    /// # Errors
    /// The volume is being closed, or the client is connected with another key.
    fn connect(
        volume: &Arc<Volume>,
        contexts: &[Context],
        base: u64,
        status: Status,
    ) -> Result<Self, Refusal> {
        let window = Window::new(volume, contexts, false, status)?;
        let next = volume::connect(volume, window.member.clone())?;
        let allocation = contexts.iter().any(|context| context.key != COOP);
        let (size, reads_first) = (volume.size(), volume.now().reads_first());
        Ok(Self {
            next,
            window,
            base,
            size,
            allocation,
            reads_first,
            unanswered: None,
            riding: None,
            evictions: HintBatch::default(),
            batch: Vec::new(),
        })
    }
}

impl Session for Hints {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.take(request));
        self.pass_on();
        self.window.work_debt()
    }
}

impl Hints {
    fn take(&mut self, request: Request) {
        let end = request.offset.saturating_add(request.length);
        let behind = self.base.saturating_add(WINDOW);
        if request.offset >= behind && request.length > 0 {
            self.news(request);
        } else if request.offset >= self.base && end > behind {
            let text = "over the end of the window".to_owned();
            request.reply.fail(Failure::Invalid, text);
        } else if request.offset >= self.base && request.length > 0 {
            let from = request.offset - self.base;
            let Some(request) = self.note(request) else { return };
            self.act();
            if let Some((received, reply)) = self.window.request(request, from) {
                self.message(received, reply);
            }
        } else if end <= self.size {
            if let Some((_, has_come)) = &mut self.riding {
                *has_come = true;
            }
            if let (true, Command::Read { .. } | Command::Write { .. }) =
                (self.window.granted.follow, &request.command)
            {
                self.window.asks(request.offset, request.length);
            }
            match request.command {
                Command::BlockStatus { .. } => self.block_status(request),
                _ => self.ask(request),
            }
        } else {
            let text = "between the volume's end and the window".to_owned();
            request.reply.fail(Failure::Invalid, text);
        }
    }

    /// Adds a request to the batch; the answer to the hints that came with it is sent with its own.
    fn ask(&mut self, mut request: Request) {
        if let Some(hints) = self.unanswered.take() {
            request.reply = request.reply.with(hints);
        }
        self.batch.push(request);
    }

    /// Passes the batch on, after the evictions that came with it.
    fn pass_on(&mut self) {
        self.act();
        if !self.batch.is_empty() {
            let work = self.next.serve(&mut self.batch);
            self.window.add_work(work);
        }
        if let Some((received, _)) = self.riding.take_if(|(_, has_come)| *has_come) {
            self.receive_hints(received);
        }
        if let Some(reply) = self.unanswered.take() {
            reply.done();
        }
    }

    /// Notes a message that consists of one EVICT record, as most do; it is applied with others
    /// when the batch ends. Returns any other request.
    fn note(&mut self, request: Request) -> Option<Request> {
        // Riding hints, and hints without a request are handled elsewhere.
        let volume = &self.window.volume;
        let is_plain = self.riding.is_none() && self.unanswered.is_none();
        let (true, Some(member)) = (is_plain, &self.window.member) else {
            return Some(request);
        };
        let message = match &request.command {
            Command::Write { data } if data.len() == 1 => parse_evictions(&data[0]),
            _ => None,
        };
        let message = message.filter(|one| !(one.flags.rides && self.reads_first));
        let note = |one| self.evictions.note_message(&one, request.length, member.caller(), volume);
        if !message.is_some_and(note) {
            return Some(request);
        }
        self.unanswered = Some(request.reply);
        None
    }

    /// Applies the noted evictions.
    fn act(&mut self) {
        if !self.evictions.is_empty() {
            self.window.add_work(self.evictions.blocks());
            self.evictions.apply(&self.window.volume);
        }
    }

    /// Applies a message before any later request, except hints that ride with the next request.
    fn message(&mut self, received: ReceivedHints, reply: Reply) {
        if self.riding.is_some() || self.unanswered.is_some() {
            // In order: the request that the earlier message rode with, if it has come, and then
            // that message.
            self.pass_on();
            if let Some((received, _)) = self.riding.take() {
                self.receive_hints(received);
            }
        }
        self.unanswered = Some(reply);
        let rides = |hint: &Hint| match hint {
            Hint::Evict { flags, .. } => flags.rides,
            Hint::Demote { rides, .. } => *rides,
            _ => false,
        };
        if !(self.reads_first && received.hints.iter().any(rides)) {
            return self.receive_hints(received);
        }
        let (riding, others) = received.hints.into_iter().partition(rides);
        self.riding = Some((ReceivedHints { hints: riding, bytes: 0, ..received }, false));
        self.receive_hints(ReceivedHints { hints: others, ..received });
    }

    /// Executes a message, or a part of one. If that fails, so does the message that is not
    /// answered yet.
    fn receive_hints(&mut self, received: ReceivedHints) {
        if let Err(no_room) = self.window.receive_hints(received) {
            if let Some(reply) = self.unanswered.take() {
                reply.fail(Failure::NoMemory, no_room.to_string());
            }
        }
    }

    /// Tells what the cache holds after all earlier requests.
    fn news(&mut self, request: Request) {
        let Command::Read { one_chunk } = request.command else {
            let text = "what is behind the window is for reading".to_owned();
            return request.reply.fail(Failure::Invalid, text);
        };
        self.pass_on();
        self.window.news(request.length, one_chunk, request.reply);
    }

    /// Answers with residency, and with allocation if that was selected too.
    fn block_status(&mut self, request: Request) {
        let Request { command, offset, length, durable, reply } = request;
        let one = matches!(command, Command::BlockStatus { one_extent: true });
        self.act();
        let mut residency = self.window.volume.residency(offset, length);
        // Examining a block costs less than reading it.
        self.window.add_work(RESIDENCY_BLOCKS as u64 / 4);
        residency.truncate(if one { 1 } else { usize::MAX });
        if !self.allocation {
            return reply.extents(vec![(COOP, residency)]);
        }
        let (inner, awaited) = Reply::detached();
        self.batch.push(Request { command, offset, length, durable, reply: inner });
        tokio::spawn(async move {
            match awaited.await {
                Answer::Extents(mut contexts) => {
                    contexts.push((COOP, residency));
                    reply.extents(contexts);
                }
                other => reply.answer(other),
            }
        });
    }
}

#[cfg(test)]
mod tests;
