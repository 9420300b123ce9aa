//! The live page over HTTP: its files, which hold nothing of the server and so need no token, and
//! the events that it reads.
//!
//! The page asks for `/events` by `fetch`, which can send the token in a header, and [`VIEWER`].
//! The answer lasts until the viewer leaves, does not read, or may not see it any more.

use axum::body::Body;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;

use super::Rights;
use super::bounds::Client;
use crate::http::live::Live;
use crate::http::live::files::{FILES, File, PAGE};

/// What the page may load: its own files, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Seconds after which a viewer who found no place may ask again.
const AGAIN_S: &str = "10";

/// The header with which the page asks for events. Pages of other sites could take all places of
/// viewers, though they cannot read the answers. A browser lets them send no such header: it asks
/// the server first, which does not agree. What a browser says of where a request comes from
/// (`Origin`, `Sec-Fetch-Site`) does not suffice: over plain HTTP it may say nothing.
const VIEWER: HeaderName = HeaderName::from_static("x-undercroft-viewer");

/// What events need.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) live: std::sync::Arc<Live>,
    pub(super) rights: Rights,
    pub(super) stop: watch::Receiver<bool>,
}

/// Whether a viewer may still see what is shown.
type MaySee = Box<dyn Fn() -> bool + Send + Sync>;

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
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if !headers.contains_key(VIEWER) {
        let why = "events are for the server's own page, which asks with X-Undercroft-Viewer; \
                   programs read /stats\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let Some(viewer) = watched.live.watch() else {
        let why = "the live page has as many viewers as the server allows; /stats answers\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, AGAIN_S)], why)
            .into_response();
    };
    client.views();
    let Watched { rights, stop, .. } = watched;
    let may_see: MaySee = Box::new(move || {
        let is_known = rights.unknown_host(&client.peer, &uri, &headers).is_none();
        is_known && rights.token.is_shown(&headers)
    });
    let next = |(mut viewer, may_see, mut stop): (_, MaySee, watch::Receiver<bool>)| async {
        let event: Bytes = tokio::select! {
            event = crate::http::live::Viewer::next(&mut viewer) => event?,
            _ = stop.wait_for(|&stop| stop) => return None,
        };
        // Its rights may have changed since it came.
        let event = may_see().then_some(Ok::<_, std::convert::Infallible>(event))?;
        Some((event, (viewer, may_see, stop)))
    };
    let headers_of_answer = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Its connection is no longer counted among those of other requests.
        (header::CONNECTION, "close"),
        // Proxies that gather answers would show nothing.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let body = Body::from_stream(stream::unfold((viewer, may_see, stop), next));
    (headers_of_answer, body).into_response()
}
