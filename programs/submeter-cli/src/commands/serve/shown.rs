//! What the page, `/api/tree` and `submeter top` show of the cache.

use submeter::{Count, Counter};
use submeter_cache::{Address, Cache, Metrics, OverRate};
use submeter_http::wire::{Placement, VerdictKind};
use submeter_http::{Dashboard, View, Views, Worse};

use super::deletion::{self, Deleted};
use super::heap;

/// Declares a cache that starts now and listens at `listen`. Notes in `deleted` what clients asked
/// it to delete.
pub(super) fn shown(
    cache: &Cache,
    listen: &Address,
    deleted: &Deleted,
    heap: Option<&heap::Books>,
) -> Dashboard {
    let (text, command) = first_steps(listen, cache.config().delimiter);
    let (served, deleted) = (cache.clone(), deleted.clone());
    let shown = Dashboard::new("submeter_cache", cache.tree())
        .version(env!("CARGO_PKG_VERSION"))
        .listen(&listen.to_string())
        .answers_max(usize::try_from(cache.config().memory_max / 4).unwrap_or(usize::MAX))
        .views(views(cache, heap))
        .first_steps(text, &command)
        .remedies("rate=20000/s,cpu=500m,memory=64m", |offence| {
            let of = (offence.kind, offence.view);
            remedy(of, offence.usual, offence.shared, |key| offence.figure(key))
        })
        .on_delete(move |path| deletion::delete(served.clone(), deleted.clone(), path));
    let shown = match heap {
        Some(heap) => heap.clone().show(shown),
        None => shown,
    };
    match cache.config().metering {
        true => shown,
        false => shown
            .notice(|| Some("Metering is off (--no-metering): only memory is counted.".to_owned())),
    }
}

fn first_steps(listen: &Address, delimiter: u8) -> (&'static str, String) {
    let key = ["acme", "web", "greeting"].join(&char::from(delimiter).to_string());
    // nc takes host and port as two words, and a socket by its path.
    let to = match listen.tcp() {
        Some(addr) => format!("{} {}", addr.ip(), addr.port()),
        None => format!("-U {listen}"),
    };
    let text = "A tenant is created by its first key: everything before the last delimiter is its \
                path. Store one, and it appears here within a second.";
    (text, format!("printf 'set {key} 0 0 5\\r\\nhello\\r\\nquit\\r\\n' | nc {to}"))
}

/// Returns the limit that a verdict proposes. A tenant that bursts gets half as much again as it
/// usually has. A tenant that takes the most gets half of what it takes, or of the limit that it
/// shares with those who are refused. Neither is proposed more than it may have already. A tenant
/// that is refused gets a fifth more than it asks for: always more than it may have. It gets twice
/// the CPU time, and twice the rate if it waits for it, as it is unknown how much it wants.
fn remedy(
    of: (VerdictKind, &str),
    usual: Option<f64>,
    shared: Option<f64>,
    figure: impl Fn(&str) -> Option<f64>,
) -> Option<String> {
    let [rate_limit, cpu_limit] = ["rate_limit_per_s", "cpu_limit_cores"].map(&figure);
    let allowed = |used: f64, own: Option<f64>| own.into_iter().chain(shared).fold(used, f64::min);
    let requests = figure("requests_per_s")?;
    match of {
        (VerdictKind::Refused, "over_rate_per_s") => {
            Some(rate(requests.max(rate_limit.unwrap_or(0.0)) * 1.2))
        }
        (VerdictKind::Throttled, "over_rate_per_s") => Some(rate(rate_limit? * 2.0)),
        (VerdictKind::Refused | VerdictKind::Throttled, "over_cpu_per_s") => {
            Some(cpu(cpu_limit? * 2.0))
        }
        (VerdictKind::Takes, "cpu_cores") => {
            Some(cpu(allowed(figure("cpu_cores")?, cpu_limit) / 2.0))
        }
        (VerdictKind::Bursts | VerdictKind::Takes, "memory_bytes") => {
            let mib = allowed(figure("memory_bytes")?, None) / 2.0 / f64::from(1 << 20);
            Some(format!("memory={:.0}m", mib.max(1.0)))
        }
        (VerdictKind::Bursts, "requests_per_s") if usual.is_some_and(|n| n > 0.0) => {
            usual.map(|usual| rate(allowed(usual * 1.5, rate_limit)))
        }
        (VerdictKind::Bursts | VerdictKind::Takes, _) => {
            Some(rate(allowed(requests, rate_limit) / 2.0))
        }
        _ => None,
    }
}

