//! Asking a running server what it counts and advises, over HTTP or NBD: the same for every command
//! that shows it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::http;
use crate::tls::TlsOptions;

/// What a server is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Page {
    /// The counters.
    Stats,
    /// What another policy, placement or size would be worth.
    Advice,
}

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
        read(Page::Stats, &self.uri, self.token_file.as_deref(), &self.tls)
    }

    /// The server's advice; nothing if it gives none, or if `uri` names another of its pages.
    pub(crate) fn advice(&self) -> Option<Value> {
        let is_stats = self.uri.trim_end_matches('/').ends_with("/stats");
        if http::is_http(&self.uri) && is_stats {
            return None;
        }
        read(Page::Advice, &self.uri, self.token_file.as_deref(), &self.tls).ok()
    }
}

/// Reads a page from `http://HOST:PORT`, `unix:PATH` or an NBD URI of a volume.
///
/// # Errors
/// The server cannot be asked, or the options do not fit.
pub(crate) fn read(
    page: Page,
    uri: &str,
    token_file: Option<&Path>,
    tls: &TlsOptions,
) -> Result<Value, Error> {
    let text = if http::is_http(uri) {
        tls.client(None)?;
        let name = match page {
            Page::Stats => "/stats",
            Page::Advice => "/advice",
        };
        http::page(uri, name, token_file)?
    } else {
        if token_file.is_some() {
            let why = "--token-file is for http://HOST:PORT and unix:PATH";
            return Err(Error::Usage(why.to_owned()));
        }
        let uri = uri.parse().map_err(|error| {
            Error::Usage(format!("{error}; or http://HOST:PORT or unix:PATH of its HTTP listener"))
        })?;
        let options = tls.client(Some(&uri))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = async {
            match page {
                Page::Stats => undercroft_server::status_over_nbd(&uri, &options).await,
                Page::Advice => undercroft_server::advice_over_nbd(&uri, &options).await,
            }
        };
        runtime.block_on(asked).map_err(Error::Work)?
    };
    Ok(serde_json::from_str(&text)?)
}

/// The state of a volume's store in a word: up, waiting, failing, down or away. Older servers tell
/// only whether it is up.
pub(crate) fn store_state(volume: &Value) -> &str {
    let older = match (&volume["away"], volume["store_up"].as_u64()) {
        (Value::Bool(true), _) => "away",
        (_, None) => "-",
        (_, Some(0)) => "down",
        (_, Some(_)) => "up",
    };
    volume["store_state"].as_str().unwrap_or(older)
}

/// The volumes, in the order of the configuration.
pub(crate) fn volumes(stats: &Value) -> Vec<(&str, &Value)> {
    let volumes = stats["volumes"].as_object().into_iter().flatten();
    let mut all: Vec<_> = volumes.map(|(name, volume)| (name.as_str(), volume)).collect();
    all.sort_by_key(|(_, volume)| volume["position"].as_u64().unwrap_or(u64::MAX));
    all
}
