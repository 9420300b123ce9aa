//! The storage server's core: volumes with a cache in front of their store.
//!
//! The policy of `undercroft-cache` decides what is kept; a [`Volume`] carries that out: it holds
//! the data in frames, reads what is missing, writes what changed, and keeps the operations on
//! each block in order. Driven by one client, one request after another, its counters are those
//! of the simulator, exactly. `docs/developer/server.md` follows a request through the files here.
//!
//! [`serve`] is the server around the volumes: configuration, listeners, access, HTTP.
//!
//! Not here: the protocol (`undercroft-nbd`), stores (`undercroft-store`), the program.
#![forbid(unsafe_code)]

mod answer;
mod block_status;
mod clients;
mod clock;
mod close;
mod config;
mod content;
mod cooperation;
mod counters;
mod digests;
mod direct;
mod dirty;
mod ended;
mod endings;
mod eviction_placement;
mod execute;
mod feed;
mod flush;
mod flush_together;
mod geometry;
mod hint_batch;
mod hint_dispatch;
mod histogram;
mod job;
mod launch;
mod levels;
mod lock;
mod losses;
mod lower;
mod overdue;
mod ranges;
mod reloader;
mod replace;
mod requests;
mod restore;
pub mod serve;
mod session;
mod shard;
mod staged;
mod state;
mod sync;
mod tell;
mod unflushed;
mod validate;
mod volume;

pub use answer::{Answer, Failed, Outcome};
pub use clients::Caller;
pub use close::Unwritten;
pub use config::{VolumeConfig, VolumeError, VolumePlacement, Write};
pub use counters::{
    AwareStats, CooperationStats, Latencies, LowerStats, MovementStats, Source, Stats, TellStats,
};
pub use hint_dispatch::Heard;
pub use histogram::Histogram;
pub use lower::{Ascended, Lower, Settlement, Settling};
pub use restore::Restored;
pub use serve::status_over_nbd;
pub use session::VolumeExport;
pub use state::{SavedContent, StateError};
pub use tell::Listener;
pub use volume::Volume;
