//! `DELETE /api/group?path=`: deletes a group, if the program asked for it.
//!
//! It requires the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -X DELETE -H 'X-Submeter: 1' 'http://127.0.0.1:9411/api/group?path=/acme/web'
//! ```

use std::time::Duration;

use axum::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use submeter::{Killed, Tree};
use tokio::time::timeout;

use super::dashboard::Delete;
use super::guard;
use super::query;

/// Time limit for the wait for requests in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills a group and everything below it, purges what the program keeps for them, and waits.
pub(super) async fn kill_purge_wait(
    tree: Tree,
    path: String,
    purge: impl Fn(&Killed),
) -> (StatusCode, String) {
    let killed = match tree.get(&path).map(|group| group.kill_subtree()) {
        Some(Ok(killed)) => killed,
        Some(Err(why)) => return (StatusCode::CONFLICT, format!("{why}\n")),
        None => return (StatusCode::NOT_FOUND, format!("there is no group {path:?}\n")),
    };
    killed.iter().for_each(purge);
    let released = async {
        for killed in &killed {
            killed.await;
        }
    };
    if timeout(PATIENCE, released).await.is_ok() {
        return (StatusCode::OK, format!("deleted {path}\n"));
    }
    let held = killed.iter().filter(|killed| !killed.is_released());
    let held = held.map(|killed| format!("{}\n", killed.holders()));
    (StatusCode::ACCEPTED, held.collect())
}

/// Answers the request.
pub(super) async fn delete(
    Extension(delete): Extension<Delete>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if let Err(why) = guard::is_meant(&headers, "deleting") {
        return why.into_response();
    }
    let Some(path) = query::path(&uri) else {
        let message = "name exactly one group: DELETE /api/group?path=/acme/web\n";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    // On a task of its own: a client that hangs up must not leave it half done.
    match tokio::spawn(delete(path)).await {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("the deletion was interrupted: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}
