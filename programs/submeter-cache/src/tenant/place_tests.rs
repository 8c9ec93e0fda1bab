//! Tests of places: which tenant gets one, keeps it and gives it back.

use std::time::{Duration, Instant};

use submeter::{Bytes, OnCreate, Quota, Rate};

use super::tests::{cache, put, tenant};
use super::*;
use crate::clock::Tick;
use crate::{Cache, Config, TenantLimits, Users};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn path(cache: &Cache, key: &str) -> String {
    tenant(cache, key.as_bytes()).group.path().to_owned()
}

fn limited(path: &str, limits: TenantLimits) -> Config {
    Config { tenant_limits: vec![(path.to_owned(), limits)], ..Config::default() }
}

/// Requests tenants of these names until one finds no place.
fn fill(cache: &Cache, prefix: &str) -> usize {
    let got_one = |n: &usize| !path(cache, &format!("{prefix}j{n}:k")).ends_with("/:other");
    (0..20_000).take_while(got_one).count()
}

/// Looks for places as it will happen in a while.
fn reclaim_later(cache: &Cache) -> bool {
    let ms = cache.tenants().clock.now().ms + 10_000;
    cache.tenants().reclaim_at(Tick { ms, us: ms * 1000 }, None)
}

fn set_users(cache: &Cache, text: &str) {
    let users = Users::parse(text, cache.config()).expect("sound");
    cache.check_users(&users).expect("room");
    cache.tenants().set_users(&users.subscribe().borrow());
}

/// Users have tenants of their own, however many others fill the table.
#[test]
fn a_full_table_leaves_users_their_tenants() {
    let cache = cache(Config { tenants_max: 200, ..Config::default() });
    set_users(&cache, "acme:pw\neve:pw\nbob:pw\nweb:pw /team/web\n");
    for hog in ["acme:", "eve:", "eve:deep:er:", "", "anon:", "team:"] {
        fill(&cache, hog);
    }
    for (key, expected) in [
        ("bob:k", "/bob"),
        ("bob:web:k", "/bob/web"),
        ("bob:api:k", "/bob/api"),
        ("team:web:a:k", "/team/web/a"),
        ("late:k", "/:other"),
    ] {
        assert_eq!(path(&cache, key), expected);
    }
    let places = cache.places();
    assert!(places.refused >= 6 && places.taken <= 200, "{places:?}");
}

#[test]
fn one_prefix_leaves_half_of_the_table_to_others() {
    let cache = cache(Config { tenants_max: 100, ..Config::default() });
    assert_eq!(fill(&cache, "acme:"), 49, "and /acme");
    assert_eq!(path(&cache, "acme:x:y:k"), "/acme/:other");
    assert_eq!(path(&cache, "bob:web:k"), "/bob/web");
    assert_eq!(cache.places().largest, Some(("/acme".to_owned(), 50)));
}

/// Tenants that hold nothing make room for new ones; others stay.
#[test]
fn empty_tenants_make_room() {
    let limits = TenantLimits { rate: Some(Rate::new(9, DAY)), ..TenantLimits::default() };
    let cache = cache(Config { tenants_max: 20, ..limited("/limited", limits) });
    put(&cache, &tenant(&cache, b"full:k"), b"full:k");
    put(&cache, &tenant(&cache, b"above:full:k"), b"above:full:k");
    let own = tenant(&cache, b"own:k").group.clone();
    own.set_low(cache.metrics().memory, Some(9));
    fill(&cache, "");
    assert_eq!(path(&cache, "late:k"), "/:other");
    assert!(reclaim_later(&cache));
    assert_eq!(path(&cache, "late:k"), "/late");
    for stays in ["/limited", "/full", "/above/full", "/own"] {
        assert!(cache.tree().get(stays).is_some(), "{stays}");
    }
    assert!(cache.tree().get("/j0").is_none() && cache.tree().get("/:other").is_none());
    // Used again in the meantime.
    let now_ms = cache.tenants().clock.now().ms + 9_000;
    // Relaxed: one thread.
    cache.tenants().now_ms.store(now_ms, Ordering::Relaxed);
    drop(tenant(&cache, b"late:k"));
    reclaim_later(&cache);
    assert!(cache.tree().get("/late").is_some());
}

