//! The configuration of a server: one typed tree.
//!
//! It is read from flags, a file and the environment ([`Settings`]), checked once
//! ([`ServerConfig::validate`]), used, and compared with the new one when it is read again
//! ([`ServerConfig::fixed_changes`], [`VolumeConfig::fixed_changes`]). An option is one row of
//! [`VolumeConfig::KEYS`], or of the tables that [`ServerConfig::keys`] has.
//!
//! Not here: what the options do.

mod client_rule;
mod error;
mod flash;
mod forms;
mod keys;
mod mistakes;
mod reporting;
mod server;
mod settings;
mod share;
mod tls;
mod validate;
mod volume;

pub use client_rule::ClientRule;
pub use error::VolumeError;
pub use flash::FlashConfig;
pub use keys::{Changes, Key};
pub use reporting::Reporting;
pub use server::{Address, Limits, ServerConfig};
pub use settings::Settings;
pub use share::CacheShare;
pub use tls::{TlsConfig, TlsMode};
pub use volume::{VolumeConfig, Write};
