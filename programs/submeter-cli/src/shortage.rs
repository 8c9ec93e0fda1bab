//! What the operator is told when the system has no room for another connection.

use std::io;
use std::sync::Once;

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
