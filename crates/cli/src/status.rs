//! Asking a running server what it counts, over HTTP or through any of its volumes: the same for
//! every command that shows it.

use std::path::PathBuf;

use serde_json::Value;

use crate::error::Error;
use crate::http;
use crate::tls::TlsOptions;

/// Which server, and what it wants to see.
#[derive(clap::Args, Clone)]
pub(crate) struct StatusOptions {
    /// http://HOST:PORT or unix:PATH of a server's HTTP listener, or any NBD URI of one of its
    /// volumes
    pub(crate) uri: String,
    /// What is in the http-token-file of the server, if it demands that
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
}

impl StatusOptions {
    /// The counters, as `/stats` has them.
    ///
    /// # Errors
    /// The server cannot be asked, or the options do not fit.
    pub(crate) fn stats(&self) -> Result<Value, Error> {
        let text = if http::is_http(&self.uri) {
            self.tls.client(None)?;
            http::stats(&self.uri, self.token_file.as_deref())?
        } else {
            if self.token_file.is_some() {
                let why = "--token-file is for http://HOST:PORT and unix:PATH";
                return Err(Error::Usage(why.to_owned()));
            }
            let uri = self.uri.parse().map_err(|error| {
                let instead = "or http://HOST:PORT or unix:PATH of its HTTP listener";
                Error::Usage(format!("{error}; {instead}"))
            })?;
            let options = self.tls.client(Some(&uri))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let asked = undercroft_server::status_over_nbd(&uri, &options);
            runtime.block_on(asked).map_err(Error::Work)?
        };
        Ok(serde_json::from_str(&text)?)
    }

    /// The server's advice; nothing over NBD, and of a server that gives none.
    pub(crate) fn advice(&self) -> Option<Value> {
        let is_base =
            http::is_http(&self.uri) && !self.uri.trim_end_matches('/').ends_with("/stats");
        let text = is_base.then(|| http::page(&self.uri, "/advice", self.token_file.as_deref()))?;
        serde_json::from_str(&text.ok()?).ok()
    }
}

/// The volumes, in the order of the configuration.
pub(crate) fn volumes(stats: &Value) -> Vec<(&str, &Value)> {
    let volumes = stats["volumes"].as_object().into_iter().flatten();
    let mut all: Vec<_> = volumes.map(|(name, volume)| (name.as_str(), volume)).collect();
    all.sort_by_key(|(_, volume)| volume["position"].as_u64().unwrap_or(u64::MAX));
    all
}
