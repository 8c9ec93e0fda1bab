//! The frames of an event stream.

use std::time::Duration;

/// How long a page waits before it asks again when the server is gone.
const RETRY: Duration = Duration::from_secs(1);

/// Writes the event that starts a stream. JSON has no line ends, which would end the event.
pub(super) fn first(json: &str) -> Vec<u8> {
    format!("event: full\nretry: {}\ndata: {json}\n\n", RETRY.as_millis()).into_bytes()
}

/// Appends an event that follows: of a part of the rows, or the tick after them.
pub(super) fn next(name: &str, json: &str, events: &mut Vec<u8>) {
    for text in ["event: ", name, "\ndata: ", json, "\n\n"] {
        events.extend_from_slice(text.as_bytes());
    }
}
