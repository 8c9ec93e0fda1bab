use super::*;

const US: u64 = 1_000;

/// A thread with a counter of one tick each nanosecond, and the kernel's clock.
struct Thread {
    clock: Intervals,
    now: u64,
    cpu_ns: u64,
    /// Whether it was switched out since it last looked, if anything tells.
    switched: Option<bool>,
    asked: u64,
    latest: u64,
}

impl Thread {
    fn new(watched: bool) -> Thread {
        let clock = Intervals::new(Some(Rate { factor: 1 << 32 }), 1 << 40, 7, 0);
        let switched = watched.then_some(false);
        Thread { clock, now: 1 << 40, cpu_ns: 7, switched, asked: 0, latest: 7 }
    }

    fn run(&mut self, ns: u64) {
        self.now += ns;
        self.cpu_ns += ns;
    }

    fn wait(&mut self, ns: u64) {
        self.now += ns;
        self.switched = self.switched.map(|_| true);
    }

    /// As `ThreadClock::now_ns`.
    fn end(&mut self) -> u64 {
        let holds = self.switched == Some(false);
        let told = if holds { self.clock.go_on(self.now) } else { None };
        let ended = told.map_or_else(|| self.clock.end(self.now, self.switched), Ok);
        self.ask(ended)
    }

    /// As `ThreadClock::begin_ns`.
    fn begin(&mut self) -> u64 {
        if self.switched == Some(false) {
            return self.end();
        }
        let begun = self.clock.begin(self.now);
        self.ask(begun)
    }

    fn ask(&mut self, answer: Result<u64, Ends>) -> u64 {
        self.switched = self.switched.map(|_| false);
        let answer = answer.unwrap_or_else(|ends| {
            self.asked += 1;
            self.clock.learn(self.now, self.cpu_ns, ends)
        });
        assert!(answer >= self.latest, "{answer} after {}", self.latest);
        self.latest = answer;
        answer
    }

    /// What an interval is told as, from now on.
    fn told(&mut self, interval: impl FnOnce(&mut Thread)) -> u64 {
        let before = self.clock.last_ns();
        interval(self);
        self.end() - before
    }

    /// The same after a time outside.
    fn told_after(&mut self, interval: impl FnOnce(&mut Thread)) -> u64 {
        let before = self.begin();
        interval(self);
        self.end() - before
    }
}

fn both() -> [Thread; 2] {
    [false, true].map(Thread::new)
}

#[test]
fn an_interval_with_a_long_wait_is_told_without_it_and_its_neighbours_as_they_were() {
    for mut thread in both() {
        for wait in [20 * US, 300 * US, 50_000 * US] {
            assert_eq!(thread.told(|t| t.run(5 * US)), 5 * US);
            let waited = thread.told(|t| {
                t.run(2 * US);
                t.wait(wait);
                t.run(US);
            });
            assert_eq!(waited, 3 * US, "{wait}, {:?}", thread.switched);
            assert_eq!(thread.told(|t| t.run(4 * US)), 4 * US);
        }
        // As long, and all of it CPU time.
        assert_eq!(thread.told(|t| t.run(9_000_000 * US)), 9_000_000 * US);
    }
}

#[test]
fn a_short_wait_is_told_by_a_page_and_otherwise_made_up_for_by_the_next_intervals() {
    for mut thread in both() {
        let watched = thread.switched.is_some();
        let waits = |t: &mut Thread| {
            t.run(5 * US);
            t.wait(10 * US);
        };
        assert_eq!(thread.told(waits), if watched { 5 * US } else { 15 * US });
        let told: Vec<u64> = (0..300).map(|_| thread.told(|t| t.run(5 * US))).collect();
        let lacks = if watched { 0 } else { 10 * US };
        assert_eq!(told.iter().sum::<u64>(), 300 * 5 * US - lacks);
        assert_eq!(told.iter().filter(|&&ns| ns != 5 * US).count(), if watched { 0 } else { 2 });
    }
}

#[test]
fn workers_that_wait_for_each_interval_ask_once_a_millisecond() {
    for mut thread in both() {
        let start = thread.now;
        for _ in 0..1_000 {
            thread.wait(50 * US);
            assert_eq!(thread.told_after(|t| t.run(5 * US)), 5 * US);
        }
        let most = (thread.now - start) / TRUST_NS + 1;
        assert!(thread.asked <= most, "{} questions, {most} are enough", thread.asked);
        assert!(thread.asked > most / 2, "the counter is trusted for longer than it should");
    }
}

#[test]
fn what_is_used_between_intervals_is_not_told_in_one_that_waited() {
    for mut thread in both() {
        let mut told = Vec::new();
        for _ in 0..50 {
            for wait in [0, 0, 100 * US] {
                thread.run(7 * US);
                thread.wait(60 * US);
                told.push(thread.told_after(|t| {
                    t.run(10 * US);
                    if wait > 0 {
                        t.wait(wait);
                    }
                }));
            }
        }
        // At first it is unknown.
        assert!(told[30..].iter().all(|&ns| ns == 10 * US), "{told:?}");
    }
}

#[test]
fn a_page_tells_of_a_wait_that_is_shorter_than_what_was_used_outside() {
    let mut thread = Thread::new(true);
    for (at, wait) in [0, 5 * US, 3 * US].into_iter().cycle().take(50).enumerate() {
        thread.run(7 * US);
        thread.wait(60 * US);
        let told = thread.told_after(|t| {
            t.run(10 * US);
            if wait > 0 {
                t.wait(wait);
            }
        });
        assert!(told == 10 * US || at < 30, "{told}, the {at}th");
    }
}

