//! The live page over HTTP: its files, which hold nothing of the server and so need no token, and
//! the events that it reads.
//!
//! The page asks for `/events` by `fetch`, which can send the token in a header. The answer lasts
//! until the viewer leaves, does not read, or its token is no longer taken.

use axum::body::Body;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use undercroft_report::live::{FILES, File, PAGE};

use super::bounds::Client;
use super::token::Token;
use crate::serve::live::Live;

/// What the page may load: its own files, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Seconds after which a viewer who found no place may ask again.
const AGAIN_S: &str = "10";

/// What events need.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) live: std::sync::Arc<Live>,
    pub(super) token: Token,
    pub(super) stop: watch::Receiver<bool>,
}

/// Whether a request asks for a file of the page.
pub(super) fn is_of_the_page(path: &str, headers: &HeaderMap) -> bool {
    path.starts_with("/live/") || path == "/" && wants_page(headers)
}

/// Whether a browser asks, which shows pages.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/html"))
}

/// The live page, for browsers; for others the names of the other pages.
pub(super) async fn page(headers: HeaderMap) -> Response {
    let answer = match wants_page(&headers) {
        true => given(&PAGE),
        false => "undercroft: / (in a browser) /stats /advice /metrics /healthz\n".into_response(),
    };
    ([(header::VARY, "Accept")], answer).into_response()
}

/// Another file of the live page.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => given(file),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn given(file: &'static File) -> Response {
    let headers = [
        (header::CONTENT_TYPE, file.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, file.text).into_response()
}

/// The samples of the last minutes, and each further one when it is made.
pub(super) async fn events(
    State(watched): State<Watched>,
    ConnectInfo(client): ConnectInfo<Client>,
    headers: HeaderMap,
) -> Response {
    // Another site's page could take all places, though it cannot read the answers.
    let from = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if from.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return (StatusCode::FORBIDDEN, "events are for the server's own page\n").into_response();
    }
    let Some(viewer) = watched.live.watch() else {
        let why = "the live page has as many viewers as the server allows; /stats answers\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, AGAIN_S)], why)
            .into_response();
    };
    client.views();
    let Watched { token, stop, .. } = watched;
    let next = |(mut viewer, token, headers, mut stop): (_, Token, _, watch::Receiver<bool>)| async {
        let event: Bytes = tokio::select! {
            event = crate::serve::live::Viewer::next(&mut viewer) => event?,
            _ = stop.wait_for(|&stop| stop) => return None,
        };
        let event = token.is_shown(&headers).then_some(Ok::<_, std::convert::Infallible>(event))?;
        Some((event, (viewer, token, headers, stop)))
    };
    let headers_of_answer = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Its connection is no longer counted among those of other requests.
        (header::CONNECTION, "close"),
        // Proxies that gather answers would show nothing.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let body = Body::from_stream(stream::unfold((viewer, token, headers, stop), next));
    (headers_of_answer, body).into_response()
}
