//! All servers of a fleet as one tree: each tenant with its use on all servers together, and below
//! it on each one.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use submeter_http::wire::{
    Figure, GroupDoc, ServerDoc, Shape, TreeDoc, ValueDoc, VerdictDoc, VerdictKind, ViewDoc,
};
use submeter_terminal::Failure;

use super::client::Client;

/// Maximum number of views and metrics of all servers together: each row has a figure for each.
const VIEWS_MAX: usize = 256;

/// The tree of one server, and what the server is called.
struct Member {
    name: String,
    tree: TreeDoc,
}

/// Asks all servers at once, and adds up the trees of those that answer.
///
/// # Errors
/// Returns the error of the first server if none answers.
pub(super) fn tree(clients: &[Client]) -> Result<TreeDoc, Failure> {
    let answers: Vec<Result<TreeDoc, Failure>> = thread::scope(|scope| {
        let asked: Vec<_> = clients.iter().map(|client| scope.spawn(|| client.tree())).collect();
        asked.into_iter().map(|thread| thread.join().expect("the thread does not panic")).collect()
    });
    let (mut members, mut away) = (Vec::new(), Vec::new());
    for (client, answer) in clients.iter().zip(answers) {
        let (_, name) = client.url().split_once("://").unwrap_or(("", client.url()));
        match answer {
            Ok(tree) => members.push(Member { name: name.to_owned(), tree }),
            Err(failure) => away.push((name.to_owned(), failure)),
        }
    }
    match (members.is_empty(), away.len()) {
        (true, _) => Err(away.swap_remove(0).1),
        (false, 0) => Ok(add_up(&members, None)),
        (false, 1) => Ok(add_up(&members, Some(format!("{} does not answer", away[0].0)))),
        (false, n) => {
            Ok(add_up(&members, Some(format!("{} and {} more do not answer", away[0].0, n - 1))))
        }
    }
}

/// Writes a number of servers.
pub(super) fn servers(n: usize) -> String {
    if n == 1 { "1 server".to_owned() } else { format!("{n} servers") }
}

fn add_up(members: &[Member], notice: Option<String>) -> TreeDoc {
    let trees = || members.iter().map(|member| &member.tree);
    let first = &members[0].tree;
    let mut views = first.views.clone();
    let mut schema = first.schema.clone();
    // Other programs, or other versions of the same one.
    for tree in trees() {
        let known: BTreeSet<String> = views.iter().map(|view| view.key.clone()).collect();
        views.extend(tree.views.iter().filter(|view| !known.contains(&view.key)).cloned());
        let known: BTreeSet<String> = schema.iter().map(|metric| metric.name.clone()).collect();
        schema.extend(tree.schema.iter().filter(|metric| !known.contains(&metric.name)).cloned());
        views.truncate(VIEWS_MAX);
        schema.truncate(VIEWS_MAX);
    }
    TreeDoc {
        format: first.format,
        server: ServerDoc {
            version: first.server.version.clone(),
            listen: servers(members.len()),
            started_ms: trees().map(|tree| tree.server.started_ms).min().unwrap_or_default(),
            cpus: trees().map(|tree| tree.server.cpus).fold(0, usize::saturating_add),
            notice,
            first_steps: None,
            limit_example: None,
            sets_limits: false,
            asks_token: false,
        },
        at_ms: trees().map(|tree| tree.at_ms).max().unwrap_or_default(),
        window_s: trees().map(|tree| tree.window_s).fold(0.0, f64::max),
        groups: groups(members, &views),
        schema,
        views,
        panels: Vec::new(),
        verdicts: members.iter().flat_map(verdicts).collect(),
    }
}

/// Returns a server's verdicts, each naming the server.
fn verdicts(member: &Member) -> impl Iterator<Item = VerdictDoc> + '_ {
    // At most one of each kind, whatever the server sends.
    member.tree.verdicts.iter().take(VerdictKind::ALL.len()).map(|verdict| {
        let text = verdict.text.trim_end_matches('.');
        VerdictDoc { text: format!("{text}, on {}.", member.name), ..verdict.clone() }
    })
}

