//! Tests of the way from keys to tenants.

use std::time::{Duration, Instant};

use super::resolver::KNOWN_MAX;
use super::*;
use crate::item::Draft;
use crate::{Cache, Config};
use submeter::refs::pin;

fn path(resolver: &mut Resolver<'_>, key: &[u8]) -> String {
    if resolver.is_full() {
        resolver.forget();
    }
    let account = resolver.resolve(key);
    resolver.tenant(account).group.path().to_owned()
}

pub(super) fn cache(config: Config) -> Cache {
    Cache::new(config).expect("the configuration is sound")
}

#[test]
fn names_before_the_last_delimiter_are_the_path() {
    let cache = cache(Config::default());
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    for (key, expected) in [
        (&b"k"[..], "/"),
        (b"acme:k", "/acme"),
        (b"acme:web:k", "/acme/web"),
        (b"acme:web:", "/acme/web"),
        (b"acme:k", "/acme"),
        (b"a:b:c:d:k", "/a/b/c/d"),
    ] {
        assert_eq!(path(&mut resolver, key), expected, "{key:?}");
    }
}

#[test]
fn what_is_too_deep_goes_to_other_of_the_deepest() {
    let cache = cache(Config { depth_max: 2, ..Config::default() });
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    assert_eq!(path(&mut resolver, b"a:b:k"), "/a/b");
    assert_eq!(path(&mut resolver, b"a:b:c:k"), "/a/b/:other");
    assert_eq!(path(&mut resolver, b"a:b:c:d:e:k"), "/a/b/:other");
    assert_eq!(path(&mut resolver, b"a:b:k"), "/a/b");
}

#[test]
fn what_is_too_many_goes_to_other_of_the_parent() {
    let cache = cache(Config { tenants_max: 3, ..Config::default() });
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    assert_eq!(path(&mut resolver, b"a:b:k"), "/a/b");
    assert_eq!(path(&mut resolver, b"c:k"), "/c");
    assert_eq!(path(&mut resolver, b"d:k"), "/:other");
    assert_eq!(path(&mut resolver, b"d:e:k"), "/:other");
    assert_eq!(path(&mut resolver, b"a:x:k"), "/a/:other");
    assert_eq!(path(&mut resolver, b"a:b:k"), "/a/b");
}

#[test]
fn names_that_no_group_can_have_go_to_other() {
    let cache = cache(Config::default());
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    for (key, expected) in [
        (&b":k"[..], "/:other"),
        (b"a::k", "/a/:other"),
        (b"a:..:k", "/a/:other"),
        (b"a:b/c:k", "/a/:other"),
        (b"a:\x01:k", "/a/:other"),
        (b"\xff\xfe:k", "/:other"),
        (b".:a:b:k", "/:other"),
    ] {
        assert_eq!(path(&mut resolver, key), expected, "{key:?}");
    }
}

#[test]
fn a_killed_tenant_anew_is_not_counted_twice() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    let first = resolver.resolve(b"a:k");
    let first = resolver.tenant(first).group.clone();
    first.kill().expect("it has no children");
    let second = resolver.resolve(b"a:k");
    let second = resolver.tenant(second).group.clone();
    assert_eq!(second.path(), "/a");
    assert_ne!(first, second);
    assert!(!second.is_killed());
}

/// More tenants than are remembered are still told apart.
#[test]
fn tenants_beyond_memory_are_told_apart() {
    let cache = cache(Config::default());
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    for round in 0..2 {
        for n in 0..2 * KNOWN_MAX {
            let expected = format!("/t{n}");
            let key = format!("t{n}:k");
            assert_eq!(path(&mut resolver, key.as_bytes()), expected, "round {round}");
        }
    }
}

