//! The opt-in context `x-undercroft:coop`: what a client that knows us may ask for over plain NBD.
//! Here: the status that `undercroft stats` reads, and which blocks are resident. A session that
//! did not ask for the context never meets any of it.
//!
//! A session with the context sees a volume that is larger: from `base` on (its size, rounded up to
//! 1 MiB) there is a *window*. Reading the window gives the status as JSON, filled up with blanks.
//! Nothing can be written there yet, and the gap before it is not addressable.

use std::sync::Arc;

use bytes::Bytes;
use undercroft_nbd::{
    Answer, Client, ClientOptions, Command, Context, Extent, Failure, Reply, Request, Session, Uri,
};

use crate::volume::Volume;

/// Number of the context among those of an export.
pub(super) const COOP: u32 = 0x636f_6f70;

const NAMESPACE: &str = "x-undercroft:";
const NAME: &str = "x-undercroft:coop";

/// What the window's base is a multiple of, in bytes.
const UNIT: u64 = 1 << 20;

/// Bytes of the window.
const WINDOW: u64 = 1 << 20;

/// The contexts of ours that a query names; without a query the namespace, so that tools which
/// select all that is listed do not opt in by accident.
pub(super) fn contexts(query: &str, volume: &Volume, epoch: u64) -> Vec<Context> {
    if query.is_empty() {
        return vec![Context { name: NAMESPACE.to_owned(), key: COOP }];
    }
    let Some(parameters) = query.strip_prefix(NAME) else { return Vec::new() };
    let mut parts = parameters.split(';');
    // Right after the name comes nothing or a parameter, and the version is one that we know.
    let is_ours = parts.next() == Some("");
    let knows = |part: &str| part.strip_prefix("v=").is_none_or(|version| version == "1");
    if !is_ours || !parts.all(knows) {
        return Vec::new();
    }
    let (block, base) = (volume.config().block_bytes, base(volume.size()));
    let name = format!("{NAME};v=1;epoch={epoch:x};block={block};window={base}+{WINDOW};grant=");
    vec![Context { name, key: COOP }]
}

/// The size that a session with the context is told.
pub(super) fn told_size(size: u64) -> u64 {
    base(size) + WINDOW
}

fn base(size: u64) -> u64 {
    size.div_ceil(UNIT).saturating_mul(UNIT)
}

/// A session with the context.
pub(super) struct CoopSession {
    pub(super) inner: Box<dyn Session>,
    pub(super) volume: Arc<Volume>,
    /// Size of the volume when the session began: the window stays where it was announced.
    pub(super) size: u64,
    /// Whether base:allocation was selected too.
    pub(super) allocation: bool,
    /// Makes the status.
    pub(super) status: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Session for CoopSession {
    fn submit(&mut self, request: Request) {
        let end = request.offset.saturating_add(request.length);
        if end <= self.size {
            match request.command {
                Command::BlockStatus { .. } => self.block_status(request),
                _ => self.inner.submit(request),
            }
        } else if request.offset >= base(self.size) {
            self.in_window(request);
        } else {
            let text = "between the volume's end and the window".to_owned();
            request.reply.fail(Failure::Invalid, text);
        }
    }

    fn end_of_batch(&mut self) {
        self.inner.end_of_batch();
    }
}

impl CoopSession {
    fn in_window(&self, request: Request) {
        let Request { command, offset, length, reply, .. } = request;
        if !matches!(command, Command::Read { .. }) {
            return reply.fail(Failure::Invalid, "the window can be read only".to_owned());
        }
        let mut text = (self.status)().into_bytes();
        if text.len() as u64 > WINDOW {
            return reply.fail(Failure::Overflow, "the status does not fit the window".to_owned());
        }
        text.resize(WINDOW as usize, b' ');
        let from = (offset - base(self.size)) as usize;
        reply.data(vec![Bytes::from(text).slice(from..from + length as usize)]);
    }

    /// Residency, beside the allocation if that was asked for too.
    fn block_status(&mut self, request: Request) {
        let Request { command, offset, length, durable, reply } = request;
        let one = matches!(command, Command::BlockStatus { one_extent: true });
        let mut residency = self.volume.residency(offset, length);
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

/// Runs of blocks that are equally resident; `status` of each block is bit 0 resident, bit 1 dirty.
pub(crate) fn runs(blocks: impl Iterator<Item = (u64, u32)>) -> Vec<Extent> {
    let mut extents = Vec::<Extent>::new();
    for (length, status) in blocks {
        match extents.last_mut() {
            Some(last) if last.status == status => last.length += length,
            _ => extents.push(Extent { length, status }),
        }
    }
    extents
}

/// The status of the server of a volume, asked for over NBD: the JSON of `/stats`.
///
/// # Errors
/// The server cannot be reached, or is none of ours.
pub async fn status_over_nbd(uri: &Uri, options: &ClientOptions) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{uri}: {error}");
    let contexts = vec![format!("{NAME};v=1")];
    let options = ClientOptions { contexts, ..options.clone() };
    let client = Client::connect(uri, &options).await.map_err(|e| failed(&e))?;
    let granted = client.remote().contexts.iter().find_map(|(_, name)| name.strip_prefix(NAME));
    let window = granted
        .and_then(|name| name.split(';').find_map(|part| part.strip_prefix("window=")))
        .and_then(|window| window.split_once('+'))
        .and_then(|(base, length)| Some((base.parse().ok()?, length.parse::<u32>().ok()?)))
        .filter(|&(_, length)| length <= client.remote().info.max_block);
    let Some((base, length)) = window else {
        return Err(failed(&"this server does not tell its status over NBD"));
    };
    let buffer = vec![0_u8; length as usize];
    let (mut buffers, result) = client.read(base, vec![Box::new(buffer)]).await;
    result.map_err(|e| failed(&e))?;
    let bytes = buffers.first_mut().map(|buffer| (**buffer).as_mut().to_vec()).unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|e| failed(&e))?;
    Ok(text.trim_end().to_owned())
}
