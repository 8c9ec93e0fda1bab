//! Declaring metrics.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "perf")]
use submeter_events::{Event, KernelPmu, NotSupportedError};

use super::extension::Base;
use super::keys::{Counter, Gauge, Histogram, Key, Quota, RateLimit};
use super::metric::{Metric, MetricKind};
use super::thread_meter::{Metering, ThreadMeter};
use super::{
    FIRST_SECTION, Inner, METRICS_MAX, QUOTA_WORDS, SECTIONS_MAX, Schema, SchemaError,
    SectionLayout, WORDS_MAX,
};
use crate::metric::histogram::Buckets;
#[cfg(feature = "perf")]
use crate::metric::unit::Count;
use crate::metric::unit::{Nanoseconds, Unit, UnitKind};

/// A list of metrics that becomes a [`Schema`].
///
/// Each library in a process can declare its metrics in a function that takes `&mut SchemaBuilder`
/// and returns the keys; [`section`](SchemaBuilder::section) keeps them separate if desired.
#[derive(Debug)]
pub struct SchemaBuilder {
    pub(super) metrics: Vec<Metric>,
    pub(super) sections: Vec<SectionLayout>,
    /// The section of the metrics that are declared next.
    pub(super) current: usize,
    pub(super) quotas: usize,
    /// Names, and the units of what they limit.
    pub(super) rate_limits: Vec<(String, UnitKind)>,
    /// At most one in an accepted schema.
    pub(super) cpu_times: Vec<Counter<Nanoseconds>>,
    /// The same.
    pub(super) off_cpus: Vec<Counter<Nanoseconds>>,
    /// The same.
    pub(super) cpu_errors: Vec<Counter<Nanoseconds>>,
    /// The same.
    pub(super) cpu_budgets: Vec<RateLimit<Nanoseconds>>,
    pub(super) metering: Option<Metering>,
    /// The first counter of a thread's count that was declared wrongly.
    pub(super) miscounted: Option<String>,
    #[cfg(feature = "perf")]
    pub(super) events: Vec<(Event, Counter<Count>)>,
    /// The metrics that exist already, where an existing tree declares more.
    pub(super) base: Option<Base>,
}

impl SchemaBuilder {
    pub(super) fn new() -> SchemaBuilder {
        SchemaBuilder {
            metrics: Vec::new(),
            sections: vec![SectionLayout::new(FIRST_SECTION)],
            current: 0,
            quotas: 0,
            rate_limits: Vec::new(),
            cpu_times: Vec::new(),
            off_cpus: Vec::new(),
            cpu_errors: Vec::new(),
            metering: None,
            miscounted: None,
            cpu_budgets: Vec::new(),
            #[cfg(feature = "perf")]
            events: Vec::new(),
            base: None,
        }
    }

    /// Declares metrics in a new section, or in an existing one: they are flushed together, and
    /// separately from those of other sections. A read that flushes then pays only for its own
    /// section.
    ///
    /// Returns what `declare` returns, usually the keys. Sections do not nest: a section declared
    /// inside another becomes its sibling.
    ///
    /// Costs a reservation of address space per tree, a block of words with its bookkeeping per
    /// group, and a few instructions per update of a metric outside the first section. It pays off
    /// if metrics are read at different times; if all are read together, it only adds a barrier to
    /// each flush.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let written = schema.section("io", |io| io.counter::<Bytes>("written", "Bytes written"));
    /// let tree = Tree::new(schema.build()?)?;
    ///
    /// tree.root().add(requests, 1);
    /// tree.root().add(written, 4096);
    /// assert_eq!(tree.root().sum(written), 4096); // flushes the metrics of `io`
    /// assert_eq!(tree.root().read(requests).value, 0); // and no others
    /// tree.flush();
    /// assert_eq!(tree.root().read(requests).value, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Differences from Linux
    /// In Linux each controller has its own tree of updated groups, since 2025. Here the user
    /// decides what belongs together.
    pub fn section<T>(&mut self, name: &str, declare: impl FnOnce(&mut SchemaBuilder) -> T) -> T {
        // A section whose words groups already have cannot grow.
        let closed = self.base.as_ref().map_or(0, Base::sections);
        let known = self.sections[closed..].iter().position(|section| section.name == name);
        let section = known.map_or(self.sections.len(), |at| closed + at);
        if known.is_none() {
            self.sections.push(SectionLayout::new(name));
        }
        let outer = std::mem::replace(&mut self.current, section);
        let within = Within { builder: self, outer };
        declare(within.builder)
    }

