//! `DELETE /api/group?path=`: the one thing here that changes what is served.
//!
//! It takes the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -X DELETE -H 'X-Submeter: 1' 'http://127.0.0.1:9411/api/group?path=/acme/web'
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use parking_lot::Mutex;
use submeter_cache::{Cache, DeleteError, Deletion};

use super::guard;
use super::wire::DeletionDoc;

/// How long requests that run and answers on their way are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a deletion needs to know.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) cache: Cache,
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
    if let Err(why) = guard::is_meant(&headers, "deleting") {
        return why.into_response();
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
