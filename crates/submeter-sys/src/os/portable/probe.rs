//! Decides without asking: no sequences.

use crate::probe::Probe;

pub(crate) fn decide() -> Probe {
    Probe::without(if cfg!(submeter_portable) {
        "built with --cfg submeter_portable".to_owned()
    } else {
        format!("no sequences on {} (Linux has them)", std::env::consts::OS)
    })
}

/// Registers nothing: there are no sequences, so no thread needs to be registered.
pub(crate) fn register_thread(_: &Probe) -> bool {
    false
}