#[test]
fn a_killed_tenant_in_the_list_is_not_handed_out() {
    let cache = cache(Config::default());
    let tenants = cache.tenants();
    let hash = tenants.index.hash(b"a:b");
    let guard = pin();
    assert!(tenants.index.find(hash, b"a:b", &guard).is_none());
    let first = tenants.find(hash, b"a:b", &guard);
    let listed = |it: &Arc<Tenant>| {
        tenants.index.find(hash, b"a:b", &guard).is_some_and(|found| Arc::ptr_eq(found, it))
    };
    assert!(listed(&first));
    first.group.kill().expect("it has no children");
    assert!(tenants.index.find(hash, b"a:b", &guard).is_none());
    let late = tenants.index.find_or_insert(hash, b"a:b", |_| Ok::<_, ()>(Arc::clone(&first)));
    assert!(late.is_ok_and(|late| Arc::ptr_eq(&late, &first)));
    assert!(tenants.index.find(hash, b"a:b", &guard).is_none());
    let second = tenants.find(hash, b"a:b", &guard);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(listed(&second));
    // A late removal of the first does not remove the second.
    assert_eq!(tenants.detach(&first.group).len(), 1);
    assert!(listed(&second));
}

#[test]
fn what_stands_in_for_a_tenant_is_not_listed() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let tenants = cache.tenants();
    let guard = pin();
    for prefix in [&b"a"[..], b"b", b"c:d", b"", b"a:.."] {
        let hash = tenants.index.hash(prefix);
        let found = tenants.find(hash, prefix, &guard);
        let is_listed = tenants.index.find(hash, prefix, &guard).is_some();
        assert_eq!(is_listed, found.group.path() == "/a");
    }
}

#[test]
fn tenants_of_one_hash_are_told_apart_in_a_batch() {
    let cache = cache(Config::default());
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    // More tenants than slots, so that some share one; in alternation, so that each takes it from
    // the other.
    for round in 0..2 {
        for n in 0..KNOWN_MAX / 2 {
            let account = resolver.resolve(format!("t{n}:k").as_bytes());
            let path = resolver.tenant(account).group.path();
            assert_eq!(path, format!("/t{n}"), "round {round}");
        }
    }
}

/// A tenant found before its deletion is held until the guard ends.
#[test]
fn a_found_tenant_outlives_its_deletion() {
    let cache = cache(Config::default());
    let tenants = cache.tenants();
    let guard = pin();
    let mut resolver = Resolver::new(tenants, &guard);
    let account = resolver.resolve(b"a:k");
    let group = cache.tree().get("/a").expect("it was asked for");
    let killed = group.kill().expect("it has no children");
    drop(tenants.detach(&group));
    drop(group);
    pin().flush();
    assert!(killed.released_blocking(Duration::ZERO).is_err(), "the batch may still charge it");
    resolver.tenant(account).group.add(cache.metrics().bytes_in, 7);
    drop(resolver);
    drop(guard);
    let deadline = Instant::now() + Duration::from_secs(60);
    while killed.released_blocking(Duration::ZERO).is_err() && Instant::now() < deadline {
        pin().flush();
        std::thread::yield_now();
    }
    assert!(killed.is_released(), "{}", killed.holders());
    assert_eq!(cache.tree().root().sum(cache.metrics().bytes_in), 7);
}

#[test]
fn a_detached_subtree_is_freed_with_its_places() {
    let cache = cache(Config { tenants_max: 5, ..Config::default() });
    let tenants = cache.tenants();
    for round in 0..3 {
        let guard = pin();
        let mut resolver = Resolver::new(tenants, &guard);
        for (key, expected) in
            [(&b"a:b:k"[..], "/a/b"), (b"a:c:k", "/a/c"), (b"a:d:k", "/a/:other")]
        {
            assert_eq!(path(&mut resolver, key), expected, "round {round}");
        }
        drop(resolver);
        drop(guard);
        let group = cache.tree().get("/a").expect("it was asked for");
        let killed = group.kill_subtree().expect("it is alive");
        let detached = tenants.detach(&group);
        assert_eq!(detached.len(), 4);
        assert!(tenants.detach(&group).is_empty());
        assert_eq!(tenants.places.taken(), 0);
        drop((group, detached));
        let deadline = Instant::now() + Duration::from_secs(60);
        for killed in killed {
            // Old tables of the index are freed with their epoch.
            while killed.released_blocking(Duration::ZERO).is_err() && Instant::now() < deadline {
                pin().flush();
                std::thread::yield_now();
            }
            assert!(killed.is_released(), "{}", killed.holders());
        }
    }
    // The next flush propagates what the dead have counted; after it they are gone.
    cache.tree().flush();
    assert_eq!(cache.tree().group_count(), 1, "the root");
}

