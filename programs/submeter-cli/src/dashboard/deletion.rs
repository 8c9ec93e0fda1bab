//! `DELETE /api/group?path=`: the one thing here that changes anything.
//!
//! Any page that a browser on this machine has open may send requests here, also to addresses that
//! only this machine reaches. Such a request must not delete, so it takes three things that a page
//! of another site cannot have together:
//!
//! * the header `X-Submeter: 1`: a browser asks first (a preflight) whether another site's page may
//!   send it, and nothing here ever says yes;
//! * a `Host` that is a loopback address, `localhost` or the address that is listened on: a page
//!   that had its own name pointed here (DNS rebinding) sends that name;
//! * no `Origin` but this server's own.
//!
//! It is no login. Anybody who reaches the port with a client of their own may delete, as they may
//! with `flush_all` at the cache's port: both listen on loopback unless told otherwise.
//!
//! ```text
//! curl -X DELETE -H 'X-Submeter: 1' 'http://127.0.0.1:9411/api/group?path=/acme/web'
//! ```

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use parking_lot::Mutex;
use submeter_cache::{Cache, DeleteError, Deletion};

use super::wire::DeletionDoc;

/// How long requests that run and answers on their way are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

const HEADER: &str = "x-submeter";

/// What a deletion needs to know.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) cache: Cache,
    /// Where the page is listened for.
    pub(super) page: SocketAddr,
    pub(super) deleted: Deleted,
}

/// Remembers which groups were deleted: their counts are to be looked for in their parents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deleted(Arc<Mutex<BTreeSet<String>>>);

impl Deleted {
    fn note(&self, path: &str) {
        self.0.lock().insert(path.to_owned());
    }

    /// Copies the paths.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        self.0.lock().clone()
    }
}

/// Answers the request.
pub(super) async fn delete(
    Extension(desk): Extension<Desk>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if let Err(why) = desk.trusts(&headers) {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let Some(path) = query.get("path").cloned() else {
        let message = "say which group: DELETE /api/group?path=/acme/web\n";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    if let Some(group) = desk.cache.tree().get(&path) {
        // Before it happens: the server may end in the middle of it.
        desk.deleted.note(group.path());
    }
    // On a task of its own: a client that hangs up must not leave half of the items.
    let deleting = tokio::spawn(async move { desk.cache.delete_tenant(&path, PATIENCE).await });
    match deleting.await {
        Ok(Ok(deletion)) => Json(report(&deletion, None)).into_response(),
        Ok(Err(error)) => refuse(&error),
        Err(error) => {
            let message = format!("the deletion was cut short: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

fn refuse(error: &DeleteError) -> Response {
    let (status, remedy) = match error {
        DeleteError::StillHeldError { done, .. } => {
            let doc = report(done, Some(error.to_string()));
            return (StatusCode::CONFLICT, Json(doc)).into_response();
        }
        DeleteError::NotFound(_) => (StatusCode::NOT_FOUND, ": /api/tree lists those that live"),
        _ => (StatusCode::BAD_REQUEST, ""),
    };
    (status, format!("{error}{remedy}\n")).into_response()
}

fn report(deletion: &Deletion, error: Option<String>) -> DeletionDoc {
    DeletionDoc {
        path: deletion.path.clone(),
        groups: deletion.groups,
        items: deletion.items,
        bytes: deletion.bytes,
        took_ms: deletion.took.as_secs_f64() * 1e3,
        error,
    }
}

impl Desk {
    /// Refuses what a page of another site may have sent.
    fn trusts(&self, headers: &HeaderMap) -> Result<(), String> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if text(HEADER) != Some("1") {
            return Err(
                "deleting takes the header X-Submeter: 1, which no page of another site can \
                        send: curl -X DELETE -H 'X-Submeter: 1' …\n"
                    .to_owned(),
            );
        }
        let host = text(HOST.as_str()).unwrap_or_default();
        if !self.is_own(host) {
            return Err(format!(
                "deleting takes a Host that is an address of this server, not {host:?}: use \
                 http://{}/ or localhost\n",
                self.page
            ));
        }
        match headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default()) {
            Some(origin) if !origin.eq_ignore_ascii_case(&format!("http://{host}")) => {
                Err(format!("pages of {origin:?} may not delete here\n"))
            }
            _ => Ok(()),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_matches(['[', ']']);
        match name.parse::<IpAddr>() {
            // An address as such cannot be pointed anywhere, so where all are listened on any will
            // do.
            Ok(ip) => ip.is_loopback() || ip == self.page.ip() || self.page.ip().is_unspecified(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}
