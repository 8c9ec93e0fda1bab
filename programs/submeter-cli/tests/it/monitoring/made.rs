//! Generates the dashboard, and the rules that follow from what the page shows, from a server's
//! views and metrics, so that none is missed.

use serde_json::{Value, json};

/// The part of the metrics that a view shows, by their names in the schema.
pub(super) enum Source {
    /// How fast counters grow.
    Rate(&'static [&'static str]),
    /// Growth of the first counter relative to that of the others.
    Ratio(&'static str, &'static [&'static str]),
    /// A gauge, or what is held of a quota.
    Level(&'static str),
    /// The standard error of an estimate, from the gauge of its samples.
    Error(&'static str),
    /// How often a quota's limit refuses.
    Refused(&'static str),
    /// The 99th percentile of a histogram.
    P99(&'static str),
    /// Not exported, or only together with what it limits.
    None,
}

/// The standard error of one sample.
pub(super) const ERROR: f64 = 65_536.0;

const REQUESTS: &[&str] =
    &["cmd_get", "cmd_set", "cmd_delete", "cmd_touch", "cmd_arithmetic", "cmd_debug"];

/// Returns the source of each view. A test compares what each shows with what its metrics say.
pub(super) fn source(view: &str) -> Source {
    match view {
        "requests_per_s" => Source::Rate(REQUESTS),
        "p99_ns" => Source::P99("latency"),
        "hit_ratio" => Source::Ratio("get_hits", &["get_hits", "get_misses"]),
        "cpu_cores" => Source::Rate(&["cpu"]),
        "memory_bytes" => Source::Level("memory"),
        "evictions_per_s" => Source::Rate(&["evictions"]),
        "items" => Source::Level("items"),
        "heap_bytes" => Source::Level("heap_live_bytes"),
        "heap_error_bytes" => Source::Error("heap_live_samples"),
        "store_failures_per_s" => Source::Rate(&["store_failures"]),
        "over_rate_per_s" => Source::Rate(&["requests_throttled"]),
        "over_cpu_per_s" => Source::Rate(&["cpu_budget_throttled"]),
        "cpu_owing" => Source::Rate(&["cpu_budget_throttled_time"]),
        "would_refuse_per_s" => Source::Rate(&["requests_overdrafts", "cpu_budget_overdrafts"]),
        "refused_per_s" => Source::Refused("memory"),
        "over_high_per_s" => Source::Rate(&["over_high"]),
        "wait_ns" => Source::Ratio("waited", REQUESTS),
        "work_ns" => Source::Ratio("cpu", REQUESTS),
        "bytes_in_per_s" => Source::Rate(&["bytes_in"]),
        "bytes_out_per_s" => Source::Rate(&["bytes_out"]),
        "rate_limit_per_s"
        | "cpu_limit_cores"
        | "weight"
        | "memory_limit_bytes"
        | "memory_protected_bytes" => Source::None,
        new => panic!("{new} is a new view: say here which metrics it shows"),
    }
}

/// A server's views and metrics, as `/api/tree` describes them.
pub(super) struct Server(pub(super) Value);

impl Server {
    fn all(&self, list: &str) -> &[Value] {
        self.0[list].as_array().expect("a list")
    }

    fn text<'a>(of: &'a Value, member: &str) -> &'a str {
        of[member].as_str().expect("text")
    }

    /// Returns the name under which a metric is exported: it ends in the unit, once.
    fn series(&self, metric: &str, part: &str) -> String {
        let mut schema = self.all("schema").iter();
        let doc = schema.find(|doc| doc["name"] == metric);
        let doc = doc.unwrap_or_else(|| panic!("{metric} is no metric"));
        let unit = match (Server::text(doc, "unit"), part) {
            (_, "refused" | "overdrafts") => "",
            ("nanoseconds", _) => "seconds",
            ("count", _) => "",
            (unit, _) => unit,
        };
        let is_count = doc["kind"] == "counter" || matches!(part, "refused" | "overdrafts");
        let words = metric.split('_').filter(|word| *word != unit).chain([part, unit]);
        let words = words.chain([if is_count { "total" } else { "" }]);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        format!("submeter_cache_{}", words.join("_"))
    }

    fn sum(&self, function: &str, metrics: &[&str], range: &str) -> String {
        let each = metrics.iter().map(|metric| {
            let series = self.series(metric, "");
            format!("{function}({series}{range})")
        });
        format!("sum by (group) ({})", each.collect::<Vec<_>>().join(" + "))
    }

    /// Returns the query for a view, for each group.
    fn query(&self, view: &Value) -> Option<String> {
        Some(match source(Server::text(view, "key")) {
            Source::Rate(metrics) => self.sum("rate", metrics, RECENT),
            Source::Ratio(part, whole) => {
                let [part, whole] = [&[part][..], whole].map(|all| self.sum("rate", all, RECENT));
                format!("{part} / {whole}")
            }
            Source::Level(metric) => format!("sum by (group) ({}{NOW})", self.series(metric, "")),
            Source::Error(samples) => {
                let series = self.series(samples, "");
                format!("{ERROR} * sqrt(1 + sum by (group) ({series}{NOW}))")
            }
            Source::Refused(quota) => {
                format!("sum by (group) (rate({}{RECENT}))", self.series(quota, "refused"))
            }
            Source::P99(metric) => format!(
                "histogram_quantile(0.99, sum by (group, le) (rate({}_bucket{RECENT})))",
                self.series(metric, "")
            ),
            Source::None => return None,
        })
    }

    /// Returns queries for refusals, each with a word for it: what the page calls trouble, and
    /// every limit whose refusals it does not show.
    fn refusing(&self) -> Vec<(String, String)> {
        let views = self.all("views").iter().filter(|view| view["is_trouble"] == true);
        let views = views.map(|view| match source(Server::text(view, "key")) {
            Source::Rate([metric]) => (metric.replace('_', " "), self.series(metric, "")),
            Source::Refused(quota) => (quota.to_owned(), self.series(quota, "refused")),
            _ => panic!("{view} is trouble, and no count of refusals"),
        });
        let mut all: Vec<_> = views.collect();
        for doc in self.all("schema") {
            let name = Server::text(doc, "name");
            // An item that a memory limit refuses is stored after an eviction.
            let series = match Server::text(doc, "kind") {
                "quota" if name != "memory" => self.series(name, "refused"),
                "counter" if name.ends_with("_throttled") => self.series(name, ""),
                _ => continue,
            };
            if all.iter().all(|(_, known)| *known != series) {
                all.push((name.replace('_', " "), series));
            }
        }
        all
    }

    /// Returns queries for grants beyond soft limits.
    fn overdrafts(&self) -> Vec<(String, String)> {
        let beyond = |doc: &Value| {
            let name = Server::text(doc, "name");
            match Server::text(doc, "kind") {
                "quota" => Some((name.to_owned(), self.series(name, "overdrafts"))),
                "counter" => {
                    Some((name.strip_suffix("_overdrafts")?.to_owned(), self.series(name, "")))
                }
                _ => None,
            }
        };
        self.all("schema").iter().filter_map(beyond).collect()
    }

    /// Generates the dashboard, one panel per line.
    pub(super) fn dashboard(&self) -> String {
        let mut panels = Panels::default();
        self.views_of_groups(&mut panels);
        self.limits(&mut panels);
        let verdicts = format!("sum by (verdict) (submeter_cache_verdict_tenants{NOW}) > 0");
        let help = "Number of tenants with each verdict of the page; `submeter top` names them.";
        panels.add("Verdicts", help, "short", &[("{{verdict}}".to_owned(), verdicts)]);
        let process = format!("sum(rate(submeter_cache_process_cpu_seconds_total{RECENT}))");
        let groups = format!("sum(rate({}{RECENT}))", self.series("cpu", ""));
        let none = ("no group".to_owned(), format!("{process} - {groups}"));
        let help = "CPU time of the process that was charged to no group.";
        panels.add("CPU of no group", help, "short", &[none, ("process".to_owned(), process)]);
        panels.fleet();
        panels.text()
    }

    fn views_of_groups(&self, panels: &mut Panels) {
        let own = "Each group's own part: groups do not overlap, so that lines may be added up.";
        for view in self.all("views").iter().filter(|view| view["is_trouble"] == false) {
            let Some(query) = self.query(view) else { continue };
            let unit = match Server::text(view, "shape") {
                "rate" => "ops",
                "byte_rate" => "Bps",
                "share" => "percentunit",
                "bytes" => "bytes",
                "time" => "s",
                _ => "short",
            };
            // Here it is the time between two points of the line.
            let help = Server::text(view, "help").replace(" of the last second", "");
            let help = help.replace(" in the last second", "");
            let source = source(Server::text(view, "key"));
            let is_sum = matches!(source, Source::Rate(_) | Source::Level(_) | Source::Refused(_));
            let help = if help.is_empty() { help } else { help + ". " };
            let help = help + if is_sum { own } else { "" };
            let by_group = ("{{group}}".to_owned(), format!("topk(10, {query})"));
            panels.add(Server::text(view, "title"), help.trim_end(), unit, &[by_group]);
        }
    }

    fn limits(&self, panels: &mut Panels) {
        let counted = |what: Vec<(String, String)>| -> Vec<(String, String)> {
            let ask = |(name, series): (String, String)| {
                let query = format!("sum by (group) (rate({series}{RECENT})) > 0");
                (format!("{{{{group}}}} {name}"), query)
            };
            what.into_iter().map(ask).collect()
        };
        let mut refused = counted(self.refusing());
        let none = format!("sum(rate(submeter_cache_tenants_refused_total{RECENT})) > 0");
        refused.push(("tenants without a place".to_owned(), none));
        panels.add("Refusals", "What limits refuse or delay.", "ops", &refused);
        let soft = "What was granted beyond limits that only count what they would refuse.";
        panels.add("Beyond soft limits", soft, "ops", &counted(self.overdrafts()));
        let quotas = self.all("schema").iter().filter(|doc| doc["kind"] == "quota");
        let near = quotas.map(|doc| {
            let name = Server::text(doc, "name");
            let [used, limit] = ["subtree", "limit"].map(|part| self.series(name, part));
            let query = format!("topk(10, max by (group) ({used}{NOW} / {limit}{NOW}))");
            (format!("{{{{group}}}} {name}"), query)
        });
        let help =
            "Used share of each group's limit, including descendants. A cache fills its memory.";
        panels.add("Nearest to their limits", help, "percentunit", &near.collect::<Vec<_>>());
    }

    /// Regenerates the rules that follow from the views, and leaves the others unchanged.
    pub(super) fn rules(&self, text: &str) -> String {
        let refused = self.refusing().into_iter().map(|(_, series)| {
            format!("      sum by (instance, group) (increase({series}[5m])) > 0\n")
        });
        let refused = refused.collect::<Vec<_>>().join("        or\n");
        let requests = |function: &str, range| self.sum(function, REQUESTS, range);
        let made = [
            ("alert: SubmeterRefusals", format!("|\n{}", refused.trim_end())),
            ("record: group:submeter_cache_requests:rate1m", requests("rate", "[1m]")),
            ("record: group:submeter_cache_requests:increase1h", requests("increase", "[1h]")),
            ("record: group:submeter_cache_cpu_seconds:rate1m", self.sum("rate", &["cpu"], "[1m]")),
        ];
        let mut text = text.to_owned();
        for (rule, query) in made {
            let rule = text.find(&format!("- {rule}\n")).unwrap_or_else(|| panic!("no {rule}"));
            let from = rule + text[rule..].find("    expr: ").expect("a query");
            let lines = text[from..].split_inclusive('\n');
            // Lines of the query are indented further.
            let rest = lines.skip(1).take_while(|line| line.starts_with("      "));
            let first = text[from..].find('\n').map_or(0, |end| end + 1);
            let until = from + first + rest.map(str::len).sum::<usize>();
            text.replace_range(from..until, &format!("    expr: {query}\n"));
        }
        text
    }
}

/// Queries for the newest value and for its growth; Grafana inserts the servers.
const NOW: &str = "{instance=~\"$instance\"}";
const RECENT: &str = "{instance=~\"$instance\"}[$__rate_interval]";

#[derive(Default)]
struct Panels(Vec<Value>);

impl Panels {
    /// Adds a panel of lines, each with a name and a query.
    fn add(&mut self, title: &str, help: &str, unit: &str, lines: &[(String, String)]) {
        let at = self.0.len();
        let target = |(n, (name, query)): (usize, &(String, String))| {
            let letter = char::from(b'A' + u8::try_from(n).expect("few"));
            json!({ "refId": letter.to_string(), "expr": query, "legendFormat": name })
        };
        let style = json!({ "fillOpacity": 10, "showPoints": "never" });
        let defaults = json!({ "unit": unit, "min": 0, "custom": style });
        let legend =
            json!({ "displayMode": "table", "placement": "right", "calcs": ["lastNotNull"] });
        self.0.push(json!({
            "id": at + 1, "type": "timeseries", "title": title, "description": help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "gridPos": { "h": 8, "w": 12, "x": at % 2 * 12, "y": at / 2 * 8 },
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "options": { "legend": legend, "tooltip": { "mode": "multi", "sort": "desc" } },
            "targets": lines.iter().enumerate().map(target).collect::<Vec<_>>(),
        }));
    }

    /// Adds the panels of all servers together.
    fn fleet(&mut self) {
        let fleet = "group_resource:submeter_cache_fleet";
        let rule = "submeter_cache_fleet_rule";
        for (title, help, unit, name, query) in [
            (
                "requests by group",
                "Of all servers, by the recording rules of rules.yml: a restarted server does not \
                 disturb the sum.",
                "reqps",
                "{{group}}",
                "topk(10, group:submeter_cache_requests:rate1m)".to_owned(),
            ),
            (
                "requests of an hour",
                "Of all servers. Counts between a scrape and a crash are missing: bill with \
                 submeter fleet bill.",
                "short",
                "{{group}}",
                "topk(10, group:submeter_cache_requests:increase1h)".to_owned(),
            ),
            (
                "used of what is leased",
                "Of all servers, for each limit that a bank lends. Leases that move between two \
                 scrapes may count twice.",
                "percentunit",
                "{{group}} {{resource}}",
                format!("topk(10, {fleet}_used:sum / {fleet}_limit:sum)"),
            ),
            (
                "servers by rule in force",
                "Servers whose limit is a lease, and servers where --outage applies because they \
                 have none.",
                "short",
                "{{group}} {{resource}}: {{submeter_cache_fleet_rule}}",
                format!("sum by (group, resource, {rule}) ({rule}{NOW}) > 0"),
            ),
        ] {
            self.add(&format!("Fleet: {title}"), help, unit, &[(name.to_owned(), query)]);
        }
    }

    fn text(&self) -> String {
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        let head = json!({
            "title": "submeter cache", "uid": "submeter-cache", "tags": ["submeter"],
            "schemaVersion": 39, "version": 1, "editable": true, "refresh": "10s",
            "time": { "from": "now-30m", "to": "now" },
            "templating": { "list": [
                { "name": "datasource", "type": "datasource", "query": "prometheus",
                  "label": "Data source" },
                { "name": "instance", "type": "query", "label": "Instance", "datasource": source,
                  "query": "label_values(submeter_cache_backend_info, instance)", "refresh": 2,
                  "includeAll": true, "multi": true,
                  "current": { "text": "All", "value": "$__all" } },
            ] },
        });
        let head = head.to_string();
        let head = head.strip_suffix('}').expect("an object");
        let panels: Vec<String> = self.0.iter().map(Value::to_string).collect();
        format!("{head},\n\"panels\":[\n{}\n]}}\n", panels.join(",\n"))
    }
}
