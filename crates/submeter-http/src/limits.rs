//! `POST /api/limits`: sets limits, where the program asked for it.
//!
//! It takes the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -H 'X-Submeter: 1' --data-binary @limits 'http://127.0.0.1:9411/api/limits'
//! ```

use axum::Extension;
use axum::extract::rejection::StringRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::dashboard::SetLimits;
use super::guard;

/// The most bytes of a text: tens of thousands of tenants' limits.
pub(super) const BODY_MAX: usize = 2 << 20;

/// Answers the request.
pub(super) async fn set(
    Extension(set): Extension<SetLimits>,
    headers: HeaderMap,
    text: Result<String, StringRejection>,
) -> Response {
    if let Err(why) = guard::is_meant(&headers, "setting limits") {
        return why.into_response();
    }
    let text = match text {
        Ok(text) => text,
        Err(why) if why.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!(
                "the limits stay as they were: the body is longer than {BODY_MAX} bytes, which are \
                 the most: leave out comments, and tenants without limits\n"
            );
            return (StatusCode::PAYLOAD_TOO_LARGE, message).into_response();
        }
        Err(why) => {
            let message = format!("the limits stay as they were: {}\n", why.body_text());
            return (why.status(), message).into_response();
        }
    };
    // On a task of its own: a client that hangs up must not leave half of it.
    match tokio::spawn(set(text)).await {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("setting limits was cut short: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}
