//! Answers as gzip, for clients that ask for it: the page and the JSON, whose keys repeat.
//!
//! An answer is compressed where it is made, once for all clients that share it. A layer that
//! compresses a stream would do so for each client, on the threads of the program's runtime, and
//! would not know how long the answer is. `/metrics` stays plain: Prometheus asks for gzip by
//! default, day and night, and each scrape would take more of the processors that do the work.

use std::io::{self, BufWriter, Write};

use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use serde::Serialize;
use submeter_documents::Parts;

/// Levels of compression: the least work, and the fewest bytes.
const FAST: u32 = 1;
pub(super) const BEST: u32 = 9;

/// The encodings that a client accepts in addition to plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
}

impl Coding {
    /// Reads `Accept-Encoding`. A malformed value is not taken for consent.
    pub(super) fn of(headers: &HeaderMap) -> Coding {
        let values = headers.get_all(ACCEPT_ENCODING).iter();
        let items = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
        let weights = items.filter_map(weight);
        // The name takes precedence over `*`, wherever they stand.
        let (mut named, mut any, mut plain) = (None, None, None);
        for (name, weight) in weights {
            match name.to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => named = Some(weight),
                "*" => any = Some(weight),
                "identity" => plain = Some(weight),
                _ => {}
            }
        }
        let gzip = named.or(any).unwrap_or(0.0);
        let is_preferred = gzip > 0.0 && plain.is_none_or(|plain| gzip >= plain);
        let is_taken = is_preferred && cfg!(feature = "gzip");
        if is_taken { Coding::Gzip } else { Coding::Plain }
    }

    /// Returns `document` as JSON, in the coding that the client accepts.
    pub(super) fn json(self, document: &impl Serialize) -> io::Result<Parts> {
        let mut parts = Parts::default();
        if self == Coding::Plain {
            serde_json::to_writer(&mut parts, document)?;
            return Ok(parts);
        }
        // A better level saves less than its work costs, and each request pays that work again.
        gzip(parts, FAST, |gzip| {
            // JSON comes in pieces of a few bytes, each too small for a call of the compressor.
            let mut pieces = BufWriter::new(gzip);
            serde_json::to_writer(&mut pieces, document)?;
            pieces.flush()
        })
    }

    /// Declares in `response` how its body, made by [`Coding::json`], is encoded.
    pub(super) fn declare(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if self == Coding::Gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
}

/// Compresses the output of `write`.
#[cfg(feature = "gzip")]
pub(super) fn gzip<W: Write>(
    out: W,
    level: u32,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<W> {
    let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::new(level));
    write(&mut gzip)?;
    gzip.finish()
}

/// Never called, as no client is then taken to ask for it.
#[cfg(not(feature = "gzip"))]
pub(super) fn gzip<W: Write>(
    _: W,
    _: u32,
    _: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<W> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads one item such as `gzip;q=0.5`.
fn weight(item: &str) -> Option<(&str, f32)> {
    let (name, parameter) = item.split_once(';').unwrap_or((item, "q=1"));
    let (q, weight) = parameter.split_once('=')?;
    let is_weight = q.trim().eq_ignore_ascii_case("q");
    let weight = weight.trim().parse().ok();
    let weight = weight.filter(|weight| is_weight && (0.0..=1.0).contains(weight))?;
    Some((name.trim(), weight))
}

#[cfg(feature = "gzip")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::page::sampler::Sampler;
    use crate::page::tests::Program;

    #[test]
    fn gzip_is_for_who_asks_for_it() {
        let of = |values: &[&'static str]| {
            let values = values.iter().map(|v| (ACCEPT_ENCODING, HeaderValue::from_static(v)));
            Coding::of(&values.collect())
        };
        for yes in [
            "gzip",
            "br, GZIP",
            "deflate,gzip;q=0.1",
            "*",
            "x-gzip",
            "*;q=0, gzip ; q=1",
            "gzip;Q=0.5",
            "identity;q=0.5, gzip;q=0.5",
            "identity;q=0, *",
            ", gzip ,",
        ] {
            assert_eq!(of(&[yes]), Coding::Gzip, "{yes}");
        }
        for no in [
            "",
            "br",
            "gzip;q=0",
            "gzip;q=0.000",
            "*, gzip;q=0",
            "*;q=0",
            "gzip;q",
            "gzip;q=x",
            "gzip;q=2",
            "gzip;q=-1",
            "gzip;q=NaN",
            "gzipp",
            "identity, gzip;q=0.5",
            "identity",
        ] {
            assert_eq!(of(&[no]), Coding::Plain, "{no}");
        }
        assert_eq!(of(&[]), Coding::Plain);
        assert_eq!(of(&["br", "gzip"]), Coding::Gzip, "two lines of the header are one list");
    }

    #[tokio::test]
    async fn clients_of_a_version_take_the_same_coding() {
        let sampler = Sampler::new(Program::new().shown());
        let first = async |coding| {
            let document = sampler.tree(coding).await.expect("JSON");
            let first = document.part(0).expect("not withdrawn")[0];
            (first, document)
        };
        // More clients than there may be versions, and all still read: the last ones share a
        // version.
        let mut read = Vec::new();
        for _ in 0..4 {
            let ((plain, one), (gzip, other)) =
                (first(Coding::Plain).await, first(Coding::Gzip).await);
            assert_eq!((plain, gzip), (b'{', 0x1f), "the first byte of JSON, of gzip");
            read.extend([one, other]);
        }
        assert!(Arc::ptr_eq(&read[4], &read[6]) && Arc::ptr_eq(&read[5], &read[7]), "shared");
    }
}
