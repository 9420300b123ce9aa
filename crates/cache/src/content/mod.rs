//! What one cache knows of the content of its neighbour, for policies that evict first what the
//! neighbour holds too (`policy/neighbour.rs`).
//!
//! [`Source`] is the one interface; behind it stand exact knowledge, Bloom summaries that the
//! neighbour publishes, and emulations of the neighbour. [`Pair`] is two levels of which either or
//! both are content-aware, with a count of how often what they believed was wrong.

mod bloom;
mod cautious;
mod emulation;
mod exact;
mod heard;
mod pair;
mod source;
mod summary;

pub use bloom::{CountingFilter, Filter, Shape};
pub use pair::{AwareCounts, Pair};
pub use source::{News, Source, SourceCounts};
pub use summary::{Body, Follower, Publication, Publisher, Unusable};
