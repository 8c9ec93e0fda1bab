//! The time for which charges of a group waited, in the terms of Linux's pressure stall
//! information.
//!
//! Time is an argument here. Between two changes it is known what stalls, so averages are brought
//! up to date when something changes or they are read. Rejected: a timer, as in Linux, which would
//! cost time where no charge waits.

use std::fmt;
use std::time::Duration;

/// The time between two steps of the averages, in nanoseconds, as in Linux.
const PERIOD: u64 = 2_000_000_000;

/// The periods of the averages, in nanoseconds.
const WINDOWS: [u64; 3] = [10_000_000_000, 60_000_000_000, 300_000_000_000];

/// The time for which charges of a group and the groups below it waited for room, as
/// `memory.pressure` of a cgroup reports it for tasks. Several charges that wait at the same time
/// count once.
///
/// Formatted like that file: `some avg10=1.50 avg60=0.30 avg300=0.06 total=300000`, and a line for
/// `full`, with percent and microseconds.
///
/// # Examples
/// ```
/// use submeter_percpu::Pressure;
///
/// let none = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n\
///             full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
/// assert_eq!(Pressure::default().to_string(), none);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// Time in which at least one charge waited.
    pub some: Stall,
    /// Time in which at least one charge waited and the group held nothing: it could make no
    /// progress at all, and others hold what it waits for. A charge that is being refused counts as
    /// held, until the next one is granted or something is given back.
    pub full: Stall,
}

/// The time for which something stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stall {
    /// The share of the last 10 seconds in percent. Like the others, it is an exponentially
    /// weighted average, in steps of 2 seconds.
    pub avg10: f64,
    /// The average of the last minute.
    pub avg60: f64,
    /// The average of the last 5 minutes.
    pub avg300: f64,
    /// The total up to now.
    pub total: Duration,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "some {}", self.some)?;
        writeln!(f, "full {}", self.full)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { avg10, avg60, avg300, total } = self;
        let total = total.as_micros();
        write!(f, "avg10={avg10:.2} avg60={avg60:.2} avg300={avg300:.2} total={total}")
    }
}

/// The stalls of one group. Times are nanoseconds since a common moment.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Number of waiting charges of the group and the groups below it.
    waiting: u32,
    /// The time up to which the lines are accounted.
    until: u64,
    some: StallLine,
    full: StallLine,
}

impl Meter {
    /// Records that a charge begins to wait, or stops.
    pub(super) fn wait(&mut self, begins: bool, holds: bool, now: u64) {
        self.advance(now);
        self.waiting = if begins { self.waiting + 1 } else { self.waiting - 1 };
        self.look(holds, now);
    }

    /// Records whether the group holds something.
    pub(super) fn look(&mut self, holds: bool, now: u64) {
        self.advance(now);
        self.some.stalls = self.waiting > 0;
        self.full.stalls = self.waiting > 0 && !holds;
    }

    pub(super) fn read(&mut self, now: u64) -> Pressure {
        self.advance(now);
        Pressure { some: self.some.read(), full: self.full.read() }
    }

    fn advance(&mut self, now: u64) {
        // Clocks of two CPUs may differ.
        let now = now.max(self.until);
        self.some.advance(self.until, now);
        self.full.advance(self.until, now);
        self.until = now;
    }
}

#[derive(Debug, Default)]
struct StallLine {
    stalls: bool,
    total: u64,
    /// The part of `total` that belongs to the current period.
    of_period: u64,
    /// The averages, as shares of 1.
    averages: [f64; 3],
}

impl StallLine {
    fn advance(&mut self, from: u64, to: u64) {
        let stalled = |time| if self.stalls { time } else { 0 };
        self.total += stalled(to - from);
        let periods = to / PERIOD - from / PERIOD;
        if periods == 0 {
            self.of_period += stalled(to - from);
            return;
        }
        let first = self.of_period + stalled(PERIOD - from % PERIOD);
        let (all, rest) = (stalled(PERIOD), stalled(to % PERIOD));
        self.step(first, 1);
        self.step(all, periods - 1);
        self.of_period = rest;
    }

    /// Ends `periods` periods, each of which stalled for `stalled`.
    fn step(&mut self, stalled: u64, periods: u64) {
        let share = stalled as f64 / PERIOD as f64;
        for (average, window) in self.averages.iter_mut().zip(WINDOWS) {
            let left = (-(PERIOD as f64 / window as f64) * periods as f64).exp();
            *average = share + (*average - share) * left;
        }
    }