/// Writes a rate with two digits: more would suggest false precision.
fn rate(per_s: f64) -> String {
    let digit = 10f64.powf((per_s.max(1.0).log10().floor() - 1.0).max(0.0));
    format!("rate={:.0}/s", ((per_s / digit).round() * digit).max(1.0))
}

/// Writes CPUs in thousandths, to a hundredth.
fn cpu(cores: f64) -> String {
    format!("cpu={:.0}m", ((cores * 100.0).round() * 10.0).max(10.0))
}

fn views(cache: &Cache, heap: Option<&heap::Books>) -> Views {
    let m = cache.metrics();
    let lookups = [m.get_hits, m.get_misses];
    let used = [
        View::rate("requests_per_s", "Requests/s", requests(m))
            .help("Requests of the last second, including those over the group's own rate")
            .within("rate_limit_per_s")
            .contended(),
        View::rate_limit("rate_limit_per_s", "Rate limit", m.requests).place(Placement::Nowhere),
        View::quantile("p99_ns", "p99", m.latency, 0.99).help(
            "99 of 100 requests of the last second were answered within this time, including \
             waiting",
        ),
        View::ratio("hit_ratio", "Hits", m.get_hits, lookups)
            .help("Retrievals of the last second that found the item")
            .worse(Worse::Low),
        View::rate("cpu_cores", "CPU", [m.cpu])
            .help("CPU time of worker threads; 100 % is one processor")
            .within("cpu_limit_cores")
            .contended(),
        View::rate_limit("cpu_limit_cores", "CPU limit", m.cpu_budget).place(Placement::Nowhere),
        View::held("memory_bytes", "Memory", m.memory)
            .help("Memory held by items, and its limit if there is one")
            .within("memory_limit_bytes")
            .protected_by("memory_protected_bytes")
            .contended(),
        View::protection("memory_protected_bytes", m.memory),
        View::weight("weight", m.requests),
        View::limit("memory_limit_bytes", "Memory limit", m.memory).place(Placement::Nowhere),
        View::rate("evictions_per_s", "Evictions/s", [m.evictions])
            .help("Items dropped to make room in the last second"),
        View::gauge("items", "Items", m.items).help("Items held").place(Placement::Table),
    ];
    let heap = heap.into_iter().flat_map(heap::Books::views);
    Views::new(used.into_iter().chain(refusals(cache)).chain(details(m)).chain(heap).collect())
}

/// Returns what is refused or kept waiting.
fn refusals(cache: &Cache) -> [View; 3] {
    let m = cache.metrics();
    let waits = cache.config().over_rate == OverRate::Wait;
    let over = [
        View::rate("over_rate_per_s", "Over rate/s", [m.requests.throttled()])
            .help("Requests over the group's own rate in the last second, refused or kept waiting")
            .noun("over its rate")
            .refused_by("rate_limit_per_s")
            .place(Placement::Table)
            .trouble(),
        View::rate("over_cpu_per_s", "Over CPU/s", [m.cpu_budget.throttled()])
            .help("Requests of the last second held back because the group owed CPU time")
            .noun("over its CPU time")
            .refused_by("cpu_limit_cores")
            .place(Placement::Table)
            .trouble(),
    ];
    let [over_rate, over_cpu] = over.map(|view| if waits { view.delays() } else { view });
    let no_room = View::rate("store_failures_per_s", "No room/s", [m.store_failures])
        .help("Stores refused in the last second for lack of memory")
        .noun("no room for its stores")
        .lacks("memory_bytes")
        .place(Placement::Table)
        .trouble();
    [no_room, over_rate, over_cpu]
}

