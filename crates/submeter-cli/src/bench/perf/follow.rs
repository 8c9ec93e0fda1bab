//! Puts a design between the threads' switches and their events, and takes it out again.

use std::io;

use submeter::perf::{EventGroup, ThreadPmu, parse};
use submeter::{Group, Tree};

/// What follows the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Nothing: no event is attached.
    Nothing,
    /// Nothing: no event is attached.
    Again,
}

impl Variant {
    pub(super) const ALL: [Variant; 2] = [Variant::Nothing, Variant::Again];

    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Nothing => "none",
            Variant::Again => "submeter",
        }
    }
}

/// One event group, for a group or for the whole process.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) group: Option<Group>,
    pub(super) events: EventGroup,
}

/// Asks for `events` for each scope.
pub(super) fn requests(scopes: impl Iterator<Item = Option<Group>>, events: &str) -> Vec<Request> {
    let lists = parse(events).expect("a constant list");
    let of = |group: Option<Group>| {
        let request =
            move |events: &EventGroup| Request { group: group.clone(), events: events.clone() };
        lists.iter().map(request).collect::<Vec<_>>()
    };
    scopes.flat_map(of).collect()
}

/// Returns the document's events where the hardware counts them, and otherwise two that the kernel does.
pub(super) fn document_events(notes: &mut Vec<String>) -> &'static str {
    const HARDWARE: &str = "cycles,instructions";
    const SOFTWARE: &str = "task-clock,context-switches";
    let lists = parse(HARDWARE).expect("a constant list");
    let mut events = lists.iter().flat_map(EventGroup::events);
    match events.try_for_each(ThreadPmu::supports) {
        Ok(()) => HARDWARE,
        Err(why) => {
            notes
                .push(format!("response: {SOFTWARE} in place of the document's {HARDWARE}: {why}"));
            SOFTWARE
        }
    }
}

pub(super) struct Following;

pub(super) fn install(_: Variant, _: &Tree, _: &[Request]) -> io::Result<Following> {
    Ok(Following)
}
