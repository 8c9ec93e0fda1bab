//! Usage that is protected from reclaim, below ancestors with less protection than was claimed.

use fastrand::Rng;
use submeter::{Bytes, Charge, Group, Protection, Quota, Schema, Tree};

use crate::naive::Naive;

fn tree() -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    schema.quota::<Bytes>("disk", "Held");
    let memory = schema.quota::<Bytes>("memory", "Held");
    (Tree::new(schema.build().expect("valid")).expect("room"), memory)
}

fn groups<const N: usize>(tree: &Tree, paths: [&str; N]) -> [Group; N] {
    paths.map(|path| tree.get_or_create(path).expect("room"))
}

#[test]
fn claims_are_shown_and_removed() {
    let (tree, memory) = tree();
    let [web] = groups(&tree, ["/web"]);
    assert_eq!((web.usage(memory).min, web.usage(memory).low), (None, None));
    assert_eq!(web.set_min(memory, Some(10)).min, Some(10));
    let usage = web.set_low(memory, Some(u64::MAX));
    assert_eq!(
        (usage.min, usage.low, usage.high, usage.limit),
        (Some(10), Some(u64::MAX), None, None)
    );
    let snapshot = tree.snapshot();
    let copied = snapshot.get("/web").expect("it lives").usage(memory);
    assert_eq!((copied.min, copied.low), (Some(10), Some(u64::MAX)));
    let usage = (web.set_min(memory, None).min, web.set_low(memory, Some(0)).low);
    assert_eq!(usage, (None, None));
}

/// Protection never exceeds usage, and never protects from the group itself.
#[test]
fn protection_never_exceeds_usage() {
    let (tree, memory) = tree();
    let [acme, web] = groups(&tree, ["/acme", "/acme/web"]);
    acme.set_min(memory, Some(100));
    let none = Protection::default();
    assert_eq!(web.protection(memory, tree.root()), none, "it uses nothing");
    let held = web.try_charge(memory, 70).expect("no limit");
    let of = |group: &Group, below: &Group| group.protection(memory, below).min;
    assert_eq!((of(&acme, tree.root()), of(&web, tree.root())), (70, 70));
    assert_eq!((of(&web, &acme), acme.protection(memory, &acme)), (0, none));
    assert_eq!(tree.root().protection(memory, tree.root()), none);
    drop(held);
}

#[test]
#[should_panic(expected = "/acme/web is not an ancestor of /acme")]
fn a_group_below_is_refused() {
    let (tree, memory) = tree();
    let [acme, web] = groups(&tree, ["/acme", "/acme/web"]);
    _ = acme.protection(memory, &web);
}

/// Claims beyond the parent's are cut in proportion to how much of them is used.
#[test]
fn excess_claims_are_cut_in_proportion() {
    let (tree, memory) = tree();
    let [a, c, d, e, f] = groups(&tree, ["/a", "/a/c", "/a/d", "/a/e", "/a/f"]);
    a.set_min(memory, Some(50));
    for (group, min) in [(&c, 75), (&d, 25), (&f, 500)] {
        group.set_min(memory, Some(min));
    }
    let held = [&c, &d, &e].map(|group| group.try_charge(memory, 50).expect("no limit"));
    let parts = [&c, &d, &e, &f].map(|group| group.protection(memory, tree.root()).min);
    // 50 and 25 of the claims are used; /a/f uses nothing of its own claim, and takes from no
    // sibling.
    assert_eq!(parts, [33, 16, 0, 0]);
    drop(held);
}

/// Protection that children do not claim covers what they and the parent use beyond their claims.
#[test]
fn unclaimed_protection_covers_other_usage() {
    let (tree, memory) = tree();
    let [a, b, c] = groups(&tree, ["/a", "/a/b", "/a/c"]);
    a.set_low(memory, Some(100));
    b.set_low(memory, Some(40));
    let held = [(&a, 50), (&b, 100), (&c, 90)]
        .map(|(group, n)| group.try_charge(memory, n).expect("room"));
    // 60 are left for the 200 beyond the claims: 50 of /a itself, 60 of /a/b, 90 of /a/c.
    let low = |group: &Group| group.protection(memory, tree.root()).low;
    assert_eq!([&a, &b, &c].map(low), [100, 40 + 18, 27]);
    drop(held);
}

#[test]
fn unused_protection_is_lent_until_wanted() {
    let (tree, memory) = tree();
    let [a, b, c] = groups(&tree, ["/a", "/a/b", "/a/c"]);
    for group in [&a, &b, &c] {
        group.set_low(memory, Some(100));
    }
    let lows = || [&b, &c].map(|group| group.protection(memory, tree.root()).low);
    let _held = b.try_charge(memory, 100).expect("no limit");
    assert_eq!(lows(), [100, 0]);
    let mut more = c.try_charge(memory, 25).expect("no limit");
    assert_eq!(lows(), [80, 20]);
    more.resize(100).expect("no limit");
    assert_eq!(lows(), [50, 50]);
    c.set_low(memory, None);
    assert_eq!(lows(), [100, 0]);
}

