//! The page: one file that asks no other server for anything.

use std::sync::LazyLock;

use axum::body::Bytes;

use super::gzip::{BEST, gzip};

/// The page, assembled when the program is built: sources stay small, the answer is one file.
pub(super) const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/base.css"),
    include_str!("page/band.css"),
    include_str!("page/table.css"),
    include_str!("page/detail.css"),
    include_str!("page/panels.css"),
    "</style>\n</head>\n",
    include_str!("page/body.html"),
    "<script>\n\"use strict\";\n",
    include_str!("page/visible.js"),
    include_str!("page/format.js"),
    include_str!("page/draw.js"),
    include_str!("page/model.js"),
    include_str!("page/news.js"),
    include_str!("page/band.js"),
    include_str!("page/table.js"),
    include_str!("page/detail.js"),
    include_str!("page/panels.js"),
    include_str!("page/main.js"),
    "</script>\n</body>\n</html>\n",
);

/// The same for clients that accept gzip, compressed when first asked for.
pub(super) static GZIP: LazyLock<Bytes> = LazyLock::new(|| {
    let page = gzip(Vec::new(), BEST, |gzip| gzip.write_all(PAGE.as_bytes()));
    Bytes::from(page.expect("a Vec takes all that is written to it"))
});

/// Lets the page run what is in it and talk to this server, and nothing else: names of tenants come
/// from clients' keys, so should one ever get into markup, it could neither load nor send anything.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";
