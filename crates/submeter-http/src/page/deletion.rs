//! `DELETE /api/group?path=`: deletes a group, if the program asked for it.
//!
//! It requires the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -X DELETE -H 'X-Submeter: 1' 'http://127.0.0.1:9411/api/group?path=/acme/web'
//! ```

use axum::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::dashboard::Delete;
use super::guard;
use super::query;

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
