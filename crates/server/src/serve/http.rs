//! Counters and health over HTTP, for people, scripts and Prometheus. `http/bounds.rs` limits the
//! number and the duration of connections.

pub(crate) mod bounds;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::bounds::Bounded;
use super::absent::Absent;
use super::exports::ExportEntry;
use super::metrics::{self, About};

/// Serves until `stop` becomes true.
pub(crate) async fn serve(listener: TcpListener, about: About, mut stop: watch::Receiver<bool>) {
    let pages = Router::new()
        .route("/", get(|| async { "undercroft: /stats /metrics /healthz\n" }))
        .route("/stats", get(stats))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/healthz/{volume}", get(volume_health))
        .with_state(about);
    let stopped = async move {
        // An error means that the server is gone.
        let _ = stop.wait_for(|&stop| stop).await;
    };
    if let Err(error) =
        axum::serve(Bounded::new(listener), pages).with_graceful_shutdown(stopped).await
    {
        tracing::warn!("http: {error}");
    }
}

async fn stats(State(about): State<About>) -> Response {
    let exports = &about.exports;
    let json = metrics::json(&exports.all(), &exports.absent(), &exports.order());
    let text = json.to_string() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn metrics(State(about): State<About>) -> Response {
    match metrics::prometheus(&about) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Healthy while every volume is served, accepts requests, and its store answers.
async fn health(State(about): State<About>) -> Response {
    let mut troubles = String::new();
    for entry in about.exports.all() {
        if let Some(trouble) = trouble(&entry) {
            troubles += &format!("{}: {trouble}\n", entry.volume().config().name);
        }
    }
    for absent in about.exports.absent() {
        troubles += &format!("{}: {}\n", absent.config().name, not_served(&absent));
    }
    told(troubles)
}

/// Whether one volume is healthy.
async fn volume_health(State(about): State<About>, Path(name): Path<String>) -> Response {
    let (all, absent) = (about.exports.all(), about.exports.absent());
    let entry = all.iter().find(|entry| entry.volume().config().name == name);
    let absent = absent.iter().find(|absent| absent.config().name == name);
    match (entry, absent) {
        (Some(entry), _) => told(trouble(entry).map(|text| text + "\n").unwrap_or_default()),
        (None, Some(absent)) => told(not_served(absent) + "\n"),
        (None, None) => (StatusCode::NOT_FOUND, "there is no such volume\n").into_response(),
    }
}

fn not_served(absent: &Absent) -> String {
    format!("not served yet: {}", absent.why())
}

fn trouble(entry: &ExportEntry) -> Option<String> {
    let volume = entry.volume();
    if volume.is_closing() { Some("shutting down".to_owned()) } else { volume.trouble() }
}

fn told(troubles: String) -> Response {
    if troubles.is_empty() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles).into_response()
    }
}