    fn read(&self) -> Stall {
        let [avg10, avg60, avg300] = self.averages.map(|average| average * 100.0);
        Stall { avg10, avg60, avg300, total: Duration::from_nanos(self.total) }
    }
}

// Not under Miri: it uses one thread and no unsafe code, and takes long there.
#[cfg(all(test, not(miri)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    /// An event of a group, after some milliseconds.
    #[derive(Clone, Copy, Debug)]
    enum StallEvent {
        Begins,
        Ends,
        Holds(bool),
    }

    /// A meter that goes through time millisecond by millisecond.
    #[derive(Default)]
    struct Naive {
        total: u64,
        of_period: u64,
        averages: [f64; 3],
    }

    impl Naive {
        fn pass(&mut self, ms: u64, stalls: bool) {
            self.total += u64::from(stalls);
            self.of_period += u64::from(stalls);
            if (ms + 1).is_multiple_of(2_000) {
                let percent = self.of_period as f64 / 20.0;
                for (average, seconds) in self.averages.iter_mut().zip([10.0, 60.0, 300.0]) {
                    let weight = (-2.0_f64 / seconds).exp();
                    *average = *average * weight + percent * (1.0 - weight);
                }
                self.of_period = 0;
            }
        }

        fn agrees(&self, stall: Stall) -> bool {
            let averages = [stall.avg10, stall.avg60, stall.avg300];
            let near = self.averages.iter().zip(averages).all(|(a, b)| (a - b).abs() < 1e-6);
            near && stall.total == Duration::from_millis(self.total)
        }
    }

    fn event() -> impl Strategy<Value = (u64, StallEvent)> {
        let what = prop_oneof![
            2 => Just(StallEvent::Begins),
            2 => Just(StallEvent::Ends),
            2 => any::<bool>().prop_map(StallEvent::Holds),
        ];
        (prop_oneof![0..50_u64, 0..3_000_u64, 0..20_000_u64, Just(2_000), Just(4_000)], what)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pressure_is_as_counted_each_millisecond(
            events in prop::collection::vec(event(), 1..40),
        ) {
            let (mut meter, mut some, mut full) = (Meter::default(), Naive::default(), Naive::default());
            let (mut now, mut waiting, mut holds) = (0, 0, false);
            for (after, event) in events {
                for ms in now..now + after {
                    some.pass(ms, waiting > 0);
                    full.pass(ms, waiting > 0 && !holds);
                }
                now += after;
                match event {
                    StallEvent::Begins => {
                        waiting += 1;
                        meter.wait(true, holds, now * MS);
                    }
                    StallEvent::Ends if waiting > 0 => {
                        waiting -= 1;
                        meter.wait(false, holds, now * MS);
                    }
                    StallEvent::Ends => {}
                    StallEvent::Holds(something) => {
                        holds = something;
                        meter.look(holds, now * MS);
                    }
                }
                let read = meter.read(now * MS);
                prop_assert!(some.agrees(read.some), "{read} at {now}: some");
                prop_assert!(full.agrees(read.full), "{read} at {now}: full");
            }
        }
    }

    #[test]
    fn averages_rise_and_fall_by_their_windows() {
        let mut meter = Meter::default();
        meter.wait(true, true, 0);
        let risen = meter.read(10 * SECOND).some;
        // 1 - 1/e, 1 - e^(-1/6), 1 - e^(-1/30)
        assert_eq!(risen.to_string(), "avg10=63.21 avg60=15.35 avg300=3.28 total=10000000");
        meter.wait(false, true, 10 * SECOND);
        let fallen = meter.read(3_610 * SECOND);
        assert_eq!(fallen.some.to_string(), "avg10=0.00 avg60=0.00 avg300=0.00 total=10000000");
        let lines = format!("some {}\nfull {}\n", fallen.some, fallen.full);
        assert_eq!(fallen.to_string(), lines);
        assert_eq!(fallen.full, Stall::default());
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let mut meter = Meter::default();
        meter.wait(true, false, 5 * SECOND);
        meter.look(false, 4 * SECOND);
        assert_eq!(meter.read(6 * SECOND).full.total, Duration::from_secs(1));
    }

    #[test]
    fn years_of_waiting_are_caught_up_with_at_once() {
        let (mut meter, years) = (Meter::default(), 300 * 365 * 24 * 3_600);
        meter.wait(true, true, 0);
        let read = meter.read(years * SECOND).some;
        assert_eq!((read.avg300, read.total), (100.0, Duration::from_secs(years)));
    }
}
