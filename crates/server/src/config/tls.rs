//! Whether connections are encrypted, and where the keys are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use undercroft_nbd::{ClientTlsFiles, TlsFiles};

use super::forms;

/// Whether connections from clients are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not said: `Off` without a certificate, `Required` with roots of clients, else `Offered`.
    #[default]
    Auto,
    /// No.
    Off,
    /// If the client wants.
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

/// TLS towards clients, and towards the servers that stores are exports of. All files are PEM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TlsConfig {
    /// Whether connections are encrypted.
    #[serde(with = "forms::text")]
    pub mode: TlsMode,
    /// The server's certificates.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Roots of the clients' certificates: with it, clients that use TLS must show one.
    pub client_roots: Option<PathBuf>,
    /// Roots that servers at `nbds://` are trusted by.
    pub upstream_roots: Option<PathBuf>,
    /// Certificate to show to them.
    pub upstream_certificate: Option<PathBuf>,
    /// Its private key.
    pub upstream_key: Option<PathBuf>,
}

impl TlsConfig {
    /// Chooses the mode where none was given.
    ///
    /// # Errors
    /// Something is missing.
    pub(super) fn validate(&mut self) -> Result<(), String> {
        let has_keys = match (&self.certificate, &self.key) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            _ => return Err("tls: a certificate and a key belong together".to_owned()),
        };
        self.mode = match (self.mode, has_keys) {
            (TlsMode::Auto, false) => TlsMode::Off,
            // Whoever asks for certificates gets them from everybody, unless it says otherwise.
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

    /// Takes over the files that can be loaded while the server runs.
    pub(crate) fn take_keys(&mut self, next: &TlsConfig) {
        if self.mode == next.mode {
            self.certificate.clone_from(&next.certificate);
            self.key.clone_from(&next.key);
            self.client_roots.clone_from(&next.client_roots);
        }
    }

    /// The server's files; none without TLS.
    pub fn files(&self) -> Option<TlsFiles> {
        if self.mode == TlsMode::Off {
            return None;
        }
        let (certificates, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(TlsFiles { certificates, key, client_roots: self.client_roots.clone() })
    }

    /// Whether clients that use TLS must show a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.files().is_some_and(|files| files.client_roots.is_some())
    }

    /// The files for connections to other servers, if those are trusted.
    pub fn upstream_files(&self) -> Option<ClientTlsFiles> {
        let identity = self.upstream_certificate.clone().zip(self.upstream_key.clone());
        self.upstream_roots.clone().map(|roots| ClientTlsFiles { roots, identity })
    }
}
