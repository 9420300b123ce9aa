//! The server as a program runs it: volumes opened from a configuration, listeners, warm restart,
//! reload, changes while it runs, memory that moves between caches, and shutdown.
//!
//! Not here: the configuration (`config`), what clients open (`exports`), pages and metrics
//! (`http`), stores that are servers (`upstream`), and what a volume does with a request.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod error;
mod flash_changes;
pub(crate) mod flash_device;
mod flash_directory;
mod flash_file;
mod flash_regions;
pub(crate) mod lending;
pub(crate) mod listeners;
pub(crate) mod memory_limit;
pub(crate) mod opener;
pub(crate) mod pending_volume;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod state_folder;
pub(crate) mod surroundings;
pub(crate) mod unwritten;

pub use crate::config::{
    Address, CacheShare, Changes, ClientRule, FlashConfig, Key, Limits, Reporting, ServerConfig,
    Settings, TlsConfig, TlsMode,
};
pub use crate::exports::advice::advice_over_nbd;
pub use crate::exports::set::{
    AdminRequest, FlashChange, SetError, drop_over_nbd, flash_over_nbd, set_over_nbd,
};
pub use crate::exports::text::status_over_nbd;
pub use crate::flash::check_part;
pub use check::{Checked, check};
pub use error::ServeError;
pub use flash_file::{first_page, format, parts};
pub use run::Running;
pub use surroundings::{GiveFlash, GiveStore, OpeningStore, Surroundings};
pub use undercroft_flash::FirstPage;
pub use unwritten::{UnwrittenError, UnwrittenHead, show_unwritten, write_unwritten};
