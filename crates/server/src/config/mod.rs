//! The configuration of a server: one typed tree.
//!
//! It is read from flags, a file and the environment ([`Settings`]), checked once
//! ([`ServerConfig::validate`]), run with, and compared with itself when it is read again
//! ([`ServerConfig::fixed_changes`], [`VolumeConfig::fixed_changes`]). An option is one field: of
//! [`VolumeConfig`] or of [`ServerConfig`]. Its name in files and flags, and how its value is
//! written, are in the field's `serde` attribute.
//!
//! Not here: what the options do.

mod error;
mod forms;
mod placement;
mod reporting;
mod server;
mod settings;
mod tls;
mod validate;
mod volume;

pub use error::VolumeError;
pub use placement::VolumePlacement;
pub use reporting::Reporting;
pub use server::{Address, Limits, ServerConfig};
pub use settings::Settings;
pub use tls::{TlsConfig, TlsMode};
pub use volume::{CacheShare, VolumeConfig, Write};
