//! The group that a thread is in, and the guard that keeps it there.
//!
//! Two thread-local values: one of plain numbers, so that entering the current group again is a
//! comparison; one with the handle and the clock, whose end charges what the thread used last.
//! Every guard takes the next depth, and the deepest decides. A guard dropped before a deeper one
//! leaves a note of what was before it, which the deeper one finds when it goes: so any order is
//! right, and the usual one needs no notes.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter_sys::clock::ThreadClock;

use super::meters::{self, Meters};
use super::observe::Observers;
use crate::group::Group;
use crate::schema::{Counter, Schema};
use crate::unit::Nanoseconds;

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
    /// What was current before; `None` in the inner option if it is this guard's group.
    before: Option<Before>,
    depth: Depth,
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

impl Entered {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn new(group: &Group) -> Entered {
        let (depth, before) = match enter_again(group) {
            Some(depth) => (depth, None),
            None => enter(group),
        };
        Entered { before, depth, _not_send: PhantomData }
    }

    /// Leaves the guard's group for `group`, in one switch instead of two. When the guard is
    /// dropped, what was current before it is so again.
    ///
    /// For loops over requests of many tenants. Costs what [`Group::enter`] does: nothing but a
    /// comparison if it is the group already. Of no effect while a guard lives that was made later.
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
        if let Some(left) = switch_to(group, self.depth) {
            // What was current before the guard stays what it goes back to.
            self.before.get_or_insert(Before(Some(left)));
        }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        match self.before.take() {
            None if leave_again(self.depth) => {}
            before => leave(self.depth, before),
        }
    }
}

/// The group that a guard took the place of, if any.
#[derive(Debug)]
struct Before(Option<Group>);

/// How many guards the thread held when one was made, itself included; 0 for one without effect.
type Depth = u32;

/// The part that is read on every switch.
#[derive(Clone, Copy)]
struct Now {
    /// The current group's address, 0 for none. Its handle is kept in `Thread`, so that the address
    /// stays its own.
    group: usize,
    /// Of the deepest guard that is alive.
    depth: Depth,
    /// Guards dropped before deeper ones, which are alive: the length of `Thread::early`.
    early: u32,
}

thread_local! {
    static NOW: Cell<Now> = const { Cell::new(Now { group: 0, depth: 0, early: 0 }) };
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread::new()) };
}

/// The rest.
struct Thread {
    group: Option<Group>,
    /// What the schema of `group` meters; of the last group's where there is none.
    metered: Metered,
    /// Started by the first group that meters CPU time.
    clock: Option<ThreadClock>,
    /// Until when the thread's time is accounted for. Of no meaning while the group meters none.
    since_ns: u64,
    meters: Meters,
    observers: Observers,
    early: Vec<Early>,
}

/// What a switch wants to know of a schema: copied, since the way to it from a group is four
/// pointers long.
struct Metered {
    schema_id: u32,
    cpu_time: Option<Counter<Nanoseconds>>,
    events: bool,
}

impl Metered {
    /// Of no schema: they are numbered from 0, and nobody makes so many.
    const NOTHING: Metered = Metered { schema_id: u32::MAX, cpu_time: None, events: false };

    #[cold]
    #[inline(never)]
    fn of(schema: &Schema) -> Metered {
        Metered {
            schema_id: schema.id(),
            cpu_time: schema.cpu_time(),
            events: meters::are_declared(schema),
        }
    }
}

/// A guard that was dropped before a deeper one.
struct Early {
    depth: Depth,
    before: Option<Before>,
}

/// Handles that were given up: of the group that was left, and of groups between it and the one
/// that is current now.
type Left = (Option<Group>, Vec<Before>);

static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// Enters `group` if it is the current one: counts the guard, and nothing else.
#[inline]
fn enter_again(group: &Group) -> Option<Depth> {
    NOW.with(|cell| {
        let now = cell.get();
        if now.group != address(group) {
            return None;
        }
        let depth = now.depth + 1;
        cell.set(Now { depth, ..now });
        Some(depth)
    })
}

/// Undoes [`enter_again`], unless guards went in another order.
#[inline]
fn leave_again(depth: Depth) -> bool {
    NOW.with(|cell| {
        let now = cell.get();
        if now.depth != depth || now.early != 0 || depth == 0 {
            return false;
        }
        cell.set(Now { depth: depth - 1, ..now });
        true
    })
}

