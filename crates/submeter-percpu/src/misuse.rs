//! Reports of misuse that was contained.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;
// Not the models' atomics: no model examines a flag that only elects the thread that prints.
use std::sync::atomic::{AtomicU16, Ordering};

/// A kind of misuse that a reference count contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MisuseKind {
    /// A [`PercpuRef`](crate::percpu_ref::PercpuRef) was killed while dying. Ignored.
    SecondKill,
    /// More puts than gets. A put that found no reference was ignored; a `PercpuRef` whose sum over
    /// the CPUs was found negative is pinned and never released.
    ExcessPut,
    /// A get of a `PercpuRef` after the last put, when no reference was held. Ignored.
    GetAtZero,
    /// A `PercpuRef` was reinitialised before it was killed and released. Ignored.
    ReinitAlive,
    /// A `PercpuRef` was resurrected without having been killed. Ignored.
    ResurrectAlive,
    /// A second life of a `PercpuRef`, or per-CPU mode on request, without
    /// [`Options::allow_reinit`](crate::percpu_ref::Options::allow_reinit). Ignored.
    ReinitNotAllowed,
    /// A `PercpuRef` was dropped after the kill and before the release: references were forgotten.
    ExitDying,
    /// An [`RcuRef`](crate::rcuref::RcuRef) counted more than 2^31 references: it is pinned and its
    /// object never freed.
    Saturated,
}

impl MisuseKind {
    fn text(self) -> &'static str {
        match self {
            MisuseKind::SecondKill => "killed twice; ignored; let only one owner kill it",
            MisuseKind::ExcessPut => {
                "put more often than taken; at worst the object is leaked, never freed in use; \
                 look for a put without its get"
            }
            MisuseKind::GetAtZero => {
                "taken after its last put; ignored; use tryget where no reference is held"
            }
            MisuseKind::ReinitAlive => {
                "reinitialised before its release; ignored; kill it and wait for `released` first"
            }
            MisuseKind::ResurrectAlive => "resurrected while alive; ignored; kill it first",
            MisuseKind::ReinitNotAllowed => {
                "reinitialised without permission; ignored; create it with Options::allow_reinit"
            }
            MisuseKind::ExitDying => {
                "dropped while references were held; look for a get without its put, or wait for \
                 `released`"
            }
            MisuseKind::Saturated => {
                "saturated; the object is never freed; look for references that are forgotten in \
                 a loop"
            }
        }
    }
}

/// One contained misuse. Its text says what happened to which count, and what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse<'a> {
    pub(crate) kind: MisuseKind,
    pub(crate) times: u32,
    pub(crate) name: &'a str,
    pub(crate) address: usize,
}

impl<'a> Misuse<'a> {
    /// Returns what happened.
    #[must_use]
    pub fn kind(&self) -> MisuseKind {
        self.kind
    }

    /// Returns how often it happened: the excess puts of an [`RcuRef`](crate::rcuref::RcuRef) that
    /// were found together, otherwise 1.
    #[must_use]
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Returns the name of the count: the one it was given, the type behind a pointer, or the
    /// count's own type.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the address of the count, which tells counts of one name apart.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }
}

impl fmt::Display for Misuse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misuse { kind, times, name, address } = self;
        write!(f, "reference count of {name} at {address:#x} was {}", kind.text())?;
        if *times > 1 { write!(f, " ({times} times)") } else { Ok(()) }
    }
}

/// The error of a second [`set_misuse_hook`]: the first hook stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookAlreadySetError;

impl fmt::Display for HookAlreadySetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the misuse hook is already set; call set_misuse_hook once, early")
    }
}

impl std::error::Error for HookAlreadySetError {}

/// Sets the function that is called for contained misuse, instead of a line on stderr.
///
/// A `PercpuRef` reports each kind once, an `RcuRef` each case: with only 4 bytes, it has no room
/// to note what it has reported. Of the cases of `RcuRef`s, stderr gets the first of each kind.
///
/// The hook runs in the middle of the operation, on its cold path, with no lock held.
///
/// # Examples
/// ```
/// use submeter_percpu::misuse::{Misuse, set_misuse_hook};
///
/// set_misuse_hook(|misuse: &Misuse<'_>| eprintln!("my service: {misuse}"))?;
/// assert!(set_misuse_hook(|_| ()).is_err());
/// # Ok::<(), submeter_percpu::misuse::HookAlreadySetError>(())
/// ```
///
/// # Errors
/// When a hook is already set.
pub fn set_misuse_hook(hook: fn(&Misuse<'_>)) -> Result<(), HookAlreadySetError> {
    HOOK.set(hook).map_err(|_| HookAlreadySetError)
}

static HOOK: OnceLock<fn(&Misuse<'_>)> = OnceLock::new();

/// The kinds of misuse that a count has reported, or that were printed to stderr.
#[derive(Debug, Default)]
pub(crate) struct Reported(
    /// Bits: one per kind. Only ever set.
    AtomicU16,
);

impl Reported {
    pub(crate) const fn new() -> Reported {
        Reported(AtomicU16::new(0))
    }

    /// Returns whether this is the first of its kind, and notes it.
    pub(crate) fn is_first(&self, kind: MisuseKind) -> bool {
        let bit = 1 << kind as u16;
        // Relaxed: the bit only elects the thread that reports; it publishes nothing.
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// Reports a misuse of a count that notes what it has reported.
pub(crate) fn report(misuse: &Misuse<'_>) {
    match HOOK.get() {
        Some(hook) => hook(misuse),
        // Not `eprintln`, which would panic in the middle of a put when stderr is closed.
        None => drop(writeln!(std::io::stderr(), "submeter: {misuse}")),
    }
}

/// Reports a misuse of a count that does not note what it has reported.
pub(crate) fn report_each(misuse: &Misuse<'_>) {
    static PRINTED: Reported = Reported::new();
    if HOOK.get().is_some() || PRINTED.is_first(misuse.kind) {
        report(misuse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_reported_first_once() {
        let reported = Reported::new();
        assert!(
            reported.is_first(MisuseKind::SecondKill) && reported.is_first(MisuseKind::Saturated)
        );
        assert!(!reported.is_first(MisuseKind::Saturated));
    }
}