#[test]
fn what_was_learned_of_another_time_costs_at_most_the_interval_that_waited() {
    for mut thread in both() {
        thread.run(50_000 * US);
        thread.wait(US);
        assert_eq!(thread.told_after(|t| t.run(5 * US)), 5 * US);
        let waits = |t: &mut Thread| {
            t.run(10 * US);
            t.wait(100 * US);
        };
        // Outside, all of the time was used: as much as there was.
        thread.run(15 * US);
        thread.wait(0);
        assert_eq!(thread.told_after(waits), 10 * US);
        // And nothing of it: more than the interval had.
        thread.wait(500 * US);
        assert_eq!(thread.told_after(waits), 0);
        assert_eq!(thread.told(|t| t.run(5 * US)), 5 * US);
    }
}

/// A stream of numbers below `below`.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A wait of any length: most are short.
fn some_wait(numbers: &mut Numbers) -> u64 {
    let most = [0, 15 * US, 200 * US, 5_000 * US][numbers.below(4) as usize];
    numbers.below(most + 1)
}

#[test]
fn intervals_add_up_to_what_they_used_whatever_they_and_the_times_between_waited() {
    for seed in 0..50 {
        for mut thread in both() {
            let watched = thread.switched.is_some();
            let (mut numbers, mut told, mut used, mut waited) = (Numbers(seed), 0, 0, 0);
            for _ in 0..500 {
                if numbers.below(2) == 0 {
                    let wait = some_wait(&mut numbers);
                    thread.wait(wait);
                    thread.begin();
                }
                let (run, wait) = (numbers.below(30 * US), some_wait(&mut numbers));
                let one = thread.told(|t| {
                    t.run(run);
                    if wait > 0 {
                        t.wait(wait);
                    }
                });
                let over = if watched { 0 } else { LONG_NS };
                assert!(one <= run + over, "{one} for {run} and {wait}, seed {seed}");
                assert!(!watched || one == run, "{one} for {run} and {wait}, seed {seed}");
                (told, used, waited) = (told + one, used + run, waited + wait);
                // What the next ones lack is at most what passed since the last question.
                assert!((used..used + TRUST_NS + LONG_NS).contains(&told), "{told} for {used}");
            }
            let rest = (0..10).map(|_| thread.told(|t| t.run(TRUST_NS))).sum::<u64>();
            assert_eq!(told + rest, used + 10 * TRUST_NS, "seed {seed}, watched: {watched}");
            assert_eq!(thread.clock.waited_ns(), waited, "seed {seed}, watched: {watched}");
        }
    }
}

#[test]
fn an_interval_is_wrong_by_no_more_than_was_used_outside_since_the_kernel_was_asked() {
    for seed in 0..50 {
        for mut thread in both() {
            let (mut numbers, mut outside, mut asked) = (Numbers(seed), 0, 0);
            for _ in 0..500 {
                let (run, wait) = (numbers.below(10 * US), some_wait(&mut numbers));
                thread.run(run);
                thread.wait(wait);
                thread.begin();
                outside = if thread.asked > asked { 0 } else { outside + run };
                asked = thread.asked;
                let (run, wait) = (numbers.below(30 * US), some_wait(&mut numbers));
                let one = thread.told(|t| {
                    t.run(run);
                    t.wait(wait);
                });
                assert!(one <= run + LONG_NS + outside, "{one} for {run}, {outside}, seed {seed}");
                if thread.asked > asked {
                    (outside, asked) = (0, thread.asked);
                }
            }
        }
    }
}

#[test]
fn a_counter_that_jumps_turns_no_answer_back_and_tells_no_time_that_was_not_used() {
    let sizes = [1 << 50, 1 << 40, 100 * US, 3 * US];
    for jump in sizes.into_iter().flat_map(|size: u64| [size, size.wrapping_neg()]) {
        for outside in [false, true] {
            let mut thread = Thread::new(false);
            let mut told = 0;
            for at in 0..1_000 {
                if at % 333 == 50 {
                    thread.now = thread.now.wrapping_add(jump);
                }
                let run = |t: &mut Thread| t.run(5 * US);
                told += if outside { thread.told_after(run) } else { thread.told(run) };
            }
            let off = told.abs_diff(5_000 * US);
            assert!(off <= 3 * (TRUST_NS + LONG_NS), "{told} with jumps of {jump}");
        }
    }
}

#[test]
fn without_a_counter_each_answer_is_the_kernels() {
    let mut clock = Intervals::new(None, 0, 7, 0);
    for ns in [7, 100, 5_000] {
        assert!(clock.is_due(0));
        assert_eq!(clock.end(0, None), Err(Ends::Interval));
        assert_eq!(clock.learn(0, ns, Ends::Interval), ns);
        assert_eq!(clock.begin(0), Err(Ends::Outside));
        assert_eq!(clock.learn(0, ns + 50, Ends::Outside), ns + 50);
        assert_eq!(clock.learn(0, ns + 60, Ends::Interval), ns + 60);
    }
}

#[test]
fn the_clock_comes_up_with_the_kernels_between_intervals() {
    for mut thread in both() {
        for _ in 0..3 {
            thread.run(700 * US);
            thread.wait(400 * US);
            assert_eq!(thread.begin(), thread.cpu_ns, "the kernel is asked");
            thread.run(300 * US);
            thread.wait(100 * US);
            thread.begin();
            // Long: the kernel's answer has what was used outside, and the interval has not.
            let told = thread.told(|t| {
                t.run(1_000 * US);
                t.wait(100 * US);
            });
            assert!(told < 1_310 * US, "{told}");
            let kernels = thread.cpu_ns;
            thread.wait(US);
            assert_eq!(thread.begin(), kernels.max(thread.clock.last_ns()));
        }
    }
}
