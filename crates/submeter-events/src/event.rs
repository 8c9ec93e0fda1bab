//! Events, with the names of `perf list`.

use std::fmt;

/// The kind of an event.
///
/// # Examples
/// ```
/// use submeter_events::{Event, EventKind, parse};
///
/// let groups = parse("task-clock,r1a8")?;
/// assert!(matches!(groups[0].events()[0].kind(), EventKind::Software(_)));
/// assert_eq!(groups[1].events()[0], Event::new(EventKind::Raw(0x1a8)));
/// assert!(EventKind::Raw(0x1a8).needs_counter());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// A generic event of the CPU, by its number in `perf_event_open(2)`.
    Hardware(u64),
    /// An event of the kernel, by its number there. Needs no hardware counter.
    Software(u64),
    /// An event of this CPU model, by its own encoding (`r1a8`).
    Raw(u64),
}

impl EventKind {
    /// Returns whether it needs one of the CPU's counters.
    #[must_use]
    pub fn needs_counter(self) -> bool {
        !matches!(self, EventKind::Software(_))
    }

    /// Finds an event by the name that `perf list` gives it.
    pub(crate) fn by_name(name: &str) -> Option<EventKind> {
        let named = NAMES.iter().find(|(known, _)| *known == name).map(|&(_, kind)| kind);
        named.or_else(|| {
            let digits = name.strip_prefix('r').filter(|digits| !digits.is_empty())?;
            // `from_str_radix` alone would accept a sign.
            let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| hex).map(EventKind::Raw)
        })
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (NAMES.iter().find(|(_, kind)| kind == self), self) {
            (Some((name, _)), _) => f.write_str(name),
            (None, EventKind::Raw(code)) => write!(f, "r{code:x}"),
            (None, EventKind::Hardware(number)) => write!(f, "hardware event {number}"),
            (None, EventKind::Software(number)) => write!(f, "software event {number}"),
        }
    }
}

/// Names; the usual one of each event comes first. The numbers are those of `linux/perf_event.h`.
pub(crate) const NAMES: &[(&str, EventKind)] = &[
    ("cycles", EventKind::Hardware(0)),
    ("instructions", EventKind::Hardware(1)),
    ("cache-references", EventKind::Hardware(2)),
    ("cache-misses", EventKind::Hardware(3)),
    ("branches", EventKind::Hardware(4)),
    ("branch-misses", EventKind::Hardware(5)),
    ("bus-cycles", EventKind::Hardware(6)),
    ("stalled-cycles-frontend", EventKind::Hardware(7)),
    ("stalled-cycles-backend", EventKind::Hardware(8)),
    ("ref-cycles", EventKind::Hardware(9)),
    ("cpu-clock", EventKind::Software(0)),
    ("task-clock", EventKind::Software(1)),
    ("page-faults", EventKind::Software(2)),
    ("context-switches", EventKind::Software(3)),
    ("cpu-migrations", EventKind::Software(4)),
    ("minor-faults", EventKind::Software(5)),
    ("major-faults", EventKind::Software(6)),
    ("alignment-faults", EventKind::Software(7)),
    ("emulation-faults", EventKind::Software(8)),
    ("dummy", EventKind::Software(9)),
    // Aliases.
    ("cpu-cycles", EventKind::Hardware(0)),
    ("branch-instructions", EventKind::Hardware(4)),
    ("idle-cycles-frontend", EventKind::Hardware(7)),
    ("idle-cycles-backend", EventKind::Hardware(8)),
    ("faults", EventKind::Software(2)),
    ("cs", EventKind::Software(3)),
    ("migrations", EventKind::Software(4)),
];

/// One event, and the modes in which it counts.
///
/// # Examples
/// ```
/// let groups = submeter_events::parse("cycles:u")?;
/// let event = groups[0].events()[0];
/// assert_eq!(event.to_string(), "cycles:u");
/// assert!(event.counts_user() && !event.counts_kernel());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub(crate) kind: EventKind,
    pub(crate) user: bool,
    pub(crate) kernel: bool,
}

impl Event {
    /// Creates an event that counts `kind` in user mode and in the kernel.
    #[must_use]
    pub fn new(kind: EventKind) -> Event {
        Event { kind, user: true, kernel: true }
    }

    /// Returns what is counted.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns whether it counts in user mode.
    #[must_use]
    pub fn counts_user(&self) -> bool {
        self.user
    }

    /// Returns whether it counts in the kernel.
    #[must_use]
    pub fn counts_kernel(&self) -> bool {
        self.kernel
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = match (self.user, self.kernel) {
            (true, false) => ":u",
            (false, true) => ":k",
            _ => "",
        };
        write!(f, "{}{modes}", self.kind)
    }
}

/// Events that count together or not at all.
///
/// # Examples
/// ```
/// let groups = submeter_events::parse("{cycles,instructions}:D,task-clock")?;
/// assert_eq!(groups.len(), 2);
/// assert!(groups[0].is_pinned());
/// assert_eq!(groups[0].to_string(), "{cycles,instructions}:D");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventGroup {
    pub(crate) events: Vec<Event>,
    pub(crate) pinned: bool,
}

impl EventGroup {
    /// Creates a group of events. A group without events cannot be attached.
    #[must_use]
    pub fn new(events: Vec<Event>, pinned: bool) -> EventGroup {
        EventGroup { events, pinned }
    }

    /// Returns the events, the group leader first.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns whether it must always count.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }
}

impl fmt::Display for EventGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pinned = if self.pinned { "D" } else { "" };
        match &self.events[..] {
            [one] => {
                // An event with its own modifier ends in `u` or `k`, to which the `D` is appended.
                let colon = if self.pinned && one.user == one.kernel { ":" } else { "" };
                write!(f, "{one}{colon}{pinned}")
            }
            events => {
                f.write_str("{")?;
                for (index, event) in events.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{event}")?;
                }
                write!(f, "}}{}{pinned}", if self.pinned { ":" } else { "" })
            }
        }
    }
}
