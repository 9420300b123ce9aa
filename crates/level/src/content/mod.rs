//! What one cache knows of the content of its neighbour, for policies that prefer victims which the
//! neighbour holds too (`crates/policy/src/content_aware.rs`).
//!
//! [`Source`] is the only interface. It is implemented by exact knowledge, by Bloom summaries that
//! the neighbour publishes, and by emulations of the neighbour. [`Prober`] infers policy and size
//! of a neighbour that tells nothing.
//!
//! Not here: the [level](crate::Level) that uses the knowledge.

mod blocks;
pub(crate) mod bloom;
mod cautious;
mod digests;
mod emulation;
mod exact;
mod heard;
mod latencies;
mod neighbour;
mod own_blocks;
mod pair;
mod pass;
mod probe;
mod search;
mod simulated;
mod source;
mod summary;

pub(crate) use blocks::Blocks;
pub use bloom::{CountingFilter, Filter, Shape, false_positives};
pub(crate) use cautious::Cautious;
pub(crate) use digests::Digests;
pub(crate) use emulation::{LowerCopy, UpperList};
pub(crate) use exact::{Exact, ExchangeOld};
pub use latencies::Latencies;
pub(crate) use neighbour::Neighbour;
pub use pair::{AwareCounts, Pair};
pub use pass::AT_ONCE;
pub use probe::Prober;
pub use search::Candidate;
pub(crate) use simulated::Simulated;
pub use source::{Digest, News, Source, SourceCounts};
pub use summary::{Body, Follower, Publication, Publisher, Unusable};
