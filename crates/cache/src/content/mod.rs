//! What one cache knows of the content of its neighbour, for policies that evict first what the
//! neighbour holds too (`policy/neighbour.rs`).
//!
//! [`Source`] is the one interface; behind it stand exact knowledge, Bloom summaries that the
//! neighbour publishes, and emulations of the neighbour. [`Pair`] is two simulated levels of which
//! either or both are content-aware, with a count of how often what they believed was wrong. Each
//! by itself, of a system that runs: [`Lower`], a server's cache below those of its clients, and
//! [`Upper`], a client's above a server's. [`Prober`] finds out what a neighbour that says nothing
//! is like.

mod blocks;
mod bloom;
mod cautious;
mod digests;
mod emulation;
mod exact;
mod heard;
mod latencies;
mod lower;
mod pair;
mod probe;
mod search;
mod simulated;
mod source;
mod summary;
mod upper;

pub use bloom::{CountingFilter, Filter, Shape};
pub use latencies::Latencies;
pub use lower::{Asking, Lower, LowerCounts};
pub use pair::{AwareCounts, Pair};
pub use probe::Prober;
pub use search::Candidate;
pub use source::{Digest, News, Source, SourceCounts};
pub use summary::{Body, Follower, Publication, Publisher, Unusable};
pub use upper::{Below, Upper, UpperCounts};