/// A killed group claims nothing and is covered by its parent.
#[test]
fn a_killed_group_claims_no_protection() {
    let (tree, memory) = tree();
    let [a, b, c] = groups(&tree, ["/a", "/a/b", "/a/c"]);
    a.set_min(memory, Some(100));
    for group in [&b, &c] {
        group.set_min(memory, Some(100));
    }
    let held = [&b, &c].map(|group| group.try_charge(memory, 100).expect("no limit"));
    let mins = || [&b, &c].map(|group| group.protection(memory, tree.root()).min);
    assert_eq!(mins(), [50, 50]);
    b.kill().expect("no children");
    assert_eq!(mins(), [0, 100]);
    c.set_min(memory, Some(60));
    assert_eq!(mins(), [28, 60 + 11], "40 are left for 100 and 40");
    drop(held);
}

#[test]
fn stock_is_not_taken_for_usage() {
    let (tree, memory) = tree();
    let [a, b] = groups(&tree, ["/a", "/a/b"]);
    a.set_low(memory, Some(u64::MAX));
    // The second charge also takes a batch of stock.
    let held = [0; 2].map(|_| b.try_charge(memory, 1 << 20).expect("no limit"));
    let lows = [&a, &b].map(|group| group.protection(memory, tree.root()).low);
    assert_eq!(lows, [2 << 20; 2]);
    drop(held);
}

/// Makes a tree of groups that hold and claim numbers up to `most`, some of them killed.
fn random(
    tree: &Tree,
    memory: Quota<Bytes>,
    rng: &mut Rng,
    most: u64,
) -> (Naive, Vec<(Group, Charge)>) {
    let (mut naive, mut made) = (Naive::default(), Vec::<(Group, Charge)>::new());
    for at in 0..rng.usize(1..24) {
        let parent = (at > 0).then(|| rng.usize(..at));
        let above = parent.map_or(tree.root(), |parent| &made[parent].0);
        let group = above.create_child(&at.to_string()).expect("room");
        let mut number = || if rng.u8(..4) == 0 { 0 } else { rng.u64(..most) };
        let (own, claims) = (number(), [number(), number()]);
        naive.add(parent, own, claims);
        group.set_min(memory, Some(claims[0]));
        group.set_low(memory, Some(claims[1]));
        let held = group.try_charge(memory, own).expect("no limit");
        made.push((group, held));
    }
    for at in (1..made.len()).rev() {
        if rng.u8(..6) == 0 && made[at].0.kill().is_ok() {
            naive.groups[at].claims = [0; 2];
        }
    }
    (naive, made)
}

/// Protection of random trees is what a naive division gives.
#[test]
fn protection_is_what_a_naive_division_gives() {
    let mut rng = Rng::with_seed(14);
    let mut compared = 0;
    let rounds = if cfg!(miri) { 4 } else { 120 };
    for most in [4, 100, 1 << 30, u64::MAX / 32].into_iter().cycle().take(rounds) {
        let (tree, memory) = tree();
        let (naive, made) = random(&tree, memory, &mut rng, most);
        for top in 0..made.len() {
            for at in (0..made.len()).filter(|&at| naive.is_below(at, top)) {
                let found = made[at].0.protection(memory, &made[top].0);
                let Protection { min, low, .. } = found;
                for (which, found) in [min, low].into_iter().enumerate() {
                    let truth = naive.protection(top, which)[at];
                    assert_eq!(u128::from(found), truth, "{at} below {top}");
                }
                compared += 1;
            }
            assert_bounds(&naive, &made, memory, top);
        }
    }
    assert!(compared > 10, "{compared}");
}

/// Asserts what holds for any division: no group gets more than it uses, a child of the top no more
/// than it claims, and children together no more than their parent.
fn assert_bounds(naive: &Naive, made: &[(Group, Charge)], memory: Quota<Bytes>, top: usize) {
    let of = |at: usize| {
        let Protection { min, low, .. } = made[at].0.protection(memory, &made[top].0);
        [min, low].map(u128::from)
    };
    for at in (0..made.len()).filter(|&at| naive.is_below(at, top)) {
        for which in [0, 1] {
            let found = of(at)[which];
            assert!(found <= naive.usage(at));
            if naive.groups[at].parent == Some(top) {
                assert!(found <= u128::from(naive.groups[at].claims[which]));
            }
            let of_children: u128 = naive.children(at).map(|child| of(child)[which]).sum();
            assert!(at == top || of_children <= found, "{of_children} below {at} with {found}");
        }
    }
}
