//! Which groups an export shows where the program does not say, and what of theirs it shows.

use submeter::export::{Export, TOP_DEFAULT};
use submeter::{Count, Counter, Gauge, Quota, Rate, RateLimit, Schema, Tree};

use crate::export::value;

struct World {
    tree: Tree,
    reads: Counter<Count>,
    writes: Counter<Count>,
    queued: Gauge<Count>,
    memory: Quota<Count>,
    requests: RateLimit<Count>,
}

impl World {
    fn new() -> World {
        let mut schema = Schema::builder();
        let reads = schema.counter("reads", "Reads");
        let writes = schema.counter("writes", "Writes");
        let queued = schema.gauge("queued", "Requests in the queue");
        let memory = schema.quota("memory", "Entries held");
        let requests = schema.rate_limit("requests", "Requests");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        World { tree, reads, writes, queued, memory, requests }
    }

    fn add(&self, path: &str, counter: Counter<Count>, n: u64) {
        self.tree.get_or_create(path).expect("room").add(counter, n);
    }

    fn text(&self, export: &Export) -> String {
        let mut text = String::new();
        export.write(&self.tree, &mut text).expect("a string");
        text
    }
}

fn is_shown(text: &str, group: &str) -> bool {
    value(text, &format!("app_reads_total{{group=\"{group}\"}}")).is_some()
}

/// A busy group is shown whatever it does, and groups that have read much more before make room.
#[test]
fn a_busy_group_is_shown_whatever_it_does() {
    let (w, export) = (World::new(), Export::new("app"));
    (0..TOP_DEFAULT + 50).for_each(|n| w.add(&format!("/t{n}"), w.reads, 20));
    w.text(&export);
    w.add("/writes", w.writes, 1000);
    assert!(is_shown(&w.text(&export), "/writes"));
}

/// A group with a limit or a rate of its own is shown, even if it is idle.
#[test]
fn a_group_with_a_limit_is_shown() {
    let (w, export) = (World::new(), Export::new("app"));
    (0..TOP_DEFAULT + 50).for_each(|n| w.add(&format!("/t{n}"), w.reads, 20));
    for path in ["/idle", "/memory", "/rate"] {
        w.add(path, w.reads, 0);
    }
    let group = |path| w.tree.get(path).expect("alive");
    group("/memory").set_limit(w.memory, Some(1));
    let rate = Rate::new(1, std::time::Duration::from_secs(1));
    group("/rate").set_rate(w.requests, Some(rate)).expect("a rate");
    let text = w.text(&export);
    let shown = ["/idle", "/memory", "/rate"].map(|path| is_shown(&text, path));
    assert_eq!(shown, [false, true, true]);
    let shown = (0..TOP_DEFAULT + 50).filter(|n| is_shown(&text, &format!("/t{n}"))).count();
    assert_eq!(shown, TOP_DEFAULT - 2);
}

/// Limits take no more than half of the places from groups that are busier.
#[test]
fn limits_take_half_of_the_places() {
    let (w, export) = (World::new(), Export::new("app"));
    for n in 0..TOP_DEFAULT * 2 {
        w.add(&format!("/limited{n}"), w.reads, 1);
        let group = w.tree.get(&format!("/limited{n}")).expect("alive");
        group.set_limit(w.memory, Some(1));
        w.add(&format!("/busy{n}"), w.writes, 10);
    }
    let text = w.text(&export);
    let shown = ["/limited", "/busy"].map(|name| {
        let numbers = 0..TOP_DEFAULT * 2;
        numbers.filter(|n| is_shown(&text, &format!("{name}{n}"))).count()
    });
    assert_eq!(shown, [TOP_DEFAULT / 2; 2]);
}

/// What a group leaves of a gauge is its parent's own, which takes off what is given back later.
#[test]
fn what_is_left_of_a_gauge_is_not_in_other() {
    let (w, export) = (World::new(), Export::new("app"));
    for round in 0..3 {
        w.add("/a", w.reads, 1);
        w.tree.get("/a").expect("alive").adjust(w.queued, 50);
        w.text(&export);
        drop(w.tree.get("/a").expect("alive").kill_subtree().expect("not the root"));
        w.tree.flush();
        let of = |text: &str, group| value(text, &format!("app_queued{{group=\"{group}\"}}"));
        let text = w.text(&export);
        assert_eq!([of(&text, "/"), of(&text, "//other")], [50.0, 0.0].map(Some), "{round}");
        w.tree.root().adjust(w.queued, -50);
        let text = w.text(&export);
        assert_eq!([of(&text, "/"), of(&text, "//other")], [0.0, 0.0].map(Some), "{round}");
    }
}
