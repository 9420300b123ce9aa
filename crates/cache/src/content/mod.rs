//! What one cache knows of the content of its neighbour, for policies that evict first what the
//! neighbour holds too (`policy/neighbour.rs`).
//!
//! [`Source`] is the one interface; behind it stand exact knowledge, Bloom summaries that the
//! neighbour publishes, and emulations of the neighbour. [`Prober`] finds out what a neighbour that
//! says nothing is like.
//!
//! Not here: the [level](crate::Level) that asks.

mod blocks;
pub(crate) mod bloom;
mod cautious;
mod digests;
mod emulation;
mod exact;
mod heard;
mod latencies;
mod neighbour;
mod probe;
mod search;
mod simulated;
mod source;
mod summary;

pub(crate) use blocks::Blocks;
pub use bloom::{CountingFilter, Filter, Shape};
pub(crate) use cautious::Cautious;
pub(crate) use digests::Digests;
pub(crate) use emulation::{LowerCopy, UpperList};
pub(crate) use exact::{Exact, ExchangeOld};
pub use latencies::Latencies;
pub(crate) use neighbour::Neighbour;
pub use probe::Prober;
pub use search::Candidate;
pub(crate) use simulated::Simulated;
pub use source::{Digest, News, Source, SourceCounts};
pub use summary::{Body, Follower, Publication, Publisher, Unusable};
