//! Encryption of connections, and the files with the keys.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use undercroft_nbd::{ClientTlsFiles, TlsFiles};

use super::forms;
use super::keys::{Changes, Key, keys};

/// Whether connections from clients are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not set: `Off` without a certificate, `Required` if `client_roots` is set, otherwise
    /// `Offered`.
    #[default]
    Auto,
    /// Never.
    Off,
    /// If the client wants it.
    Offered,
    /// Always.
    Required,
}

forms::words!(
    TlsMode,
    "tls mode '{}': expected off, offered or required",
    Auto = "",
    Off = "off",
    Offered = "offered",
    Required = "required"
);

keys! {
/// TLS for clients, and for the servers whose exports are stores. All files are PEM.
TlsConfig {
    /// Whether connections of clients are encrypted: off, offered (if they want it) or required;
    /// without it, as the files below are there.
    "mode" "off|offered|required" mode: TlsMode = TlsMode::Auto, "forms::text", Restart;
    /// The server's certificate and the ones above it, PEM: TLS is offered.
    "certificate" "FILE" certificate: Option<PathBuf> = None, "forms::some_path", Access;
    /// The private key that belongs to it, PEM.
    "key" "FILE" key: Option<PathBuf> = None, "forms::some_path", Access;
    /// Roots of client certificates, PEM: clients must show one, and so nothing without TLS.
    "client-roots" "FILE" client_roots: Option<PathBuf> = None, "forms::some_path", Access;
    /// Roots of the certificates of servers at nbds://, which are stores, PEM.
    "upstream-roots" "FILE" upstream_roots: Option<PathBuf> = None, "forms::some_path", Restart;
    /// The certificate to show to them, PEM.
    "upstream-certificate" "FILE" upstream_certificate: Option<PathBuf> = None,
        "forms::some_path", Restart;
    /// The private key that belongs to it, PEM.
    "upstream-key" "FILE" upstream_key: Option<PathBuf> = None, "forms::some_path", Restart;
    []
}
}

impl TlsConfig {
    /// Logs which certificates of the server are not valid now.
    pub(crate) fn warn_of_dates(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() as i64);
        let found = self.files().and_then(|files| files.untimely(now).ok());
        for line in found.into_iter().flatten() {
            tracing::warn!("tls: {line}");
        }
    }

    /// When the certificates of the server expire, in seconds since 1970; 0 if it has none.
    pub(crate) fn expiry(&self) -> i64 {
        self.files().and_then(|files| files.expire().ok()).unwrap_or(0)
    }

    /// Chooses the mode if none is set.
    ///
    /// # Errors
    /// A certificate, key or roots file is missing.
    pub(super) fn validate(&mut self) -> Result<(), String> {
        let has_keys = match (&self.certificate, &self.key) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            _ => return Err("tls: a certificate and a key belong together".to_owned()),
        };
        self.mode = match (self.mode, has_keys) {
            (TlsMode::Auto, false) => TlsMode::Off,
            // A server with client roots requires certificates, unless the mode says otherwise.
            (TlsMode::Auto, true) if self.client_roots.is_some() => TlsMode::Required,
            (TlsMode::Auto, true) => TlsMode::Offered,
            (TlsMode::Offered | TlsMode::Required, false) => {
                return Err("tls: a certificate and a key are missing".to_owned());
            }
            (mode, _) => mode,
        };
        match (&self.upstream_roots, &self.upstream_certificate, &self.upstream_key) {
            (_, Some(_), None) | (_, None, Some(_)) => {
                Err("tls: an upstream certificate and a key belong together".to_owned())
            }
            (None, Some(_), Some(_)) => Err("tls: upstream-roots are missing".to_owned()),
            _ => Ok(()),
        }
    }

    /// Copies the files from `next` that can be reloaded while the server runs.
    pub(crate) fn take_keys(&mut self, next: &TlsConfig) {
        if self.mode == next.mode {
            self.take(next, Changes::Access);
        }
    }

    /// The server's files; `None` without TLS.
    pub fn files(&self) -> Option<TlsFiles> {
        if self.mode == TlsMode::Off {
            return None;
        }
        let (certificates, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(TlsFiles { certificates, key, client_roots: self.client_roots.clone() })
    }

    /// Whether clients that use TLS must present a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.files().is_some_and(|files| files.client_roots.is_some())
    }

    /// The files for connections to other servers, if any servers are trusted.
    pub fn upstream_files(&self) -> Option<ClientTlsFiles> {
        let identity = self.upstream_certificate.clone().zip(self.upstream_key.clone());
        self.upstream_roots.clone().map(|roots| ClientTlsFiles { roots, identity })
    }
}
