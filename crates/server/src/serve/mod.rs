//! The server as a program runs it: settings and plan, volumes opened from them, listeners, who
//! may come in, counters over HTTP, warm restart, and the way out.
//!
//! What a volume does with a request is outside of this folder.

mod access;
mod control;
mod coop;
mod http;
mod levels;
mod plan;
mod reload;
mod report;
mod reporting;
mod run;
mod settings;
mod surroundings;
mod unwritten;
mod upstream;
mod window;

pub(crate) use coop::runs;
pub use coop::status_over_nbd;
pub use plan::{Access, Address, Plan, PlannedVolume, TlsPaths, TlsPlan};
pub use reporting::Reporting;
pub use run::{Running, ServeError};
pub use settings::{LimitSettings, Settings, TlsSettings, VolumeSettings};
pub use surroundings::{GiveStore, Surroundings};
pub use unwritten::{UnwrittenError, UnwrittenHead, show_unwritten, write_unwritten};
