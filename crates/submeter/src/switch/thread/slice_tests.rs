use super::*;

/// A thread that is sometimes off its CPU, and what the clocks read for it.
struct Simulated {
    wall_ns: u64,
    cpu_ns: u64,
    running: Running,
    /// The naive twin: the CPU time at the beginning of the slice, once it has begun.
    began_ns: Option<u64>,
    asked: u32,
}

impl Simulated {
    fn new(rng: &mut fastrand::Rng) -> Simulated {
        let [wall_ns, cpu_ns] = [1 << 50, 1 << 40].map(|most| rng.u64(0..most));
        Simulated { wall_ns, cpu_ns, running: Running::begin(None), began_ns: None, asked: 0 }
    }

    fn begin(&mut self, is_known: bool) {
        let cpu_ns = is_known.then_some(self.cpu_ns);
        (self.running, self.began_ns) = (Running::begin(cpu_ns), cpu_ns);
    }

    /// The same as `TimeSlice::used_up`, on these clocks.
    fn used_up(&mut self, length_ns: u64) -> bool {
        if self.wall_ns.wrapping_sub(self.running.since_ns) < length_ns {
            return false;
        }
        self.asked += 1;
        self.running.ask(length_ns, self.wall_ns, self.cpu_ns).is_some()
    }

    fn naive(&mut self, length_ns: u64) -> bool {
        self.cpu_ns - *self.began_ns.get_or_insert(self.cpu_ns) >= length_ns
    }
}

/// The naive twin asks this clock at each checkpoint.
#[test]
fn a_slice_ends_when_its_clock_says_so() {
    for seed in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut thread = Simulated::new(&mut rng);
        for _ in 0..500 {
            match rng.u32(0..20) {
                0 => thread.begin(rng.bool()),
                // It waits, or is preempted.
                1..5 => thread.wall_ns += rng.u64(0..2_000_000),
                _ => {
                    let used_ns = rng.u64(0..50_000);
                    thread.wall_ns += used_ns;
                    thread.cpu_ns += used_ns;
                }
            }
            // Checkpoints on one thread may be of slices of several lengths, including 0.
            let length_ns = [0, 10_000, 100_000, 1_000_000, NEVER_NS][rng.usize(0..5)];
            // A slice that begins at its first checkpoint begins for both at the first that asks.
            let naive = thread.naive(length_ns);
            assert_eq!(thread.used_up(length_ns), naive, "seed {seed}");
        }
    }
}

/// A thread that keeps its CPU asks no more often, however many checkpoints it passes.
#[test]
fn a_slice_asks_its_clock_twice() {
    let mut thread = Simulated::new(&mut fastrand::Rng::with_seed(1));
    thread.begin(true);
    for _ in 0..99_999 {
        thread.wall_ns += 10;
        thread.cpu_ns += 10;
        assert!(!thread.used_up(1_000_000));
    }
    assert_eq!(thread.asked, 1);
    thread.wall_ns += 10;
    thread.cpu_ns += 10;
    assert!(thread.used_up(1_000_000));
    assert_eq!(thread.asked, 2);
}
