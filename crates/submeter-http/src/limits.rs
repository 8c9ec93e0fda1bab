//! `POST /api/limits`: sets limits, where the program asked for it.
//!
//! It takes the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -H 'X-Submeter: 1' --data-binary @limits 'http://127.0.0.1:9411/api/limits'
//! ```

use axum::Extension;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::guard;
use super::shown::SetLimits;

/// Answers the request.
pub(super) async fn set(
    Extension(set): Extension<SetLimits>,
    headers: HeaderMap,
    text: String,
) -> Response {
    if let Err(why) = guard::is_meant(&headers, "setting limits") {
        return why.into_response();
    }
    // On a task of its own: a client that hangs up must not leave half of it.
    match tokio::spawn(set(text)).await {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("setting limits was cut short: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}
