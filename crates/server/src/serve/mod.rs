//! The server as a program runs it: volumes opened from a configuration, listeners, access,
//! counters over HTTP, warm restart, reload, and shutdown. The configuration is in `config/`.
//!
//! Not here: what a volume does with a request.

pub(crate) mod absent;
mod advice_export;
mod arrivals;
mod change;
mod check;
mod control_export;
mod error;
pub(crate) mod exports;
mod http;
mod lending;
mod listeners;
mod live;
mod memory_limit;
mod metrics;
mod reload;
mod run;
mod set;
mod state_folder;
mod surroundings;
mod text_export;
mod unwritten;
mod upstream;

pub use crate::config::{
    Address, CacheShare, Changes, ClientRule, Key, Limits, Reporting, ServerConfig, Settings,
    TlsConfig, TlsMode,
};
pub use advice_export::advice_over_nbd;
pub use check::{Checked, check};
pub use error::ServeError;
pub use run::Running;
pub use set::{Asked, SetError, drop_over_nbd, set_over_nbd};
pub use surroundings::{GiveStore, Surroundings};
pub use text_export::status_over_nbd;
pub use unwritten::{UnwrittenError, UnwrittenHead, show_unwritten, write_unwritten};
