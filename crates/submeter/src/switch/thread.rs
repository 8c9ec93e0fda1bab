//! The group that a thread is in, and the guard that keeps it there.
//!
//! Each thread has two thread-local values. One holds plain numbers, so that entering the current
//! group again only sets a number. The other holds the handles and the clock; its destructor
//! charges what the thread used last. A guard knows its [level](super::levels) and its number
//! there, which is enough to end it, in any order. The topmost level that has a guard decides.
//!
//! A signal handler may enter and leave the current group wherever it interrupts: it restores the
//! number that it sets before the thread continues. A switch that interrupts another one has no
//! effect.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use submeter_sys::Rseq;
use submeter_sys::clock::ThreadClock;

use super::levels::{Ended, Guards, Levels, Place};
use super::metered::Metered;
use super::meters::Meters;
use super::observe::Observers;
use crate::metric::schema::THREAD_COUNTS;
use crate::tree::group::Group;

mod slice;

pub use slice::{Checkpoint, TimeSlice, Yielding};

/// A guard that keeps the calling thread in a group until it is dropped. See [`Group::enter`].
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let entered = tree.root().enter();
/// assert!(switch::current().is_some());
/// drop(entered);
/// assert!(switch::current().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the thread leaves the group when the guard is dropped: keep it, or use `run`"]
#[derive(Debug)]
pub struct Entered {
    place: Place,
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

impl Entered {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn new(group: &Group) -> Entered {
        Entered { place: enter(group), _not_send: PhantomData }
    }

    /// Leaves the guard's group for `group`, in one switch instead of two. When the guard is
    /// dropped, the group that was current before it is current again.
    ///
    /// For loops over requests of many tenants. It costs as much as [`Group::enter`]: only a
    /// comparison if `group` is current already. It has no effect while a newer guard is alive.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree, switch};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let (web, mail) = (tree.get_or_create("/web")?, tree.get_or_create("/mail")?);
    /// let mut entered = web.enter();
    /// entered.switch_to(&mail);
    /// assert_eq!(switch::current().as_ref(), Some(&mail));
    /// drop(entered);
    /// assert_eq!(switch::current(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn switch_to(&mut self, group: &Group) {
        switch_to(group, &mut self.place);
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        leave(self.place);
    }
}

/// The part that is read on every switch.
struct Now {
    /// The current group's address, 0 for none. `Thread` keeps its handle, so that no other group
    /// gets that address.
    group: Cell<usize>,
    /// The guards of the topmost level, as in `Guards`.
    last: Cell<Place>,
    holes: Cell<u64>,
}

impl Now {
    const fn new() -> Now {
        let Guards { last, holes } = Guards::BASE;
        Now { group: Cell::new(0), last: Cell::new(last), holes: Cell::new(holes) }
    }

    #[inline(always)]
    fn guards(&self) -> Guards {
        Guards { last: self.last.get(), holes: self.holes.get() }
    }

    /// Clears the holes until the last guard is set: a signal handler that enters the current group
    /// in between then finds a level whose last guard, when it ends, is the handler's own.
    #[inline(always)]
    fn set_guards(&self, Guards { last, holes }: Guards) {
        self.holes.set(0);
        // SeqCst, and below: orders only against a handler on this thread, which costs no
        // instruction. Pairs with the loads in `enter` and `leave`.
        compiler_fence(Ordering::SeqCst);
        self.last.set(last);
        // SeqCst: as above.
        compiler_fence(Ordering::SeqCst);
        self.holes.set(holes);
    }
}

thread_local! {
    static NOW: Now = const { Now::new() };
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread::new()) };
}

/// The rest.
struct Thread {
    levels: Levels<Group>,
    time: Time,
    observers: Observers,
}

/// Charges a group for the time in which it was current.
struct Time {
    /// What the current group's schema meters; without a group, that of the last one.
    metered: Metered,
    /// Started by the first group that meters CPU time.
    clock: Option<ThreadClock>,
    /// Up to when the thread's time is accounted for. Meaningless while the group meters none.
    since_ns: u64,
    /// How much of the result of [`beside`] is accounted for.
    beside_ns: [u64; 2],
    meters: Meters,
    /// How much of a [`ThreadMeter`](super::ThreadMeter)'s counts is accounted for.
    counted: [u64; THREAD_COUNTS],
}

static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// Enters `group`. If it is the current one, only counts the guard.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
fn enter(group: &Group) -> Place {
    // Entering happens outside the closure, which would hide the caller's location.
    let next = NOW.with(|now| (now.group.get() == address(group)).then(|| now.last.get().next()));
    match next {
        Some(Some(place)) => {
            NOW.with(|now| now.last.set(place));
            place
        }
        Some(None) => enter_above(group),
        None => enter_another(group),
    }
}

