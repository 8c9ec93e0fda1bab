//! Messages to the operator about clients that are not served.

use std::io;
use std::sync::Once;

use parking_lot::Mutex;
use submeter_cache::{Foreign, Server};

/// Makes a server report to the operator.
pub(crate) fn told(server: Server) -> Server {
    server.on_shortage(tell).on_foreign(foreign)
}

/// Prints a warning the first time in the life of the process: waiting clients would otherwise
/// cause a line per attempt. `listen_disabled_num` of `stats` continues to count.
pub(crate) fn tell(error: &io::Error) {
    static TOLD: Once = Once::new();
    // This is the client's doing, not a shortage.
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    TOLD.call_once(|| {
        log::warn!(
            "cannot accept more connections for now: {error}; existing ones are still served. \
             Allow more files (ulimit -n), or fewer connections (--connections)"
        );
    });
}

/// Prints a warning about the first client in the life of the process that speaks a foreign
/// protocol: each attempt would otherwise cause a line.
fn foreign(foreign: &Foreign) {
    static TOLD: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock();
    if told.contains(&foreign.protocol) {
        return;
    }
    told.push(foreign.protocol);
    drop(told);
    let remedy = match foreign.protocol {
        "HTTP" => "the page is at the address of --http",
        "TLS" => "--tls-cert and --tls-key make this port speak it",
        _ => "make it use the text protocol",
    };
    log::warn!("{foreign}, and its connection was closed: {remedy}. Further ones are not reported");
}
