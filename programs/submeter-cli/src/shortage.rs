//! What the operator is told when there is no room for another connection.

use std::io;
use std::sync::Once;

use submeter_cache::Crowd;

/// Prints a warning, the first time in the life of the process: clients that wait would otherwise
/// make a line of each attempt. `listen_disabled_num` of `stats` counts on.
pub(crate) fn tell(error: &io::Error) {
    static TOLD: Once = Once::new();
    // The client's doing, and no shortage.
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    TOLD.call_once(|| {
        log::warn!(
            "cannot accept further connections for now: {error}; the others are served. Allow \
             more files (ulimit -n), or fewer connections (--connections)"
        );
    });
}

/// Prints a warning that there are few places left for connections.
pub(crate) fn crowd(crowd: &Crowd) {
    log::warn!(
        "{crowd}: others may be turned away. Allow more (--connections), or close those that idle \
         (--idle-timeout)"
    );
}