#[test]
fn a_tenant_that_comes_back_has_its_limit_again() {
    let limits = vec![("/a".to_owned(), (1 << 20).into())];
    let cache = cache(Config { tenant_limits: limits, ..Config::default() });
    let memory = cache.metrics().memory;
    let first = cache.tree().get("/a").expect("it has a limit");
    assert_eq!(first.usage(memory).limit, Some(1 << 20));
    first.kill().expect("it has no children");
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    assert_eq!(path(&mut resolver, b"a:k"), "/a");
    let second = cache.tree().get("/a").expect("it was asked for");
    assert!(second != first && second.usage(memory).limit == Some(1 << 20));
}

/// Charges a tenant for an item that it stores.
pub(super) fn put(cache: &Cache, tenant: &Arc<Tenant>, key: &[u8]) {
    let now = cache.store().clock.now();
    let value = [&b"v"[..], b""];
    let draft = Draft { key, value, client_flags: 0, expires_ms: 0, marks: 0 };
    let charge = cache.store().charge(tenant, draft.cost(), now).expect("there is room");
    cache.store().slot(key, now, &pin()).put(draft, tenant, charge, None);
}

pub(super) fn tenant(cache: &Cache, key: &[u8]) -> Arc<Tenant> {
    let guard = pin();
    let mut resolver = Resolver::new(cache.tenants(), &guard);
    let account = resolver.resolve(key);
    Arc::clone(resolver.tenant(account))
}

fn is_found(cache: &Cache, sought: &Arc<Tenant>) -> bool {
    let mut stack = vec![cache.tree().root().clone()];
    while let Some(group) = stack.pop() {
        if group == sought.group {
            return true;
        }
        stack.extend(cache.tenants().children(&group).0);
    }
    false
}

#[test]
fn a_group_leads_to_a_tenant_it_does_not_keep() {
    let cache = cache(Config::default());
    let own = tenant(&cache, b"a:b:k");
    let group = cache.tree().get("/a/b").expect("it was asked for");
    assert!(Tenant::of(&group).is_some_and(|found| Arc::ptr_eq(&found, &own)));
    group.kill().expect("it has no children");
    drop(own);
    drop(cache.tenants().detach(&group));
    let deadline = Instant::now() + Duration::from_secs(60);
    // The old table of the index is freed with its epoch.
    while Tenant::of(&group).is_some() && Instant::now() < deadline {
        pin().flush();
        std::thread::yield_now();
    }
    assert!(Tenant::of(&group).is_none());
    // Its successor has a tenant of its own.
    let next = tenant(&cache, b"a:b:k");
    assert!(next.group != group && Tenant::of(&next.group).is_some());
}

/// A tenant whose deletion was abandoned is found, also beside its parent's deletion.
#[test]
fn an_abandoned_deletion_keeps_the_tenant() {
    let cache = cache(Config::default());
    let tenants = cache.tenants();
    let child = tenant(&cache, b"a:b:k");
    put(&cache, &child, b"a:b:k");
    let parent = Arc::clone(child.parent.as_ref().expect("below /a"));
    child.group.kill().expect("it has no children");
    let given_up = tenants.detach(&child.group);
    assert!(!is_found(&cache, &child), "it is being purged");
    parent.group.kill().expect("it has no children any more");
    let purged = tenants.detach(&parent.group);
    assert_eq!((given_up.len(), purged.len()), (1, 1));
    tenants.adopt(given_up.into_iter());
    assert!(is_found(&cache, &child));
    tenants.adopt(purged.into_iter());
    assert!(is_found(&cache, &child) && is_found(&cache, &parent));
}

