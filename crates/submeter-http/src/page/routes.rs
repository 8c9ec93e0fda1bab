//! Which address gives which answer.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use submeter::export::Format;
use submeter_documents::Document;

use super::client;
use super::connections::HEALTH;
use super::dashboard::Changes;
use super::deletion;
use super::events;
use super::guard::{self, Guard};
use super::gzip::Coding;
use super::limits;
use super::query;
use super::sampler::Sampler;
use super::stat;

const JSON: &str = "application/json";

/// Builds the routes. `HEAD` works wherever `GET` does.
pub(super) fn router(sampler: Sampler, changes: Changes, guard: Guard) -> Router {
    let deletes = changes.delete.is_some();
    let limited = [changes.limit.is_some(), changes.limits.is_some()];
    let group = match changes.delete {
        Some(delete) => get(group).delete(deletion::delete).layer(Extension(delete)),
        None => get(group),
    };
    let router = match changes.limits {
        Some(set) => {
            let most = DefaultBodyLimit::max(limits::BODY_MAX);
            let set = post(limits::set).layer((Extension(set), most));
            Router::new().route("/api/limits", set)
        }
        None => Router::new(),
    };
    let router = match changes.limit {
        Some(set) => {
            let most = DefaultBodyLimit::max(limits::BODY_MAX);
            router.route("/api/limit", post(limits::set_one).layer((Extension(set), most)))
        }
        None => router,
    };
    router
        .route("/", get(the_page))
        .route("/api/tree", get(tree))
        .route("/api/group", group)
        .route("/api/totals", get(totals))
        .route("/api/events", get(event_stream))
        .route("/api/stat", post(stat::stat))
        .route("/metrics", get(metrics))
        .route(HEALTH, get(healthz))
        .fallback(move |uri: Uri| not_found(deletes, limited, uri))
        .method_not_allowed_fallback(move |uri: Uri| method_not_allowed(deletes, uri))
        .with_state(sampler)
        .layer(Extension(stat::Counts::new()))
        .layer(from_fn_with_state(guard, guard::check))
        .layer(map_response(common_headers))
}

async fn the_page(headers: HeaderMap) -> Response {
    let coding = Coding::of(&headers);
    let page = match coding {
        Coding::Plain => Bytes::from_static(client::PAGE.as_bytes()),
        Coding::Gzip => client::GZIP.clone(),
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(client::POLICY)),
    ];
    encoded(coding, (headers, page))
}

async fn tree(State(sampler): State<Sampler>, headers: HeaderMap) -> Response {
    let coding = Coding::of(&headers);
    encoded(coding, large(JSON, sampler.tree(coding).await))
}

/// Declares the encoding of a success's body; an error is plain text.
fn encoded(coding: Coding, response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    if response.status().is_success() {
        coding.declare(&mut response);
    }
    response
}

/// Answers with a document that the server may withdraw from a client that reads too slowly: the
/// connection then ends before the body is complete.
fn large(kind: &'static str, document: Result<Arc<Document>, String>) -> Response {
    match document {
        Ok(document) => {
            let headers = [
                (CONTENT_TYPE, HeaderValue::from_static(kind)),
                (CONTENT_LENGTH, HeaderValue::from(document.len())),
            ];
            (headers, Body::from_stream(events::parts(document))).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error + "\n").into_response(),
    }
}

async fn group(State(sampler): State<Sampler>, uri: Uri, headers: HeaderMap) -> Response {
    let Some(path) = query::path(&uri) else {
        let message = "name exactly one group: /api/group?path=/acme/web\n";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    let coding = Coding::of(&headers);
    let detail = move |sampler: &Sampler| {
        let Some(detail) = sampler.detail(&path) else {
            let message = format!("no group {path:?}: /api/tree lists the live ones\n");
            return Err((StatusCode::NOT_FOUND, message));
        };
        coding.json(&detail).map(Vec::from).map_err(|error| {
            let message = format!("cannot write the group as JSON: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message)
        })
    };
    let detail = sampler.work(detail).await;
    encoded(coding, detail.map(|json| ([(CONTENT_TYPE, JSON)], json)))
}

async fn totals(State(sampler): State<Sampler>) -> Response {
    large(JSON, sampler.totals().await)
}

async fn event_stream(State(sampler): State<Sampler>) -> Response {
    // No keep-alive comments are needed: there is a tick each second.
    let headers = [(CONTENT_TYPE, "text/event-stream")];
    (headers, Body::from_stream(events::stream(sampler))).into_response()
}

async fn metrics(State(sampler): State<Sampler>, headers: HeaderMap) -> Response {
    // Several header lines form one list.
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().flat_map(|v| v.to_str()).collect();
    let format = Format::accepted(&accept.join(","));
    let vary = [(VARY, HeaderValue::from_static("accept"))];
    (vary, large(format.content_type(), sampler.exposition(format).await)).into_response()
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn not_found(deletes: bool, limited: [bool; 2], uri: Uri) -> (StatusCode, String) {
    let delete = if deletes { "DELETE /api/group?path=, " } else { "" };
    let [limit, limits] =
        [(limited[0], "POST /api/limit?path=, "), (limited[1], "POST /api/limits, ")]
            .map(|(is, text)| if is { text } else { "" });
    let message = format!(
        "nothing at {}: use / (the page), /api/tree, /api/group?path=, {delete}/api/totals, \
         /api/events, {limit}{limits}POST /api/stat?e=&g=, /metrics or /healthz\n",
        uri.path()
    );
    (StatusCode::NOT_FOUND, message)
}

async fn method_not_allowed(deletes: bool, uri: Uri) -> impl IntoResponse {
    let (allowed, message) = match uri.path() {
        "/api/stat" => {
            ("POST", "counting puts load on the server: use POST, as submeter stat does\n")
        }
        "/api/limits" => ("POST", "use POST to set limits; /api/tree shows them\n"),
        "/api/limit" => ("POST", "use POST to set a tenant's limits; /api/tree shows them\n"),
        "/api/group" if deletes => {
            ("GET,HEAD,DELETE", "use GET or HEAD to read, DELETE to delete\n")
        }
        "/api/group" => {
            ("GET,HEAD", "clients may not delete groups of this program: use GET or HEAD to read\n")
        }
        _ => ("GET,HEAD", "this is read-only: use GET or HEAD\n"),
    };
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allowed)], message)
}

const CONTENT_SECURITY_POLICY: HeaderName = HeaderName::from_static("content-security-policy");

/// Keeps nginx, and proxies that adopted its header, from buffering an answer and sending it in
/// large pieces or at its end.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Live figures are never cached, and no content type here may be guessed to be a script. Streams
/// pass proxies as they are: compressed on the way, they would wait for a compressor's block.
async fn common_headers(mut response: Response) -> Response {
    let has_length = response.headers().contains_key(CONTENT_LENGTH);
    let streams = !has_length && response.body().size_hint().exact().is_none();
    let headers = response.headers_mut();
    let caching = if streams { "no-store, no-transform" } else { "no-store" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if streams {
        headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    response
}
