//! `DELETE /api/group?path=`: deletes a group, if the program asked for it.
//!
//! It requires the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -X DELETE -H 'X-Submeter: 1' 'http://127.0.0.1:9411/api/group?path=/acme/web'
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use submeter::{Group, Killed, Tree};
use tokio::time::timeout;

use super::guard;
use super::query;

/// Deletes the group of a path, and answers the client.
pub(super) type Delete = Arc<dyn Fn(String) -> BoxFuture<'static, Response> + Send + Sync>;

/// Time limit for the wait for requests in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills a group and everything below it, purges what the program keeps for them, and waits.
pub(super) async fn kill_purge_wait(
    tree: Tree,
    path: String,
    purge: impl Fn(&Killed),
) -> (StatusCode, String) {
    let killed = match kill(tree.get(&path), &path) {
        Ok(killed) => killed,
        Err(answer) => return answer,
    };
    // One that panics has told the panic hook why, and must not leave the others unpurged: a killed
    // group is not found again.
    let panics = |killed: &&Killed| catch_unwind(AssertUnwindSafe(|| purge(killed))).is_err();
    let unpurged: Vec<&str> = killed.iter().filter(panics).map(Killed::path).collect();
    // A wait drops the group's data, which may hold any of the groups: so all waits are started
    // before one is awaited.
    killed.iter().for_each(|killed| drop(killed.released()));
    let released = async {
        for killed in &killed {
            killed.await;
        }
    };
    // Who holds on is looked at after the wait, whatever ended it.
    _ = timeout(PATIENCE, released).await;
    let held = killed.iter().filter(|killed| !killed.is_released());
    let held: String = held.map(|killed| format!("{}\n", killed.holders())).collect();
    answer(&path, &unpurged, held)
}

/// Kills the group that was found, and everything below it.
fn kill(group: Option<Group>, path: &str) -> Result<Vec<Killed>, (StatusCode, String)> {
    match group.map(|group| group.kill_subtree()) {
        Some(Ok(killed)) => Ok(killed),
        Some(Err(why)) if why.is_root() => Err((StatusCode::CONFLICT, format!("{why}\n"))),
        // Or another deletion was first.
        _ => Err((StatusCode::NOT_FOUND, format!("there is no group {path:?}\n"))),
    }
}

/// Returns the answer after the wait, from the groups whose purge panicked and who holds on.
fn answer(path: &str, unpurged: &[&str], held: String) -> (StatusCode, String) {
    if !unpurged.is_empty() {
        let unpurged = unpurged.iter().map(|path| format!("the purge of {path} panicked\n"));
        return (StatusCode::INTERNAL_SERVER_ERROR, unpurged.collect::<String>() + &held);
    }
    if held.is_empty() {
        return (StatusCode::OK, format!("deleted {path}\n"));
    }
    (StatusCode::ACCEPTED, held)
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

#[cfg(test)]
mod tests {
    use submeter::Schema;

    use super::*;

    /// A deletion that finds the group, and is then overtaken by another, has found nothing.
    #[test]
    fn the_second_of_two_deletions_finds_nothing() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("a tree");
        let [first, second] = [(); 2].map(|()| tree.get_or_create("/acme").expect("a legal path"));
        assert_eq!(kill(Some(first), "/acme").expect("it lives").len(), 1);
        let status = |group| kill(group, "/acme").expect_err("refused").0;
        assert_eq!(status(Some(second)), StatusCode::NOT_FOUND);
        assert_eq!(status(None), StatusCode::NOT_FOUND);
        assert_eq!(status(Some(tree.root().clone())), StatusCode::CONFLICT);
    }

    /// If the last holder goes when the time is up, all is deleted.
    #[test]
    fn only_what_is_held_is_accepted_for_later() {
        let deleted = (StatusCode::OK, "deleted /acme\n".to_owned());
        assert_eq!(answer("/acme", &[], String::new()), deleted);
        let held = "/acme is held\n".to_owned();
        assert_eq!(answer("/acme", &[], held.clone()), (StatusCode::ACCEPTED, held.clone()));
        let (status, why) = answer("/acme", &["/acme/web"], held);
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(why, "the purge of /acme/web panicked\n/acme is held\n");
    }
}
