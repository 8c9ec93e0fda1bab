//! The part of a request after the `?`.

use axum::http::Uri;
use submeter_address::decode;

/// Returns the names and values, decoded, in order; `None` if one cannot be decoded.
pub(super) fn pairs(uri: &Uri) -> Option<Vec<(String, String)>> {
    let parts = uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(name, value)| Some((decoded(name)?, decoded(value)?))).collect()
}

fn decoded(text: &str) -> Option<String> {
    decode(&text.replace('+', " ")).ok()
}

/// Returns the value of `path`, if it occurs exactly once: with two, a proxy may have checked the
/// other one.
pub(super) fn path(uri: &Uri) -> Option<String> {
    let mut paths = pairs(uri)?.into_iter().filter(|(name, _)| name == "path");
    let (_, path) = paths.next()?;
    paths.next().is_none().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_one_path_counts() {
        let uri = Uri::from_static("/api/group?e=a%2Cb&path=%2Fa+b&g=&q=/%C3%A9");
        let expected = [("e", "a,b"), ("path", "/a b"), ("g", ""), ("q", "/é")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(&uri).as_deref(), Some(&expected[..]));
        assert_eq!(path(&uri).as_deref(), Some("/a b"));
        for without in ["", "?", "?paths=/a", "?path=/a&path=/b", "?path=/%zz", "?path=/%c3&e="] {
            let uri = format!("/api/group{without}").parse().expect("a target");
            assert_eq!(path(&uri), None, "{without}");
        }
    }
}
