//! What clients and servers tell each other about their caches over NBD: the vocabulary, its
//! encoding, and the queues and connections that carry it. `docs/developer/hints.md` describes the
//! format.
//!
//! A hint travels in ordinary commands of the protocol: a message is a WRITE into a region behind
//! the volume, which a metadata context announces. So `undercroft-nbd` knows nothing of hints.
//!
//! * Opting in: [`Query`] and [`Grant`], [`ClientId`].
//! * The vocabulary: [`Hint`], [`BlockRun`], [`ClientStat`].
//! * Encoding: [`Hint::put`], [`parse`], [`parse_evictions`], [`parse_told`]; Bloom filters in
//!   parts: [`publication_hints`], [`Assembly`].
//! * Sending: [`HintQueue`] and [`Mailbox`].
//! * A content-aware cache: [`ContentReader`] decodes what a server tells of its cache,
//!   [`ContentPublisher`] publishes what the client's own cache holds.
//!
//! Not here: which blocks leave a cache, and what a server does about it.

mod client_id;
mod encode;
mod filter;
mod following;
mod grant;
mod mailbox;
mod parse;
mod queue;
mod record;
mod report;
mod stat;

pub use client_id::{ClientId, ClientIdError};
pub use encode::put_end;
pub use filter::{Assembly, publication_hints};
pub use following::{ContentPublisher, ContentReader};
pub use grant::{Abilities, Grant, NAME, NAMESPACE, Query, WANTS_CONTENTS};
pub use mailbox::{Away, Mailbox, MessageAnswer};
pub use parse::{Evictions, Malformed, Told, parse, parse_evictions, parse_told};
pub use queue::{HintCounts, HintQueue, Late, Message};
pub use record::{
    BLOCKS_MAX, BlockRun, DIGEST_PART_BYTES, EvictFlags, Follow, Following, Hint, MESSAGE_BYTES_MAX,
};
pub use report::Report;
pub use stat::{ClientStat, PolicyName, Tracking};