/// Leaves. If the level has other guards, only a number changes.
#[inline]
fn leave(place: Place) {
    let left = NOW.with(|now| {
        let in_order = now.last.get() == place && now.holes.get() == 0;
        if in_order {
            now.last.set(place.previous());
        }
        in_order
    });
    if !left {
        leave_level(place);
    }
}

/// Enters a group other than the current one.
#[cfg_attr(debug_assertions, track_caller)]
fn enter_another(group: &Group) -> Place {
    let group = taking(group);
    with(|thread| thread.enter(group)).unwrap_or(Place::NOWHERE)
}

/// Enters the current group on a level of its own, because the topmost has no number left: that
/// happens to one guard in 63 where each is created before the last one ends.
#[cold]
#[inline(never)]
#[cfg_attr(debug_assertions, track_caller)]
fn enter_above(group: &Group) -> Place {
    let group = group.clone();
    with(|thread| thread.enter_above(group)).unwrap_or(Place::NOWHERE)
}

/// Makes `group` the current one instead of that of the guard at `place`, if that guard is the
/// latest.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
fn switch_to(group: &Group, place: &mut Place) {
    let (current, guards) = NOW.with(|now| (now.group.get(), now.guards()));
    if current == address(group) || guards.last != place.in_level() {
        return;
    }
    if guards.len() > 1 {
        // The older guards stay in the level, and the latest moves to a level of its own.
        let own = enter_another(group);
        if own != Place::NOWHERE {
            let last = leave_out_of_order(std::mem::replace(place, own));
            debug_assert!(!last, "older guards are left");
        }
        return;
    }
    let group = taking(group);
    // The old handle is dropped outside: dropping it may be the end of a group.
    let _left = with(|thread| thread.switch_to(group));
}

/// Takes a handle when it is called, after the clock was read.
#[cfg(not(debug_assertions))]
#[inline(always)]
fn taking(group: &Group) -> impl FnOnce() -> Group {
    || group.clone()
}

/// Takes a handle at once: inside a closure the caller's location would be unknown.
#[cfg(debug_assertions)]
#[track_caller]
fn taking(group: &Group) -> impl FnOnce() -> Group + use<> {
    let group = group.clone();
    || group
}

/// Leaves the topmost level, unless it has other guards.
fn leave_level(place: Place) {
    let alone = NOW.with(|now| now.last.get().as_first() == place && now.holes.get() == 0);
    if alone || leave_out_of_order(place) {
        // Dropped outside, as in `switch_to`, and before `rest`: the drop is a sequence too.
        drop(with(Thread::leave));
        if NOW.with(|now| now.group.get()) == 0 {
            rest();
        }
    }
}

/// Ends a guard that is not the latest. Returns whether the topmost level has no other guard.
#[cold]
#[inline(never)]
fn leave_out_of_order(place: Place) -> bool {
    if place == Place::NOWHERE {
        return false;
    }
    let guards = NOW.with(Now::guards);
    if !place.is_of(guards.last) {
        // Dropped outside, as in `switch_to`.
        let _left = with(|thread| thread.levels.end_early(place));
        return false;
    }
    let rest = guards.without(place);
    if let Some(guards) = rest {
        NOW.with(|now| now.set_guards(guards));
    }
    rest.is_none()
}

pub(super) fn park() {
    with(|thread| {
        let Thread { levels, time, observers } = thread;
        let group = levels.group(NOW.with(|now| now.last.get()));
        let charged = time.charge(group);
        if observers.any() {
            apart(|| observers.parked(group, || time.moment_ns(charged)));
        }
    });
    rest();
}

/// A thread that parks will wait, and one that leaves its last group mostly does too.
#[inline]
fn rest() {
    // If the probe has not run, no sequence has; a runtime's hook must not start it.
    if let Some(rseq) = Rseq::known() {
        rseq.rest();
    }
}

pub(super) fn current() -> Option<Group> {
    let current = |thread: &RefCell<Thread>| {
        let thread = thread.try_borrow().ok()?;
        thread.levels.group(NOW.with(|now| now.last.get())).cloned()
    };
    THREAD.try_with(current).ok().flatten()
}

/// Calls `update` with the current group if it is of the tree of `outside`, otherwise with
/// `outside`. It takes no handle, which would cost as much as two updates.
///
/// Only for updates of our own: a switch in `update` would have no effect, because the thread's
/// values are borrowed.
#[inline(always)]
pub(super) fn update(outside: &Group, update: impl Fn(&Group)) {
    let current = |thread: &RefCell<Thread>| {
        let thread = thread.try_borrow().ok()?;
        let group = thread.levels.group(NOW.with(|now| now.last.get()))?;
        group.is_beside(outside).then(|| update(group))
    };
    if THREAD.try_with(current).ok().flatten().is_none() {
        update(outside);
    }
}

