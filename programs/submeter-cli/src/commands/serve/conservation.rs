//! Checks that nothing was lost: parents against their children, and tenants against the clients.
//!
//! What a group counted itself is its total less the totals of its children. It cannot be negative.
//! Where only the load's clients sent requests, it must equal what they did: nothing at `/load`,
//! and for each tenant what its clients counted, request by request and byte by byte. What a tenant
//! had counted when it was deleted becomes its parent's own count; then the load's tenants are
//! compared as one sum.

use std::collections::BTreeSet;

use submeter::{GroupValues, Snapshot, Value};
use submeter_cache::Metrics;

use submeter_load::drive::{Outcome, Plan};
use submeter_load::tally::Tally;
use submeter_load::verb::Kind;
use submeter_terminal::{self as show, BOLD, DIM};

use super::deletion::Deletions;

/// The findings of the check.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Number of sums of children compared with their parent.
    sums: usize,
    /// Number of counts compared with what the clients counted.
    counts: usize,
    metering: bool,
    driven: bool,
    /// Number of groups that were deleted.
    deleted: usize,
    differences: Vec<String>,
}

/// Number of differences that are printed; all of them affect the verdict.
const SHOWN: usize = 50;

/// Returns the groups whose deletion decides what can be compared.
pub(super) fn compared(plan: &Plan) -> BTreeSet<String> {
    let tenants = plan.tenants.iter().map(|(name, _)| format!("/load/{name}"));
    tenants.chain(["/load".to_owned()]).collect()
}

/// Compares everything that can be compared.
pub(super) fn check(
    snapshot: &Snapshot,
    metrics: &Metrics,
    metering: bool,
    load: Option<(&Plan, &Outcome)>,
    deleted: &Deletions,
) -> Result<Verdict, String> {
    let driven = load.is_some();
    let mut verdict = Verdict { metering, driven, deleted: deleted.count(), ..Verdict::default() };
    let inherits = deleted.are_below("/load");
    verdict.parents(snapshot, driven && !inherits);
    // Without metering nothing could equal the clients' counts.
    if let Some((plan, outcome)) = load.filter(|_| metering && !deleted.includes("/load")) {
        for ((name, _), tally) in plan.tenants.iter().zip(&outcome.tallies.tenants) {
            let path = format!("/load/{name}");
            if !deleted.includes(&path) {
                verdict.tenant(snapshot, metrics, &path, tally);
            }
        }
        if inherits {
            let total = outcome.tallies.total().map_err(|e| e.to_string())?;
            verdict.tenant(snapshot, metrics, "/load", &total);
        }
    }
    Ok(verdict)
}

impl Verdict {
    /// Returns whether everything agreed.
    pub(super) fn is_exact(&self) -> bool {
        self.differences.is_empty()
    }

    /// Writes the verdict: one line if all is well, else a line for each difference.
    pub(super) fn text(&self) -> String {
        let sums = show::count(self.sums as u64);
        if self.is_exact() {
            let clients = match (self.driven, self.metering) {
                (false, _) => String::new(),
                (true, false) => "; nothing was metered (--no-metering)".to_owned(),
                (true, true) => {
                    let counts = show::count(self.counts as u64);
                    format!(", {counts} counts of tenants equal their clients'")
                }
            };
            let deleted = match self.deleted {
                0 => String::new(),
                n => format!(" (plus {n} deleted)"),
            };
            return format!(
                "{DIM}sums{DIM:#}    {BOLD}exact{BOLD:#}: {sums} totals of parents equal their \
                 children's{deleted}{clients}\n"
            );
        }
        let n = self.differences.len();
        let mut text = format!("{BOLD}sums    NOT EXACT{BOLD:#}: {n} differences\n");
        for difference in self.differences.iter().take(SHOWN) {
            text.push_str(&format!("  {difference}\n"));
        }
        if n > SHOWN {
            text.push_str(&format!("  and {} more\n", n - SHOWN));
        }
        if self.driven {
            text.push_str(
                "  (other clients that use keys of the load's tenants also cause differences)\n",
            );
        }
        text
    }

