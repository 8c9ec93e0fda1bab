//! `POST /api/limits` sets all limits, `POST /api/limit?path=` those of a group, if the program
//! asked for it.
//!
//! Both require the header that a page of another site cannot send, see [`guard`].
//!
//! ```text
//! curl -H 'X-Submeter: 1' --data-binary @limits 'http://127.0.0.1:9411/api/limits'
//! curl -H 'X-Submeter: 1' --data 'rate=500/s' 'http://127.0.0.1:9411/api/limit?path=/acme'
//! ```

use axum::Extension;
use axum::extract::rejection::StringRejection;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;

use super::dashboard::{SetLimit, SetLimits};
use super::guard;
use super::query;

/// Maximum length of a text, in bytes: room for the limits of tens of thousands of tenants.
pub(super) const BODY_MAX: usize = 2 << 20;

/// Answers a request for all limits.
pub(super) async fn set(
    Extension(set): Extension<SetLimits>,
    headers: HeaderMap,
    text: Result<String, StringRejection>,
) -> Response {
    match checked(&headers, text) {
        Ok(text) => run(set(text)).await,
        Err(answer) => *answer,
    }
}

/// Answers a request for the limits of a group.
pub(super) async fn set_one(
    Extension(set): Extension<SetLimit>,
    headers: HeaderMap,
    uri: Uri,
    text: Result<String, StringRejection>,
) -> Response {
    let text = match checked(&headers, text) {
        Ok(text) => text,
        Err(answer) => return *answer,
    };
    let Some(path) = query::path(&uri) else {
        let message = "name exactly one group: POST /api/limit?path=/acme/web\n";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    run(set(path, text)).await
}

/// Returns the text of a request that shows intent.
fn checked(
    headers: &HeaderMap,
    text: Result<String, StringRejection>,
) -> Result<String, Box<Response>> {
    let meant = guard::is_meant(headers, "setting limits");
    meant.map_err(|why| Box::new(why.into_response()))?;
    text.map_err(|why| {
        let status = why.status();
        let why = match status {
            StatusCode::PAYLOAD_TOO_LARGE => format!(
                "the body is longer than {BODY_MAX} bytes, the maximum: leave out comments, and \
                 tenants without limits"
            ),
            _ => why.body_text(),
        };
        Box::new((status, format!("the limits stay as they were: {why}\n")).into_response())
    })
}

/// On a task of its own: a client that hangs up must not leave it half done.
async fn run(set: BoxFuture<'static, Response>) -> Response {
    match tokio::spawn(set).await {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("setting limits was interrupted: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}
