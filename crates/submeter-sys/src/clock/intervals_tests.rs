use super::*;

const US: u64 = 1_000;

/// A thread with a counter of one tick per nanosecond, and the kernel's clock.
#[derive(Debug)]
struct Thread {
    clock: Intervals,
    now: u64,
    cpu_ns: u64,
    /// Whether it was switched out since it last checked, if that is known.
    switched: Option<bool>,
    asked: u64,
    latest: u64,
}

impl Thread {
    fn new(watched: bool) -> Thread {
        let clock = Intervals::new(Some(Rate { factor: 1 << 32 }), 1 << 40, 7);
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

    /// The same as `ThreadClock::now_ns`.
    fn end(&mut self) -> u64 {
        let holds = self.switched == Some(false);
        let told = if holds { self.clock.go_on(self.now) } else { None };
        let ended = told.map_or_else(|| self.clock.end(self.now, self.switched), Ok);
        self.ask(ended)
    }

    /// The same as `ThreadClock::begin_ns`.
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

    /// Returns the reported length of an interval that begins now.
    fn told(&mut self, interval: impl FnOnce(&mut Thread)) -> u64 {
        let before = self.clock.last_ns();
        interval(self);
        self.end() - before
    }

    /// The same after an outside time.
    fn told_after(&mut self, interval: impl FnOnce(&mut Thread)) -> u64 {
        let before = self.begin();
        interval(self);
        self.end() - before
    }
}

fn both() -> [Thread; 2] {
    [false, true].map(Thread::new)
}

/// A long wait is left out of its interval, and the neighbouring ones are unchanged.
#[test]
fn a_long_wait_is_left_out_of_its_interval() {
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
        // Just as long, and all of it CPU time.
        assert_eq!(thread.told(|t| t.run(9_000_000 * US)), 9_000_000 * US);
    }
}

