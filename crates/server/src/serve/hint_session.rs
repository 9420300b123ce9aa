//! The opt-in context `x-undercroft:coop`: what a client that knows this server may ask for over
//! plain NBD. Sessions that did not ask for the context see none of it. docs/developer/hints.md has
//! the format.
//!
//! A session with the context sees a larger volume: from `base` on (the volume's size, rounded up
//! to 1 MiB) there is a *window*. Reading the window returns the status as JSON, padded with
//! blanks; a write into it is a message of hints, never data. The gap before it is not addressable.
//!
//! Behind the window is a region that a client reads to learn what this cache holds (`feed.rs`).
//!
//! Clients that cannot be changed have a second way, `control_export.rs`.

use std::sync::Arc;

use bytes::Bytes;
use undercroft_hints::{
    Abilities, ClientId, Grant, Hint, MESSAGE_BYTES_MAX, NAMESPACE, Query, parse_evictions,
};
use undercroft_nbd::{
    Answer, Client, ClientOptions, Command, Context, Failure, Refusal, Reply, Request, Session, Uri,
};

use super::window::Window;
use crate::volume::clients::Caller;
use crate::volume::hint_batch::HintBatch;
use crate::volume::hint_dispatch::Heard;
use crate::volume::session::VolumeSession;
use crate::volume::{RESIDENCY_BLOCKS, Volume};

/// Number of the context among those of an export.
pub(super) const COOP: u32 = 0x636f_6f70;

/// Alignment of the window's base in bytes.
const UNIT: u64 = 1 << 20;

/// Length of the window in bytes.
pub(super) const WINDOW: u64 = MESSAGE_BYTES_MAX as u64;

/// Length in bytes of the region behind it, in which a client reads what this cache holds, followed
/// by zeroes.
const NEWS: u64 = MESSAGE_BYTES_MAX as u64;

/// Makes the status text for clients of the context. With `true`, a client continues reading, and
/// the latest text may be returned.
pub(super) type Status = Arc<dyn Fn(bool) -> Bytes + Send + Sync>;

/// The place of a window, and the hints that it accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowLayout {
    /// First byte of the window.
    base: u64,
    /// The kinds of hints accepted.
    takes: Abilities,
}

impl WindowLayout {
    /// The window in the sessions of a volume.
    pub(super) fn of_volume(volume: &Volume, may_write: bool) -> Self {
        let base = volume.size().div_ceil(UNIT).saturating_mul(UNIT);
        let takes = abilities(volume);
        Self { base, takes: Abilities { demote: takes.demote && may_write, ..takes } }
    }

    /// The window of a control export. Connections have no common order, so content cannot be
    /// reported as of a certain request. Hints are accepted only if the peer may write the volume.
    pub(super) fn of_control(volume: &Volume, may_write: bool) -> Self {
        let all = if may_write { abilities(volume) } else { Abilities::default() };
        Self { base: 0, takes: Abilities { follow: false, ..all } }
    }

    /// The contexts of this project that a query names. For an empty query this is the namespace
    /// alone, so that tools which select everything listed do not opt in by accident.
    pub(super) fn contexts(&self, query: &str, volume: &Volume, epoch: u64) -> Vec<Context> {
        if query.is_empty() {
            return vec![Context { name: NAMESPACE.to_owned(), key: COOP, kept: None }];
        }
        let Some(query) = Query::parse(query) else { return Vec::new() };
        let agreed = self.takes.and(query.want);
        let grant = Grant {
            epoch,
            block_bytes: volume.config().block_bytes,
            window_base: self.base,
            window_bytes: WINDOW,
            news: agreed.follow.then(|| (self.base.saturating_add(WINDOW), NEWS)),
            grant: agreed,
        };
        // The key is not sent back.
        let kept = query.client.and_then(|id| id.key);
        let client = query.client.map(|id| format!(";client={:x}", id.number)).unwrap_or_default();
        vec![Context { name: format!("{grant}{client}"), key: COOP, kept }]
    }

    /// First byte of the window.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The export size that a session reports.
    pub(super) fn told_size(&self, contexts: &[Context]) -> u64 {
        let news = if agreed(contexts).0.follow { NEWS } else { 0 };
        self.base.saturating_add(WINDOW + news)
    }
}

/// The kinds of hints that a volume can use.
fn abilities(volume: &Volume) -> Abilities {
    let cooperates = volume.has_clients();
    let is_cached = volume.config().cache_blocks > 0;
    Abilities {
        evict: cooperates,
        demote: volume.places_evicted() && !volume.is_read_only(),
        promote: is_cached,
        hold: cooperates,
        stat: true,
        digest: volume.takes_digests(),
        follow: is_cached,
    }
}

/// The abilities agreed on in the context, and the client.
pub(super) fn agreed(contexts: &[Context]) -> (Abilities, Option<ClientId>) {
    let Some(context) = contexts.iter().find(|context| context.key == COOP) else {
        return Default::default();
    };
    let granted = Grant::parse(&context.name).map(|grant| grant.grant).unwrap_or_default();
    let named = Query::parse(&context.name).and_then(|query| query.client);
    (granted, named.map(|id| ClientId { key: context.kept, ..id }))
}

