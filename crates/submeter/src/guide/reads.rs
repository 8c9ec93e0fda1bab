//! Chapter 2: what a value costs, how exact it is, and how to keep it fresh.
//!
//! Updates go to a word of the running CPU. Totals are brought up to date by a *flush*, which
//! visits only the groups that changed. Readers choose how much of that they pay for:
//!
//! - [`Group::read`] never flushes. It costs a few loads and says how far off it may be.
//! - [`Group::read_within`] flushes only if the cached total is worse than you accept.
//! - [`Group::sum`] flushes the group's subtree, and is exact.
//! - [`Tree::snapshot`] flushes and copies all groups at one moment.
//!
//! ```
//! use std::time::Duration;
//! use submeter::{Count, Schema, Tolerance, Tree};
//!
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let tree = Tree::new(schema.build()?)?;
//! let web = tree.get_or_create("/acme/web")?;
//! web.add(requests, 3);
//!
//! // Nothing has flushed yet: the value lags, and the bound says by how much at most.
//! let reading = tree.root().read(requests);
//! assert!(reading.value + reading.bound >= 3);
//!
//! // At most 100 off, and at most a second old.
//! let tolerance = Tolerance::max_error(100).max_age(Duration::from_secs(1));
//! let reading = tree.root().read_within(requests, tolerance);
//! assert!(reading.bound <= 100);
//!
//! // Exact: every add that returned before this call is counted.
//! assert_eq!(tree.root().sum(requests), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Which one?** An admission check on a hot path uses `read` and compares with the bound in mind.
//! A page or a scaler uses `read_within`. A test, a bill or a deletion uses `sum`. Exporters use
//! `snapshot`, in which parents and children agree.
//!
//! **Fresh without readers that flush.** [`Tree::flusher`] starts a thread that flushes
//! periodically, so that `read` is never older than its period. It is optional: without it, readers
//! pay for flushes.
//!
//! **Exporting.** an [`Export`] writes the tree as text for Prometheus, as often as it is scraped:
//!
//! ```
//! use submeter::{Count, Schema, Tree, export};
//!
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let tree = Tree::new(schema.build()?)?;
//! tree.get_or_create("/acme")?.add(requests, 1);
//!
//! let export = export::Export::new("app").top(100, requests);
//! let mut text = String::new();
//! export.write(&tree, &mut text)?;
//! assert!(text.contains(r#"app_requests_total{group="/acme"} 1"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A value is what the group counted itself, so that `sum(rate(app_requests_total[1m]))` is the
//! rate of the whole tree, and `group=~"/acme(/.*)?"` selects a subtree. Of many groups, the 100
//! with most are shown; what the others counted is in the `other` of the group above them,
//! `/acme//other`. Counters never fall because groups come and go, and their increases add up to
//! those of the tree, those of refusals by limits too. For that, what a group that is new counts
//! before two scrapes have seen it is in that `other` as well, and stays there: a tenant that lives
//! shorter is not seen, and its own series is no bill ([`Tree::totals`] is). Where servers read
//! `_created`, [`Export::exact`](crate::export::Export::exact) gives each group its own from its
//! first scrape on. Keep one [`Export`] for as long as the tree is scraped, and let
//! [`Format::accepted`] choose the format by the request.
//!
//! | Exporter | Values | New and short-lived groups | When |
//! |---|---|---|---|
//! | [`Export`], `submeter-http` | own, `other` | in `other` at first | Prometheus |
//! | `Export::exact` | own, all groups | own, with `_created` | servers that read `_created` |
//! | `submeter-prometheus-client` | with descendants | begin with what they have | a registry |
//! | `submeter-otlp` | own | sent with their start | OpenTelemetry |
//! | [`Tree::totals`] | totals with an epoch | in those above them | bills |
//!
//! [`Tree::snapshot_with_own`] also has what each group itself counted, without its children: these
//! values may be added up. What killed groups counted is in the totals above them alone.
//!
//! Next: [Limits](super::limits).
//!
//! [`Group::read`]: crate::Group::read
//! [`Group::read_within`]: crate::Group::read_within
//! [`Group::sum`]: crate::Group::sum
//! [`Tree::flusher`]: crate::Tree::flusher
//! [`Tree::snapshot`]: crate::Tree::snapshot
//! [`Tree::snapshot_with_own`]: crate::Tree::snapshot_with_own
//! [`Export`]: crate::export::Export
//! [`Format::accepted`]: crate::export::Format::accepted
//! [`Tree::totals`]: crate::Tree::totals
