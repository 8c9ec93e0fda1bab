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

/// Remembers what was deleted: the counts of these groups are to be looked for in their parents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deleted(Arc<Mutex<Deletions>>);

/// How many groups were deleted, and which of those that somebody will ask about. Not all paths:
/// tenants come and go for as long as the server runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletions {
    count: usize,
    watched: BTreeSet<String>,
    /// Of those watched: deleted themselves.
    themselves: BTreeSet<String>,
    /// Of those watched: had something below them deleted.
    below: BTreeSet<String>,
}

impl Deleted {
    /// Remembers whether these paths, or any below them, are deleted.
    pub(crate) fn watching(paths: BTreeSet<String>) -> Deleted {
        Deleted(Arc::new(Mutex::new(Deletions { watched: paths, ..Deletions::default() })))
    }

    pub(crate) fn note(&self, path: &str) {
        self.0.lock().note(path);
    }

    /// Takes a note back: nothing was deleted. A path that is watched stays noted, as the deletion
    /// that came first may be of it.
    fn take_back(&self) {
        self.0.lock().count -= 1;
    }

    /// Returns a copy of what is remembered.
    pub(crate) fn deletions(&self) -> Deletions {
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

    /// Returns how many deletions there were.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the group at `path`, which is watched, was deleted.
    pub(crate) fn includes(&self, path: &str) -> bool {
        self.themselves.contains(path)
    }

    /// Returns whether a group below `path`, which is watched, was deleted.
    pub(crate) fn are_below(&self, path: &str) -> bool {
        self.below.contains(path)
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
    // Before it happens: the server may end in the middle of it.
    let found = desk.cache.tree().get(&path).filter(|group| group.path() != "/");
    let noted = found.map(|group| desk.deleted.note(group.path())).is_some();
    let deleted = desk.deleted.clone();
    // On a task of its own: a client that hangs up must not leave half of the items.
    let deleting = tokio::spawn(async move { desk.cache.delete_tenant(&path, PATIENCE).await });
    match deleting.await {
        Ok(Ok(deletion)) => Json(report(&deletion, None)).into_response(),
        Ok(Err(error)) => {
            if noted && matches!(error, DeleteError::NotFound(_) | DeleteError::Path(_)) {
                deleted.take_back();
            }
            refuse(&error)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_counted_and_only_the_watched_are_remembered() {
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
