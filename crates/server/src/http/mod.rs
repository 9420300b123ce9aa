//! Counters and health over HTTP, for people, scripts and Prometheus. `http/bounds.rs` limits the
//! number and the duration of connections; `http/token.rs` has the token that the pages may demand;
//! `http/hosts.rs` the names under which it answers without one; `http/events.rs` is the live page;
//! `http/scrape.rs` has the formats of `/metrics`.

pub(crate) mod bounds;
mod events;
pub(crate) mod hosts;
mod live;
pub(crate) mod metrics;
mod scrape;
pub(crate) mod token;

use axum::Router;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use undercroft_nbd::Peer;

use self::bounds::{Bounded, Client, Socket, Turns};
use self::events::Watched;
use self::hosts::Hosts;
use self::scrape::Format;
use self::token::Token;
use crate::advice::page;
use crate::exports::{ExportEntry, ExportTable};
use crate::http::live::Live;
use crate::http::metrics::About;
use crate::process::pending_volume::PendingVolume;

/// Who may see the pages, as it is now. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Rights {
    pub(crate) token: Token,
    pub(crate) hosts: Hosts,
}

impl Rights {
    /// The host of a request that is not answered, while no token is demanded.
    fn unknown_host(&self, client: &Peer, target: &Uri, headers: &HeaderMap) -> Option<String> {
        let is_open = !self.token.is_demanded();
        is_open.then(|| self.hosts.unknown(client, target, headers)).flatten()
    }
}

/// Serves until `stop` becomes true.
pub(crate) async fn serve(
    socket: Socket,
    about: About,
    rights: Rights,
    mut stop: watch::Receiver<bool>,
) {
    let live = Live::new();
    let sampled = {
        let (live, about, stop) = (live.clone(), about.clone(), stop.clone());
        tokio::spawn(async move { live.sample(about, stop).await })
    };
    let door = middleware::from_fn_with_state((about.clone(), rights.clone()), admit);
    let watched = Watched { live, rights, stop: stop.clone() };
    let pages = Router::new()
        .route("/stats", get(stats))
        .route("/advice", get(advice))
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(Turns::default(), in_turn))
        .route("/", get(events::page))
        .route("/live/{file}", get(events::file))
        .route("/events", get(events::events).with_state(watched))
        .route("/healthz", get(health))
        .route("/healthz/{volume}", get(volume_health))
        .layer(door)
        .with_state(about)
        .into_make_service_with_connect_info::<Client>();
    let stopped = async move {
        // An error means that the server is gone.
        let _ = stop.wait_for(|&stop| stop).await;
    };
    if let Err(error) =
        axum::serve(Bounded::new(socket), pages).with_graceful_shutdown(stopped).await
    {
        tracing::warn!("http: {error}");
    }
    sampled.abort();
}

/// Gives a page to those that show the token; without a token, to those that ask for a known host.
/// Others learn no more than whether all is well.
async fn admit(
    State((about, rights)): State<(About, Rights)>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    let page = request.uri().path();
    let headers = request.headers();
    let unknown = rights.unknown_host(&client.peer, request.uri(), headers);
    let may_see = rights.token.is_shown(headers) || events::is_of_the_page(page, headers);
    if may_see && unknown.is_none() {
        return next.run(request).await;
    }
    if page == "/healthz" {
        let how = if unknown.is_some() { "asked for a known host" } else { "with the token" };
        return match health(State(about)).await.status() {
            StatusCode::OK => "ok\n".into_response(),
            status => (status, format!("not healthy; {how} this page says why\n")).into_response(),
        };
    }
    if let Some(host) = unknown {
        let why = format!("the host '{host}' is not one of http-hosts");
        about.server.log_refusal(&client.peer, &format!("http {page}"), &why);
        let help = "without a token this server answers addresses, localhost and the names in its \
                    http-hosts: ask for its address, or put this name into the configuration, as \
                    http-hosts = [\"NAME\"]\n";
        return (StatusCode::MISDIRECTED_REQUEST, help).into_response();
    }
    let has_token = headers.contains_key(header::AUTHORIZATION);
    let why = if has_token { "not the token" } else { "no token" };
    about.server.log_refusal(&client.peer, &format!("http {page}"), why);
    let help = "the page demands what is in the server's http-token-file, as `Authorization: \
                Bearer TOKEN`; `undercroft stats` sends it with --token-file FILE\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], help).into_response()
}

