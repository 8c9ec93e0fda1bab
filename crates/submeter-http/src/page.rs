//! The page: one file that asks no other server for anything.

/// The page, assembled when the program is built: sources stay small, the answer is one file.
pub(super) const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/base.css"),
    include_str!("page/table.css"),
    include_str!("page/detail.css"),
    "</style>\n</head>\n",
    include_str!("page/body.html"),
    "<script>\n\"use strict\";\n",
    include_str!("page/format.js"),
    include_str!("page/draw.js"),
    include_str!("page/model.js"),
    include_str!("page/table.js"),
    include_str!("page/detail.js"),
    include_str!("page/main.js"),
    "</script>\n</body>\n</html>\n",
);

/// Lets the page run what is in it and talk to this server, and nothing else: names of tenants come
/// from clients' keys, so should one ever get into markup, it could neither load nor send anything.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";
