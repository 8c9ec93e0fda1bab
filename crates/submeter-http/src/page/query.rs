//! What stands behind the `?` of a request.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// Returns the names and values, decoded, in their order.
pub(super) fn pairs(uri: &Uri) -> Vec<(String, String)> {
    let parts = uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Returns the last value of `path`, if there is one.
pub(super) fn path(uri: &Uri) -> Option<String> {
    pairs(uri).into_iter().rev().find(|(name, _)| name == "path").map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_the_last_path_counts() {
        let uri = Uri::from_static("/api/group?e=a%2Cb&path=%2Fa+b&g=&path=/%C3%A9");
        let expected = [("e", "a,b"), ("path", "/a b"), ("g", ""), ("path", "/é")];
        assert_eq!(pairs(&uri), expected.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(path(&uri).as_deref(), Some("/é"));
        for without in ["/api/group", "/api/group?", "/api/group?paths=/a"] {
            assert_eq!(path(&Uri::from_static(without)), None, "{without}");
        }
    }
}
