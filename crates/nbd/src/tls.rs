//! TLS: a server's certificates and requirements, which can be renewed while it runs, and what a
//! client trusts.
//!
//! Not here: the handshakes, and reading fields of certificates.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::server::certificate::expires;

/// Whether connections are encrypted.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// STARTTLS is refused.
    #[default]
    Off,
    /// STARTTLS is accepted; an export may require it, by answering
    /// [`Refusal::TlsRequired`](crate::Refusal::TlsRequired).
    Offered(TlsKeys),
    /// Every option except STARTTLS is refused before it.
    Required(TlsKeys),
}

impl Tls {
    pub(crate) fn keys(&self) -> Option<&TlsKeys> {
        match self {
            Tls::Off => None,
            Tls::Offered(keys) | Tls::Required(keys) => Some(keys),
        }
    }
}

/// The server's certificate and its requirements for clients. Clones share one state, so that a
/// renewal applies to all later connections.
#[derive(Clone)]
pub struct TlsKeys {
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl TlsKeys {
    /// Keys from any configuration of rustls.
    pub fn new(config: Arc<ServerConfig>) -> TlsKeys {
        TlsKeys { current: Arc::new(RwLock::new(config)) }
    }

    /// Replaces the configuration for later connections; existing encrypted ones keep theirs.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// The configuration in force.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsKeys")
    }
}

/// The files of a server's keys, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Root certificates for clients. If set, clients must present a certificate.
    pub client_roots: Option<PathBuf>,
}

/// The error of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

impl TlsError {
    fn at(path: &Path) -> impl Fn(&dyn fmt::Display) -> TlsError {
        move |what| TlsError { path: path.to_owned(), what: what.to_string() }
    }
}

impl TlsFiles {
    /// Loads the files, for TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// The file that cannot be read, or has no usable content.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let at_key = TlsError::at(&self.key);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| at_key(&error))?;
        let builder = match &self.client_roots {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(load_roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| TlsError::at(path)(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let certificates = load_certificates(&self.certificates)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| at_key(&error))?;
        let config = builder.with_single_cert(certificates, key).map_err(|error| at_key(&error))?;
        Ok(Arc::new(config))
    }

    /// When the first of the certificates expires, in seconds since 1970.
    ///
    /// # Errors
    /// The file cannot be read, or has no usable content.
    pub fn expire(&self) -> Result<i64, TlsError> {
        let certificates = load_certificates(&self.certificates)?;
        let times = certificates.iter().filter_map(|certificate| expires(certificate));
        times.min().ok_or_else(|| TlsError::at(&self.certificates)(&"holds no certificate"))
    }
}

/// The files of a client's trust and identity, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Root certificates for servers.
    pub roots: PathBuf,
    /// The client's own certificate and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTlsFiles {
    /// Loads the files, for TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// The file that cannot be read, or has no usable content.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::at(&self.roots)(&error))?
            .with_root_certificates(load_roots(&self.roots)?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key_path)) => {
                let at = TlsError::at(key_path);
                let key = PrivateKeyDer::from_pem_file(key_path).map_err(|error| at(&error))?;
                let certificates = load_certificates(certificates)?;
                builder.with_client_auth_cert(certificates, key).map_err(|error| at(&error))?
            }
        };
        Ok(Arc::new(config))
    }
}

/// The cryptography provider of this crate, whatever else is linked into the program.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// All certificates of a PEM file; at least one.
fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let at = TlsError::at(path);
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| at(&error))?;
    if certificates.is_empty() { Err(at(&"holds no certificate")) } else { Ok(certificates) }
}

/// The certificates of a PEM file as roots.
fn load_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in load_certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::at(path)(&error))?;
    }
    Ok(roots)
}
