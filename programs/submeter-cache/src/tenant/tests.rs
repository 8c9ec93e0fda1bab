//! From keys to tenants.

use super::resolver::KNOWN_MAX;
use super::*;
use crate::{Cache, Config};

fn path(cache: &Cache, resolver: &mut Resolver, key: &[u8]) -> String {
    if resolver.is_full() {
        resolver.forget();
    }
    let account = resolver.resolve(cache.tenants(), key);
    resolver.tenant(account).group.path().to_owned()
}

fn cache(config: Config) -> Cache {
    Cache::new(config).expect("the configuration is sound")
}

#[test]
fn the_names_before_the_last_delimiter_are_the_path() {
    let cache = cache(Config::default());
    let mut resolver = Resolver::new(cache.tenants());
    for (key, expected) in [
        (&b"k"[..], "/"),
        (b"acme:k", "/acme"),
        (b"acme:web:k", "/acme/web"),
        (b"acme:web:", "/acme/web"),
        (b"acme:k", "/acme"),
        (b"a:b:c:d:k", "/a/b/c/d"),
    ] {
        assert_eq!(path(&cache, &mut resolver, key), expected, "{key:?}");
    }
}

#[test]
fn what_is_too_deep_goes_to_other_of_the_deepest() {
    let cache = cache(Config { depth_max: 2, ..Config::default() });
    let mut resolver = Resolver::new(cache.tenants());
    assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
    assert_eq!(path(&cache, &mut resolver, b"a:b:c:k"), "/a/b/other");
    assert_eq!(path(&cache, &mut resolver, b"a:b:c:d:e:k"), "/a/b/other");
    assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
}

#[test]
fn what_is_too_many_goes_to_other_of_the_parent() {
    let cache = cache(Config { tenants_max: 3, ..Config::default() });
    let mut resolver = Resolver::new(cache.tenants());
    assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
    assert_eq!(path(&cache, &mut resolver, b"c:k"), "/c");
    assert_eq!(path(&cache, &mut resolver, b"d:k"), "/other");
    assert_eq!(path(&cache, &mut resolver, b"d:e:k"), "/other");
    assert_eq!(path(&cache, &mut resolver, b"a:x:k"), "/a/other");
    assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
}

#[test]
fn names_that_no_group_can_have_go_to_other() {
    let cache = cache(Config::default());
    let mut resolver = Resolver::new(cache.tenants());
    for (key, expected) in [
        (&b":k"[..], "/other"),
        (b"a::k", "/a/other"),
        (b"a:..:k", "/a/other"),
        (b"a:b/c:k", "/a/other"),
        (b"a:\x01:k", "/a/other"),
        (b"\xff\xfe:k", "/other"),
        (b".:a:b:k", "/other"),
    ] {
        assert_eq!(path(&cache, &mut resolver, key), expected, "{key:?}");
    }
}

#[test]
fn a_killed_tenant_is_created_anew_and_not_counted_twice() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let mut resolver = Resolver::new(cache.tenants());
    let first = resolver.resolve(cache.tenants(), b"a:k");
    let first = resolver.tenant(first).group.clone();
    first.kill().expect("it has no children");
    let second = resolver.resolve(cache.tenants(), b"a:k");
    let second = resolver.tenant(second).group.clone();
    assert_eq!(second.path(), "/a");
    assert_ne!(first, second);
    assert!(!second.is_killed());
}

#[test]
fn more_tenants_than_are_remembered_are_still_told_apart() {
    let cache = cache(Config::default());
    let mut resolver = Resolver::new(cache.tenants());
    for round in 0..2 {
        for n in 0..2 * KNOWN_MAX {
            let expected = format!("/t{n}");
            let key = format!("t{n}:k");
            assert_eq!(path(&cache, &mut resolver, key.as_bytes()), expected, "round {round}");
        }
    }
}

#[test]
fn a_killed_tenant_is_not_handed_out_though_it_is_listed() {
    let cache = cache(Config::default());
    let tenants = cache.tenants();
    let hash = tenants.index.hash(b"a:b");
    assert!(tenants.index.find(hash, b"a:b").is_none());
    let first = tenants.lease(hash, b"a:b");
    assert!(
        tenants.index.find(hash, b"a:b").is_some_and(|it| Arc::ptr_eq(&it.tenant, &first.tenant))
    );
    first.tenant.group.kill().expect("it has no children");
    assert!(tenants.index.find(hash, b"a:b").is_none());
    tenants.index.insert(hash, b"a:b", &first.tenant);
    assert!(tenants.index.find(hash, b"a:b").is_none());
    let second = tenants.lease(hash, b"a:b");
    assert!(!Arc::ptr_eq(&first.tenant, &second.tenant));
    assert!(
        tenants.index.find(hash, b"a:b").is_some_and(|it| Arc::ptr_eq(&it.tenant, &second.tenant))
    );
    // A late removal of the first does not remove the second.
    tenants.index.remove(b"a:b", &first.tenant);
    assert!(tenants.index.find(hash, b"a:b").is_some());
}

#[test]
fn what_stands_in_for_a_tenant_is_not_listed() {
    let cache = cache(Config { tenants_max: 1, ..Config::default() });
    let tenants = cache.tenants();
    for prefix in [&b"a"[..], b"b", b"c:d", b"", b"a:.."] {
        let hash = tenants.index.hash(prefix);
        let lease = tenants.lease(hash, prefix);
        assert_eq!(tenants.index.find(hash, prefix).is_some(), lease.tenant.group.path() == "/a");
    }
}

#[test]
fn a_detached_subtree_gives_its_places_back_and_is_freed() {
    let cache = cache(Config { tenants_max: 3, ..Config::default() });
    let tenants = cache.tenants();
    let mut resolver = Resolver::new(tenants);
    for round in 0..3 {
        for (key, expected) in [(&b"a:b:k"[..], "/a/b"), (b"a:c:k", "/a/c"), (b"d:k", "/other")] {
            assert_eq!(path(&cache, &mut resolver, key), expected, "round {round}");
        }
        resolver.forget();
        let group = cache.tree().get("/a").expect("it was asked for");
        let killed = group.kill_subtree().expect("it is alive");
        let detached = tenants.detach(&group);
        assert_eq!(detached.len(), 3);
        assert!(tenants.detach(&group).is_empty());
        // Relaxed: one thread.
        assert_eq!(tenants.places.load(Ordering::Relaxed), 0);
        drop((group, detached));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        for killed in killed {
            // Old tables of the index are freed with their epoch.
            while !killed.is_released() && std::time::Instant::now() < deadline {
                submeter::refs::pin().flush();
                std::thread::yield_now();
            }
            assert!(killed.is_released(), "{}", killed.holders());
        }
    }
    // The next flush propagates what the dead have counted, and they are gone after it.
    cache.tree().flush();
    assert_eq!(cache.tree().group_count(), 2, "the root and /other");
}

#[test]
fn a_tenant_that_comes_back_has_its_limit_again() {
    let limits = vec![("/a".to_owned(), 1 << 20)];
    let cache = cache(Config { tenant_limits: limits, ..Config::default() });
    let memory = cache.metrics().memory;
    let first = cache.tree().get("/a").expect("it has a limit");
    assert_eq!(first.usage(memory).limit, Some(1 << 20));
    first.kill().expect("it has no children");
    let mut resolver = Resolver::new(cache.tenants());
    assert_eq!(path(&cache, &mut resolver, b"a:k"), "/a");
    let second = cache.tree().get("/a").expect("it was asked for");
    assert!(second != first && second.usage(memory).limit == Some(1 << 20));
}
