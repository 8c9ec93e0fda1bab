//! How far the CPU time of tenants is off that take turns on a thread, by source.
use std::hint::black_box;
use std::time::{Duration, Instant};
use submeter_sys::clock::{Source, ThreadClock};

#[derive(Clone, Copy, Debug)]
enum Act {
    Work(u64),
    Sleep(u64),
}
use Act::*;
struct Scenario {
    name: &'static str,
    tenants: &'static [&'static [Act]],
    outside: &'static [Act],
    enter: bool,
}

fn work(us: u64) {
    // by iterations, so that preemption is not counted as work
    let n = us * per_us();
    black_box((0..n).map(black_box).sum::<u64>());
}
fn per_us() -> u64 {
    static P: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *P.get_or_init(|| {
        (0..20)
            .map(|_| {
                let s = Instant::now();
                black_box((0..1_000_000u64).map(black_box).sum::<u64>());
                1_000_000_000 / s.elapsed().as_micros().max(1) as u64
            })
            .max()
            .unwrap()
            / 1000
    })
}
fn act(a: Act) {
    match a {
        Work(us) => work(us),
        Sleep(us) => std::thread::sleep(Duration::from_micros(us)),
    }
}

fn main() {
    let busy: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(0);
    per_us();
    for _ in 0..busy {
        std::thread::spawn(|| {
            loop {
                black_box((0..1000u64).sum::<u64>());
            }
        });
    }
    let scenarios = [
        Scenario {
            name: "siblings 5 us, no wait",
            tenants: &[&[Work(5)], &[Work(5)], &[Work(5)]],
            outside: &[],
            enter: false,
        },
        Scenario {
            name: "siblings 2/5/30 us, no wait",
            tenants: &[&[Work(2)], &[Work(5)], &[Work(30)]],
            outside: &[],
            enter: false,
        },
        Scenario {
            name: "siblings, one blocks 60",
            tenants: &[&[Work(5)], &[Work(5), Sleep(1)], &[Work(10)]],
            outside: &[],
            enter: false,
        },
        Scenario {
            name: "siblings, one blocks 500, one 100",
            tenants: &[&[Work(5)], &[Work(5), Sleep(440)], &[Work(10), Sleep(40)], &[Work(100)]],
            outside: &[],
            enter: false,
        },
        Scenario {
            name: "enter, work outside 5",
            tenants: &[&[Work(5)], &[Work(2)], &[Work(3)]],
            outside: &[Work(5)],
            enter: true,
        },
        Scenario {
            name: "enter, work outside 5, one long",
            tenants: &[&[Work(5)], &[Work(2)], &[Work(30)]],
            outside: &[Work(5)],
            enter: true,
        },
        Scenario {
            name: "enter, waits outside",
            tenants: &[&[Work(5)], &[Work(2)], &[Work(3)]],
            outside: &[Sleep(1)],
            enter: true,
        },
        Scenario {
            name: "enter, waits outside, long",
            tenants: &[&[Work(50)], &[Work(20)], &[Work(30)]],
            outside: &[Sleep(1)],
            enter: true,
        },
        Scenario {
            name: "enter, waits outside and inside",
            tenants: &[&[Work(5)], &[Work(10), Sleep(40)], &[Work(30)]],
            outside: &[Work(2), Sleep(1)],
            enter: true,
        },
        Scenario {
            name: "enter, idle outside 2 ms",
            tenants: &[&[Work(5)], &[Work(100)], &[Work(30), Sleep(1)]],
            outside: &[Work(2), Sleep(2000)],
            enter: true,
        },
    ];
    let ms = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(1000);
    for s in &scenarios {
        for source in [Source::PerfPage, Source::Ticks] {
            let runs = 1 + busy.min(1);
            for _ in 0..runs {
                one(s, source, ms);
            }
        }
    }
}

fn one(s: &Scenario, source: Source, ms: u64) {
    let Ok(mut clock) = ThreadClock::on(source) else {
        println!("{source:?}: none");
        return;
    };
    let mut sys = ThreadClock::on(Source::Syscall).unwrap();
    let n = s.tenants.len();
    let (mut truth, mut told) = (vec![0u64; n], vec![0u64; n]);
    let until = Instant::now() + Duration::from_millis(ms);
    let (mut a, mut b) = (sys.now_ns(), clock.now_ns());
    let start = a;
    let mut looks = 0u64;
    while Instant::now() < until {
        for (i, t) in s.tenants.iter().enumerate() {
            if s.enter {
                for &o in s.outside {
                    act(o);
                }
                if looks / n as u64 % 2 == 0 {
                    a = sys.now_ns();
                    b = clock.begin_ns();
                } else {
                    b = clock.begin_ns();
                    a = sys.now_ns();
                }
            }
            for &x in *t {
                act(x);
            }
            let (a2, b2) = if looks / n as u64 % 2 == 0 {
                let a = sys.now_ns();
                (a, clock.now_ns())
            } else {
                let b = clock.now_ns();
                (sys.now_ns(), b)
            };
            truth[i] += a2 - a;
            told[i] += b2 - b;
            (a, b) = (a2, b2);
            looks += 1;
        }
    }
    let all = sys.now_ns() - start;
    let off = |x: u64, y: u64| (x as f64 / y as f64 - 1.0) * 100.0;
    let each: Vec<String> =
        truth.iter().zip(&told).map(|(&t, &c)| format!("{:+.2}%", off(c, t))).collect();
    let (t, c) = (truth.iter().sum::<u64>(), told.iter().sum::<u64>());
    println!(
        "{:<36} {:<9} sum {:+.3} % of {:.0} ms (process {:.0}), each {}",
        s.name,
        format!("{source:?}"),
        off(c, t),
        t as f64 / 1e6,
        all as f64 / 1e6,
        each.join(" ")
    );
}