/// A page reports a short wait; without a page the next intervals make up for it.
#[test]
fn a_short_wait_is_made_up_for() {
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

/// Workers that wait for each interval ask once a millisecond.
#[test]
fn workers_that_wait_ask_once_a_millisecond() {
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

/// Time used between intervals does not appear in one that waited.
#[test]
fn time_between_intervals_hides_no_wait() {
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

/// A page reports a wait even if it is shorter than what was used outside.
#[test]
fn a_page_tells_of_a_short_wait() {
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

/// Outdated knowledge costs at most the interval that waited.
#[test]
fn old_knowledge_costs_at_most_one_interval() {
    for wrong in [false, true] {
        for mut thread in both() {
            thread.run(100 * US);
            thread.wait(1_000 * US);
            assert_eq!(thread.told_after(|t| t.run(5 * US)), 5 * US);
            let waits = |t: &mut Thread| {
                t.run(10 * US);
                t.wait(100 * US);
            };
            // Outside, either all of the time was used; or none of it was, and more is assumed than
            // the interval had.
            if wrong {
                thread.wait(500 * US)
            } else {
                thread.run(15 * US)
            }
            thread.wait(0);
            assert_eq!(thread.told_after(waits), if wrong { 0 } else { 10 * US });
            assert!(thread.clock.error_ns() >= 10 * US, "it could have been wrong: {thread:?}");
            // The next interval begins with a query.
            thread.wait(500 * US);
            assert_eq!(thread.told_after(waits), 10 * US);
            assert_eq!(thread.told(|t| t.run(5 * US)), 5 * US);
        }
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

/// Returns the length of a wait; most are short.
fn some_wait(numbers: &mut Numbers) -> u64 {
    let most = [0, 15 * US, 200 * US, 5_000 * US][numbers.below(4) as usize];
    numbers.below(most + 1)
}

/// Intervals add up to what they used, whatever they and the times between them waited.
#[test]
fn intervals_add_up_whatever_waited() {
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
                // What is still to be taken off the next intervals is at most what passed since the
                // last query.
                assert!((used..used + TRUST_NS + LONG_NS).contains(&told), "{told} for {used}");
            }
            let rest = (0..10).map(|_| thread.told(|t| t.run(TRUST_NS))).sum::<u64>();
            assert_eq!(told + rest, used + 10 * TRUST_NS, "seed {seed}, watched: {watched}");
            assert_eq!(thread.clock.waited_ns(), waited, "seed {seed}, watched: {watched}");
        }
    }
}

/// An interval is wrong by no more than was used outside since the kernel was asked.
#[test]
fn an_error_is_at_most_what_was_used_outside() {
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

/// Time used and waited before an interval, and in it.
type Step = [u64; 4];

/// Runs steps, each in one of two groups, and returns for each group what was reported and what was
/// used.
fn play(thread: &mut Thread, steps: impl IntoIterator<Item = (usize, Step)>) -> [[u64; 2]; 2] {
    let mut groups = [[0; 2]; 2];
    for (group, [run, wait, run_inside, wait_inside]) in steps {
        thread.run(run);
        thread.wait(wait);
        let one = thread.told_after(|t| {
            t.run(run_inside);
            if wait_inside > 0 {
                t.wait(wait_inside);
            }
        });
        let [told, used] = &mut groups[group];
        (*told, *used) = (*told + one, *used + run_inside);
    }
    groups
}

/// Returns loads whose long and short intervals alternate in step with the queries: the outside
/// times before the second group's intervals differ from those before the first group's.
fn in_step() -> Vec<Vec<(usize, Step)>> {
    let us = |step: Step| step.map(|us| us * US);
    let load = |short: Step, times, long: Step| {
        let shorts = (0..times).map(move |_| (0, us(short)));
        shorts.chain([(1, us(long))]).cycle().take(3_000).collect()
    };
    vec![
        load([100, 0, 5, 0], 1, [0, 350, 50, 0]),
        load([100, 0, 5, 0], 1, [0, 450, 50, 0]),
        load([20, 1, 5, 0], 3, [1, 400, 50, 0]),
        load([30, 1, 5, 0], 25, [1, 100, 50, 0]),
        load([0, 100, 5, 0], 1, [100, 0, 50, 0]),
        load([0, 30, 3, 0], 3, [60, 0, 25, 0]),
        load([1, 0, 1, 0], 20, [1, 30, 21, 0]),
        // These wait for as long as others used outside.
        load([100, 0, 5, 0], 1, [0, 300, 50, 100]),
        load([30, 60, 5, 0], 2, [30, 60, 5, 100]),
        load([1, 0, 1, 0], 200, [1, 30, 21, 50]),
        load([7, 60, 50, 30], 0, [7, 60, 50, 30]),
    ]
}

#[test]
fn a_load_in_step_with_questions_is_told_right() {
    for load in in_step().into_iter().take(7) {
        for mut thread in both() {
            let groups = play(&mut thread, load.iter().copied());
            assert!(groups.iter().all(|[told, used]| told == used), "{groups:?}: {:?}", load[0]);
        }
    }
}

/// Long intervals begin with a query of the kernel, and show all their waits.
#[test]
fn long_intervals_show_all_their_waits() {
    // Every interval, and every second one.
    for shorts in 0..2 {
        let mut thread = Thread::new(false);
        let step = |at| if at % (shorts + 1) == shorts { 100 * US } else { 0 };
        let steps = |from| (from..from + 600).map(|at| (0, [99 * US, 0, 10 * US, step(at)]));
        play(&mut thread, steps(0));
        let error_ns = thread.clock.error_ns();
        let [[told, used], _] = play(&mut thread, steps(600));
        assert_eq!(told, used, "{shorts} short ones before each");
        assert_eq!(thread.clock.error_ns(), error_ns, "all are certain");
    }
}

#[test]
fn intervals_are_wrong_in_sum_as_said_at_most() {
    let mut loads: Vec<Vec<(usize, Step)>> = in_step();
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        // Two kinds of steps, and some that are preempted, for a moment or for a slice.
        let below = [30 * US, 300 * US, 3_000 * US][seed as usize % 3];
        let kinds = [0; 2].map(|_| [below, 200 * US, 60 * US].map(|most| numbers.below(most)));
        let steps = (0..2_000).map(|_| {
            let group = numbers.below(2) as usize;
            let [run, wait, inside] = kinds[group].map(|most| numbers.below(most + 1));
            let wait_inside = match numbers.below(30) {
                0 => 3_000 * US + numbers.below(1_000 * US),
                1 => LONG_NS + numbers.below(60 * US),
                _ => 0,
            };
            (group, [run, wait, inside, wait_inside])
        });
        loads.push(steps.collect());
    }
    for (at, load) in loads.into_iter().enumerate() {
        for mut thread in both() {
            let [[told, used], [long_told, long_used]] = play(&mut thread, load.iter().copied());
            let (told, used) = (told + long_told, used + long_used);
            // What is still to be taken off the intervals is known.
            let lack = elapsed(thread.clock.last_ticks, thread.clock.base_ticks);
            let (off, most) = ((told - lack).abs_diff(used), thread.clock.error_ns());
            // Dividing a difference rounds it.
            assert!(off <= most + 2_000, "load {at}: {told} for {used}, ± {most}: {thread:?}");
        }
    }
}

/// The number of queries is bounded by the intervals that may have waited, and by time.
#[test]
fn questions_to_the_kernel_are_bounded() {
    for load in in_step() {
        for mut thread in both() {
            let (start, watched) = (thread.now, thread.switched.is_some());
            let mut long = 0;
            for &(group, step) in &load {
                let [_, _, run, wait] = step;
                long += u64::from(wait > 0 || (!watched && run >= LONG_NS));
                play(&mut thread, [(group, step)]);
            }
            let sooner = long * u64::from(WARY);
            let due = (thread.now - start) / TRUST_NS * SOONER + 1;
            let most = long * (1 + u64::from(ASKS)) + due.min(sooner + due / SOONER + 1);
            assert!(thread.asked <= most, "{} questions of {most}: {:?}", thread.asked, load[0]);
        }
    }
}

#[test]
fn a_long_time_outside_is_no_example_of_others() {
    for mut thread in both() {
        for _ in 0..30 {
            thread.run(7 * US);
            thread.wait(60 * US);
            thread.told_after(|t| t.run(10 * US));
        }
        thread.run(50_000 * US);
        thread.wait(US);
        assert_eq!(thread.told_after(|t| t.run(5 * US)), 5 * US);
        thread.run(7 * US);
        thread.wait(500 * US);
        let told = thread.told_after(|t| {
            t.run(10 * US);
            t.wait(600 * US);
        });
        assert_eq!(told, 10 * US, "{thread:?}");
    }
}

/// A busy machine leaves little open, and costs queries only while it is busy.
#[test]
fn a_busy_machine_leaves_little_open() {
    for seed in 0..4 {
        let (mut thread, mut numbers) = (Thread::new(false), Numbers(seed));
        let quiet = |numbers: &mut Numbers| {
            let [run, inside] = [20 * US, 8 * US].map(|most| numbers.below(most));
            (0, [run, 0, 2 * US + inside, 0])
        };
        let steps: Vec<_> = (0..50_000)
            .map(|at| {
                let (group, [run, wait, inside, _]) = quiet(&mut numbers);
                (group, [run, wait, inside, if at % 200 == 0 { 3_000 * US } else { 0 }])
            })
            .collect();
        let [[told, used], _] = play(&mut thread, steps);
        let (off, most) = (told.abs_diff(used), thread.clock.error_ns());
        assert!(off * 50 < used && most * 14 < used, "{told} for {used}, ± {most}");
        let after: Vec<_> = (0..50_000).map(|_| quiet(&mut numbers)).collect();
        let (asked, start) = (thread.asked, thread.now);
        play(&mut thread, after);
        let due = (thread.now - start) / TRUST_NS;
        assert!(thread.asked - asked <= due + u64::from(WARY + MOST_ASKS), "{thread:?}");
    }
}

/// What a thread does on a saturated machine, in µs: it waits for a CPU whenever it has had one for
/// between `slice` and twice that, wherever it is. Times outside and inside are half as long as
/// said to one and a half times as long. In `waits` of a hundred outside times it waits for a
/// request, for 30 to 90 µs.
#[derive(Clone, Copy, Debug)]
struct Saturated {
    slice: u64,
    outside: u64,
    inside: u64,
    waits: u64,
}

/// Returns what was reported and used for two groups on a saturated machine, how much that may be
/// wrong, and the number of queries per millisecond.
fn saturated(seed: u64, load: Saturated) -> ([[u64; 2]; 2], u64, u64) {
    let slice_us = load.slice;
    let (mut thread, mut numbers) = (Thread::new(false), Numbers(seed));
    let (mut groups, mut left) = ([[0; 2]; 2], slice_us * US);
    let start = thread.now;
    let mut run = |thread: &mut Thread, numbers: &mut Numbers, mut ns: u64| {
        while ns > 0 {
            let now = ns.min(left);
            thread.run(now);
            (ns, left) = (ns - now, left - now);
            if left == 0 {
                thread.wait(1_000 * US + numbers.below(slice_us * US));
                left = slice_us * US + numbers.below(slice_us * US);
            }
        }
    };
    for _ in 0..20_000 {
        let group = numbers.below(2) as usize;
        let random = |numbers: &mut Numbers, us| us * US / 2 + numbers.below(us * US);
        let [outside, inside] = [load.outside, load.inside].map(|us| random(&mut numbers, us));
        run(&mut thread, &mut numbers, outside);
        if numbers.below(100) < load.waits {
            thread.wait(random(&mut numbers, 60));
        }
        let before = thread.begin();
        run(&mut thread, &mut numbers, inside);
        let [told, used] = &mut groups[group];
        (*told, *used) = (*told + thread.end() - before, *used + inside);
    }
    (groups, thread.clock.error_ns(), thread.asked * 1_000 * US / (thread.now - start))
}

/// On a saturated machine, sums are nearly right and few queries are made.
#[test]
fn a_saturated_machine_costs_few_questions() {
    let work = Saturated { slice: 3_000, outside: 30, inside: 8, waits: 0 };
    let requests = Saturated { outside: 1, inside: 15, waits: 20, ..work };
    for (load, of_all, of_one) in [
        (work, 5_000, 5_000),
        (Saturated { slice: 700, ..work }, 200, 130),
        (requests, 5_000, 5_000),
        (Saturated { slice: 700, ..requests }, 2_000, 2_000),
    ] {
        for seed in 0..20 {
            let (groups, most, questions) = saturated(seed, load);
            let off = |[told, used]: [u64; 2]| told.abs_diff(used);
            let all = [0, 1].map(|at| groups[0][at] + groups[1][at]);
            let said = format!("{groups:?} ± {most} of {load:?}, seed {seed}");
            assert!(off(all) * of_all <= all[1] && off(all) <= most + 2_000, "{said}");
            assert!(groups.iter().all(|&group| off(group) * of_one <= group[1]), "{said}");
            // Each long interval is followed by queries of its own.
            let has_long = load.inside * US * 3 / 2 > LONG_NS;
            assert!(has_long || questions <= SOONER, "{questions} a millisecond, {said}");
        }
    }
}

/// A counter that jumps makes no answer fall, and invents no time.
#[test]
fn a_jumping_counter_invents_no_time() {
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
    let mut clock = Intervals::new(None, 0, 7);
    for ns in [7, 100, 5_000] {
        assert!(clock.is_due(0, 0));
        assert_eq!(clock.end(0, None), Err(Ends::Long));
        assert_eq!(clock.learn(0, ns, Ends::Interval), ns);
        assert_eq!(clock.begin(0), Err(Ends::Outside));
        assert_eq!(clock.learn(0, ns + 50, Ends::Outside), ns + 50);
        assert_eq!(clock.learn(0, ns + 60, Ends::Interval), ns + 60);
    }
}

#[test]
fn between_intervals_the_clock_meets_the_kernels() {
    for mut thread in both() {
        for _ in 0..3 {
            thread.run(700 * US);
            thread.wait(400 * US);
            assert_eq!(thread.begin(), thread.cpu_ns, "the kernel is asked");
            thread.run(300 * US);
            thread.wait(100 * US);
            thread.begin();
            // Long: the kernel's answer includes what was used outside, and the interval does not.
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