    fn parents(&mut self, snapshot: &Snapshot, load_is_sum: bool) {
        let groups = snapshot.groups();
        let mut children: Vec<Vec<&GroupValues>> = vec![Vec::new(); groups.len()];
        for group in groups {
            if let Some(parent) = group.parent() {
                children[parent].push(group);
            }
        }
        for (group, children) in groups.iter().zip(&children) {
            if children.is_empty() {
                continue;
            }
            let nothing_own = load_is_sum && group.path() == "/load";
            for metric in snapshot.schema().metrics() {
                let total = numbers(&group.value(metric));
                let mut sum = vec![0; total.len()];
                for child in children {
                    for (sum, n) in sum.iter_mut().zip(numbers(&child.value(metric))) {
                        *sum += n;
                    }
                }
                self.sums += 1;
                let own: Vec<i128> =
                    total.iter().zip(&sum).map(|(total, sum)| total - sum).collect();
                let wrong = own.iter().position(|&n| n < 0 || (nothing_own && n != 0));
                if let Some(at) = wrong {
                    self.differences.push(format!(
                        "{} {}{}: total {}, sum of {} children {}",
                        group.path(),
                        metric.name(),
                        if total.len() > 1 { format!(" (word {at})") } else { String::new() },
                        total[at],
                        children.len(),
                        sum[at],
                    ));
                }
            }
        }
    }

    fn tenant(&mut self, snapshot: &Snapshot, metrics: &Metrics, path: &str, tally: &Tally) {
        let Some(group) = snapshot.get(path) else {
            if tally.requests() > 0 {
                let n = tally.requests();
                self.differences
                    .push(format!("{path} does not exist, but clients made {n} requests"));
            }
            return;
        };
        for (name, server, clients) in [
            ("cmd_get", group.counter(metrics.cmd_get), tally.of_kind(Kind::Get)),
            ("cmd_set", group.counter(metrics.cmd_set), tally.of_kind(Kind::Set)),
            ("cmd_delete", group.counter(metrics.cmd_delete), tally.of_kind(Kind::Delete)),
            ("cmd_touch", group.counter(metrics.cmd_touch), tally.of_kind(Kind::Touch)),
            (
                "cmd_arithmetic",
                group.counter(metrics.cmd_arithmetic),
                tally.of_kind(Kind::Arithmetic),
            ),
            ("get_hits", group.counter(metrics.get_hits), tally.hits),
            ("get_misses", group.counter(metrics.get_misses), tally.misses),
            ("bytes_in", group.counter(metrics.bytes_in), tally.bytes_sent),
            ("bytes_out", group.counter(metrics.bytes_out), tally.bytes_received),
            ("latency (count)", group.histogram(metrics.latency).count(), tally.requests()),
        ] {
            self.counts += 1;
            if server != clients {
                self.differences.push(format!("{path} {name}: server {server}, clients {clients}"));
            }
        }
    }
}