#[test]
fn the_killed_below_a_deleted_tenant_go_with_it() {
    let cache = cache(Config::default());
    let child = tenant(&cache, b"a:b:k");
    child.group.kill().expect("it has no children");
    let group = cache.tree().get("/a").expect("above what was asked for");
    group.kill().expect("it has no children any more");
    let detached = cache.tenants().detach(&group);
    assert_eq!(detached.len(), 2);
    assert!(detached.iter().any(|tenant| Arc::ptr_eq(tenant, &child)));
}

/// A tenant that the program killed gives its place back, and is found again.
#[test]
fn a_killed_tenant_gives_its_place_back() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let tenants = cache.tenants();
    let killed = tenant(&cache, b"a:k");
    put(&cache, &killed, b"a:k");
    killed.group.kill().expect("it has no children");
    assert!(!is_found(&cache, &killed), "nobody was told");
    (0..tenants.index.shards() / 64).for_each(|_| tenants.sweep_some(0));
    assert!(is_found(&cache, &killed));
    assert_eq!(tenants.places.taken(), 0);
    assert_eq!(tenant(&cache, b"b:k").group.path(), "/b");
    cache.store().flush();
    assert!(killed.ring.lock().is_empty());
}

#[test]
fn a_group_with_the_programs_data_is_no_tenant() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let taken = cache.tree().create("/a").expect("there is room");
    assert!(taken.data_or_init(|| "the program's").is_ok());
    assert_eq!(tenant(&cache, b"a:k").group.path(), "/:other");
    assert_eq!(tenant(&cache, b"b:k").group.path(), "/b", "its place was given back");
}

/// Names that come and go do not pile up, even though nothing is evicted.
#[test]
fn passing_names_do_not_gather() {
    let cache = cache(Config::default());
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut lives = 0;
    // Epochs advance only while no parallel test is held up in the middle of a look.
    while lives < 500 || cache.tenants().dying.len() >= lives / 2 {
        let tenant = tenant(&cache, b"a:k");
        tenant.group.kill().expect("it has no children");
        drop(tenant);
        // Old tables of the index, which keep their tenants, are freed with their epochs.
        pin().flush();
        lives += 1;
        assert!(Instant::now() < deadline, "none of {lives} is gone");
    }
}

#[test]
fn a_search_for_children_counts_the_dying() {
    let cache = cache(Config::default());
    let kept: Vec<_> = (0..100)
        .map(|n| {
            let tenant = tenant(&cache, format!("d{n}:k").as_bytes());
            put(&cache, &tenant, format!("d{n}:k").as_bytes());
            tenant.group.kill().expect("it has no children");
            tenant
        })
        .collect();
    cache.tenants().sweep_all();
    let parent = tenant(&cache, b"a:k");
    drop(tenant(&cache, b"a:b:k"));
    let (children, looked_at) = cache.tenants().children(&parent.group);
    assert_eq!((children.len(), looked_at), (1, 1 + kept.len()), "one child, and all the dying");
}

/// A survey counts once the items of a killed tenant below another killed one.
#[test]
fn a_killed_tenant_below_a_killed_is_found_once() {
    let cache = cache(Config::default());
    let held = [&b"a:b:c:k"[..], b"a:b:k", b"a:x:y:k"].map(|key| {
        let tenant = tenant(&cache, key);
        put(&cache, &tenant, key);
        tenant
    });
    let [lower, upper, orphan] = &held;
    // From the bottom up, so that the lower one is listed first.
    for group in [&lower.group, &upper.group, &orphan.group] {
        group.kill().expect("its children are gone");
        cache.tenants().sweep_all();
    }
    orphan.group.parent().expect("/a/x").kill().expect("its child is gone");
    drop(cache.tenants().detach(orphan.group.parent().expect("/a/x")));
    cache.tenants().adopt([Arc::clone(orphan)].into_iter());
    let a = upper.group.parent().expect("/a");
    let found = cache.tenants().children(a).0;
    assert_eq!(found, [upper.group.clone(), orphan.group.clone()]);
    let memory = cache.metrics().memory;
    let sum: u64 = found.iter().map(|group| group.usage(memory).current).sum();
    assert_eq!(sum, a.usage(memory).current);
    assert!(held.iter().all(|tenant| is_found(&cache, tenant)));
}
