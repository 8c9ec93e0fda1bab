//! Tells of misuse that was contained: once to people, always to a hook.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;
// Not the seam's: a flag that no model looks at.
use std::sync::atomic::{AtomicBool, Ordering};

use super::count::Notice;

/// Says what a reference count had to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// More than 2^31 references were held: the count is pinned and the object never freed.
    Saturated,
    /// A put found no reference to drop: one put more than gets.
    ExcessPut,
}

/// Describes one contained misuse; its text says what happened, to what, and what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    kind: EventKind,
    times: u32,
    name: &'static str,
    address: usize,
}

impl Event {
    /// Returns what happened.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns how often: the excess puts found at once, which is 1 unless they came together.
    #[must_use]
    pub fn times(&self) -> u32 {
        self.times
    }

    /// Returns what it happened to: the type behind an [`RcuArc`](super::RcuArc), or `RcuRef`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the address of the count, which tells objects of one name apart.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { kind, times, name, address } = self;
        match kind {
            EventKind::Saturated => write!(
                f,
                "reference count of {name} at {address:#x} saturated: the object is never freed; \
                 look for references that are forgotten in a loop"
            ),
            EventKind::ExcessPut => write!(
                f,
                "reference count of {name} at {address:#x} was put {times} times too often; \
                 look for a put without its get"
            ),
        }
    }
}

/// Refuses a second hook: the first is in place for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookAlreadySet;

impl fmt::Display for HookAlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event hook of rcuref is set already; call set_event_hook once, early")
    }
}

impl std::error::Error for HookAlreadySet {}

/// Sets what is called for every contained misuse, instead of one line per kind on stderr.
///
/// A saturation is told of once for each object, an excess put once, perhaps together with others
/// ([`Event::times`]). The hook runs in the middle of the `get` or `put` concerned, on its cold path.
///
/// # Examples
/// ```
/// use submeter_percpu::rcuref::{Event, set_event_hook};
///
/// set_event_hook(|event: &Event| eprintln!("my service: {event}"))?;
/// assert!(set_event_hook(|_| ()).is_err());
/// # Ok::<(), submeter_percpu::rcuref::HookAlreadySet>(())
/// ```
///
/// # Errors
/// When a hook is set already.
pub fn set_event_hook(hook: fn(&Event)) -> Result<(), HookAlreadySet> {
    HOOK.set(hook).map_err(|_| HookAlreadySet)
}

static HOOK: OnceLock<fn(&Event)> = OnceLock::new();

/// Whether stderr was told already, by kind.
static TOLD: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Reports a notice of the count at `address`.
pub(super) fn report(notice: Notice, name: &'static str, address: usize) {
    let (kind, times, index) = match notice {
        Notice::Saturated => (EventKind::Saturated, 1, 0),
        Notice::ExcessPuts(times) => (EventKind::ExcessPut, times, 1),
    };
    let event = Event { kind, times, name, address };
    if let Some(hook) = HOOK.get() {
        return hook(&event);
    }
    // Relaxed: the flag alone elects the one that prints; nothing is published by it.
    if !TOLD[index].swap(true, Ordering::Relaxed) {
        // Not `eprintln`, which panics when nobody reads stderr, in the middle of a put.
        let _ = writeln!(
            std::io::stderr(),
            "submeter: {event} (told once; set_event_hook sees every case)"
        );
    }
}