/// Makes a page that costs work when it is its turn.
async fn in_turn(State(turns): State<Turns>, request: Request, next: Next) -> Response {
    turns.make(next.run(request)).await
}

async fn stats(State(about): State<About>) -> Response {
    let exports = &about.exports;
    let last = crate::events::last(metrics::EVENTS, None);
    let json = metrics::json(&exports.all(), &exports.pending(), &exports.order(), last);
    let text = json.to_string() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn advice(State(about): State<About>) -> Response {
    let text = page::json(&about.exports.all(), &about.exports.pending()).to_string() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn metrics(State(about): State<About>, headers: HeaderMap) -> Response {
    let format = Format::asked(&headers);
    match metrics::prometheus(&about) {
        Ok(text) => {
            ([(header::CONTENT_TYPE, format.media())], format.written(text)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Healthy while every volume is served, accepts requests, and its store is up or waiting.
async fn health(State(about): State<About>) -> Response {
    let (mut text, mut is_healthy) = (String::new(), true);
    let told = all_troubles(&about.exports);
    for Trouble { volume, why, waits } in told {
        text += &format!("{volume}: {why}\n");
        is_healthy &= waits;
    }
    answer(&text, is_healthy)
}

/// What is not as it should be with a volume.
pub(crate) struct Trouble {
    pub(crate) volume: String,
    pub(crate) why: String,
    /// Whether the volume only waits for its store: what is asked of it is done later.
    pub(crate) waits: bool,
}

/// What is not as it should be, by volume: first those that are served.
pub(crate) fn all_troubles(exports: &ExportTable) -> Vec<Trouble> {
    let served = exports.all();
    let served = served.iter().filter_map(|entry| trouble(entry));
    let pending = exports.pending();
    let pending = pending.iter().map(|pending| Trouble {
        volume: pending.config().name.clone(),
        why: not_served(pending),
        waits: false,
    });
    served.chain(pending).collect()
}

/// Whether one volume is healthy.
async fn volume_health(State(about): State<About>, Path(name): Path<String>) -> Response {
    let (all, pending) = (about.exports.all(), about.exports.pending());
    let entry = all.iter().find(|entry| entry.volume().config().name == name);
    let pending = pending.iter().find(|pending| pending.config().name == name);
    match (entry, pending) {
        (Some(entry), _) => match trouble(entry) {
            None => answer("", true),
            Some(trouble) => answer(&(trouble.why + "\n"), trouble.waits),
        },
        (None, Some(pending)) => answer(&(not_served(pending) + "\n"), false),
        (None, None) => (StatusCode::NOT_FOUND, "there is no such volume\n").into_response(),
    }
}

pub(crate) fn not_served(pending: &PendingVolume) -> String {
    format!("not served yet: {}", pending.why())
}

/// What is not as it should be with a volume that is served; `None` if all is well.
pub(crate) fn trouble(entry: &ExportEntry) -> Option<Trouble> {
    let (served, volume) = (entry.volume(), entry.volume().config().name.clone());
    if served.answers.is_closing() {
        return Some(Trouble { volume, why: "shutting down".to_owned(), waits: false });
    }
    let condition = served.store_health.look();
    let waits = !condition.state.is_trouble();
    condition.sentence.map(|why| Trouble { volume, why, waits })
}

fn answer(told: &str, is_healthy: bool) -> Response {
    if is_healthy {
        format!("ok\n{told}").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, told.to_owned()).into_response()
    }
}