/// Enters another group than the current one.
#[cfg_attr(debug_assertions, track_caller)]
fn enter(group: &Group) -> (Depth, Option<Before>) {
    let group = taking(group);
    with(|thread| {
        let depth = NOW.get().depth + 1;
        let before = thread.switch(depth, group);
        (depth, Some(Before(before)))
    })
    .unwrap_or((0, None))
}

/// Makes `group` the current one in the place of that of the deepest guard, if that is at `depth`;
/// returns what was.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
fn switch_to(group: &Group, depth: Depth) -> Option<Group> {
    let now = NOW.get();
    if now.group == address(group) || now.depth != depth || depth == 0 {
        return None;
    }
    let group = taking(group);
    with(|thread| thread.switch(depth, group)).flatten()
}

/// Takes a handle when it is called, after the clock was read.
#[cfg(not(debug_assertions))]
#[inline(always)]
fn taking(group: &Group) -> impl FnOnce() -> Option<Group> {
    || Some(group.clone())
}

/// Takes a handle at once: inside of a closure it would not be known where the caller is.
#[cfg(debug_assertions)]
#[track_caller]
fn taking(group: &Group) -> impl FnOnce() -> Option<Group> + use<> {
    let group = group.clone();
    || Some(group)
}

/// Leaves: to `before`, or to whatever was before the guards that left too early.
fn leave(depth: Depth, before: Option<Before>) {
    let now = NOW.get();
    match before {
        Some(Before(before)) if now.depth == depth && now.early == 0 && depth != 0 => {
            if now.group == address_or_none(before.as_ref()) {
                // The guard has gone to the group that it came from: no switch.
                return NOW.set(Now { depth: depth - 1, ..now });
            }
            // What is given up is dropped outside: the end of a handle may be the end of a group.
            let _left = with(|thread| thread.switch(depth - 1, || before));
        }
        before => leave_out_of_order(depth, before),
    }
}

#[cold]
#[inline(never)]
fn leave_out_of_order(depth: Depth, before: Option<Before>) {
    if depth != 0 {
        // Dropped outside, as above.
        let _left = with(|thread| thread.leave_out_of_order(depth, before));
    }
}

pub(super) fn park() {
    with(|thread| {
        let charged = thread.charge();
        if thread.observers.any() {
            let now_ns = thread.moment_ns(charged);
            apart(|| thread.observers.parked(thread.group.as_ref(), now_ns));
        }
    });
}

pub(super) fn current() -> Option<Group> {
    THREAD.try_with(|thread| thread.try_borrow().ok()?.group.clone()).ok().flatten()
}

pub(super) fn forgotten_guards() -> u64 {
    // Relaxed: a statistic.
    FORGOTTEN.load(Ordering::Relaxed)
}

/// `None`, with nothing done, when the thread's values are gone or a switch is under way: in what
/// runs after their end, or in a signal handler.
fn with<T>(act: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(|mut t| act(&mut t))).ok().flatten()
}

/// Calls what may call back: meanwhile no group is the current one, so that none is entered again,
/// and any other has no effect as a switch is under way. A guard that an observer keeps would else
/// hold the thread in its group.
#[inline(always)]
fn apart(call: impl FnOnce()) {
    let group = NOW.get().group;
    NOW.set(Now { group: NOWHERE, ..NOW.get() });
    call();
    NOW.set(Now { group, ..NOW.get() });
}

/// The address of no group, and not that of none.
const NOWHERE: usize = usize::MAX;

fn address(group: &Group) -> usize {
    std::ptr::from_ref(&*group.inner).addr()
}

fn address_or_none(group: Option<&Group>) -> usize {
    group.map_or(0, address)
}

impl Thread {
    const fn new() -> Thread {
        Thread {
            group: None,
            metered: Metered::NOTHING,
            clock: None,
            since_ns: 0,
            meters: Meters::new(),
            observers: Observers::new(),
            early: Vec::new(),
        }
    }