/// Places of tenants that the program killed are free after a pause.
#[test]
fn places_of_killed_tenants_come_back() {
    let cache = cache(Config { tenants_max: 100, ..Config::default() });
    fill(&cache, "");
    for group in cache.tree().root().children().iter().filter(|group| group.name() != ":other") {
        group.kill().expect("it has no children");
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while path(&cache, "new:k") != "/new" {
        assert!(Instant::now() < deadline, "no place came back");
    }
}

#[test]
fn a_limit_holds_again_though_the_table_is_full() {
    let memory = TenantLimits { weight: Some(7), low: Some(1), ..(1 << 20).into() };
    let cache = cache(Config { tenants_max: 20, ..limited("/acme/web", memory) });
    fill(&cache, "");
    for victim in ["/acme/web", "/acme"] {
        cache.tree().get(victim).expect(victim).kill_subtree().expect("it lives");
        cache.tenants().sweep_all();
        fill(&cache, "more");
        assert_eq!(path(&cache, "acme:web:k"), "/acme/web");
        let group = cache.tree().get("/acme/web").expect("it was asked for");
        let usage = group.usage(cache.metrics().memory);
        assert_eq!((usage.limit, usage.low), (Some(1 << 20), Some(1)));
        assert_eq!(group.weight(cache.metrics().requests), Some(7));
    }
}

#[test]
fn deleting_a_tenant_again_gives_no_burst() {
    let rate = TenantLimits { rate: Some(Rate::new(10, DAY)), ..TenantLimits::default() };
    let cache = cache(limited("/acme", rate));
    set_users(&cache, "acme:pw\n");
    let requests = cache.metrics().requests;
    let acme = || tenant(&cache, b"acme:k").group.clone();
    let take = || (0..4).filter(|_| acme().try_take(requests, 1).is_ok()).count();
    let delete = || {
        let acme = acme();
        acme.kill().expect("it has no children");
        drop(cache.tenants().detach(&acme));
    };
    let mut granted = 0;
    for _ in 0..5 {
        granted += take();
        delete();
    }
    assert_eq!(granted, 10);
    // Nor does a tenant find a rate that it no longer has, whether it lives in the meantime or not.
    for lives in [false, true] {
        cache.set_limits(&[("/acme".to_owned(), rate)]).expect("sound");
        if lives {
            take();
        }
        cache.set_limits(&[]).expect("sound");
        assert_eq!((acme().rate(requests), take()), (None, 4));
        delete();
        assert_eq!((acme().rate(requests), take()), (None, 4));
    }
    // A rate that is given back is kept again.
    cache.set_limits(&[("/acme".to_owned(), rate)]).expect("sound");
    assert_eq!((take(), take()), (4, 4));
    delete();
    assert_eq!((take(), take()), (2, 0));
}

/// Strays take nothing from a tenant, and can have a limit of their own.
#[test]
fn strays_have_a_limit_of_their_own() {
    for (delimiter, strays) in [(b':', "/:other"), (b'o', "/oother"), (b'.', "/.other")] {
        let rate = |n| TenantLimits { rate: Some(Rate::new(n, DAY)), ..Default::default() };
        let limits = vec![("/name".to_owned(), rate(1)), (strays.to_owned(), rate(40))];
        let cache = cache(Config { delimiter, tenant_limits: limits, ..Config::default() });
        let mark = char::from(delimiter);
        for key in [format!("{mark}k"), format!("{mark}{mark}k"), format!("/{mark}k")] {
            assert_eq!(path(&cache, &key), strays, "{key}");
        }
        let keys = [format!("other{mark}k"), format!("{mark}other{mark}k")];
        for key in &keys {
            let found = tenant(&cache, key.as_bytes());
            let is_own = found.group.path() == "/other";
            assert!(is_own || found.group.path() == strays, "{key}: {found:?}");
        }
        assert_eq!(
            tenant(&cache, format!("{mark}k").as_bytes()).group.rate(cache.metrics().requests),
            Some(Rate::new(40, DAY))
        );
    }
    let cache = cache(Config::default());
    assert_eq!(path(&cache, "other:k"), "/other");
    assert_eq!(path(&cache, "other::k"), "/other/:other");
}

#[test]
fn places_follow_limits_that_are_replaced() {
    let cache = cache(Config { tenants_max: 10, ..limited("/a", 1000.into()) });
    assert_eq!(path(&cache, "b:k"), "/b");
    for (limits, taken) in [(vec!["/b"], 2), (vec!["/b", "/c/d"], 4), (vec![], 4), (vec!["/a"], 4)]
    {
        let limits: Vec<_> = limits.iter().map(|path| ((*path).to_owned(), 1000.into())).collect();
        cache.set_limits(&limits).expect("few");
        assert_eq!(cache.places().taken, taken, "{limits:?}");
    }
    for group in cache.tree().root().children() {
        group.kill_subtree().expect("it lives");
    }
    cache.tenants().sweep_all();
    assert_eq!(cache.places().taken, 1, "that of /a, which may come back");
}

/// Groups of the program become tenants, or are killed where there is no place.
#[test]
fn the_programs_groups_become_tenants() {
    let cache = cache(Config { tenants_max: 40, ..limited("/a", 1000.into()) });
    let get = cache.metrics().cmd_get;
    for n in 0..20 {
        for path in [format!("/g{n}"), format!("/a/g{n}"), format!("/a/g0/g{n}")] {
            cache.tree().get_or_create(&path).expect("room").add(get, 1);
        }
    }
    cache.adopt();
    cache.tree().flush();
    assert!(cache.tree().group_count() <= 41, "{}", cache.tree().group_count());
    assert_eq!(cache.tree().root().sum(get), 60);
    assert_eq!(cache.tree().get("/a").expect("it has a limit").sum(get), 40);
    assert!(Tenant::of(&cache.tree().get("/a/g0").expect("there was a place")).is_some());
    assert!(reclaim_later(&cache));
    assert_eq!(path(&cache, "new:k"), "/new");
}

struct DepthAsLimit(Quota<Bytes>);

impl OnCreate for DepthAsLimit {
    fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
        group.set_limit(self.0, Some(group.depth() as u64));
        publish();
        assert!(Tenant::of(group).is_none(), "nobody could charge it yet");
    }
}

