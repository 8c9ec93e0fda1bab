//! `stats`: memcached's names where they apply, and the tenants.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache::Cache;
use crate::item::OVERHEAD_BYTES;
use crate::output::Output;
use crate::protocol::{KEY_MAX, reply};

/// The version of memcached whose protocol the server speaks, as clients decide by it what they may
/// send, and the server's own.
const VERSION: &str = concat!("1.6.18-submeter-", env!("CARGO_PKG_VERSION"));
pub(super) const VERSION_LINE: &str =
    concat!("VERSION 1.6.18-submeter-", env!("CARGO_PKG_VERSION"));

/// Answers `stats <topic>`.
pub(super) fn answer(cache: &Cache, topic: &[u8], out: &mut Output) {
    match topic {
        b"" => general(cache, out),
        b"settings" => settings(cache, out),
        b"items" => items(cache, out),
        b"slabs" => slabs(cache, out),
        b"sizes" => stat("sizes_status", "disabled", out),
        b"conns" => {}
        b"tenants" => tenants(cache, out),
        b"reset" => {
            // Totals are monotonic: a client that wants a difference keeps the earlier value.
            out.line("RESET");
            return;
        }
        b"detail" => {
            out.line("CLIENT_ERROR usage: stats detail on|off|dump");
            return;
        }
        _ => {
            out.line(reply::ERROR);
            return;
        }
    }
    out.line("END");
}

fn stat(name: &str, value: impl Display, out: &mut Output) {
    out.line(&format!("STAT {name} {value}"));
}

fn general(cache: &Cache, out: &mut Output) {
    let metrics = cache.metrics();
    let root = cache.tree().root();
    cache.tree().flush();
    let sum = |counter| root.read(counter).value;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let memory = root.usage(metrics.memory);
    stat("pid", std::process::id(), out);
    stat("uptime", cache.store().clock.uptime().as_secs(), out);
    stat("time", now.as_secs(), out);
    stat("version", VERSION, out);
    stat("pointer_size", usize::BITS, out);
    stat("curr_connections", cache.connections().current(), out);
    stat("total_connections", cache.connections().total(), out);
    stat("cmd_get", sum(metrics.cmd_get), out);
    stat("cmd_set", sum(metrics.cmd_set), out);
    stat("cmd_delete", sum(metrics.cmd_delete), out);
    stat("cmd_touch", sum(metrics.cmd_touch), out);
    stat("cmd_arithmetic", sum(metrics.cmd_arithmetic), out);
    stat("cmd_meta", sum(metrics.cmd_debug), out);
    stat("get_hits", sum(metrics.get_hits), out);
    stat("get_misses", sum(metrics.get_misses), out);
    stat("get_expired", sum(metrics.expired), out);
    stat("bytes_read", root.read(metrics.bytes_in).value, out);
    stat("bytes_written", root.read(metrics.bytes_out).value, out);
    stat("limit_maxbytes", cache.config().memory_max, out);
    stat("bytes", memory.current, out);
    stat("bytes_peak", memory.peak, out);
    stat("curr_items", cache.store().len(), out);
    stat("evictions", sum(metrics.evictions), out);
    stat("store_no_memory", sum(metrics.store_failures), out);
    stat("tenants", cache.tree().group_count() - 1, out);
}

fn settings(cache: &Cache, out: &mut Output) {
    let config = cache.config();
    stat("maxbytes", config.memory_max, out);
    stat("item_size_max", config.value_max, out);
    stat("key_max", KEY_MAX, out);
    stat("evictions", "on", out);
    stat("cas_enabled", "yes", out);
    stat("flush_enabled", "yes", out);
    stat("binding_protocol", "ascii", out);
    stat("delimiter", char::from(config.delimiter), out);
    stat("depth_max", config.depth_max, out);
    stat("tenants_max", config.tenants_max, out);
    stat("metering", if config.metering { "yes" } else { "no" }, out);
}

/// There are no slab classes: all items are of class 1.
fn items(cache: &Cache, out: &mut Output) {
    let metrics = cache.metrics();
    let root = cache.tree().root();
    stat("items:1:number", cache.store().len(), out);
    stat("items:1:evicted", root.sum(metrics.evictions), out);
    stat("items:1:reclaimed", root.read(metrics.expired).value, out);
    stat("items:1:outofmemory", root.read(metrics.store_failures).value, out);
    stat("items:1:mem_requested", root.usage(metrics.memory).current, out);
}

fn slabs(cache: &Cache, out: &mut Output) {
    stat("1:chunk_overhead", OVERHEAD_BYTES, out);
    stat("1:used_chunks", cache.store().len(), out);
    stat("active_slabs", 1, out);
    stat("total_malloced", cache.tree().root().usage(cache.metrics().memory).current, out);
}

/// One line per tenant and number: `STAT <path>:<name> <value>`.
fn tenants(cache: &Cache, out: &mut Output) {
    let metrics = cache.metrics();
    let snapshot = cache.tree().snapshot();
    for group in snapshot.groups() {
        let path = group.path();
        for (name, value) in [
            ("cmd_get", group.counter(metrics.cmd_get)),
            ("cmd_set", group.counter(metrics.cmd_set)),
            ("get_hits", group.counter(metrics.get_hits)),
            ("get_misses", group.counter(metrics.get_misses)),
            ("evictions", group.counter(metrics.evictions)),
            ("bytes_read", group.counter(metrics.bytes_in)),
            ("bytes_written", group.counter(metrics.bytes_out)),
            ("cpu_ns", group.counter(metrics.cpu)),
        ] {
            stat(&format!("{path}:{name}"), value, out);
        }
        let memory = group.usage(metrics.memory);
        stat(&format!("{path}:curr_items"), group.gauge(metrics.items), out);
        stat(&format!("{path}:bytes"), memory.current, out);
        if let Some(limit) = memory.limit {
            stat(&format!("{path}:limit_maxbytes"), limit, out);
        }
    }
}
