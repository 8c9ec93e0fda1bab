//! Fleets of real processes, which are killed and stopped, as is their bank.
//!
//! Use is counted twice. The bank's process watches what it has lent. Each member tells the test
//! what it was granted, after the grant, and what it gives back, before doing so: the sum is never
//! more than what is used, so that an excess is a real one.

mod arbiter;
mod engine;
mod member;
#[cfg(all(feature = "etcd", feature = "redis"))]
mod server;

use std::process::Child;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::arbiter::Arbiter;
use self::engine::Engine;
use self::member::Member;

const TTL: Duration = Duration::from_secs(3);
/// The limits of the root and of its child.
const LIMITS: [(&str, u64); 2] = [("/", 1_000), ("/acme", 700)];
const FLOOR: u64 = 20;
const MEMBERS: usize = 3;
const FLOORS: u64 = FLOOR * MEMBERS as u64;

/// A process of this test program that runs one of its tests, with a variable set.
fn again(test: &str, variable: &str, value: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(variable, value);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    command
}

fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.expect("kill runs").success(), "kill {name} {pid}");
}

/// Keeps a process from running for a while.
fn stop_for(child: &Child, time: Duration) {
    signal(child.id(), "-STOP");
    std::thread::sleep(time);
    signal(child.id(), "-CONT");
}

/// Kills a process, which cannot prepare for it.
fn end(child: &mut Child) {
    child.kill().expect("a child");
    child.wait().expect("a child");
}

/// How long a long run stops a member, and then its bank, before anything else.
fn long_stop() -> Option<Duration> {
    let seconds = std::env::var("SUBMETER_FLEET_STOP").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("SUBMETER_FLEET_STOP is in seconds")))
}

/// Lets a fleet work, with faults for a while: some five of them, or three times as many in a long
/// run.
fn run(mut engine: impl Engine, seed: u64) {
    let faults = Duration::from_secs(if long_stop().is_some() { 35 } else { 12 });
    let arbiter = Arbiter::start();
    let mut rng = Rng::with_seed(seed);
    let mut members: Vec<_> =
        (0..MEMBERS).map(|at| Member::start(at, &arbiter, &engine.url(at))).collect();
    arbiter.until_each_was_granted(MEMBERS, 20);
    if let Some(time) = long_stop() {
        members[0].stop_for(time, &arbiter);
        arbiter.assert_no_excess();
        engine.stop_for(time);
        arbiter.until_each_was_granted(MEMBERS, 20);
        arbiter.assert_no_excess();
    }
    let start = Instant::now();
    while start.elapsed() < faults {
        let at = rng.usize(..MEMBERS);
        let member = &mut members[at];
        let pause = TTL.mul_f64(0.4 + rng.f64() * 1.2);
        match rng.u8(0..6) {
            0 => {
                member.kill();
                std::thread::sleep(pause / 4);
                member.start_again(&arbiter, &engine.url(at));
            }
            1 | 2 => member.stop_for(pause, &arbiter),
            3 => engine.stop_for(pause),
            4 => engine.restart(pause / 4),
            _ => engine.cut_off(at, pause),
        }
        std::thread::sleep(Duration::from_millis(rng.u64(0..1_000)));
        arbiter.assert_no_excess();
    }
    // Each recovers by itself.
    arbiter.until_each_was_granted(MEMBERS, 20);
    arbiter.assert_no_excess();
    engine.assert_no_excess();
    println!("{}: {} charges granted, no excess", engine.url(0), arbiter.granted());
}

#[test]
fn a_fleet_behind_a_socket_keeps_its_limits() {
    run(engine::Host::start(), 16);
}