    /// Charges the thread's group, makes `next` that, and returns what was.
    #[inline(always)]
    fn switch(&mut self, depth: Depth, next: impl FnOnce() -> Option<Group>) -> Option<Group> {
        // First: reading the CPU's counter waits for all before it, and for the clone it need not
        // wait.
        let mut charged = self.charge();
        let next = next();
        let group = address_or_none(next.as_ref());
        let last = std::mem::replace(&mut self.group, next);
        NOW.set(Now { group, depth, early: self.early.len() as u32 });
        if let Some(next) = &self.group {
            // Within a tree the end of one interval is the start of the next.
            if last.is_none() || next.schema_id() != self.metered.schema_id {
                charged = self.begin(charged);
            }
        }
        if self.observers.any() {
            self.tell(last.as_ref(), charged);
        }
        last
    }

    /// Calls who observes. Not inlined: most programs have nobody who does.
    #[inline(never)]
    fn tell(&mut self, last: Option<&Group>, charged: bool) {
        let now_ns = self.moment_ns(charged);
        apart(|| self.observers.switched(last, self.group.as_ref(), now_ns));
    }

    /// Returns the time of the switch under way, which is `since_ns` if it was read for that.
    #[inline]
    fn moment_ns(&mut self, charged: bool) -> u64 {
        if charged { self.since_ns } else { now_ns(&mut self.clock) }
    }

    /// Begins an interval in the group that is current now, where the last one was of no use for
    /// that. Returns whether `since_ns` is of this switch.
    fn begin(&mut self, charged: bool) -> bool {
        let Some(group) = &self.group else { return charged };
        if group.schema_id() != self.metered.schema_id {
            self.metered = Metered::of(group.schema());
        }
        let reads = self.metered.cpu_time.is_some() && !charged;
        if reads {
            self.since_ns = now_ns(&mut self.clock);
        }
        if self.metered.events {
            self.meters.mark(group.schema());
        }
        charged || reads
    }

    /// Leaves where guards are not dropped in the reverse order; returns what is to be dropped.
    fn leave_out_of_order(&mut self, depth: Depth, before: Option<Before>) -> Left {
        let now = NOW.get();
        if now.depth != depth {
            self.early.push(Early { depth, before });
            NOW.set(Now { early: self.early.len() as u32, ..now });
            return (None, Vec::new());
        }
        let (mut depth, mut to, mut passed) = (depth - 1, before, Vec::new());
        while let Some(at) = self.early.iter().position(|early| early.depth == depth) {
            let early = self.early.swap_remove(at);
            depth -= 1;
            if early.before.is_some() {
                passed.extend(std::mem::replace(&mut to, early.before));
            }
        }
        let Some(Before(group)) = to else {
            NOW.set(Now { depth, early: self.early.len() as u32, ..now });
            return (None, passed);
        };
        if now.group == address_or_none(group.as_ref()) {
            NOW.set(Now { depth, early: self.early.len() as u32, ..now });
            passed.push(Before(group));
            return (None, passed);
        }
        (self.switch(depth, || group), passed)
    }

    /// Adds the time and the events since the last switch to the thread's group; returns whether it
    /// meters time.
    #[inline(always)]
    fn charge(&mut self) -> bool {
        let Some(group) = &self.group else { return false };
        if self.metered.events {
            self.meters.charge(group);
        }
        let Some(counter) = self.metered.cpu_time else { return false };
        let now_ns = now_ns(&mut self.clock);
        group.add(counter, now_ns - self.since_ns);
        self.since_ns = now_ns;
        true
    }
}

#[inline(always)]
fn now_ns(clock: &mut Option<ThreadClock>) -> u64 {
    match clock {
        Some(clock) => clock.now_ns(),
        None => start(clock),
    }
}

/// Out of the way, as it happens once a thread.
#[cold]
#[inline(never)]
fn start(clock: &mut Option<ThreadClock>) -> u64 {
    clock.insert(ThreadClock::new()).now_ns()
}

impl Drop for Thread {
    fn drop(&mut self) {
        let now = NOW.replace(Now { group: 0, depth: 0, early: 0 });
        let alive = now.depth.saturating_sub(now.early);
        if alive > 0 {
            // Relaxed: a statistic.
            FORGOTTEN.fetch_add(u64::from(alive), Ordering::Relaxed);
        }
        let charged = self.charge();
        let group = self.group.take();
        if self.observers.follow() {
            let now_ns = self.moment_ns(charged);
            self.observers.ended(group.as_ref(), now_ns);
        }
    }
}
