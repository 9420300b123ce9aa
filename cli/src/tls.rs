//! The options that say whom a client of a server trusts over TLS, and what it shows, the same for
//! every command that connects to one.

use std::path::PathBuf;

use clap::Args;
use undercroft_nbd::{ClientOptions, ClientTlsFiles, Uri};

use crate::error::Error;

/// What `nbds://` needs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsOptions {
    /// For nbds:// the roots that the server's certificate must come from, PEM
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// For nbds:// the certificate to show, followed by those between it and the root, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The private key that belongs to it, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

impl TlsOptions {
    /// How to connect to a URI; none: something else than NBD.
    pub(crate) fn client(&self, uri: Option<&Uri>) -> Result<ClientOptions, Error> {
        let mut options = ClientOptions::default();
        let given = self.tls_roots.is_some() || self.tls_certificate.is_some();
        if !uri.is_some_and(|uri| uri.tls) {
            return if given {
                let why = "--tls-roots and --tls-certificate are for nbds:// and nbds+unix://";
                Err(Error::Usage(format!("{why}: this URI is not encrypted")))
            } else {
                Ok(options)
            };
        }
        let Some(roots) = self.tls_roots.clone() else {
            let why = "nbds:// needs --tls-roots FILE: whom the server's certificate comes from";
            return Err(Error::Usage(why.to_owned()));
        };
        let identity = self.tls_certificate.clone().zip(self.tls_key.clone());
        let files = ClientTlsFiles { roots, identity };
        options.tls = Some(files.load().map_err(|error| Error::Work(format!("tls: {error}")))?);
        Ok(options)
    }
}