    /// Declares a monotonic sum. Add to it with [`Group::add`](crate::Group::add).
    pub fn counter<U: Unit>(&mut self, name: &str, help: &str) -> Counter<U> {
        let key = self.push(name, help, MetricKind::Counter, U::KIND, None);
        Counter { key, unit: PhantomData }
    }

    /// Declares the counter that is charged the CPU time of threads in each group: see
    /// [`switch`](crate::switch). At most one per schema.
    ///
    /// Costs a read of the CPU's counter each time a thread enters or leaves a group, and a system
    /// call once a millisecond and after each stay in which the thread may have waited.
    ///
    /// The sum over groups is right at each of those system calls. A single stay may be charged for
    /// time that a hypervisor or interrupts took from it and, where perf events are refused, for a
    /// wait of less than 20 µs; the next stays on that thread are charged that much less. A stay
    /// that waited or was preempted may also be off by what its thread used outside all groups
    /// within the last millisecond: [`cpu_error`](Self::cpu_error) counts how much that may be. See
    /// [`switch::clock`](crate::switch::clock).
    pub fn cpu_time(&mut self, name: &str, help: &str) -> Counter<Nanoseconds> {
        let counter = self.counter(name, help);
        let what = "a counter of CPU time";
        note_special(&mut self.base, &mut self.cpu_times, name, what, counter)
    }

