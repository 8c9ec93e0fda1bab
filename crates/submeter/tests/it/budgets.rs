//! Spending after the fact: rates in debt, and CPU time. The exact debt, to the nanosecond, is
//! tested in `submeter-percpu`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter::checkpoint::CheckpointFile;
use submeter::{
    Count, Group, Metrics, Nanoseconds, Rate, RateLimit, Schema, SchemaError, Tree, limits,
};
use tokio::time::sleep;

use super::checkpoint::Directory;
use super::work::{burn, burn_ms};

const HOUR: Duration = Duration::from_secs(3600);
const MS: u64 = 1_000_000;
/// Upper bound on the time of a group that a CPU has before the switch spends it: see
/// `SchemaBuilder::cpu_budget`. This is twice the real value.
const UNSPENT_NS: u64 = 1 << 21;

fn with_rows() -> (Tree, RateLimit<Count>) {
    let mut schema = Schema::builder();
    let rows = schema.rate_limit("rows", "Rows read");
    (Tree::new(schema.build().expect("valid")).expect("address space"), rows)
}

fn with_budget() -> (Tree, RateLimit<Nanoseconds>) {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let budget = schema.cpu_budget("cpu_budget", "CPU time");
    (Tree::new(schema.build().expect("valid")).expect("address space"), budget)
}

/// Spending counts at every level, and nothing is admitted until the debt is earned back.
#[test]
fn debts_count_at_every_level_until_earned() {
    let (tree, rows) = with_rows();
    let [web, mail] = ["/acme/web", "/acme/mail"].map(|path| tree.get_or_create(path).unwrap());
    let acme = web.parent().expect("below the root");
    acme.set_rate(rows, Some(Rate::new(10, HOUR))).expect("it can be kept");
    web.set_rate(rows, Some(Rate::new(100, HOUR))).expect("it can be kept");
    web.try_admit(rows).expect("nothing was spent");
    web.spend(rows, 40);
    assert_eq!([&web, acme, &mail].map(|at| at.balance(rows)), [Some(60), Some(-30), None]);
    let refused = mail.try_admit(rows).expect_err("its parent owes");
    assert_eq!((refused.limiting(), refused.requested()), (acme, None));
    let after = refused.retry_after().expect("it will be earned");
    // 30 are owed, and 1 must be available.
    assert!(after <= 31 * HOUR / 10 && after > 30 * HOUR / 10, "{after:?}");
    assert!(mail.try_take(rows, 1).is_err());
    assert_eq!(tree.root().sum(rows.throttled()), 2);
    tree.root().try_admit(rows).expect("it has no rate");
}

#[test]
fn refused_work_is_told_why_and_of_no_other() {
    let (tree, rows) = with_rows();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("below the root");
    acme.set_rate(rows, Some(Rate::new(10, HOUR))).expect("it can be kept");
    web.spend(rows, 11);
    let refused = web.try_admit(rows).expect_err("one is owed");
    let (text, detail) = (refused.to_string(), refused.detail().to_string());
    assert!(text.starts_with("no rows left under a rate shared with others; "), "{text}");
    let start = "/acme/web: no rows left under the rate of /acme: 10 per 3600s, burst 10; \
                 retry after ";
    assert!(detail.starts_with(start), "{detail}");
    let own = acme.try_admit(rows).expect_err("one is owed").to_string();
    assert!(own.starts_with("no rows left under the rate: 10 per 3600s, burst 10; "));
}

/// A wait for a rate is granted when the tokens are earned, and ends at the kill.
#[tokio::test]
async fn a_wait_for_a_rate_ends_when_earned_or_killed() {
    let (tree, rows) = with_rows();
    let web = tree.get_or_create("/acme/web").expect("room");
    web.set_rate(rows, Some(Rate::new(1_000, Duration::from_secs(1)))).expect("it can be kept");
    let since = Instant::now();
    web.spend(rows, 1_010);
    web.admit(rows, sleep).await.expect("it is earned");
    assert!(since.elapsed() >= Duration::from_millis(10));
    web.take(rows, 10, sleep).await.expect("it is earned");
    let refused = web.take(rows, 1_001, sleep).await.expect_err("more than a burst");
    assert_eq!(refused.retry_after(), None);

    web.set_rate(rows, Some(Rate::new(1, HOUR))).expect("it can be kept");
    web.spend(rows, 100);
    let waits = tokio::spawn({
        let web = web.clone();
        async move { web.admit(rows, sleep).await }
    });
    tokio::task::yield_now().await;
    web.kill().expect("it is alive");
    let ended = waits.await.expect("no panic").expect_err("it will not be admitted");
    assert!(ended.is_killed() && ended.retry_after().is_none());
    assert_eq!(ended.to_string(), "rows cannot be waited for: the group was killed");
}

