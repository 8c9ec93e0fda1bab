//! Rates of groups. Windows, waits and races are tested in `submeter-percpu`, with a clock of the
//! test's own; here no rate earns anything while a test runs.

use std::time::{Duration, Instant};

use submeter::{
    Bytes, Count, Counter, LimitMode, Quota, Rate, RateLimit, Schema, SchemaError, Tree, Value,
};

struct Fixture {
    tree: Tree,
    requests: RateLimit<Count>,
    sent: RateLimit<Bytes>,
    memory: Quota<Bytes>,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.rate_limit("requests", "Requests");
    let memory = schema.quota("memory", "Memory held");
    let sent = schema.section("io", |io| io.rate_limit("sent", "Bytes sent"));
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Fixture { tree, requests, sent, memory }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn a_take_counts_at_every_level_or_at_none() {
    let Fixture { tree, requests, .. } = fixture();
    let web = tree.get_or_create("/acme/shop/web").expect("room");
    let mail = tree.get_or_create("/acme/mail").expect("room");
    let acme = tree.get("/acme").expect("created with its children");
    acme.set_rate(requests, Some(Rate::new(10, DAY))).expect("it can be kept");
    web.set_rate(requests, Some(Rate::new(8, DAY))).expect("it can be kept");

    web.try_take(requests, 6).expect("both have it");
    let refused = web.try_take(requests, 3).expect_err("2 are left");
    assert_eq!(refused.limiting(), &web);
    mail.try_take(requests, 3).expect("4 are left");
    let refused = web.try_take(requests, 2).expect_err("1 is left above");
    assert_eq!((refused.limiting(), refused.group(), refused.requested()), (&acme, &web, Some(2)));
    assert_eq!(refused.rate(), Rate::new(10, DAY));
    assert_eq!([&web, &acme, &mail].map(|g| g.balance(requests)), [Some(2), Some(1), None]);
    tree.root().try_take(requests, 1000).expect("the root has no rate");

    acme.set_rate(requests, None).expect("nothing to keep");
    web.try_take(requests, 2).expect("its own rate has it");
}

/// A refusal says whose rate, when to retry and what for.
#[test]
fn a_refusal_says_whose_rate_and_when_to_retry() {
    let Fixture { tree, requests, .. } = fixture();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("below the root");
    acme.set_rate(requests, Some(Rate::new(4, DAY))).expect("it can be kept");
    web.try_take(requests, 4).expect("a whole burst");
    let refused = web.try_take(requests, 1).expect_err("it is used up");
    let after = refused.retry_after().expect("it will be earned");
    assert!(after <= DAY / 4 && after > DAY / 5, "{after:?}");
    let text = refused.detail().to_string();
    let start = "/acme/web: 1 more of requests would exceed the rate of /acme: 4 per 86400s, \
         burst 4; retry after 21";
    assert!(text.starts_with(start), "{text}");
    let refused = web.try_take(requests, 5).expect_err("more than a burst");
    assert_eq!(refused.retry_after(), None);
    assert!(refused.to_string().ends_with("; take at most the burst at once"), "{refused}");
}

/// The text of a throttled take tells a tenant nothing about others.
#[test]
fn a_throttled_take_tells_nothing_of_others() {
    let Fixture { tree, requests, .. } = fixture();
    let [web, hog] = ["/acme/web", "/hog"].map(|path| tree.get_or_create(path).expect("room"));
    let acme = web.parent().expect("below the root");
    let told = |n| {
        let refused = web.try_take(requests, n).expect_err("used up");
        (refused.to_string(), refused.detail().to_string())
    };
    let silent = |text: &str| {
        // The retry time has digits of its own.
        let text = text.split("; retry after").next().expect("a first part");
        let secrets = ["acme", "web", "hog", "/", "4321", "86400", "77"];
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    };
    for above in [acme, tree.root()] {
        above.set_rate(requests, Some(Rate::new(4321, DAY))).expect("it can be kept");
        let taken = above.balance(requests).expect("it has a rate").cast_unsigned();
        let by = if above == acme { acme } else { &hog };
        by.try_take(requests, taken).expect("a whole burst");
        let (told, detail) = told(1);
        assert!(told.starts_with("1 more of requests would exceed a rate shared with others; "));
        silent(&told);
        assert!(detail.contains(&format!("the rate of {above}: 4321 per 86400s")), "{detail}");
        above.set_rate(requests, None).expect("nothing to keep");
    }
    // A share of a rate that others use too.
    acme.set_rate(requests, Some(Rate::new(4321, DAY))).expect("it can be kept");
    for (group, weight) in [(&web, 77), (&acme.create_child("mail").expect("new"), 4321)] {
        group.set_weight(requests, Some(weight)).expect("in range");
        group.try_take(requests, 1).expect("it contends");
    }
    let refused = (0..4321).find_map(|_| web.try_take(requests, 1).err()).expect("its share");
    assert!(refused.is_by_share());
    let told = refused.to_string();
    silent(&told);
    assert!(told.contains("its share of a rate shared with others; retry after "), "{told}");
    // The tenant is told about its own rate.
    web.set_rate(requests, Some(Rate::new(10, DAY))).expect("it can be kept");
    let told = web.try_take(requests, 11).expect_err("more than a burst").to_string();
    let own = "11 more of requests would exceed the rate: 10 per 86400s, burst 10; take at most";
    assert!(told.starts_with(own), "{told}");
}

#[test]
fn a_rate_of_nothing_counts_refusals_and_no_time() {
    let Fixture { tree, requests, .. } = fixture();
    let acme = tree.create("/acme").expect("room");
    acme.set_rate(requests, Some(Rate::NOTHING)).expect("a rate of its own kind");
    for _ in 0..3 {
        let refused = acme.try_take(requests, 1).expect_err("nothing is granted");
        assert_eq!((refused.retry_after(), refused.rate()), (None, Rate::NOTHING));
        let told = "1 more of requests would exceed the rate: nothing; retry later";
        assert_eq!(refused.to_string(), told);
    }
    assert_eq!(acme.sum(requests.throttled()), 3);
    assert_eq!(acme.sum(requests.throttled_time()), 0);
    assert_eq!((acme.rate(requests), acme.balance(requests)), (Some(Rate::NOTHING), Some(0)));
    let zero = acme.set_rate(requests, Some(Rate::new(0, DAY)));
    assert!(zero.is_err(), "0 by mistake is no rate of nothing");
}

#[test]
fn refusals_count_where_the_rate_is_and_above() {
    let Fixture { tree, requests, sent, .. } = fixture();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("below the root");
    acme.set_rate(sent, Some(Rate::new(4, DAY))).expect("it can be kept");
    web.try_take(sent, 4).expect("a whole burst");
    let begun = Instant::now();
    for _ in 0..3 {
        web.try_take(sent, 2).expect_err("it is used up");
    }
    let elapsed = begun.elapsed();
    let count = |key: Counter<Count>| [&web, acme, tree.root()].map(|group| group.sum(key));
    assert_eq!(count(sent.throttled()), [0, 3, 3]);
    assert_eq!(count(requests.throttled()), [0, 0, 0]);
    let throttled = Duration::from_nanos(acme.sum(sent.throttled_time()));
    let second = Duration::from_secs(1);
    let once = second..=second + elapsed;
    assert!(once.contains(&throttled), "once, and of half a day a second ahead: {throttled:?}");
    let snapshot = tree.snapshot();
    let metric = tree.schema().metric("sent_throttled").expect("declared with the rate limit");
    assert_eq!(snapshot.get("/acme").expect("alive").value(metric), Value::Counter(3));
}

#[test]
fn rates_and_quotas_do_not_share_slots() {
    let Fixture { tree, requests, sent, memory } = fixture();
    let root = tree.root();
    root.set_rate(requests, Some(Rate::new(1, DAY))).expect("it can be kept");
    root.set_limit(memory, Some(2));
    root.set_rate(sent, Some(Rate::new(3, DAY))).expect("it can be kept");
    assert_eq!(
        (root.rate(requests), root.rate(sent)),
        (Some(Rate::new(1, DAY)), Some(Rate::new(3, DAY)))
    );
    assert_eq!(root.usage(memory).limit, Some(2));
    root.set_rate(requests, None).expect("nothing to keep");
    assert_eq!((root.rate(requests), root.balance(sent)), (None, Some(3)));
}

#[test]
fn setting_the_same_rate_again_grants_nothing() {
    let Fixture { tree, requests, .. } = fixture();
    let root = tree.root();
    for _ in 0..3 {
        root.set_rate(requests, Some(Rate::new(5, DAY))).expect("it can be kept");
        _ = root.try_take(requests, 5);
    }
    assert_eq!((root.balance(requests), root.sum(requests.throttled())), (Some(0), 2));
    let error = root.set_rate(requests, Some(Rate::new(0, DAY))).expect_err("it grants nothing");
    assert!(error.to_string().contains("the amount is 0"), "{error}");
    assert_eq!(root.rate(requests), Some(Rate::new(5, DAY)), "as it was");
}

#[test]
fn a_killed_group_still_takes_from_its_ancestors() {
    let Fixture { tree, requests, .. } = fixture();
    tree.root().set_rate(requests, Some(Rate::new(5, DAY))).expect("it can be kept");
    let web = tree.create("/web").expect("room");
    web.kill().expect("no children");
    web.try_take(requests, 5).expect("a whole burst");
    let next = tree.create("/web").expect("the name is free");
    assert_eq!(next.try_take(requests, 1).expect_err("used up").limiting(), tree.root());
}

/// Names of rate limits are checked with those of their counters.
#[test]
fn names_of_rates_and_counters_are_checked() {
    let built = |names: &[&str]| {
        let mut schema = Schema::builder();
        names.iter().for_each(|name| _ = schema.rate_limit::<Count>(name, ""));
        schema.build().map(|_| ())
    };
    assert_eq!(built(&["requests", "sent"]), Ok(()));
    let twice = Err(SchemaError::Repeated("requests_throttled".to_owned()));
    assert_eq!(built(&["requests", "requests"]), twice);
    assert!(matches!(built(&["Bad"]), Err(SchemaError::Name(name)) if name == "Bad_throttled"));
}

#[test]
#[should_panic(expected = "the schema of another tree")]
fn a_rate_limit_of_another_schema_panics() {
    let (here, there) = (fixture(), fixture());
    _ = here.tree.root().try_take(there.sent, 1);
}

/// Children share a rate by weight and the refusal says so.
#[test]
fn children_share_a_rate_by_weight() {
    let Fixture { tree, requests, .. } = fixture();
    let acme = tree.create("/acme").expect("room");
    let [web, mail] = ["web", "mail"].map(|name| acme.create_child(name).expect("room"));
    let jobs = web.create_child("jobs").expect("room");
    acme.set_rate(requests, Some(Rate::new(1000, DAY))).expect("it can be kept");
    assert_eq!((web.weight(requests), web.set_weight(requests, None)), (None, Ok(())));
    web.set_weight(requests, Some(100)).expect("in range");
    mail.set_weight(requests, Some(400)).expect("in range");
    assert_eq!((web.weight(requests), acme.weight(requests)), (Some(100), None));

    mail.try_take(requests, 1).expect("it contends");
    // Through its parent, which has a weight and no rate of its own.
    let take_all = || (0..1000).find_map(|_| jobs.try_take(requests, 1).err());
    let refused = take_all().expect("half of it, and a fifth of the other");
    assert_eq!(acme.balance(requests), Some(400));
    assert!(refused.is_by_share() && refused.limiting() == &acme && refused.group() == &jobs);
    let text = refused.detail().to_string();
    let start =
        "/acme/web/jobs: 1 more of requests would exceed its share of the rate of /acme: 1000 ";
    assert!(text.starts_with(start) && text.contains("; retry after "), "{text}");
    assert_eq!(acme.sum(requests.throttled()), 1);
    acme.try_take(requests, 1).expect_err("in the parent itself without a share");
    mail.try_take(requests, 400).expect("its share");
    let refused = mail.try_take(requests, 1).expect_err("all is taken");
    assert!(!refused.is_by_share());
    web.set_weight(requests, None).expect("nothing to weigh");
    assert_eq!(web.weight(requests), None);
}

/// A weight out of range is refused and changes nothing.
#[test]
fn a_weight_out_of_range_changes_nothing() {
    let Fixture { tree, requests, .. } = fixture();
    let root = tree.root();
    root.set_weight(requests, Some(10_000)).expect("the highest");
    for weight in [0, 10_001, u32::MAX] {
        let error = root.set_weight(requests, Some(weight)).expect_err("out of range").to_string();
        assert!(error.contains(&weight.to_string()) && error.contains("use 1 to 10000"), "{error}");
    }
    assert_eq!(root.weight(requests), Some(10_000));
}

/// A successor of a killed group takes over its rate and weight.
#[test]
fn a_successor_inherits_rate_and_weight() {
    let Fixture { tree, requests, .. } = fixture();
    let rate = Some(Rate::new(10, DAY));
    let before = tree.create("/acme").expect("room");
    before.set_rate(requests, rate).expect("it can be kept");
    before.set_weight(requests, Some(300)).expect("in range");
    before.try_take(requests, 7).expect("10 are there");
    let kept = before.rate_state();
    before.kill().expect("it has no children");
    let after = tree.create("/acme").expect("room");
    assert!(after.share_rates(&kept));
    assert_eq!((after.rate(requests), after.weight(requests)), (rate, Some(300)));
    assert_eq!(after.balance(requests), Some(3));
    // A request already in flight takes from the same buckets.
    before.try_take(requests, 2).expect("3 are there");
    after.set_rate(requests, rate).expect("it can be kept");
    assert!(after.try_take(requests, 2).is_err(), "1 is left");
    assert!(!after.share_rates(&tree.create("/new").expect("room").rate_state()));
    assert_eq!(after.balance(requests), Some(1), "it keeps its own");
}

/// A soft rate grants what it would refuse, and counts it where it is set.
#[test]
fn a_soft_rate_grants_and_counts() {
    let Fixture { tree, requests, .. } = fixture();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("below the root");
    acme.set_rate(requests, Some(Rate::new(10, DAY))).expect("it can be kept");
    acme.set_rate_mode(requests, LimitMode::Soft);
    web.set_rate(requests, Some(Rate::new(20, DAY))).expect("it can be kept");
    web.try_take(requests, 8).expect("both have it");
    web.try_take(requests, 8).expect("a soft rate refuses nothing");
    // It grants what it has, as if it had refused the previous take.
    web.try_take(requests, 2).expect("both have it");
    assert_eq!([&web, acme].map(|at| at.balance(requests)), [Some(2), Some(0)]);
    let counts = || {
        let limits = [requests.overdrafts(), requests.throttled()];
        limits.map(|counter| [&web, acme].map(|at| at.sum(counter)))
    };
    assert_eq!(counts(), [[0, 1], [0, 0]]);
    // What an enforced rate refuses is no overdraft of a soft one.
    assert_eq!(web.try_take(requests, 3).expect_err("2 are left").limiting(), &web);
    assert_eq!(counts(), [[0, 1], [1, 1]]);
    web.try_admit(requests).expect("a soft rate admits all");
    assert_eq!(counts(), [[0, 2], [1, 1]]);
    // And it takes nothing for what an enforced rate would not have admitted.
    web.spend(requests, 100);
    assert_eq!([&web, acme].map(|at| at.balance(requests)), [Some(-98), Some(0)]);
    acme.set_rate_mode(requests, LimitMode::Enforced);
    assert!(acme.try_take(requests, 1).is_err());
}