/// Returns a value as numbers that add up from children to parent. A quota's peak, limit and
/// refusals do not: peaks need not coincide, and the others concern one level.
fn numbers(value: &Value) -> Vec<i128> {
    match value {
        Value::Counter(n) => vec![i128::from(*n)],
        Value::Gauge(n) => vec![i128::from(*n)],
        Value::Histogram(h) => {
            std::iter::once(h.sum()).chain(h.counts().iter().copied()).map(i128::from).collect()
        }
        Value::Quota(usage) => vec![i128::from(usage.current)],
        // A kind that this command does not know yet cannot be summed.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use submeter::Tree;

    use super::*;
    use crate::commands::serve::deletion::Deleted;
    use submeter_load::profile::Profile;
    use submeter_load::tally::Tallies;
    use submeter_load::verb::Verb;

    /// A server and clients that agree on one `get` of `/load/a` and none of `/load/b`.
    struct World {
        metrics: Metrics,
        tree: Tree,
        plan: Plan,
        outcome: Outcome,
        deleted: Deleted,
    }

    fn agreeing() -> World {
        let metrics = Metrics::new().expect("valid schema");
        let tree = Tree::new(metrics.schema.clone()).expect("a tree");
        let a = tree.get_or_create("/load/a").expect("a group");
        tree.get_or_create("/load/b").expect("a group");
        a.add(metrics.cmd_get, 1);
        a.add(metrics.get_misses, 1);
        a.add(metrics.bytes_in, 20);
        a.add(metrics.bytes_out, 5);
        a.record(metrics.latency, 1000);
        let mut tallies = Tallies::new(2).expect("valid bounds");
        tallies.tenants[0].answered(Verb::Get, 20, 5, Duration::from_micros(3));
        tallies.tenants[0].misses = 1;
        let named = ["a", "b"].map(|name| (name.to_owned(), Profile::typical(name)));
        let plan = Plan {
            server: ([127, 0, 0, 1], 1).into(),
            tenants: named.to_vec(),
            delimiter: b':',
            seconds: None,
            requests: None,
            rate: None,
            connections: 1,
            pipeline: 1,
            seed: 1,
            warm_up: Duration::ZERO,
            ramp: Duration::ZERO,
            burst: None,
        };
        let outcome = Outcome { took: Duration::from_secs(1), tallies };
        let deleted = Deleted::watching(compared(&plan));
        World { metrics, tree, plan, outcome, deleted }
    }

    impl World {
        fn check(&self) -> Verdict {
            let load = Some((&self.plan, &self.outcome));
            check(&self.tree.snapshot(), &self.metrics, true, load, &self.deleted.deletions())
                .expect("sums")
        }

        fn refused(&self, named: &[&str]) {
            let verdict = self.check();
            let text = verdict.text();
            assert!(!verdict.is_exact() && text.contains("NOT EXACT"), "{text}");
            for part in named {
                assert!(text.contains(part), "{text} names {part}");
            }
        }
    }

    #[test]
    fn agreement_is_exact() {
        let world = agreeing();
        let verdict = world.check();
        assert!(verdict.is_exact(), "{}", verdict.text());
        assert_eq!(verdict.counts, 20);
        assert_eq!(verdict.sums, 2 * world.metrics.schema.metrics().len());
    }

    #[test]
    fn a_count_that_no_child_has_is_a_difference() {
        let world = agreeing();
        let load = world.tree.get("/load").expect("exists");
        load.add(world.metrics.evictions, 3);
        world.refused(&["/load evictions: total 3, sum of 2 children 0"]);
    }

    #[test]
    fn a_charge_that_no_child_holds_is_a_difference() {
        let world = agreeing();
        let load = world.tree.get("/load").expect("exists");
        let charge = load.try_charge(world.metrics.memory, 7).expect("no limit");
        world.refused(&["/load memory: total 7, sum of 2 children 0"]);
        drop(charge);
        assert!(world.check().is_exact());
    }

    /// Children that exceed their parent are a difference anywhere.
    #[test]
    fn children_beyond_their_parent_are_a_difference() {
        let world = agreeing();
        // A gauge that is negative in the root's own share: the children exceed the total.
        world.tree.root().adjust(world.metrics.items, -1);
        world.refused(&["/ items: total -1, sum of 1 children 0"]);
    }

    #[test]
    fn every_count_of_the_clients_is_compared() {
        let mut world = agreeing();
        world.outcome.tallies.tenants[1].answered(Verb::Set, 9, 8, Duration::from_micros(1));
        world.refused(&[
            "/load/b cmd_set: server 0, clients 1",
            "/load/b bytes_in: server 0, clients 9",
            "/load/b bytes_out: server 0, clients 8",
            "/load/b latency (count): server 0, clients 1",
        ]);
        let mut world = agreeing();
        world.outcome.tallies.tenants[0].hits = 1;
        world.refused(&["/load/a get_hits: server 0, clients 1"]);
    }

    #[test]
    fn a_deleted_tenants_rest_is_in_its_parent() {
        let mut world = agreeing();
        world.tree.get("/load/a").expect("exists").kill().expect("has no children");
        world.refused(&["/load/a does not exist, but clients made 1 requests"]);
        world.deleted.note("/load/a");
        assert!(world.check().is_exact(), "{}", world.check().text());
        assert!(world.check().text().contains("(plus 1 deleted)"));
        world.outcome.tallies.tenants[0].answered(Verb::Set, 9, 8, Duration::from_micros(1));
        world.refused(&["/load cmd_set: server 0, clients 1"]);
        world.deleted.note("/load");
        assert!(world.check().is_exact(), "nothing to compare: /load may have begun anew");
    }

    #[test]
    fn a_tenant_the_server_never_saw_is_a_difference() {
        let mut world = agreeing();
        world.plan.tenants[0].0 = "lost".to_owned();
        world.refused(&["/load/lost does not exist, but clients made 1 requests"]);
    }
}
