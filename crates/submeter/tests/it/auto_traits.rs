//! Which public types may cross threads. A new field that forbids it fails here, not in a user's
//! build after a release.

use submeter::checkpoint::{CheckpointError, CheckpointFile, Restored};
use submeter::counter::{Approximate, LimitedCounter, OverLimitError, PercpuCounter};
use submeter::perf::{
    Event, EventGroup, EventKind, NotSupportedError, ParseError, Request, RequestCounts,
    RequestState, Session, SessionBuilder,
};
use submeter::refs::{
    Guard, HookAlreadySetError, Misuse, MisuseKind, Options, PercpuArc, PercpuOwner, PercpuRef,
    RcuArc, RcuBorrow, RcuRef, RcuSlot, Released, Start, StillHeldError,
};
use submeter::switch::{CpuBalance, Entered, Grouped, Observation};
use submeter::{
    Aggregate, AggregateReport, Aggregated, Aggregator, AggregatorError, Attached, Buckets, Bytes,
    Charge, Charging, Count, Counter, Error, FlushReport, Flusher, FlusherBuilder, Gauge, Group,
    GroupValues, Histogram, HistogramSnapshot, InvalidRateError, Killed, LimitError, Metric,
    MetricKind, Nanoseconds, Origin, Quota, Rate, RateError, RateLimit, Reading, Refusal, Schema,
    SchemaBuilder, SchemaError, Section, Snapshot, Tolerance, Tree, TreeBuilder, UnitKind, Usage,
    Value, WhenKilled,
};

/// Compiles only if each type is `Send` and `Sync`.
macro_rules! cross_threads {
    ($($type:ty),* $(,)?) => {{
        fn crosses<T: Send + Sync>() {}
        $(crosses::<$type>();)*
    }};
}

/// Compiles only if no type is `Send`: for a `Send` type both implementations would apply and the
/// call would be ambiguous.
macro_rules! stay_on_their_thread {
    ($($type:ty),* $(,)?) => {{
        trait Stays<Choice> {
            fn check() {}
        }
        impl<T: ?Sized> Stays<()> for T {}
        struct IsSend;
        impl<T: ?Sized + Send> Stays<IsSend> for T {}
        $(<$type as Stays<_>>::check();)*
    }};
}

struct Nothing;

impl Aggregate for Nothing {
    type Local = ();
    type Delta = ();

    fn flush(&self, _: &Origin<'_>, _: &(), _: &mut ()) {}

    fn merge(&self, _: &(), _: &mut ()) {}
}

#[test]
fn handles_keys_and_results_cross_threads() {
    cross_threads!(
        Tree,
        TreeBuilder,
        Group,
        Killed,
        Charge,
        Schema,
        SchemaBuilder,
        Section,
        Metric,
        MetricKind,
        UnitKind,
        Buckets,
        Counter<Count>,
        Gauge<Bytes>,
        Histogram<Nanoseconds>,
        Quota<Bytes>,
        Reading<HistogramSnapshot>,
        Tolerance,
        Usage,
        FlushReport,
        Flusher,
        Snapshot,
        GroupValues,
        Value,
        HistogramSnapshot,
        Error,
        SchemaError,
        LimitError,
        AggregatorError,
        Aggregator<Nothing>,
        Attached<Nothing>,
        Aggregated<Nothing>,
        AggregateReport,
        Origin<'_>,
    );
    cross_threads!(Rate, RateError, Refusal, RateLimit<Bytes>, InvalidRateError, Charging);
    cross_threads!(PercpuCounter, LimitedCounter, Approximate, OverLimitError, WhenKilled<'_>);
    cross_threads!(
        PercpuRef,
        PercpuArc<u64>,
        PercpuOwner<u64>,
        Options,
        Start,
        Released<'_>,
        StillHeldError,
        RcuRef,
        RcuArc<u64>,
        RcuSlot<u64>,
        Misuse,
        MisuseKind,
        HookAlreadySetError,
    );
    cross_threads!(
        Session,
        SessionBuilder,
        Request,
        RequestCounts,
        RequestState,
        Event,
        EventGroup,
        EventKind,
        NotSupportedError,
        ParseError,
    );
    cross_threads!(CheckpointFile, CheckpointError, Restored);
    cross_threads!(CpuBalance, Observation, Grouped<std::future::Ready<()>>);
}

#[test]
fn a_builder_of_closures_can_be_handed_on() {
    fn sends<T: Send>() {}
    sends::<FlusherBuilder>();
    sends::<<Killed as IntoFuture>::IntoFuture>();
}

#[test]
fn guards_stay_on_their_thread() {
    stay_on_their_thread!(Entered, Guard, RcuBorrow<'_, u64>);
}
