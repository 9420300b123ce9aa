//! TLS: what a server shows and asks for, renewable while it runs, and what a client trusts.
//!
//! Not here: the handshakes, and what is read out of a certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Whether connections are encrypted.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// STARTTLS is refused.
    #[default]
    Off,
    /// STARTTLS works; an export may still insist, by answering
    /// [`Refusal::TlsRequired`](crate::Refusal::TlsRequired).
    Offered(TlsKeys),
    /// Nothing but STARTTLS works before it.
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

/// The server's certificate and what it asks of its clients. Clones share one state, so that a
/// renewal reaches every connection that begins later.
#[derive(Clone)]
pub struct TlsKeys {
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl TlsKeys {
    /// Any configuration of rustls.
    pub fn new(config: Arc<ServerConfig>) -> TlsKeys {
        TlsKeys { current: Arc::new(RwLock::new(config)) }
    }

    /// From now on this one; connections that are encrypted already keep theirs.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// The one in force.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsKeys")
    }
}

/// Where keys are on disk, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, followed by those between it and the root.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Roots that clients' certificates must come from. With it, clients must show one.
    pub client_roots: Option<PathBuf>,
}

/// Keys that cannot be used.
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
    /// Reads them: TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// Names the file that cannot be read or holds nothing of use.
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
}

/// What a client trusts and shows, on disk, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Roots that the server's certificate must come from.
    pub roots: PathBuf,
    /// The client's own certificate, and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTlsFiles {
    /// Reads them: TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// Names the file that cannot be read or holds nothing of use.
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

/// The cryptography that this crate is built with, whatever else is linked into the program.
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
