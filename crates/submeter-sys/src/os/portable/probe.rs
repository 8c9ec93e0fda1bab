//! Decides without asking: no sequences.

use crate::probe::Probe;

pub(crate) fn decide() -> Probe {
    Probe::without(if cfg!(submeter_portable) {
        "built with --cfg submeter_portable".to_owned()
    } else {
        format!("no sequences on {} (Linux has them)", std::env::consts::OS)
    })
}

/// Registers nothing: no sequences, hence no thread to register.
pub(crate) fn register_thread(_: &Probe) -> bool {
    false
}
