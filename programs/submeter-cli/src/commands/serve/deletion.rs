//! Deletes tenants for clients of the page, and remembers which were deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use submeter_cache::{Cache, DeleteError, Deletion};

/// Time limit for the wait for running requests and for answers in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer of `DELETE /api/group`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DeletionDoc {
    /// The deleted group.
    pub(super) path: String,
    /// Number of groups deleted, the group itself included.
    pub(super) groups: usize,
    /// Number of items dropped.
    pub(super) items: u64,
    /// Bytes that those items had been charged.
    pub(super) bytes: u64,
    /// Duration, including the wait for requests.
    pub(super) took_ms: f64,
    /// What still holds the group, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The memory of deletions: the counts of deleted groups must be sought in their parents.
#[derive(Clone, Debug, Default)]
pub(super) struct Deleted(Arc<Mutex<Deletions>>);

/// The number of deleted groups, and which of the watched groups are among them. Not all paths are
/// kept: tenants come and go for as long as the server runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletions {
    count: usize,
    watched: BTreeSet<String>,
    /// Watched groups that were deleted themselves.
    themselves: BTreeSet<String>,
    /// Watched groups that had something below them deleted.
    below: BTreeSet<String>,
}

impl Deleted {
    /// Starts to remember whether these paths, or any below them, are deleted.
    pub(super) fn watching(paths: BTreeSet<String>) -> Deleted {
        Deleted(Arc::new(Mutex::new(Deletions { watched: paths, ..Deletions::default() })))
    }

    pub(super) fn note(&self, path: &str) {
        self.0.lock().note(path);
    }

    /// Takes a note back: nothing was deleted. A watched path stays noted, since an earlier
    /// deletion may have hit it.
    fn take_back(&self) {
        self.0.lock().count -= 1;
    }

    /// Returns a copy of what is remembered.
    pub(super) fn deletions(&self) -> Deletions {
        self.0.lock().clone()
    }
}

impl Deletions {
    fn note(&mut self, path: &str) {
        self.count += 1;
        let Deletions { watched, themselves, below, .. } = self;
        themselves.extend(watched.get(path).cloned());
        let above =
            |at: &&String| path.strip_prefix(at.as_str()).is_some_and(|rest| rest.starts_with('/'));
        below.extend(watched.iter().filter(above).cloned());
    }

    /// Returns the number of deletions.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the group at `path`, which is watched, was deleted.
    pub(super) fn includes(&self, path: &str) -> bool {
        self.themselves.contains(path)
    }

    /// Returns whether a group below `path`, which is watched, was deleted.
    pub(super) fn are_below(&self, path: &str) -> bool {
        self.below.contains(path)
    }
}

/// Deletes a tenant, and returns the answer for the client.
pub(super) async fn delete(cache: Cache, deleted: Deleted, path: String) -> Response {
    // Noted before it happens: the server may end in the middle of the deletion.
    let found = cache.tree().get(&path).filter(|group| group.path() != "/");
    let noted = found.map(|group| deleted.note(group.path())).is_some();
    match cache.delete_tenant(&path, PATIENCE).await {
        Ok(deletion) => {
            log::info!(path = deletion.path, items = deletion.items; "tenant deleted");
            json(&report(&deletion, None))
        }
        Err(error) => {
            log::info!(path; "tenant not deleted: {error}");
            if noted && matches!(error, DeleteError::NotFound(_) | DeleteError::Path(_)) {
                deleted.take_back();
            }
            refuse(&error)
        }
    }
}

fn refuse(error: &DeleteError) -> Response {
    let (status, remedy) = match error {
        DeleteError::StillHeldError { done, .. } => {
            let doc = report(done, Some(error.to_string()));
            return (StatusCode::CONFLICT, json(&doc)).into_response();
        }
        DeleteError::NotFound(_) => (StatusCode::NOT_FOUND, ": /api/tree lists the live ones"),
        _ => (StatusCode::BAD_REQUEST, ""),
    };
    (status, format!("{error}{remedy}\n")).into_response()
}

fn json(doc: &DeletionDoc) -> Response {
    match serde_json::to_string(doc) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
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

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use submeter_cache::{Address, Config};
    use tower::ServiceExt;

    use super::*;
    use crate::commands::serve::shown::shown;

    /// Returns the answer to a client of the page that deletes `target`.
    async fn ask(cache: &Cache, deleted: &Deleted, target: &str) -> (StatusCode, String) {
        let listen = Address::Tcp(([127, 0, 0, 1], 1).into());
        let app = submeter_http::router(shown(cache, &listen, deleted, None));
        let request = Request::delete(target).header("Host", "localhost").header("X-Submeter", "1");
        let request = request.body(Body::empty()).expect("a request");
        let Ok(answer) = app.oneshot(request).await;
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    fn gets(cache: &Cache, path: &str, n: u64) {
        let group = cache.tree().get_or_create(path).expect("a legal path");
        group.add(cache.metrics().cmd_get, n);
    }

    /// A group is deleted with everything below it, and its counts stay.
    #[tokio::test]
    async fn a_deleted_groups_counts_stay() {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let deleted = Deleted::default();
        gets(&cache, "/acme/web", 7);
        gets(&cache, "/acme/api", 5);
        let (status, body) = ask(&cache, &deleted, "/api/group?path=%2Facme%2Fweb").await;
        assert_eq!(status, 200, "{body}");
        let doc: DeletionDoc = serde_json::from_str(&body).expect("JSON");
        assert_eq!((doc.path.as_str(), doc.groups, doc.items), ("/acme/web", 1, 0));
        assert!(cache.tree().get("/acme/web").is_none());
        let gets = cache.metrics().cmd_get;
        assert_eq!(cache.tree().get("/acme").expect("it lives").sum(gets), 12);
        let (status, body) = ask(&cache, &deleted, "/api/group?path=/acme").await;
        assert_eq!(status, 200, "{body}");
        assert!(cache.tree().get("/acme").is_none());
        assert_eq!(cache.tree().root().sum(gets), 12);
        assert_eq!(deleted.deletions().count(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_deleted_says_why() {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let deleted = Deleted::default();
        for (target, status, named) in [
            ("/api/group", 400, "?path="),
            ("/api/group?path=", 400, "not a path"),
            ("/api/group?path=acme", 400, "\"acme\" is not a path"),
            ("/api/group?path=/", 400, "the whole server"),
            ("/api/group?path=/nobody", 404, "\"/nobody\""),
        ] {
            let (answer, body) = ask(&cache, &deleted, target).await;
            assert_eq!(answer, status, "{target}: {body}");
            assert!(body.contains(named), "{target}: {body}");
        }
        assert_eq!(deleted.deletions().count(), 0);
    }

    /// Deletions are counted, and only the watched ones are remembered.
    #[test]
    fn deletions_are_counted_and_watched_remembered() {
        let deleted = Deleted::watching(["/load", "/load/a", "/load/b"].map(str::to_owned).into());
        for n in 0..10_000 {
            deleted.note(&format!("/{n}"));
            deleted.note(&format!("/load/a/{n}"));
        }
        deleted.note("/load/b");
        deleted.note("/loaded");
        let deletions = deleted.deletions();
        assert_eq!(deletions.count(), 20_002);
        let kept = [&deletions.themselves, &deletions.below].map(BTreeSet::len);
        assert_eq!(kept, [1, 2], "/load/b; below /load and /load/a");
        assert!(deletions.includes("/load/b") && !deletions.includes("/load"));
        assert!(deletions.are_below("/load/a") && !deletions.are_below("/load/b"));
    }
}
