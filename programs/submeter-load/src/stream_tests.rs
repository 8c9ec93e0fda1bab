//! Tests of the stream of requests.

use std::collections::HashMap;

use super::*;
use crate::tenants_file;

fn tenants() -> Vec<Tenant> {
    let profiles = tenants_file::built_in().expect("well-formed");
    let named = profiles.into_iter().enumerate();
    named.map(|(i, p)| Tenant::new(&format!("tenant{}", i + 1), p, b':').expect("valid")).collect()
}

fn draws(seed: u64, connection: usize, n: usize) -> Vec<Request> {
    let tenants = tenants();
    let mut stream = Stream::new(&tenants, seed, connection).expect("valid");
    (0..n).map(|_| stream.draw()).collect()
}

#[test]
fn the_seed_decides_all_and_connections_differ() {
    let first = draws(42, 0, 5000);
    assert_eq!(first, draws(42, 0, 5000));
    assert_ne!(first, draws(43, 0, 5000));
    assert_ne!(first, draws(42, 1, 5000));
}

#[test]
fn a_ratio_changes_the_commands_and_no_value() {
    let own = tenants();
    let ratio = |(at, tenant): (usize, &Tenant)| {
        let mut profile = tenant.profile.clone();
        profile.set_ratio(1.0, 3.0);
        Tenant::new(&format!("tenant{}", at + 1), profile, b':').expect("valid")
    };
    let tenants: Vec<Tenant> = own.iter().enumerate().map(ratio).collect();
    let mut stream = Stream::new(&tenants, 42, 0).expect("valid");
    let mut sets = 0;
    for _ in 0..4000 {
        let Request { tenant, verb, key, .. } = stream.draw();
        assert!(matches!(verb, Verb::Set | Verb::Get), "{verb:?}");
        sets += usize::from(verb == Verb::Set);
        let tenant = usize::from(tenant);
        assert_eq!(tenants[tenant].shape(key), own[tenant].shape(key), "{tenant}, key {key}");
    }
    assert!((900..1100).contains(&sets), "{sets} of 4000");
    assert!(own[1].shape(1).counter && own[4].shape(0).piece > 0, "numbers, and lists");
}

#[test]
fn a_stream_of_one_tenant_has_no_other() {
    let tenants = tenants();
    let mut stream = Stream::of(&tenants, 2, 42, 0).expect("valid");
    assert!((0..1000).all(|_| stream.draw().tenant == 2));
}

#[test]
fn fills_do_not_change_the_requests_that_follow() {
    let tenants = tenants();
    let mut plain = Stream::new(&tenants, 1, 0).expect("valid");
    let mut filled = Stream::new(&tenants, 1, 0).expect("valid");
    for _ in 0..1000 {
        let request = filled.draw();
        assert_eq!(plain.draw(), request);
        filled.fill(request.tenant, request.key);
    }
}

#[test]
fn tenants_verbs_and_lifetimes_have_their_shares() {
    const N: usize = 200_000;
    let tenants = tenants();
    let mut seen: HashMap<(u16, Verb), f64> = HashMap::new();
    let mut ttl_120s = 0.0;
    for request in draws(7, 0, N) {
        *seen.entry((request.tenant, request.verb)).or_default() += 1.0;
        ttl_120s += f64::from(u8::from(request.tenant == 1 && request.ttl_s == 120));
    }
    let of =
        |tenant: u16| -> f64 { Verb::ALL.iter().filter_map(|v| seen.get(&(tenant, *v))).sum() };
    let rates: f64 = tenants.iter().map(|t| t.profile.rate_kqps).sum();
    for (index, tenant) in tenants.iter().enumerate() {
        let share = of(index as u16) / N as f64;
        // Four standard deviations of a share drawn N times, generously.
        assert!(
            (share - tenant.profile.rate_kqps / rates).abs() < 0.006,
            "tenant {index}: {share}"
        );
    }
    let incr = seen[&(1, Verb::Incr)] / of(1);
    assert!((incr - 0.3 / 0.99).abs() < 0.02, "{incr}");
    assert!((ttl_120s / of(1) - 0.93 / 1.01).abs() < 0.02, "{ttl_120s}");
}

#[test]
fn keys_follow_zipf() {
    const N: usize = 200_000;
    for (alpha, keys) in [(0.0, 1000_u32), (1.0, 1000), (1.2117, 20_000)] {
        let mut profile = Profile::typical("t");
        profile.zipf_alpha = alpha;
        profile.working_set_mb = f64::from(keys * (profile.key_bytes + profile.value_bytes)) / 1e6;
        let tenant = Tenant::new("t", profile, b':').expect("valid");
        assert!(tenant.keys.abs_diff(keys) <= 1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut counts = vec![0_f64; tenant.keys as usize];
        for _ in 0..N {
            counts[tenant.draw_key(Verb::Get, &mut rng) as usize] += 1.0;
        }
        let harmonic: f64 = (1..=tenant.keys).map(|rank| f64::from(rank).powf(-alpha)).sum();
        for ranks in [1_u32..2, 2..3, 10..20, 100..1000] {
            let seen: f64 = counts[ranks.start as usize - 1..ranks.end as usize - 1].iter().sum();
            let truth: f64 =
                ranks.clone().map(|rank| f64::from(rank).powf(-alpha) / harmonic).sum::<f64>();
            let (share, deviation) = (seen / N as f64, (truth * (1.0 - truth) / N as f64).sqrt());
            assert!(
                (share - truth).abs() < 6.0 * deviation,
                "alpha {alpha}, ranks {ranks:?}: {share} for {truth}"
            );
        }
    }
}

/// Keys are distinct, valid and as long as the statistics say.
#[test]
fn keys_are_distinct_valid_and_of_such_lengths() {
    for (index, tenant) in tenants().into_iter().enumerate() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..tenant.keys {
            let mut key = Vec::new();
            tenant.write_key(number, &mut key);
            assert_eq!(key.len(), tenant.key_len());
            assert!(key.starts_with(format!("load:tenant{}:", index + 1).as_bytes()));
            assert!(key.iter().all(u8::is_ascii_graphic));
            assert!(seen.insert(key));
        }
        let wanted = tenant.profile.key_bytes as usize;
        assert!(tenant.key_len() >= wanted && tenant.key_len() <= wanted.max(19));
    }
}

#[test]
fn value_lengths_have_the_mean_and_the_maximum() {
    for tenant in tenants() {
        let n = 20_000;
        let sum: f64 = (0..n).map(|key| tenant.shape(key).len as f64).sum();
        let (mean, wanted) = (sum / f64::from(n), f64::from(tenant.profile.value_bytes));
        assert!((mean - wanted).abs() / wanted < 0.02, "{mean} for {wanted}");
    }
    let mut profile = Profile::typical("t");
    for value_bytes in [0, 1, 2, VALUE_MAX] {
        profile.value_bytes = value_bytes;
        let tenant = Tenant::new("t", profile.clone(), b':').expect("valid");
        assert!((0..1000).all(|key| tenant.shape(key).len <= VALUE_MAX as usize));
    }
}

#[test]
fn a_name_with_the_delimiter_is_refused() {
    let error = Tenant::new("a-b", Profile::typical("x"), b'-').expect_err("refused");
    assert!(error.contains("a-b") && error.contains("--delimiter"), "{error}");
}
