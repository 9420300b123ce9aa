//! What a running server tells of itself in JSON, from its HTTP listener or over NBD.

use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::http;
use crate::tls::TlsOptions;

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Page {
    /// The counters.
    Stats,
    /// What another policy, placement or size would be worth.
    Advice,
}

/// Reads a page from `http://HOST:PORT`, `unix:PATH` or an NBD URI of a volume.
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