/// Returns what is shown of one tenant, but not in the table.
fn details(m: &Metrics) -> [View; 8] {
    [
        View::rate("cpu_owing", "Owing CPU", [m.cpu_budget.throttled_time()])
            .help(
                "Part of the last second in which requests waited because the group owed CPU time",
            )
            .place(Placement::Detail),
        View::rate("would_refuse_per_s", "Would refuse/s", overdrafts(m))
            .help("Requests of the last second that a soft limit would have held back")
            .place(Placement::Detail),
        // No trouble: an item that a limit refuses is stored after an eviction.
        View::refusals("refused_per_s", "Over limit/s", m.memory)
            .help("Charges that a memory limit refused in the last second")
            .place(Placement::Detail),
        // No trouble: this is the purpose of `high`.
        View::rate("over_high_per_s", "Over high/s", [m.over_high])
            .help("Stores of the last second that found the group above its own high limit")
            .place(Placement::Detail),
        View::mean("wait_ns", "Wait", m.waited, requests(m))
            .help("How long a request of the last second waited before work on it began")
            .wait_for("work_ns")
            .place(Placement::Detail),
        View::mean("work_ns", "Work", m.cpu, requests(m))
            .help("CPU time of a request of the last second")
            .place(Placement::Detail),
        View::rate("bytes_in_per_s", "Received", [m.bytes_in]).place(Placement::Detail),
        View::rate("bytes_out_per_s", "Sent", [m.bytes_out]).place(Placement::Detail),
    ]
}

/// Returns what soft limits would have refused of requests.
fn overdrafts(m: &Metrics) -> [Counter<Count>; 2] {
    [m.requests.overdrafts(), m.cpu_budget.overdrafts()]
}

/// Returns the counters whose sum is the number of requests: each request counts in exactly one,
/// including a request over its tenant's rate.
pub(super) fn requests(m: &Metrics) -> [Counter<Count>; 6] {
    [m.cmd_get, m.cmd_set, m.cmd_delete, m.cmd_touch, m.cmd_arithmetic, m.cmd_debug]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant with these requests and this rate.
    fn proposed(kind: VerdictKind, view: &str, usual: f64, [requests, limit]: [f64; 2]) -> String {
        proposed_within(None, (kind, view), usual, [requests, limit])
    }

    fn proposed_within(
        shared: Option<f64>,
        of: (VerdictKind, &str),
        usual: f64,
        [requests, limit]: [f64; 2],
    ) -> String {
        let figure = |key: &str| match key {
            "requests_per_s" => Some(requests),
            "rate_limit_per_s" => Some(limit).filter(|limit| *limit > 0.0),
            _ => None,
        };
        remedy(of, Some(usual), shared, figure).expect("a limit ends it")
    }

    /// Who is refused is never proposed less than it may have, and who takes from others no more.
    #[test]
    fn a_remedy_is_on_the_right_side_of_the_limit() {
        use VerdictKind::{Bursts, Refused, Takes, Throttled};
        let over = |requests| proposed(Refused, "over_rate_per_s", 0.0, [requests, 1000.0]);
        assert_eq!(over(2000.0), "rate=2400/s");
        assert_eq!(over(340.0), "rate=1200/s", "refused in a part of the second");
        let waits = proposed(Throttled, "over_rate_per_s", 0.0, [100.0, 100.0]);
        assert_eq!(waits, "rate=200/s", "more requests wait than are counted");
        let takes = |limit| proposed(Takes, "requests_per_s", 0.0, [8000.0, limit]);
        assert_eq!([0.0, 1000.0].map(takes), ["rate=4000/s", "rate=500/s"]);
        let takes = (Takes, "requests_per_s");
        let shared = proposed_within(Some(500.0), takes, 0.0, [6640.0, 0.0]);
        assert_eq!(shared, "rate=250/s", "half of its level's");
        let bursts = |limit| proposed(Bursts, "requests_per_s", 2000.0, [8000.0, limit]);
        assert_eq!([0.0, 2500.0].map(bursts), ["rate=3000/s", "rate=2500/s"]);
    }
}