/// Returns how much was spent from a rate that earns a 360th of the time, with its error.
fn spent(tree: &Tree, budget: RateLimit<Nanoseconds>, since: Instant) -> (u64, u64) {
    let left = tree.root().balance(budget).expect("it has a rate");
    let earned = since.elapsed().as_nanos() as u64 / 360 + 2;
    ((10_000 * MS).saturating_add_signed(-left), earned)
}

fn ten_seconds() -> Rate {
    Rate::new(10_000 * MS, HOUR)
}

#[test]
fn cpu_time_is_spent_at_the_switch() {
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    tree.root().set_rate(budget, Some(ten_seconds())).expect("it can be kept");
    let since = Instant::now();
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    for turn in 0..60 {
        groups[turn % 2].run(|| burn(Duration::from_micros(700)));
    }
    let (spent, earned) = spent(&tree, budget, since);
    let used = tree.root().sum(cpu);
    assert!(used >= 42 * MS, "{used}");
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let least = used.saturating_sub(2 * cpus * UNSPENT_NS + earned);
    assert!((least..=used).contains(&spent), "{spent} of {used}");
}

/// A tenant that makes a group for each request is charged like any other.
#[test]
fn ended_groups_are_spent_to_the_nanosecond() {
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    tree.root().set_rate(budget, Some(ten_seconds())).expect("it can be kept");
    let acme = tree.create("/acme").expect("new");
    let since = Instant::now();
    for request in 0..100 {
        let group = acme.create_child(&format!("{request}")).expect("new");
        group.run(|| burn(Duration::from_micros(100)));
        let killed = group.kill().expect("it is alive");
        drop(group);
        killed.released_blocking(Duration::from_secs(30)).expect("nobody holds it");
    }
    let (spent, earned) = spent(&tree, budget, since);
    let used = tree.root().sum(cpu);
    assert!(used >= 10 * MS, "{used}");
    assert!((used.saturating_sub(earned)..=used).contains(&spent), "{spent} of {used}");
}

