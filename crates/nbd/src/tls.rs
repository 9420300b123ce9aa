//! TLS: a server's certificates and requirements, which can be renewed while it runs, and what a
//! client trusts.
//!
//! Not here: the handshakes, and reading fields of certificates.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::server::certificate::{common_name, validity};

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
    current: Arc<RwLock<Current>>,
}

/// What is in force, and how often that was replaced.
#[derive(Clone)]
struct Current {
    tls: ServerTls,
    replaced: u64,
}

/// What a server shows, and how it verifies its clients.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// For handshakes.
    pub config: Arc<ServerConfig>,
    /// What verifies the certificates of clients in `config`, if that asks for any.
    pub verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsKeys {
    /// Keys with this in force.
    pub fn new(tls: ServerTls) -> TlsKeys {
        TlsKeys { current: Arc::new(RwLock::new(Current { tls, replaced: 0 })) }
    }

    /// Replaces what is in force for later connections. Existing encrypted ones stay encrypted as
    /// they are; whether their clients are [trusted](Identity::is_trusted) follows from the new
    /// verifier.
    pub fn replace(&self, tls: ServerTls) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Current { tls, replaced: current.replaced + 1 };
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Encrypts a connection. Returns who the client is.
    pub(crate) async fn accept<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        plain: T,
    ) -> io::Result<(TlsStream<T>, Identity)> {
        let Current { tls, replaced } = self.current();
        let stream = TlsAcceptor::from(tls.config).accept(plain).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        let known = AtomicU64::new(replaced << 1 | 1);
        let shown = Shown { chain, at: UnixTime::now(), keys: self.clone(), known };
        Ok((stream, Identity(Arc::new(shown))))
    }
}

/// Who a client is, as its encrypted connection shows. Clones share it.
#[derive(Clone)]
pub struct Identity(Arc<Shown>);

struct Shown {
    /// The client's certificate and those above it; empty if it was not asked.
    chain: Vec<CertificateDer<'static>>,
    /// When it was verified.
    at: UnixTime,
    keys: TlsKeys,
    /// How often the keys had been replaced when this was verified last, and in the lowest bit
    /// whether it was trusted.
    known: AtomicU64,
}

impl Identity {
    /// Whether the server's keys, as they are now, would have let this client in when it came: its
    /// certificate is issued by roots that are still there, and it has one if that is demanded. A
    /// certificate that has expired since counts.
    pub fn is_trusted(&self) -> bool {
        let Shown { chain, at, keys, known } = &*self.0;
        let before = known.load(Ordering::Relaxed);
        let Current { tls, replaced } = keys.current();
        if before >> 1 == replaced {
            return before & 1 != 0;
        }
        let is_trusted = match (&tls.verifier, chain.split_first()) {
            (None, shown) => shown.is_none(),
            (Some(verifier), None) => !verifier.client_auth_mandatory(),
            (Some(verifier), Some((own, above))) => {
                verifier.verify_client_cert(own, above, *at).is_ok()
            }
        };
        known.store(replaced << 1 | u64::from(is_trusted), Ordering::Relaxed);
        is_trusted
    }

    /// Common name of the client's certificate.
    pub(crate) fn name(&self) -> Option<String> {
        self.0.chain.first().and_then(|own| common_name(own))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.name()).finish()
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
#[error("{role} {}: {what}", path.display())]
pub struct TlsError {
    /// What the file is for.
    role: &'static str,
    path: PathBuf,
    what: String,
}

impl TlsError {
    fn at(role: &'static str, path: &Path) -> impl Fn(&dyn fmt::Display) -> TlsError {
        move |what| TlsError { role, path: path.to_owned(), what: what.to_string() }
    }
}

/// What the files are for, as the options are called.
const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
const ROOTS: &str = "roots";

impl TlsFiles {
    /// Loads the files, for TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// The file that cannot be read, or has no usable content.
    pub fn load(&self) -> Result<ServerTls, TlsError> {
        let at_key = TlsError::at(KEY, &self.key);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| at_key(&error))?;
        let verifier = match &self.client_roots {
            None => None,
            Some(path) => {
                let roots = Arc::new(load_roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                Some(verifier.build().map_err(|error| TlsError::at(ROOTS, path)(&error))?)
            }
        };
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let certificates = load_certificates(CERTIFICATE, &self.certificates)?;
        let config = builder.with_single_cert(certificates, load_key(&self.key)?);
        let config = config.map_err(|error| misfit(&self.key, &self.certificates, &error))?;
        Ok(ServerTls { config: Arc::new(config), verifier })
    }