pub(super) fn forgotten_guards() -> u64 {
    // Relaxed: a statistic.
    FORGOTTEN.load(Ordering::Relaxed)
}

/// Returns `None`, and does nothing, if the thread's values are gone or a switch is under way: in
/// code that runs after their end, or in a signal handler.
fn with<T>(act: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(|mut t| act(&mut t))).ok().flatten()
}

/// Calls code that may call back. During the call no group is current, so that entering one again
/// takes no shortcut, and switches have no effect because one is in progress. Otherwise a guard
/// that an observer keeps would hold the thread in its group.
#[inline(always)]
fn apart(call: impl FnOnce()) {
    let group = NOW.with(|now| now.group.replace(NOWHERE));
    call();
    NOW.with(|now| now.group.set(group));
}

/// A sentinel: the address of no group, and not 0, which means "in no group".
const NOWHERE: usize = usize::MAX;

fn address(group: &Group) -> usize {
    std::ptr::from_ref(&*group.inner).addr()
}

/// Publishes the group, or that there is none. Returns its address, or 0.
#[inline(always)]
fn publish(group: Option<&Group>) -> usize {
    super::thread_context::publish(group);
    group.map_or(0, address)
}

impl Thread {
    const fn new() -> Thread {
        Thread { levels: Levels::new(), time: Time::new(), observers: Observers::new() }
    }

    /// Switches to another group, on a new level.
    #[inline(always)]
    fn enter(&mut self, group: impl FnOnce() -> Group) -> Place {
        let Thread { levels, time, observers } = self;
        // First: a read of the CPU's counter waits for all earlier work, and need not wait for the
        // clone.
        let mut charged = time.charge(levels.group(NOW.with(|now| now.last.get())));
        let group = group();
        let address = publish(Some(&group));
        let guards = NOW.with(Now::guards);
        let (first, next) = levels.begin(guards, group);
        let last = NOW.with(|now| {
            now.set_guards(Guards { last: first, holes: 0 });
            now.group.replace(address)
        });
        charged = time.begin(last == 0, next, charged);
        if observers.any() {
            tell(observers, time, [guards.last, first].map(|level| levels.group(level)), charged);
        }
        first.as_first()
    }

    /// Starts a level of the same group, which is no switch.
    fn enter_above(&mut self, group: Group) -> Place {
        let (first, _) = self.levels.begin(NOW.with(Now::guards), group);
        NOW.with(|now| now.set_guards(Guards { last: first, holes: 0 }));
        first.as_first()
    }

    /// Leaves the topmost level; returns its handle.
    #[inline(always)]
    fn leave(&mut self) -> Option<Group> {
        let Thread { levels, time, observers } = self;
        let Ended { last, guards, group: next } = levels.end(NOW.with(|now| now.last.get()));
        let group = publish(next);
        let left = NOW.with(|now| {
            now.set_guards(guards);
            now.group.replace(group)
        });
        // The group may not have changed: the level may have switched to the group below, or the
        // levels in between are gone. Then this is no switch.
        if group != left {
            let mut charged = time.charge(last.as_ref());
            charged = time.begin(false, next, charged);
            if observers.any() {
                tell(observers, time, [last.as_ref(), next], charged);
            }
        }
        last
    }

    /// Switches to another group on the same level; returns the old handle.
    #[inline(always)]
    fn switch_to(&mut self, group: impl FnOnce() -> Group) -> Option<Group> {
        let Thread { levels, time, observers } = self;
        let level = NOW.with(|now| now.last.get());
        let mut charged = time.charge(levels.group(level));
        let group = group();
        NOW.with(|now| now.group.set(publish(Some(&group))));
        let last = levels.replace(level, group);
        let next = levels.group(level);
        charged = time.begin(false, next, charged);
        if observers.any() {
            tell(observers, time, [last.as_ref(), next], charged);
        }
        last
    }
}

/// Calls the observers. Not inlined: most programs have none.
#[inline(never)]
fn tell(
    observers: &mut Observers,
    time: &mut Time,
    [last, next]: [Option<&Group>; 2],
    charged: bool,
) {
    apart(|| observers.switched(last, next, || time.moment_ns(charged)));
}

impl Time {
    const fn new() -> Time {
        let meters = Meters::new();
        let (metered, counted) = (Metered::NOTHING, [0; THREAD_COUNTS]);
        Time { metered, clock: None, since_ns: 0, beside_ns: [0; 2], meters, counted }
    }