/// A budget below another refuses its own work and spends from both.
///
/// As an operator would set them: each level has its own, and the upper one covers everything below
/// it.
#[test]
fn a_budget_below_another_spends_of_both() {
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    let text = "/acme cpu=50m\n/acme/web cpu=1m\n";
    for (_, limited) in limits::parse_lines(text).expect("as documented") {
        let group = tree.get_or_create(&limited.path).expect("room");
        group.set_rate(budget, limited.limits.cpu).expect("it can be kept");
    }
    let since = Instant::now();
    let [web, mail, other] =
        ["/acme/web", "/acme/mail", "/other"].map(|path| tree.get_or_create(path).expect("room"));
    let acme = web.parent().expect("below the root");
    let until_refused = |asks: &Group, ms| loop {
        match asks.try_admit(budget) {
            Ok(()) => _ = web.run(|| burn_ms(ms)),
            Err(refused) => return refused,
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{asks} is still admitted");
    };
    assert_eq!(until_refused(&web, 1).limiting(), &web);
    mail.try_admit(budget).expect("what is above them has some left");
    // As work in flight does.
    assert_eq!(until_refused(&mail, 20).limiting(), acme, "of what its sibling used");
    other.try_admit(budget).expect("it is below no budget");

    let left = acme.balance(budget).expect("it has one");
    let spent = (5 * MS).saturating_add_signed(-left);
    let (earned, used) = (since.elapsed().as_nanos() as u64 / 20 + 2, acme.sum(cpu));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let least = used.saturating_sub(2 * cpus * UNSPENT_NS + earned);
    assert!((least..=used).contains(&spent), "{spent} of {used}");
}

/// Threads keep within the stated bound between any two moments: what the rate earns, one burst,
/// what was in flight, and what CPUs have not spent yet.
#[test]
fn threads_that_ask_keep_within_a_budget() {
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    let acme = tree.create("/acme").expect("new");
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let since = Instant::now();
    let now_ns = || since.elapsed().as_nanos() as u64;
    // More than the rest of the bound together, and a rate so low that it is used up on any
    // machine.
    let burst = 8 * cpus * UNSPENT_NS;
    let rate = Rate { burst, ..Rate::new(20 * MS, Duration::from_secs(1)) };
    acme.set_rate(budget, Some(rate)).expect("it can be kept");
    let (longest, refusals, threads) = (AtomicU64::new(0), AtomicU64::new(0), 3);
    let has_ended = || {
        // Relaxed, here and below: the threads are joined before the result matters.
        now_ns() > 400 * MS && refusals.load(Ordering::Relaxed) > 0
    };
    let mut looks = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !has_ended() {
                    match acme.try_admit(budget) {
                        Ok(()) => {
                            let used = acme.run(|| burn(Duration::from_micros(300)));
                            longest.fetch_max(used, Ordering::Relaxed);
                        }
                        Err(refused) => {
                            refusals.fetch_add(1, Ordering::Relaxed);
                            let after = refused.retry_after().expect("it will be earned");
                            std::thread::sleep(after.min(Duration::from_millis(5)));
                        }
                    }
                }
            });
        }
        while !has_ended() {
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
            looks.push([now_ns(), acme.sum(cpu), now_ns()]);
        }
    });
    looks.push([now_ns(), acme.sum(cpu), now_ns()]);
    // A stay is longer than its computation, by less than half.
    let in_flight = threads * longest.into_inner() * 3 / 2;
    let bound = burst + in_flight + cpus * UNSPENT_NS;
    let ahead = |used: u64, ns: u64| used.cast_signed() - (ns / 50).cast_signed();
    let (mut least, mut most) = (0, 0);
    for [before, used, after] in looks {
        most = most.max(ahead(used, after) - least);
        least = least.min(ahead(used, before));
    }
    assert!(most <= bound.cast_signed(), "{most} beyond the rate, of {bound}");
    assert_eq!(acme.sum(budget.throttled()), refusals.into_inner());
}

/// CPU time that another process used is no group's debt here.
#[test]
fn restored_cpu_time_is_not_spent() {
    let directory = Directory::new("budgets");
    let (before, _) = with_budget();
    let cpu = before.schema().cpu_time().expect("declared");
    before.create("/acme").expect("new").add(cpu, 100_000 * MS);
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.restore(&mut file).expect("nothing is there");
    before.checkpoint_last(file).expect("writable");

    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    tree.restore(&mut file).expect("whole").expect("there is one");
    tree.root().set_rate(budget, Some(ten_seconds())).expect("it can be kept");
    let acme = tree.get_or_create("/acme").expect("room");
    let since = Instant::now();
    for _ in 0..10 {
        acme.run(|| burn(Duration::from_millis(1)));
    }
    let (spent, earned) = spent(&tree, budget, since);
    let used = tree.root().sum(cpu) - 100_000 * MS;
    let least = used.saturating_sub(2 * UNSPENT_NS + earned);
    assert!((least..=used).contains(&spent), "{spent} of {used}");
}

/// CPU time that a program subtracts from the counter is no debt and forgives none.
///
/// A counter wraps around, so any code may subtract from it. That used to leave a debt of a year,
/// up to the root, and nothing was spent afterwards.
#[test]
fn cpu_time_taken_from_the_counter_is_no_debt() {
    const SECOND: u64 = 1_000 * MS;
    let directory = Directory::new("budgets_below_0");
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    tree.root().set_rate(budget, Some(ten_seconds())).expect("it can be kept");
    let since = Instant::now();
    let work = |group: &Group| (0..4).for_each(|_| _ = group.run(|| burn_ms(1)));
    let end = |group: Group| {
        let killed = group.kill().expect("alive");
        drop(group);
        killed.released_blocking(Duration::from_secs(30)).expect("nobody holds it");
    };
    // At the switch, and at the end of the group.
    let gone = tree.create("/gone").expect("new");
    gone.add(cpu, SECOND.wrapping_neg());
    work(&gone);
    end(gone);
    assert_eq!(spent(&tree, budget, since).0, 0, "a year is owed");
    // Nor is earlier spending, or later use, forgotten.
    let acme = tree.create("/acme").expect("new");
    work(&acme);
    acme.add(cpu, SECOND.wrapping_neg());
    work(&acme);
    acme.add(cpu, SECOND);
    let used = acme.sum(cpu);
    assert!(used >= 8 * MS, "{used}");
    end(acme);
    let (all, earned) = spent(&tree, budget, since);
    assert!((used.saturating_sub(earned)..=used).contains(&all), "{all} of {used}");

    // And where a checkpoint brings it back.
    tree.create("/acme").expect("new").add(cpu, SECOND.wrapping_neg());
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    tree.restore(&mut file).expect("nothing is there");
    tree.checkpoint_last(file).expect("writable");
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    tree.restore(&mut file).expect("whole").expect("there is one");
    tree.root().set_rate(budget, Some(ten_seconds())).expect("it can be kept");
    let (acme, since) = (tree.get_or_create("/acme").expect("room"), Instant::now());
    acme.add(cpu, SECOND);
    work(&acme);
    let used = acme.sum(cpu);
    assert!((4 * MS..SECOND).contains(&used), "{used}");
    end(acme);
    let (all, earned) = spent(&tree, budget, since);
    assert!((used.saturating_sub(earned)..=used).contains(&all), "{all} of {used}");
}