    /// What is wrong with the time of the certificates, one line for each that is not valid `now`
    /// (in seconds since 1970): others will refuse it, or it is refused here.
    ///
    /// # Errors
    /// A file cannot be read, or has no usable content.
    pub fn untimely(&self, now: i64) -> Result<Vec<String>, TlsError> {
        let roots = self.client_roots.as_deref().map(|path| (ROOTS, path));
        let mut lines = Vec::new();
        for (role, path) in roots.into_iter().chain([(CERTIFICATE, &*self.certificates)]) {
            for valid in load_certificates(role, path)?.iter().filter_map(|one| validity(one)) {
                let (begin, end) = (valid.not_before, valid.not_after);
                if end.timestamp() < now {
                    let what = format!("has expired: it was valid until {end}");
                    lines.push(TlsError::at(role, path)(&what).to_string());
                } else if begin.timestamp() > now {
                    let what = format!("is not valid yet, only from {begin}; check the clock, too");
                    lines.push(TlsError::at(role, path)(&what).to_string());
                }
            }
        }
        Ok(lines)
    }

    /// When the first of the certificates expires, in seconds since 1970.
    ///
    /// # Errors
    /// The file cannot be read, or has no usable content.
    pub fn expire(&self) -> Result<i64, TlsError> {
        let certificates = load_certificates(CERTIFICATE, &self.certificates)?;
        let times = certificates.iter().filter_map(|one| validity(one));
        let first = times.map(|valid| valid.not_after.timestamp()).min();
        first.ok_or_else(|| TlsError::at(CERTIFICATE, &self.certificates)(&NO_CERTIFICATE))
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
            .map_err(|error| TlsError::at(ROOTS, &self.roots)(&error))?
            .with_root_certificates(load_roots(&self.roots)?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key_path)) => {
                let key = load_key(key_path)?;
                let chain = load_certificates(CERTIFICATE, certificates)?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| misfit(key_path, certificates, &error))?
            }
        };
        Ok(Arc::new(config))
    }
}

/// The cryptography provider of this crate, whatever else is linked into the program.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a file that should have certificates lacks.
const NO_CERTIFICATE: &str = "holds no certificate in PEM, which begins with `-----BEGIN \
                              CERTIFICATE-----`";

/// All certificates of a PEM file; at least one.
fn load_certificates(
    role: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let at = TlsError::at(role, path);
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| at(&in_words(&error)))?;
    if certificates.is_empty() { Err(at(&NO_CERTIFICATE)) } else { Ok(certificates) }
}

/// The first private key of a PEM file.
fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let at = TlsError::at(KEY, path);
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        // A text of one key is short; what is not text has no such line.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let is_encrypted = |line: &str| line.contains("ENCRYPTED");
        match (text.lines().position(is_encrypted), &error) {
            (Some(before), _) => at(&format!(
                "line {}: is encrypted with a passphrase; `openssl pkey -in FILE -out NEW` writes \
                 it without one, for a file that only the server may read",
                before + 1
            )),
            (None, pem::Error::NoItemsFound) => at(&"holds no private key in PEM, which begins \
                                                     with `-----BEGIN PRIVATE KEY-----`"),
            (None, error) => at(&in_words(error)),
        }
    })
}

/// An error of a file, without the name of its kind.
fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Why a certificate and a key cannot be used together.
fn misfit(key: &Path, certificates: &Path, error: &rustls::Error) -> TlsError {
    let at = TlsError::at(KEY, key);
    match error {
        rustls::Error::InconsistentKeys(_) => {
            at(&format!("does not belong to the first certificate of {}", certificates.display()))
        }
        error => at(error),
    }
}

/// The certificates of a PEM file as roots.
fn load_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in load_certificates(ROOTS, path)? {
        roots.add(certificate).map_err(|error| TlsError::at(ROOTS, path)(&error))?;
    }
    Ok(roots)
}
