//! Installs a design between the threads' switches and their events, and removes it again.

use std::iter::successors;
use std::time::{Duration, Instant};

use submeter::perf::{EventGroup, Request, Session, parse};
use submeter::switch::{self, Observation, Observer};
use submeter::{Group, Tree};
use submeter_events::{GroupKey, Pmu, Scope, ThreadPmu};

use super::design::{Design, Filtered, SystemWide};
use super::priced::{PricedPmu, Sharing};

/// The variants that follow the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Nothing: no event is attached.
    Nothing,
    Unpatched,
    Patch1,
    Submeter,
    /// On counters with a price: submeter's scheduler alone, without its shared counters.
    Reprogrammed,
    /// No event, but each switch takes enough longer that the measurement must show it.
    Spin,
}

impl Variant {
    /// The variants on the thread's own counters.
    pub(super) const LIVE: [Variant; 5] =
        [Variant::Nothing, Variant::Unpatched, Variant::Patch1, Variant::Submeter, Variant::Spin];
    /// The variants on counters with a price.
    pub(super) const PRICED: [Variant; 5] = [
        Variant::Nothing,
        Variant::Unpatched,
        Variant::Patch1,
        Variant::Submeter,
        Variant::Reprogrammed,
    ];
    /// The variants with events.
    pub(super) const DESIGNS: [Variant; 3] =
        [Variant::Unpatched, Variant::Patch1, Variant::Submeter];

    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Nothing => "none",
            Variant::Unpatched => "unpatched",
            Variant::Patch1 => "patch_1",
            Variant::Submeter => "submeter",
            Variant::Reprogrammed => "submeter_reprogrammed",
            Variant::Spin => "spin",
        }
    }
}

/// One event group, of a group or of the whole process.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) group: Option<Group>,
    pub(super) events: EventGroup,
}

impl Wanted {
    fn request(&self) -> Request {
        match &self.group {
            Some(group) => Request::group(group, self.events.clone()),
            None => Request::everywhere(self.events.clone()),
        }
    }
}

/// Returns `events` for each scope.
pub(super) fn wanted(scopes: impl Iterator<Item = Option<Group>>, events: &str) -> Vec<Wanted> {
    let lists = parse(events).expect("a constant list");
    let of = |group: Option<Group>| {
        let one = |events: &EventGroup| Wanted { group: group.clone(), events: events.clone() };
        lists.iter().map(one).collect::<Vec<_>>()
    };
    scopes.flat_map(of).collect()
}

/// The document's events.
pub(super) const DOCUMENT: &str = "cycles,instructions";

/// Returns the document's events if the hardware counts them, and otherwise two clocks.
pub(super) fn document_events(notes: &mut Vec<String>) -> &'static str {
    // Both are read without the kernel, as hardware counters are. An event that the kernel counts
    // (context-switches) makes each context switch of the thread more expensive, by the same amount
    // for all variants, which hides their differences.
    const SOFTWARE: &str = "task-clock,cpu-clock";
    let lists = parse(DOCUMENT).expect("a constant list");
    match lists.iter().flat_map(EventGroup::events).try_for_each(ThreadPmu::supports) {
        Ok(()) => DOCUMENT,
        Err(why) => {
            let note = format!("response: {SOFTWARE} in place of the document's {DOCUMENT}: {why}");
            notes.push(note);
            SOFTWARE
        }
    }
}

/// Events that follow the groups of all threads, until it is dropped.
#[derive(Default)]
pub(super) struct Following {
    _baseline: Option<Observation>,
    _session: Option<Session>,
}

/// The counters that count events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counters {
    /// Each thread's own: its clock, and the kernel's.
    Live,
    /// A model of the CPU's counters, which takes the time that these take.
    Priced,
}

/// Attaches the wanted events.
pub(super) fn install(
    variant: Variant,
    counters: Counters,
    tree: &Tree,
    wanted: &[Wanted],
) -> Following {
    match counters {
        Counters::Live => install_on(variant, tree, wanted, |_| ThreadPmu::new()),
        Counters::Priced => install_on(variant, tree, wanted, PricedPmu::new),
    }
}

/// Attaches the wanted events to counters that `make` makes on each thread.
fn install_on<P: Pmu + 'static>(
    variant: Variant,
    tree: &Tree,
    wanted: &[Wanted],
    make: impl Fn(Sharing) -> P + Clone + Send + Sync + 'static,
) -> Following {
    let sharing = if variant == Variant::Reprogrammed { Sharing::Apart } else { Sharing::Shared };
    let baseline = |system_wide| {
        let make = make.clone();
        let make = move || Filtered::new(make(Sharing::Apart), system_wide);
        Following { _baseline: Some(observe(wanted, make)), ..Following::default() }
    };
    match variant {
        Variant::Nothing => Following::default(),
        Variant::Unpatched => baseline(SystemWide::Switched),
        Variant::Patch1 => baseline(SystemWide::LeftAlone),
        Variant::Submeter | Variant::Reprogrammed => {
            let requests = wanted.iter().map(Wanted::request);
            let session = Session::builder().open_with(tree, requests, move || make(sharing));
            Following { _session: Some(session), ..Following::default() }
        }
        Variant::Spin => {
            let spinner = |_| Some(Box::new(Spinner) as Box<dyn Observer>);
            Following { _baseline: Some(switch::observe(spinner)), ..Following::default() }
        }
    }
}

/// Makes a baseline follow each thread.
fn observe<P: Pmu + 'static>(
    wanted: &[Wanted],
    make: impl Fn() -> Filtered<P> + Send + Sync + 'static,
) -> Observation {
    let scope = |group: &Option<Group>| {
        group.as_ref().map_or(Scope::Everywhere, |group| Scope::Group(GroupKey(group.id())))
    };
    let all: Vec<_> = wanted.iter().map(|one| (scope(&one.group), one.events.clone())).collect();
    switch::observe(move |now_ns| {
        let mut design = make();
        for (scope, events) in &all {
            design.attach(*scope, events, now_ns).ok()?;
        }
        // Room for a group at the greatest depth.
        let chain = Vec::with_capacity(submeter::DEPTH_MAX + 1);
        Some(Box::new(Follower { design, chain }) as Box<dyn Observer>)
    })
}

/// Forwards one thread's switches to a baseline.
struct Follower<P> {
    design: Filtered<P>,
    chain: Vec<GroupKey>,
}

impl<P: Pmu> Observer for Follower<P> {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, now_ns: u64) {
        self.chain.clear();
        let groups = successors(next, |group| group.parent());
        self.chain.extend(groups.map(|group| GroupKey(group.id())));
        self.design.switch(&self.chain, now_ns);
    }
}

/// Lengthens each switch and does nothing else.
struct Spinner;

/// Twice per request, this is a few percent of a request's CPU time, far above the differences of
/// interest.
const SPIN: Duration = Duration::from_nanos(250);

impl Observer for Spinner {
    fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {
        let start = Instant::now();
        while start.elapsed() < SPIN {}
    }
}