#[derive(Metrics)]
struct Known {
    /// CPU time.
    #[metric(cpu_budget)]
    budget: RateLimit<Nanoseconds>,
}

#[derive(Debug, Metrics)]
struct Late {
    /// CPU time.
    #[metric(cpu_budget)]
    other: RateLimit<Nanoseconds>,
}

/// A schema takes one budget of CPU time beside the counter.
#[test]
fn a_schema_takes_one_budget_of_cpu_time() {
    let mut schema = Schema::builder();
    schema.cpu_budget("budget", "CPU time");
    let error = schema.build().expect_err("no CPU time");
    assert_eq!(error, SchemaError::CpuTimeMissing("budget".to_owned()));

    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let budget = schema.cpu_budget("budget", "CPU time");
    let built = schema.build().expect("valid");
    assert_eq!(built.cpu_budget(), Some(budget));
    // A library that meters the same thing finds it there, and one that wants another is refused.
    let tree = Tree::new(built).expect("address space");
    assert_eq!(tree.declare::<Known>().expect("it is there").budget, budget);
    let late = tree.declare::<Late>().map(|late| late.other).expect_err("it is not there");
    assert!(late.to_string().contains("\"other\" is a rate limit, "), "{late}");

    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    schema.cpu_budget("budget", "CPU time");
    schema.cpu_budget("again", "CPU time");
    let error = schema.build().expect_err("two");
    assert_eq!(error, SchemaError::CpuTimeTwice("again".to_owned()));
}

/// Two threads with more work than their budget use at most half a CPU, a burst and what is in
/// flight; and over ten seconds, half a CPU to within 2 %.
///
/// `SUBMETER_SHARES_SECONDS=10` runs that long: what other programs leave of a machine is outside
/// a budget's control, so that a short run checks only the bound.
#[test]
fn half_a_cpu_holds_on_a_real_machine() {
    const BURST_NS: u64 = 20 * MS;
    let seconds = std::env::var("SUBMETER_SHARES_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    let (tree, budget) = with_budget();
    let cpu = tree.schema().cpu_time().expect("declared");
    let web = tree.create("/web").expect("new");
    let half = Rate { burst: BURST_NS, ..Rate::new(500 * MS, Duration::from_secs(1)) };
    web.set_rate(budget, Some(half)).expect("it can be kept");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begun.elapsed() < time {
                    match web.try_admit(budget) {
                        Ok(()) => _ = web.run(|| burn(Duration::from_micros(500))),
                        Err(error) => std::thread::sleep(error.retry_after().expect("it is known")),
                    }
                }
            });
        }
    });
    let (used, time) = (web.sum(cpu) as f64, begun.elapsed().as_nanos() as f64);
    let part = used / (time / 2.0);
    println!("{:.2} % of half a CPU", part * 100.0);
    // Each thread has a piece in flight, and time that the switch has not spent yet.
    let most = time / 2.0 + (BURST_NS + 2 * (MS + UNSPENT_NS)) as f64;
    assert!(used <= most, "{used} ns in {time} ns");
    assert!(seconds.is_none() || (part - 1.0).abs() <= 0.02, "{part}");
}