/// The program sets up a tenant that returns, which then continues its rate.
#[test]
fn a_returning_tenant_keeps_its_rate() {
    let config =
        Config { tenants_kept: vec!["/a/b".to_owned()], tenants_max: 9, ..Config::default() };
    let cache = cache(config);
    let (memory, requests) = (cache.metrics().memory, cache.metrics().requests);
    let limits = Arc::new(DepthAsLimit(memory));
    cache.tree().on_create(&limits);
    let group = tenant(&cache, b"a:b:k").group.clone();
    group.set_rate(requests, Some(Rate::new(5, DAY))).expect("it can be kept");
    group.try_take(requests, 5).expect("5 are there");
    group.parent().expect("/a").kill_subtree().expect("it lives");
    cache.tenants().sweep_all();
    fill(&cache, "");
    let group = tenant(&cache, b"a:b:k").group.clone();
    assert_eq!((group.path(), group.usage(memory).limit), ("/a/b", Some(2)));
    assert_eq!((group.rate(requests), group.balance(requests)), (Some(Rate::new(5, DAY)), Some(0)));
}

#[test]
fn a_tenants_limits_leave_the_programs_alone() {
    let rate = TenantLimits { rate: Some(Rate::new(5, DAY)), ..TenantLimits::default() };
    let high = TenantLimits { high: Some(9), ..TenantLimits::default() };
    let limits = |limits| [("/a/b".to_owned(), limits)];
    let cache = cache(Config { tenant_limits: limits(rate).to_vec(), ..Config::default() });
    let (memory, requests) = (cache.metrics().memory, cache.metrics().requests);
    let depth = Arc::new(DepthAsLimit(memory));
    cache.tree().on_create(&depth);
    tenant(&cache, b"a:b:k").group.parent().expect("/a").kill_subtree().expect("it lives");
    cache.tenants().sweep_all();
    let group = tenant(&cache, b"a:b:k").group.clone();
    let set = || (group.usage(memory).limit, group.rate(requests), group.usage(memory).high);
    assert_eq!(set(), (Some(2), rate.rate, None), "as it is created");
    cache.set_limits(&limits(high)).expect("they can be set");
    assert_eq!(set(), (Some(2), None, Some(9)), "its own are replaced");
    cache.set_limits(&[]).expect("they can be set");
    assert_eq!(set(), (Some(2), None, None), "and lifted");
}

#[test]
fn limits_that_are_refused_leave_no_group_behind() {
    let cache = cache(Config { tenants_max: 20, ..Config::default() });
    let many: Vec<_> = (0..500).map(|n| (format!("/t{n}"), TenantLimits::from(4096))).collect();
    let before = cache.tree().group_count();
    let error = cache.set_limits(&many).expect_err("too many").to_string();
    assert!(error.contains("500 tenants have limits"), "{error}");
    assert_eq!(cache.tree().group_count(), before);
}

/// A tenant with its full share takes no room from others while there is some.
#[test]
fn a_full_share_costs_others_nothing() {
    let cache = cache(Config { tenants_max: 40, ..Config::default() });
    let ask = |path: &str| cache.tenants().places.to_ask(path);
    (0..40).for_each(|n| drop(tenant(&cache, format!("acme:t{n}:k").as_bytes())));
    tenant(&cache, b"idle:k");
    assert_eq!(ask("/acme/t99").as_deref(), Some("/acme"), "a half is left");
    let later = |minutes: u64, owner: Option<&str>| {
        let ms = cache.tenants().clock.now().ms + minutes * 60_000;
        cache.tenants().reclaim_at(Tick { ms, us: ms * 1000 }, owner)
    };
    assert!(later(1, Some("/acme")));
    assert!(cache.tree().get("/idle").is_some(), "nobody lacked its place");
    assert!(later(2, None));
    assert!(cache.tree().get("/idle").is_none());
}