/// A session with the context.
pub(super) struct HintSession {
    inner: VolumeSession,
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
    riding: Option<(Heard, bool)>,
    /// The evictions told with the current batch of requests.
    batch: HintBatch,
}

impl HintSession {
    pub(super) fn new(
        volume: &Arc<Volume>,
        contexts: &[Context],
        base: u64,
        status: Status,
    ) -> Result<Self, Refusal> {
        let window = Window::new(volume, contexts, false, status)?;
        let inner = VolumeSession::new(volume, window.member.clone())?;
        let allocation = contexts.iter().any(|context| context.key != COOP);
        let (size, reads_first) = (volume.size(), volume.now().reads_first());
        Ok(Self {
            inner,
            window,
            base,
            size,
            allocation,
            reads_first,
            unanswered: None,
            riding: None,
            batch: HintBatch::default(),
        })
    }
}

impl Session for HintSession {
    fn submit(&mut self, request: Request) {
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
            if let Some((heard, reply)) = self.window.request(request, from) {
                self.message(heard, reply);
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
                _ => self.inner.submit_with(request, self.unanswered.take()),
            }
        } else {
            let text = "between the volume's end and the window".to_owned();
            request.reply.fail(Failure::Invalid, text);
        }
    }

    fn end_of_batch(&mut self) {
        self.inner.serve_after(&mut self.batch);
        if let Some((heard, _)) = self.riding.take_if(|(_, has_come)| *has_come) {
            self.hear(heard);
        }
        if let Some(reply) = self.unanswered.take() {
            reply.done();
        }
    }

    fn owed(&mut self) -> u64 {
        self.window.owed() + self.inner.owed()
    }
}

impl HintSession {
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
        let note = |one| self.batch.note_message(&one, request.length, member.caller(), volume);
        if !message.is_some_and(note) {
            return Some(request);
        }
        self.unanswered = Some(request.reply);
        None
    }

    /// Applies the noted evictions.
    fn act(&mut self) {
        if !self.batch.is_empty() {
            let volume = &self.window.volume;
            volume.serve_after(&mut self.batch, &mut Vec::new(), Caller::default());
        }
    }

    /// Applies a message before any later request, except hints that ride with the next request.
    fn message(&mut self, heard: Heard, reply: Reply) {
        if self.riding.is_some() || self.unanswered.is_some() {
            // In order: the request that the earlier message rode with, if it has come, and then
            // that message.
            self.end_of_batch();
            if let Some((heard, _)) = self.riding.take() {
                self.hear(heard);
            }
        }
        self.unanswered = Some(reply);
        let rides = |hint: &Hint| match hint {
            Hint::Evict { flags, .. } => flags.rides,
            Hint::Demote { rides, .. } => *rides,
            _ => false,
        };
        if !(self.reads_first && heard.hints.iter().any(rides)) {
            return self.hear(heard);
        }
        let (riding, others) = heard.hints.into_iter().partition(rides);
        self.riding = Some((Heard { hints: riding, bytes: 0, ..heard }, false));
        self.hear(Heard { hints: others, ..heard });
    }

    /// Executes a message, or a part of one. If that fails, so does the message that is not
    /// answered yet.
    fn hear(&mut self, heard: Heard) {
        if let Err(no_room) = self.window.hear(heard) {
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
        self.end_of_batch();
        self.window.news(request.length, one_chunk, request.reply);
    }

    /// Answers with residency, and with allocation if that was selected too.
    fn block_status(&mut self, request: Request) {
        let Request { command, offset, length, durable, reply } = request;
        let one = matches!(command, Command::BlockStatus { one_extent: true });
        self.act();
        let mut residency = self.window.volume.residency(offset, length);
        // Examining a block costs less than reading it.
        self.window.owes(RESIDENCY_BLOCKS as u64 / 4);
        residency.truncate(if one { 1 } else { usize::MAX });
        if !self.allocation {
            return reply.extents(vec![(COOP, residency)]);
        }
        let (inner, awaited) = Reply::detached();
        self.inner.submit(Request { command, offset, length, durable, reply: inner });
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

/// Reads the status of a volume's server over NBD: the JSON of `/stats`.
///
/// # Errors
/// The server cannot be reached, or does not offer the status.
pub async fn status_over_nbd(uri: &Uri, options: &ClientOptions) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{uri}: {error}");
    let contexts = vec![Query::default().to_string()];
    let options = ClientOptions { contexts, ..options.clone() };
    let client = Client::connect(uri, &options).await.map_err(|e| failed(&e))?;
    let contexts = &client.remote().contexts;
    let grant = contexts.iter().find_map(|(_, name)| Grant::parse(name));
    let window = grant.filter(|g| g.window_bytes <= client.remote().info.max_block.into());
    let Some(Grant { window_base, window_bytes, .. }) = window else {
        return Err(failed(&"this server does not tell its status over NBD"));
    };
    let buffer = vec![0_u8; window_bytes as usize];
    let (mut buffers, result) = client.read(window_base, vec![Box::new(buffer)]).await;
    result.map_err(|e| failed(&e))?;
    let bytes = buffers.first_mut().map(|buffer| (**buffer).as_mut().to_vec()).unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|e| failed(&e))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod floods;
#[cfg(test)]
mod tests;
