//! Messages to the service manager, where there is one, and to the log.

use sd_notify::NotifyState;
use submeter_cache::Address;

/// Reports that both ports are open: clients that connect from now on are served.
pub(super) fn ready(cache: &Address, page: &str) {
    let status = format!("cache on {cache}, page on {page}");
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]) {
        // The server serves all the same, but a manager that waits for this message will end it.
        log::warn!("cannot notify the service manager (NOTIFY_SOCKET): {error}");
    }
    log::info!(cache:%, page; "serving");
}

/// Reports that the server is ending, which may take as long as requests in progress do.
pub(super) fn stopping() {
    // No second warning: a manager that misses this message misses nothing but the end.
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    log::info!("stopping: waiting for requests in progress");
}