    /// Adds the time and the events since the last switch to the thread's group. Returns whether it
    /// meters time.
    #[inline(always)]
    fn charge(&mut self, group: Option<&Group>) -> bool {
        let Some(group) = group else { return false };
        if self.metered.more { self.charge_all(group) } else { self.charge_time(group) }
    }

    #[inline(always)]
    fn charge_time(&mut self, group: &Group) -> bool {
        let Some(counter) = self.metered.cpu_time else { return false };
        let now_ns = now_ns(&mut self.clock);
        let used_ns = now_ns - std::mem::replace(&mut self.since_ns, now_ns);
        if !group.add_within(counter, used_ns) {
            self.metered.add_spending(group, used_ns);
        }
        true
    }

    /// Also adds what most schemas do not meter.
    #[inline(never)]
    fn charge_all(&mut self, group: &Group) -> bool {
        if self.metered.events {
            self.meters.charge(group);
        }
        if let Some(counts) = &self.metered.counts {
            counts.charge(group, &mut self.counted);
        }
        let charged = self.charge_time(group);
        let beside_ns = beside(self.clock.as_ref());
        for (at, counter) in self.metered.beside.iter().enumerate() {
            if let &Some(counter) = counter
                && beside_ns[at] > self.beside_ns[at]
            {
                group.add(counter, beside_ns[at] - self.beside_ns[at]);
            }
        }
        self.beside_ns = beside_ns;
        charged
    }

    /// Starts an interval in the group that is now current. Returns whether `since_ns` is of this
    /// switch.
    #[inline(always)]
    fn begin(&mut self, outside: bool, group: Option<&Group>, charged: bool) -> bool {
        match group {
            // Within a tree the end of one interval is the start of the next.
            Some(group) if outside || group.schema_id() != self.metered.schema_id => {
                self.begin_anew(outside, group, charged)
            }
            _ => charged,
        }
    }

    /// Starts an interval that does not follow from the end of the last one.
    #[inline(never)]
    fn begin_anew(&mut self, outside: bool, group: &Group, charged: bool) -> bool {
        if group.schema_id() != self.metered.schema_id {
            self.metered = Metered::of(group.schema());
            // What is not charged yet was not in groups of this schema.
            self.beside_ns = beside(self.clock.as_ref());
        }
        let reads = self.metered.cpu_time.is_some() && !charged;
        if reads {
            self.since_ns = begin_ns(&mut self.clock);
        }
        if outside {
            slice::begin(reads.then_some(self.since_ns));
        }
        if self.metered.events {
            self.meters.mark(group.schema());
        }
        // Last: what the switch itself allocates belongs to no group.
        if let Some(counts) = &self.metered.counts {
            counts.mark(&mut self.counted);
        }
        charged || reads
    }

    /// Returns the time of the current switch, which is `since_ns` if that was read for it.
    #[inline]
    fn moment_ns(&mut self, charged: bool) -> u64 {
        if charged { self.since_ns } else { now_ns(&mut self.clock) }
    }
}

/// Returns what a clock sums up beside CPU time: time off the CPU, and its possible error.
fn beside(clock: Option<&ThreadClock>) -> [u64; 2] {
    clock.map_or([0; 2], |clock| [clock.waited_ns(), clock.error_ns()])
}

#[inline(always)]
fn now_ns(clock: &mut Option<ThreadClock>) -> u64 {
    match clock {
        Some(clock) => clock.now_ns(),
        None => start(clock),
    }
}

/// Returns the start of an interval that does not begin at another one's end: workers that wait for
/// each request come here from a wait.
#[inline(always)]
fn begin_ns(clock: &mut Option<ThreadClock>) -> u64 {
    match clock {
        Some(clock) => clock.begin_ns(),
        None => start(clock),
    }
}

/// Out of line, as it happens once per thread.
#[cold]
#[inline(never)]
fn start(clock: &mut Option<ThreadClock>) -> u64 {
    clock.insert(ThreadClock::new()).now_ns()
}

impl Drop for Thread {
    fn drop(&mut self) {
        let guards = NOW.with(|now| {
            let guards = now.guards();
            now.set_guards(Guards::BASE);
            now.group.set(publish(None));
            guards
        });
        let alive = guards.len() + self.levels.guards_below(guards.last);
        if alive > 0 {
            // Relaxed: a statistic.
            FORGOTTEN.fetch_add(alive, Ordering::Relaxed);
        }
        let Thread { levels, time, observers } = self;
        let group = levels.group(guards.last);
        let charged = time.charge(group);
        if observers.follow() {
            let now_ns = time.moment_ns(charged);
            observers.ended(group, now_ns);
        }
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
