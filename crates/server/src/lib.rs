//! The core of the storage server: volumes with a cache in front of their store.
//!
//! A level of `undercroft-level` decides what stays cached; a [`Volume`] executes that: it keeps
//! the data in frames, reads missing blocks, writes changed ones, and orders the operations on each
//! block. Driven by one client, one request after another, its counters equal those of the
//! simulator exactly. `docs/developer/server.md` follows a request through the files here.
//!
//! `volume` takes requests, holds the locks and calls the store; `shard` is the state under one
//! lock, and does no I/O.
//!
//! `exports` is what clients open, and `layers` what the requests of a session pass before the
//! volume: access, limits, hints. [`process`] is the server around the volumes: start, reload,
//! changes, end; `http` are its pages and metrics, `upstream` is a store that is another server.
//!
//! Not here: the protocol (`undercroft-nbd`), stores (`undercroft-store`), the program.
#![forbid(unsafe_code)]

mod advice;
mod answer;
mod clock;
mod config;
mod counters;
mod events;
mod eviction_sink;
mod exports;
mod flash;
mod geometry;
mod histogram;
mod http;
mod job;
mod late_requests;
mod layers;
mod lock;
mod operations;
pub mod process;
mod replace;
mod savings;
mod shard;
mod sync;
mod upstream;
mod volume;

pub use answer::{Answer, Failed, Outcome};
pub use config::{VolumeConfig, VolumeError, Write};
pub use counters::{
    AwareStats, COUNTERS, CooperationStats, Counter, FlashStats, Group, Kind, Latencies, Page,
    Source, Stats, TellStats, Unit,
};
pub use events::{is_event, keep_event};
pub use eviction_sink::EvictionSink;
pub use flash::{FlashClock, FlashMedium, FlashPart, FlashPlace};
pub use histogram::{Histogram, quantile};
pub use layers::volume::VolumeExport;
pub use process::{advice_over_nbd, status_over_nbd};
pub use savings::{Saved, Savings};
pub use volume::Volume;
pub use volume::clients::Caller;
pub use volume::close::Unwritten;
pub use volume::flash::VolumeFlash;
pub use volume::hint_dispatch::ReceivedHints;
pub use volume::restore::Restored;
pub use volume::state::{SavedContent, StateError};
