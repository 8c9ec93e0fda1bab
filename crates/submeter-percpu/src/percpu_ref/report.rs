//! Tells of misuse that was contained: once for each count and kind.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Says what a [`PercpuRef`](super::PercpuRef) had to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// Killed while dying already. Ignored.
    SecondKill,
    /// More puts than gets. A put that found nothing was ignored; where the sum over the CPUs was
    /// found negative, the count is pinned and never released.
    PutBelowZero,
    /// A get without a reference to go by, after the last put. Ignored.
    GetAtZero,
    /// Reinitialised before it was killed and released. Ignored.
    ReinitAlive,
    /// Resurrected without having been killed. Ignored.
    ResurrectAlive,
    /// A second life, or per-CPU mode on request, without [`Options::allow_reinit`](super::Options::allow_reinit). Ignored.
    ReinitNotAllowed,
    /// Dropped after the kill and before the release: references were forgotten.
    ExitDying,
}

impl EventKind {
    fn text(self) -> &'static str {
        match self {
            EventKind::SecondKill => "was killed twice; ignored; let one owner kill",
            EventKind::PutBelowZero => {
                "was put more often than taken; it stays unreleased rather than be released under somebody; \
                 look for a put without its get"
            }
            EventKind::GetAtZero => {
                "was taken after its last put; ignored; use tryget where no reference is held"
            }
            EventKind::ReinitAlive => {
                "was reinitialised before its release; ignored; kill it and wait for `released` first"
            }
            EventKind::ResurrectAlive => "was resurrected while alive; ignored; kill it first",
            EventKind::ReinitNotAllowed => {
                "was to start again without leave; ignored; create it with Options::allow_reinit"
            }
            EventKind::ExitDying => {
                "was dropped while references were held; look for a get without its put, or wait for `released`"
            }
        }
    }
}

/// Describes one contained misuse; its text says what happened, to what, and what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    kind: EventKind,
    name: &'a str,
}

impl<'a> Event<'a> {
    /// Returns what happened.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns the name of the reference count it happened to.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reference count of {} {}", self.name, self.kind.text())
    }
}

/// Refuses a second hook: the first is in place for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookAlreadySet;

impl fmt::Display for HookAlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event hook of percpu_ref is set already; call set_event_hook once, early")
    }
}

impl std::error::Error for HookAlreadySet {}

/// Sets what is called for contained misuse, instead of a line on stderr: once for each count and kind.
///
/// The hook runs in the middle of the operation concerned, on its cold path, with no lock held.
///
/// # Examples
/// ```
/// use submeter_percpu::percpu_ref::{Event, set_event_hook};
///
/// set_event_hook(|event: &Event<'_>| eprintln!("my service: {event}"))?;
/// assert!(set_event_hook(|_| ()).is_err());
/// # Ok::<(), submeter_percpu::percpu_ref::HookAlreadySet>(())
/// ```
///
/// # Errors
/// When a hook is set already.
pub fn set_event_hook(hook: fn(&Event<'_>)) -> Result<(), HookAlreadySet> {
    HOOK.set(hook).map_err(|_| HookAlreadySet)
}

static HOOK: OnceLock<fn(&Event<'_>)> = OnceLock::new();

/// A name, and what was told of it.
#[derive(Debug)]
pub(super) struct Reports {
    /// Not a `Cow`, which would take a word more in each object that is counted.
    name: Box<str>,
    /// Bits: one a kind. Only ever set.
    told: AtomicU8,
}

impl Reports {
    pub(super) fn new(name: Cow<'static, str>) -> Reports {
        Reports { name: name.into(), told: AtomicU8::new(0) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn report(&self, kind: EventKind) {
        let bit = 1 << kind as u8;
        // Relaxed: the bit alone elects the one that tells.
        if self.told.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        let event = Event { kind, name: &self.name };
        match HOOK.get() {
            Some(hook) => hook(&event),
            // Not `eprintln`, which panics when nobody reads stderr, in the middle of a put.
            None => drop(writeln!(std::io::stderr(), "submeter: {event}")),
        }
    }
}