    /// Declares the counter of the time that threads spend in each group without a CPU, because
    /// they wait or other threads run. At most one per schema, beside [`cpu_time`](Self::cpu_time).
    ///
    /// In async programs it shows which tenants' polls block, and which tenants a busy machine
    /// keeps waiting. Costs a call each time a thread leaves a group, and no system call of its
    /// own.
    ///
    /// The time is charged when the kernel is next asked for CPU time: a wait in a long stay at the
    /// end of that stay, and a wait that first counted as CPU time (less than 20 µs, where perf
    /// events are refused) to the group that the thread is in by then. It stays 0 on CPUs without a
    /// counter of constant rate, where each switch asks the kernel.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Schema, Tree, switch::clock};
    ///
    /// let mut schema = Schema::builder();
    /// schema.cpu_time("cpu", "CPU time used");
    /// let off = schema.off_cpu("off_cpu", "Time without a CPU");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().run(|| std::thread::sleep(Duration::from_millis(2)));
    /// let told = clock::choice().source != clock::Source::Syscall;
    /// assert_eq!(tree.root().sum(off) > 1_000_000, told);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn off_cpu(&mut self, name: &str, help: &str) -> Counter<Nanoseconds> {
        let counter = self.counter(name, help);
        let what = "a counter of time off the CPU";
        note_special(&mut self.base, &mut self.off_cpus, name, what, counter)
    }

    /// Declares the counter of how far each group's CPU time may be off, in either direction. At
    /// most one per schema, beside [`cpu_time`](Self::cpu_time).
    ///
    /// CPU time that a thread used outside all groups can hide a wait inside one. Mostly nothing is
    /// hidden, and charges are far more exact than this bound. If it is a large part of a group's
    /// time, stays that wait alternate with shorter ones that do not, and only a system call for
    /// each stay could tell them apart. Where perf events are refused, the counter leaves out waits
    /// of less than 20 µs. Costs as much as [`off_cpu`](Self::off_cpu), and nothing extra if that
    /// is declared too.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let cpu = schema.cpu_time("cpu", "CPU time used");
    /// let error = schema.cpu_error("cpu_error", "By how much that may be wrong");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().run(|| "42".repeat(1000).len());
    /// println!("{} ± {} ns", tree.root().sum(cpu), tree.root().sum(error));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cpu_error(&mut self, name: &str, help: &str) -> Counter<Nanoseconds> {
        let counter = self.counter(name, help);
        let what = "a counter of CPU time error";
        note_special(&mut self.base, &mut self.cpu_errors, name, what, counter)
    }

    /// Declares a counter for a count that threads keep anyway: each group is charged for what the
    /// count gains while a thread is in it. `place` is its index in what `meter` returns. A schema
    /// has one type of meter, and at most one counter for each of its counts.
    ///
    /// Costs one call for all counts each time a thread leaves a group, and an update for each
    /// count that has risen. A program that declares none pays nothing.
    ///
    /// A thread's gain is charged when it leaves its group or [parks](crate::switch::park).
    ///
    /// # Examples
    /// ```
    /// use std::cell::Cell;
    /// use submeter::switch::{THREAD_COUNTS, ThreadMeter};
    /// use submeter::{Count, Schema, Tree};
    ///
    /// thread_local! {
    ///     static DRAWN: Cell<u64> = const { Cell::new(0) };
    /// }
    /// struct Drawn;
    /// impl ThreadMeter for Drawn {
    ///     fn counts(&self) -> [u64; THREAD_COUNTS] {
    ///         [DRAWN.get(), 0, 0, 0]
    ///     }
    /// }
    ///
    /// let mut schema = Schema::builder();
    /// let drawn = schema.thread_count::<Count, _>("drawn", "Random numbers drawn", &Drawn, 0);
    /// let tree = Tree::new(schema.build()?)?;
    /// let web = tree.create("/web")?;
    /// DRAWN.set(DRAWN.get() + 1);
    /// web.run(|| DRAWN.set(DRAWN.get() + 2));
    /// assert_eq!(web.sum(drawn), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn thread_count<U: Unit, M: ThreadMeter>(
        &mut self,
        name: &str,
        help: &str,
        meter: &'static M,
        place: usize,
    ) -> Counter<U> {
        let counter = self.counter(name, help);
        if let Some(base) = &mut self.base {
            let of = |known: &Metering| known.is_of::<M>() && known.has(place, counter);
            let has = self.metering.as_ref().is_some_and(of);
            base.must_have(name, "a thread count", has);
        } else {
            let metering = self.metering.get_or_insert_with(|| Metering::new(meter));
            if !metering.is_of::<M>() || !metering.name(place, counter) {
                self.miscounted.get_or_insert_with(|| name.to_owned());
            }
        }
        counter
    }

    /// Declares a counter of the occurrences of `event` in each group: see
    /// [`switch`](crate::switch).
    ///
    /// Costs a file descriptor per thread and event. At a switch, all events of the kernel together
    /// cost one system call. Events of the CPU cost none where the kernel lets user mode read the
    /// counters; context switches and migrations cost none unless one occurred.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, perf};
    ///
    /// let mut schema = Schema::builder();
    /// for group in perf::parse("page-faults:u,cycles:u")? {
    ///     let event = &group.events()[0];
    ///     // A machine without the counter shows no such metric, rather than one that is always 0.
    ///     let name = event.kind().to_string().replace('-', "_");
    ///     if let Err(error) = schema.event(&name, "", event) {
    ///         eprintln!("{error}");
    ///     }
    /// }
    /// # Ok::<(), submeter::perf::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// When the event cannot be counted here; then nothing is declared.
    #[cfg(feature = "perf")]
    pub fn event(
        &mut self,
        name: &str,
        help: &str,
        event: &Event,
    ) -> Result<Counter<Count>, NotSupportedError> {
        KernelPmu::supports(event)?;
        let declared = (*event, self.counter(name, help));
        let what = "a counter of events";
        Ok(note_special(&mut self.base, &mut self.events, name, what, declared).1)
    }

    /// Declares a value that goes up and down. Change it with
    /// [`Group::adjust`](crate::Group::adjust).
    pub fn gauge<U: Unit>(&mut self, name: &str, help: &str) -> Gauge<U> {
        let key = self.push(name, help, MetricKind::Gauge, U::KIND, None);
        Gauge { key, unit: PhantomData }
    }

    /// Declares a distribution over `buckets`. Record with [`Group::record`](crate::Group::record).
    pub fn histogram<U: Unit>(&mut self, name: &str, help: &str, buckets: Buckets) -> Histogram<U> {
        let key = self.push(name, help, MetricKind::Histogram, U::KIND, Some(buckets));
        Histogram { key, buckets, unit: PhantomData }
    }

    /// Declares a quota: something that groups hold, which may be limited. Charge it with
    /// [`Group::try_charge`](crate::Group::try_charge). It takes a word of the first section, which
    /// counts the charges that limits refused.
    pub fn quota<U: Unit>(&mut self, name: &str, help: &str) -> Quota<U> {
        let key = self.push(name, help, MetricKind::Quota, U::KIND, None);
        Quota { key, unit: PhantomData }
    }

    /// Declares a rate limit: something of which a group may take only a limited amount in a given
    /// time. Set how much with [`Group::set_rate`](crate::Group::set_rate), take with
    /// [`Group::try_take`](crate::Group::try_take).
    ///
    /// Declares three counters as well: `NAME_throttled` and `NAME_throttled_time`, how often and
    /// for how long a group's rate refused, and `NAME_overdrafts`, how often a soft rate would have
    /// refused. A group without a rate of its own takes no other memory for it.
    pub fn rate_limit<U: Unit>(&mut self, name: &str, help: &str) -> RateLimit<U> {
        let [count, time] = ["throttled", "throttled_time"].map(|what| format!("{name}_{what}"));
        let throttled = self.counter(&count, &format!("{help}: how often a rate refused"));
        let throttled_time = self.counter(&time, &format!("{help}: how long a rate refused"));
        let overdrafts = format!("{name}_overdrafts");
        let what = format!("{help}: refusals that a soft rate did not enforce");
        let overdrafts = self.counter(&overdrafts, &what);
        let mut slot = self.rate_limits.len();
        if let Some(base) = &mut self.base {
            let known = self.rate_limits.iter().position(|(known, _)| known == name);
            base.must_have(name, "a rate limit", known.is_some());
            slot = known.unwrap_or(slot);
        } else {
            self.rate_limits.push((name.to_owned(), U::KIND));
        }
        // Saturation is safe: each rate limit has three metrics, and `build` refuses that many.
        let slot = u16::try_from(slot).unwrap_or(u16::MAX);
        let key = Key { section: self.sections[0].id, slot, ..throttled.key };
        RateLimit { key, throttled, throttled_time, overdrafts, unit: PhantomData }
    }

    /// Declares the rate limit from which the CPU time of threads in each group is spent: see
    /// [`Group::spend`](crate::Group::spend). At most one per schema, beside
    /// [`cpu_time`](Self::cpu_time).
    ///
    /// CPU time is spent when a thread leaves the group, in steps of a millisecond for each CPU,
    /// and the rest when the group is released. If neither the group nor any group above it has a
    /// rate, that costs a few loads. Each group takes about 150 bytes more, so that a switch
    /// allocates nothing.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// use submeter::{Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// schema.cpu_time("cpu", "CPU time used");
    /// let budget = schema.cpu_budget("cpu_budget", "CPU time");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// // A hundredth of a CPU, in bursts of up to 20 ms.
    /// let ms = |n: u64| n * 1_000_000;
    /// let rate = Rate { burst: ms(20), ..Rate::new(ms(10), Duration::from_secs(1)) };
    /// acme.set_rate(budget, Some(rate))?;
    ///
    /// let since = Instant::now();
    /// while acme.try_admit(budget).is_ok() {
    ///     acme.run(|| (0..1_000_000_u64).for_each(|n| _ = std::hint::black_box(n)));
    /// }
    /// // Each piece of work was short, so the refusal came soon after the burst was used up.
    /// assert!(since.elapsed() >= Duration::from_millis(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cpu_budget(&mut self, name: &str, help: &str) -> RateLimit<Nanoseconds> {
        let budget = self.rate_limit(name, help);
        note_special(&mut self.base, &mut self.cpu_budgets, name, "a CPU budget", budget)
    }

    /// Closes the schema.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema};
    ///
    /// let mut schema = Schema::builder();
    /// schema.counter::<Count>("requests", "Requests answered");
    /// schema.counter::<Count>("requests", "Once more");
    /// let error = schema.build().expect_err("a name twice");
    /// println!("{error}");
    /// ```
    ///
    /// # Errors
    /// When a name of a metric or a section is empty, repeated or not `[a-z][a-z0-9_]*`; when there
    /// are more than [`WORDS_MAX`] words in a section, [`METRICS_MAX`] metrics, [`SECTIONS_MAX`]
    /// sections, or one counter of CPU time; when something that needs that counter, such as a
    /// budget, is declared without it; when there is a second [`ThreadMeter`], or a count of it
    /// already has a counter or does not exist.
    pub fn build(mut self) -> Result<Schema, SchemaError> {
        // After the words of metrics, whose keys have already been handed out.
        self.sections[0].words += QUOTA_WORDS * self.quotas;
        self.closed(0..0)
    }

    /// Closes the schema, to which sections with these numbers may be added.
    pub(super) fn closed(self, added: Range<u32>) -> Result<Schema, SchemaError> {
        let mut names = HashSet::new();
        for metric in &self.metrics {
            if !is_well_formed(&metric.name) {
                return Err(SchemaError::Name(metric.name.clone()));
            }
            if !names.insert(metric.name.as_str()) {
                return Err(SchemaError::Repeated(metric.name.clone()));
            }
        }
        // Checked before the words, so that their number fits into a key.
        if self.metrics.len() > METRICS_MAX {
            return Err(SchemaError::TooMany { metrics: self.metrics.len() });
        }
        if let Some(section) = self.sections.iter().find(|s| !is_well_formed(&s.name)) {
            return Err(SchemaError::SectionName(section.name.clone()));
        }
        if self.sections.len() > SECTIONS_MAX {
            return Err(SchemaError::TooManySections { sections: self.sections.len() });
        }
        if let Some(section) = self.sections.iter().find(|s| s.words > WORDS_MAX) {
            return Err(SchemaError::TooLarge { words: section.words });
        }
        let name = |counter: Counter<_>| self.metrics[usize::from(counter.key.metric)].name.clone();
        for counters in [&self.cpu_times, &self.off_cpus, &self.cpu_errors] {
            if let [_, second, ..] = counters[..] {
                return Err(SchemaError::CpuTimeTwice(name(second)));
            }
        }
        let budgets = &self.cpu_budgets;
        let budget_name = |of: &RateLimit<_>| self.rate_limits[usize::from(of.key.slot)].0.clone();
        if let Some(second) = budgets.get(1) {
            return Err(SchemaError::CpuTimeTwice(budget_name(second)));
        }
        if self.cpu_times.is_empty() {
            let mut beside = self.off_cpus.iter().chain(&self.cpu_errors);
            let alone = beside.next().map(|&counter| name(counter));
            if let Some(alone) = alone.or_else(|| budgets.first().map(budget_name)) {
                return Err(SchemaError::CpuTimeMissing(alone));
            }
        }
        if let Some(name) = self.miscounted {
            return Err(SchemaError::ThreadCount(name));
        }
        Ok(Schema {
            inner: Arc::new(Inner {
                metrics: self.metrics,
                sections: self.sections,
                quotas: self.quotas,
                rate_limits: self.rate_limits,
                cpu_time: self.cpu_times.first().copied(),
                off_cpu: self.off_cpus.first().copied(),
                cpu_error: self.cpu_errors.first().copied(),
                metering: self.metering,
                cpu_budget: self.cpu_budgets.first().copied(),
                #[cfg(feature = "perf")]
                events: self.events.into(),
            }),
            added,
        })
    }

    fn push(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricKind,
        unit: UnitKind,
        buckets: Option<Buckets>,
    ) -> Key {
        if let Some(base) = &mut self.base
            && let Some(known) = base.find(&self.metrics, name, kind, unit, buckets)
        {
            return known;
        }
        let is_quota = kind == MetricKind::Quota;
        let section = &mut self.sections[if is_quota { 0 } else { self.current }];
        // Saturation is safe: `build` refuses a section of 65,536 words, and as many metrics.
        let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        if let Some(base) = &mut self.base {
            base.declare(narrow(self.metrics.len()));
            if !is_quota && section.words == 0 {
                section.id = base.number();
            }
        }
        let slot = if is_quota { self.quotas } else { section.words };
        let key =
            Key { section: section.id, metric: narrow(self.metrics.len()), slot: narrow(slot) };
        let metric =
            Metric { name: name.to_owned(), help: help.to_owned(), kind, unit, key, buckets };
        self.sections[self.current].words += metric.words();
        self.quotas += usize::from(is_quota);
        self.metrics.push(metric);
        key
    }
}

/// Returns to the outer section at the end, even if the user's closure panics.
struct Within<'a> {
    builder: &'a mut SchemaBuilder,
    outer: usize,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.builder.current = self.outer;
    }
}

/// Notes a key that the switch charges. A tree must have it already.
fn note_special<K: Copy + PartialEq>(
    base: &mut Option<Base>,
    known: &mut Vec<K>,
    name: &str,
    what: &'static str,
    key: K,
) -> K {
    match base {
        Some(base) => base.must_have(name, what, known.contains(&key)),
        None => known.push(key),
    }
    key
}

fn is_well_formed(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}