/// Returns one row for each group of any server, and below those without children one for each
/// server.
fn groups(members: &[Member], views: &[ViewDoc]) -> Vec<GroupDoc> {
    // Sorted by path, so that each comes before its children.
    let mut by_path: BTreeMap<&str, Vec<(&str, &GroupDoc)>> = BTreeMap::new();
    let mut inner = BTreeSet::new();
    for Member { name, tree } in members {
        // Any server may be at the address: another path would take the place of the root.
        for group in tree.groups.iter().filter(|group| group.path.starts_with('/')) {
            by_path.entry(&group.path).or_default().push((name, group));
            if let Some(parent) = group.parent.and_then(|parent| tree.groups.get(parent)) {
                inner.insert(parent.path.as_str());
            }
        }
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<GroupDoc> = Vec::new();
    for (path, of) in by_path {
        let parent =
            path.rsplit_once('/').map(|(above, _)| if above.is_empty() { "/" } else { above });
        let parent = parent.filter(|_| path != "/").and_then(|parent| places.get(parent).copied());
        let depth = parent.map_or(0, |parent| groups[parent].depth + 1);
        let at = groups.len();
        places.insert(path, at);
        let parts: Vec<&GroupDoc> = of.iter().map(|(_, group)| *group).collect();
        groups.push(GroupDoc { path: path.to_owned(), depth, parent, ..sum(&parts, views) });
        if !inner.contains(path) {
            groups.extend(of.iter().map(|&(name, group)| GroupDoc {
                path: format!("{}/{name}", path.trim_end_matches('/')),
                depth: depth + 1,
                parent: Some(at),
                ..group.clone()
            }));
        }
    }
    groups
}

/// Returns a group's figures summed over several servers; the caller sets the path and the place.
fn sum(parts: &[&GroupDoc], views: &[ViewDoc]) -> GroupDoc {
    // The weight of shares: two servers' hit ratios count by their requests.
    let weight = views.iter().find(|view| view.shape == Shape::Rate);
    let figure = |part: &GroupDoc, view: &ViewDoc| part.overview.get(&view.key)?.0;
    let of = |view: &ViewDoc| {
        let known = || parts.iter().filter_map(|part| Some((figure(part, view)?, *part)));
        let all = known().map(|(figure, _)| figure);
        let value = match view.shape {
            // The figure of the worst server.
            Shape::Time => all.reduce(f64::max),
            Shape::Share if view.is_pressure => all.reduce(f64::max),
            Shape::Share => {
                let weigh = |part| weight.and_then(|weight| figure(part, weight)).unwrap_or(1.0);
                let (sum, weights) = known().fold((0.0, 0.0), |(sum, weights), (figure, part)| {
                    (sum + figure * weigh(part), weights + weigh(part))
                });
                if weights > 0.0 { Some(sum / weights) } else { all.reduce(f64::max) }
            }
            _ => all.reduce(|a, b| a + b),
        };
        (view.key.clone(), Figure(value))
    };
    let (mut values, mut rates): (BTreeMap<String, ValueDoc>, BTreeMap<String, f64>) =
        Default::default();
    for part in parts {
        for (name, value) in &part.values {
            match values.get_mut(name) {
                Some(sum) => add(sum, value),
                None => drop(values.insert(name.clone(), value.clone())),
            }
        }
        for (name, rate) in &part.rates {
            *rates.entry(name.clone()).or_default() += rate;
        }
    }
    let overview = views.iter().map(of).filter(|(_, figure)| figure.0.is_some()).collect();
    GroupDoc { path: String::new(), depth: 0, parent: None, overview, values, rates }
}

/// Adds one server's value to the others'. Quantiles become those of the worst server; if the kinds
/// differ, the first stays.
fn add(sum: &mut ValueDoc, more: &ValueDoc) {
    match (sum, more) {
        (ValueDoc::Unsigned(sum), ValueDoc::Unsigned(n)) => *sum = sum.saturating_add(*n),
        (ValueDoc::Signed(sum), ValueDoc::Signed(n)) => *sum = sum.saturating_add(*n),
        (
            ValueDoc::Histogram { count, sum, p50, p90, p99, p999 },
            ValueDoc::Histogram { count: c, sum: s, p50: a, p90: b, p99: d, p999: e },
        ) => {
            *count = count.saturating_add(*c);
            *sum = sum.saturating_add(*s);
            for (most, more) in [(p50, a), (p90, b), (p99, d), (p999, e)] {
                *most = (*most).max(*more);
            }
        }
        (
            ValueDoc::Quota { current, peak, limit, refused, overdrafts, paused, .. },
            ValueDoc::Quota {
                current: c,
                peak: p,
                limit: l,
                refused: r,
                overdrafts: o,
                paused: w,
                ..
            },
        ) => {
            for (sum, n) in [(current, c), (peak, p), (refused, r), (overdrafts, o), (paused, w)] {
                *sum = sum.saturating_add(*n);
            }
            // Without a limit on one server there is none on all.
            *limit = limit.zip(*l).map(|(a, b)| a.saturating_add(b));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::State;
    use super::super::state_tests::{GROUPS, tree};
    use super::*;

    fn member(name: &str, groups: &[(&str, f64)]) -> Member {
        Member { name: name.to_owned(), tree: tree(groups) }
    }

    fn figure(doc: &TreeDoc, path: &str, view: usize) -> Option<f64> {
        let group = doc.groups.iter().find(|group| group.path == path).expect("a row");
        group.overview[&doc.views[view].key].0
    }

    #[test]
    fn what_a_server_says_has_its_name_and_an_end() {
        let mut one = member("a:1", &GROUPS);
        let said = r#"{"kind":"of a later version","group":"/b","tenants":1,"text":" sleeps.",
            "short":"","why":"","since_ms":0}"#;
        one.tree.verdicts = vec![serde_json::from_str(said).expect("a verdict"); 1000];
        let doc = add_up(&[one, member("b:1", &GROUPS)], None);
        assert_eq!(doc.verdicts.len(), VerdictKind::ALL.len());
        assert_eq!(doc.verdicts[0].text, " sleeps, on a:1.");
        assert_eq!(doc.verdicts[0].kind, VerdictKind::Unknown);
    }

    /// A hostile server hides no tenant and takes bounded memory.
    #[test]
    fn a_hostile_server_hides_no_tenant() {
        let mut hostile = member("x", &[("/", 9.0), ("/a", 9.0), ("/e", 9.0), ("/f", 9.0)]);
        for (at, path) in [(0, "-"), (2, ""), (3, "!")] {
            path.clone_into(&mut hostile.tree.groups[at].path);
        }
        hostile.tree.server.cpus = usize::MAX;
        for group in &mut hostile.tree.groups {
            group.depth = usize::MAX;
        }
        let view = hostile.tree.views[0].clone();
        let views = (0..100_000).map(|n| ViewDoc { key: n.to_string(), ..view.clone() });
        hostile.tree.views.extend(views);
        let doc = add_up(&[hostile, member("a:1", &GROUPS)], None);
        assert_eq!((doc.groups[0].path.as_str(), doc.groups[0].depth), ("/", 0));
        assert_eq!(doc.groups.iter().map(|group| group.depth).max(), Some(3));
        assert_eq!(doc.views.len(), VIEWS_MAX);
        let mut state = State::new();
        state.update(doc);
        assert_eq!(state.total().expect("a root").path, "/");
    }

    #[test]
    fn tenants_are_added_up_and_shown_on_each_server() {
        let members =
            [member("a:1", &GROUPS), member("b:2", &[("/", 900.0), ("/b", 600.0), ("/d", 300.0)])];
        let doc = add_up(&members, None);
        let paths: Vec<&str> = doc.groups.iter().map(|group| group.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/", "/a", "/a/x", "/a/x/a:1", "/a/y", "/a/y/a:1", "/b", "/b/a:1", "/b/b:2", "/c",
                "/c/a:1", "/d", "/d/b:2"
            ]
        );
        for (at, group) in doc.groups.iter().enumerate() {
            let parent = group.parent.map(|parent| &doc.groups[parent]);
            assert!(group.parent.is_none_or(|parent| parent < at), "{group:?}");
            assert_eq!(group.depth, parent.map_or(0, |parent| parent.depth + 1), "{group:?}");
        }
        assert_eq!(figure(&doc, "/", 0), Some(3000.0));
        assert_eq!(figure(&doc, "/b", 0), Some(1800.0));
        assert_eq!(figure(&doc, "/b/b:2", 0), Some(600.0));
        // The quantile of the worst server.
        assert_eq!(figure(&doc, "/b", 1), Some(180_000.0));
        assert_eq!((doc.server.listen.as_str(), doc.server.cpus), ("2 servers", 4));
        let mut state = State::new();
        state.is_fleet = true;
        state.update(doc);
        assert_eq!(state.tenants(), 5, "not the rows of servers below them");
    }

    #[test]
    fn shares_are_weighed_by_requests() {
        let (mut a, mut b) = (
            member("a", &[("/", 100.0), ("/t", 100.0)]),
            member("b", &[("/", 300.0), ("/t", 300.0)]),
        );
        let share = |member: &mut Member, share: f64| {
            let key = member.tree.views.iter().find(|view| view.shape == Shape::Share);
            let key = key.expect("a share").key.clone();
            member.tree.groups[1].overview.insert(key.clone(), Figure(Some(share)));
            key
        };
        let key = share(&mut a, 0.2);
        share(&mut b, 0.6);
        let doc = add_up(&[a, b], None);
        assert_eq!(doc.groups[1].path, "/t");
        let found = doc.groups[1].overview[&key].0.expect("known");
        assert!((found - 0.5).abs() < 1e-9, "{found}");
    }

    #[test]
    fn values_add_up_and_limits_if_all_have_one() {
        let quota = |current, limit| ValueDoc::Quota {
            current,
            peak: current,
            limit,
            refused: 1,
            overdrafts: 0,
            soft: false,
            high: None,
            paused: 0,
            reclaimed: 0,
            reclaimed_low: 0,
            pressure: None,
        };
        let mut sum = quota(3, Some(10));
        add(&mut sum, &quota(4, Some(5)));
        assert!(matches!(sum, ValueDoc::Quota { current: 7, limit: Some(15), refused: 2, .. }));
        add(&mut sum, &quota(1, None));
        assert!(matches!(sum, ValueDoc::Quota { current: 8, limit: None, .. }));
        let mut count = ValueDoc::Unsigned(u64::MAX);
        add(&mut count, &ValueDoc::Unsigned(1));
        assert_eq!(count, ValueDoc::Unsigned(u64::MAX));
    }
}
