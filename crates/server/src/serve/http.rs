//! Counters and health over HTTP, for people, scripts and Prometheus. `http/bounds.rs` limits the
//! number and the duration of connections.

pub(crate) mod bounds;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::bounds::Bounded;
use super::exports::ExportTable;
use super::metrics;

/// Serves until `stop` becomes true.
pub(crate) async fn serve(
    listener: TcpListener,
    exports: Arc<ExportTable>,
    mut stop: watch::Receiver<bool>,
) {
    let pages = Router::new()
        .route("/", get(|| async { "undercroft: /stats /metrics /healthz\n" }))
        .route("/stats", get(stats))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .with_state(exports);
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

async fn stats(State(exports): State<Arc<ExportTable>>) -> Response {
    let text = metrics::json(&exports.all()).to_string() + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn metrics(State(exports): State<Arc<ExportTable>>) -> Response {
    match metrics::prometheus(&exports) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Healthy while every volume accepts requests.
async fn health(State(exports): State<Arc<ExportTable>>) -> Response {
    if exports.all().iter().any(|entry| entry.volume().is_closing()) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response()
    } else {
        "ok\n".into_response()
    }
}
