//! The opt-in context `x-undercroft:coop`: where in an export its window is, what it accepts, and
//! what a connection has agreed on. docs/developer/hints.md has the format.
//!
//! A session with the context sees a larger volume: from `base` on (the volume's size, rounded up
//! to 1 MiB) there is a *window*. Reading the window returns the status as JSON, padded with
//! blanks; a write into it is a message of hints, never data. The gap before it is not addressable.
//! Behind the window is a region that a client reads to learn what this cache holds.
//!
//! Not here: what happens in a window (`window.rs`).

use std::sync::Arc;

use bytes::Bytes;
use undercroft_hints::{Abilities, ClientId, Grant, MESSAGE_BYTES_MAX, NAMESPACE, Query};
use undercroft_nbd::Context;

use crate::volume::Volume;

/// Number of the context among those of an export.
pub(crate) const COOP: u32 = 0x636f_6f70;

/// Alignment of the window's base in bytes.
const UNIT: u64 = 1 << 20;

/// Length of the window in bytes.
pub(crate) const WINDOW: u64 = MESSAGE_BYTES_MAX as u64;

/// Length in bytes of the region behind it, in which a client reads what this cache holds, followed
/// by zeroes.
const NEWS: u64 = MESSAGE_BYTES_MAX as u64;

/// Makes the status text for clients of the context. With `true`, a client continues reading, and
/// the latest text may be returned.
pub(crate) type Status = Arc<dyn Fn(bool) -> Bytes + Send + Sync>;

/// The place of a window, and the hints that it accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowLayout {
    /// First byte of the window.
    base: u64,
    /// The kinds of hints accepted.
    takes: Abilities,
}

impl WindowLayout {
    /// The window in the sessions of a volume.
    pub(crate) fn of_volume(volume: &Volume, may_write: bool) -> Self {
        let base = volume.size().div_ceil(UNIT).saturating_mul(UNIT);
        let takes = abilities(volume);
        Self { base, takes: Abilities { demote: takes.demote && may_write, ..takes } }
    }

    /// The window of a control export. Connections have no common order, so content cannot be
    /// reported as of a certain request. Hints are accepted only if the peer may write the volume.
    pub(crate) fn of_control(volume: &Volume, may_write: bool) -> Self {
        let all = if may_write { abilities(volume) } else { Abilities::default() };
        Self { base: 0, takes: Abilities { follow: false, ..all } }
    }

    /// The contexts of this project that a query names. For an empty query this is the namespace
    /// alone, so that tools which select everything listed do not opt in by accident.
    pub(crate) fn contexts(&self, query: &str, volume: &Volume, epoch: u64) -> Vec<Context> {
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
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The export size that a session reports.
    pub(crate) fn told_size(&self, contexts: &[Context]) -> u64 {
        let news = if agreed(contexts).0.follow { NEWS } else { 0 };
        self.base.saturating_add(WINDOW + news)
    }
}

/// The kinds of hints that a volume can use.
fn abilities(volume: &Volume) -> Abilities {
    let (now, has_clients) = (volume.now(), volume.clients.are_distinguished());
    let is_cached = now.cache_blocks > 0;
    Abilities {
        evict: has_clients,
        demote: has_clients && now.cooperates() && !volume.is_read_only(),
        promote: is_cached,
        hold: has_clients,
        stat: true,
        digest: has_clients && now.takes_digests(),
        follow: is_cached,
    }
}

/// The abilities agreed on in the context, and the client.
pub(crate) fn agreed(contexts: &[Context]) -> (Abilities, Option<ClientId>) {
    let Some(context) = contexts.iter().find(|context| context.key == COOP) else {
        return Default::default();
    };
    let granted = Grant::parse(&context.name).map(|grant| grant.grant).unwrap_or_default();
    let named = Query::parse(&context.name).and_then(|query| query.client);
    (granted, named.map(|id| ClientId { key: context.kept, ..id }))
}

/// Whether a connection has opted in to the context.
pub(crate) fn is_opted_in(contexts: &[Context]) -> bool {
    contexts.iter().any(|context| context.key == COOP)
}
