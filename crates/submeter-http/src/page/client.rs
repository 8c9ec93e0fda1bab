//! The page: one file that requests nothing from other servers.

use std::sync::LazyLock;

use axum::body::Bytes;

use super::gzip::{BEST, gzip};

/// The page, assembled when the program is built: sources stay small, but the answer is one file.
pub(super) const PAGE: &str = concat!(
    include_str!("client/head.html"),
    "<style>\n",
    include_str!("client/base.css"),
    include_str!("client/band.css"),
    include_str!("client/table.css"),
    include_str!("client/detail.css"),
    include_str!("client/panels.css"),
    include_str!("client/forced.css"),
    "</style>\n</head>\n",
    include_str!("client/body.html"),
    "<script>\n\"use strict\";\n",
    include_str!("client/visible.js"),
    include_str!("client/format.js"),
    include_str!("client/draw.js"),
    include_str!("client/model.js"),
    include_str!("client/news.js"),
    include_str!("client/band.js"),
    include_str!("client/table.js"),
    include_str!("client/detail.js"),
    include_str!("client/panels.js"),
    include_str!("client/main.js"),
    "</script>\n</body>\n</html>\n",
);

/// The same for clients that accept gzip, compressed when first asked for.
pub(super) static GZIP: LazyLock<Bytes> = LazyLock::new(|| {
    let page = gzip(Vec::new(), BEST, |gzip| gzip.write_all(PAGE.as_bytes()));
    Bytes::from(page.expect("a Vec takes all that is written to it"))
});

/// Lets the page run its own code and talk to this server, and nothing else. Names of tenants come
/// from clients' keys: should one ever get into markup, it could neither load nor send anything.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";
