//! `stats`: memcached's names where they apply, and the tenants.

use std::fmt::Display;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

use super::foreign_names;
use crate::cache::Cache;
use crate::item::OVERHEAD_BYTES;
use crate::output::Output;
use crate::protocol::{KEY_MAX, reply};
use crate::server::BACKLOG;
use crate::server::connection::BATCH_MAX;
use crate::statistics::{Prefix, Total};

/// The version of memcached whose protocol the server speaks; clients decide by it what they may
/// send. It does not contain the server's own version, because some clients read the last three
/// numbers they find.
const VERSION: &str = "1.6.18-submeter";
pub(super) const VERSION_LINE: &str = "VERSION 1.6.18-submeter";
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The amount of memory that memcached takes at a time for the items of a class.
const PAGE_BYTES: u64 = 1 << 20;

/// Answers `stats <topic> <rest>`, except for what is a [`List`](super::List).
pub(super) fn answer(cache: &Cache, topic: &[u8], rest: &[u8], out: &mut Output) {
    match topic {
        b"" => general(cache, out),
        b"settings" => settings(cache, out),
        b"items" => items(cache, out),
        b"slabs" => slabs(cache, out),
        // memcached gives the same answer unless it was started to count sizes.
        b"sizes" => stat("sizes_status", "disabled", out),
        b"cachedump" => return out.line(reply::NO_DUMP),
        b"reset" => return reset(cache, out),
        b"detail" => return detail(cache, rest, out),
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

/// The counters of the server, by the names of `stats`.
fn totals(cache: &Cache) -> Vec<(&'static str, u64)> {
    let metrics = cache.metrics();
    let root = cache.tree().root();
    cache.tree().flush();
    let sum = |counter| root.read(counter).value;
    let total = |total| cache.store().totals.read(total);
    let connections = cache.connections().counts();
    // The tenants' metrics count `gat` with `get`; memcached counts it with `touch`.
    let got = |all: u64, gat| all.saturating_sub(total(gat));
    vec![
        ("total_connections", connections.total),
        ("rejected_connections", connections.refused),
        ("listen_disabled_num", connections.stops),
        ("time_in_listen_disabled_us", connections.stopped_us),
        ("auth_cmds", total(Total::Logins)),
        ("auth_errors", total(Total::LoginsFailed)),
        ("conn_yields", total(Total::Yields)),
        ("login_kicks", connections.ended_strangers),
        ("idle_kicks", connections.idle),
        ("slow_kicks", connections.slow),
        ("buffer_kicks", connections.reclaimed),
        ("cmd_get", sum(metrics.cmd_get)),
        ("cmd_set", sum(metrics.cmd_set)),
        ("cmd_flush", total(Total::Flushes)),
        ("cmd_touch", sum(metrics.cmd_touch)),
        ("cmd_meta", total(Total::Meta)),
        ("cmd_delete", sum(metrics.cmd_delete)),
        ("cmd_arithmetic", sum(metrics.cmd_arithmetic)),
        ("get_hits", got(sum(metrics.get_hits), Total::GatHits)),
        ("get_misses", got(sum(metrics.get_misses), Total::GatMisses)),
        ("get_expired", total(Total::GetExpired)),
        ("delete_hits", total(Total::DeleteHits)),
        ("delete_misses", total(Total::DeleteMisses)),
        ("incr_hits", total(Total::IncrHits)),
        ("incr_misses", total(Total::IncrMisses)),
        ("decr_hits", total(Total::DecrHits)),
        ("decr_misses", total(Total::DecrMisses)),
        ("cas_hits", total(Total::CasHits)),
        ("cas_misses", total(Total::CasMisses)),
        ("cas_badval", total(Total::CasBadval)),
        ("touch_hits", total(Total::TouchHits) + total(Total::GatHits)),
        ("touch_misses", total(Total::TouchMisses) + total(Total::GatMisses)),
        ("store_too_large", total(Total::StoreTooLarge)),
        ("store_no_memory", sum(metrics.store_failures)),
        ("bytes_read", root.read(metrics.bytes_in).value),
        ("bytes_written", root.read(metrics.bytes_out).value),
        ("total_items", total(Total::Items)),
        ("evictions", sum(metrics.evictions)),
        ("evicted_unfetched", total(Total::EvictedUnfetched)),
        ("reclaimed", total(Total::Reclaimed)),
        ("expired_unfetched", total(Total::ExpiredUnfetched)),
    ]
}

fn general(cache: &Cache, out: &mut Output) {
    let metrics = cache.metrics();
    let totals = totals(cache);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let memory = cache.tree().root().usage(metrics.memory);
    stat("pid", std::process::id(), out);
    stat("uptime", cache.store().clock.uptime().as_secs(), out);
    stat("time", now.as_secs(), out);
    stat("version", VERSION, out);
    stat("submeter_version", OWN_VERSION, out);
    stat("libevent", "none", out);
    stat("pointer_size", usize::BITS, out);
    let (user, system) = cpu_time();
    stat("rusage_user", user, out);
    stat("rusage_system", system, out);
    let connections = cache.connections().counts();
    let structures = connections.current + cache.connections().listening().len();
    stat("connection_structures", structures, out);
    let buffers = cache.tree().root().usage(metrics.buffers);
    stat("max_connections", cache.config().connections_max, out);
    stat("curr_connections", connections.current, out);
    stat("login_pending", connections.strangers, out);
    let accepts = connections.current < cache.config().connections_max;
    stat("accepting_conns", u8::from(accepts), out);
    stat("buffer_bytes", buffers.current, out);
    stat("buffer_bytes_peak", buffers.peak, out);
    for (name, total) in totals {
        stat(name, cache.statistics().since_reset(name, total), out);
    }
    stat("limit_maxbytes", cache.config().memory_max, out);
    stat("threads", workers(cache), out);
    stat("bytes", memory.current, out);
    stat("bytes_peak", memory.peak, out);
    stat("curr_items", cache.store().len(), out);
    stat("tenants", cache.tree().group_count() - 1, out);
    for name in foreign_names::GENERAL.into_iter().chain(foreign_names::MOVES) {
        stat(name, 0, out);
    }
}

/// Returns the CPU time that the process spent in user mode and in the kernel, in seconds with six
/// digits.
fn cpu_time() -> (String, String) {
    // The kernel's figures, where available, in hundredths: fields 14 and 15, the 12th and 13th
    // after the program's name, which may contain anything.
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = line.rsplit_once(')').map_or("", |(_, behind)| behind);
    let mut ticks = behind.split_whitespace().skip(11).map(|field| field.parse::<u64>());
    let mut seconds = || {
        let ticks = ticks.next().and_then(Result::ok).unwrap_or(0);
        format!("{}.{:02}0000", ticks / 100, ticks % 100)
    };
    (seconds(), seconds())
}

/// Makes `stats` begin at zero again.
fn reset(cache: &Cache, out: &mut Output) {
    let statistics = cache.statistics();
    statistics.reset(totals(cache).into_iter());
    statistics.detail.reset(cache.tree(), cache.metrics());
    out.line("RESET");
}

/// Reports requests by prefix: by tenant below the root, including everything below it.
fn detail(cache: &Cache, what: &[u8], out: &mut Output) {
    let detail = &cache.statistics().detail;
    match what {
        b"on" | b"off" => {
            detail.switch(what == b"on", cache.tree(), cache.metrics());
            out.line("OK");
        }
        _ => out.line(reply::BAD_DETAIL),
    }
}

/// Returns the number of threads that serve connections: the servers' own, or else those of the
/// runtime.
fn workers(cache: &Cache) -> usize {
    match cache.connections().listening().iter().map(|server| server.threads).sum() {
        0 => Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers()),
        own => own,
    }
}

fn settings(cache: &Cache, out: &mut Output) {
    let config = cache.config();
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    stat("maxbytes", config.memory_max, out);
    let listening = cache.connections().listening();
    let mut addresses = listening.iter().map(|server| &*server.address);
    // Of either family: `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`.
    let ports = addresses.clone().filter(|at| at.starts_with("tcp"));
    let (inter, port) =
        ports.filter_map(|at| at.split_once(':')?.1.rsplit_once(':')).next().unzip();
    let socket = addresses.find_map(|at| at.strip_prefix("unix:"));
    stat("tcpport", port.unwrap_or("0"), out);
    stat("domain_socket", socket.unwrap_or("NULL"), out);
    stat("inter", inter.unwrap_or("NULL"), out);
    stat("udpport", 0, out);
    stat("evictions", if config.evictions { "on" } else { "off" }, out);
    stat("shutdown_command", yes_or_no(config.shutdown), out);
    stat("num_threads", workers(cache), out);
    stat("stat_key_prefix", char::from(config.delimiter), out);
    stat("detail_enabled", yes_or_no(cache.statistics().detail.is_on()), out);
    stat("maxconns", config.connections_max, out);
    stat("idle_timeout", config.idle_timeout.map_or(0, |time| time.as_secs()), out);
    stat("login_timeout", config.login_timeout.as_secs(), out);
    stat("request_timeout", config.request_timeout.as_secs(), out);
    stat("buffers_max", config.buffers_max, out);
    stat("cas_enabled", "yes", out);
    stat("tcp_backlog", BACKLOG, out);
    stat("binding_protocol", "ascii", out);
    stat("auth_enabled_sasl", "no", out);
    stat("auth_enabled_ascii", yes_or_no(listening.iter().any(|server| server.has_users)), out);
    stat("ssl_enabled", yes_or_no(listening.iter().any(|server| server.speaks_tls)), out);
    stat("reqs_per_event", BATCH_MAX, out);
    stat("chunk_size", OVERHEAD_BYTES, out);
    stat("item_size_max", config.value_max, out);
    stat("flush_enabled", yes_or_no(config.flush_all), out);
    stat("dump_enabled", "no", out);
    stat("client_flags_size", size_of::<u32>(), out);
    stat("key_max", KEY_MAX, out);
    stat("delimiter", char::from(config.delimiter), out);
    stat("depth_max", config.depth_max, out);
    stat("tenants_max", config.tenants_max, out);
    stat("metering", yes_or_no(config.metering), out);
    for (name, value) in foreign_names::SETTINGS {
        stat(name, value, out);
    }
}

/// Reports items. There are no slab classes: all items are in class 1.
fn items(cache: &Cache, out: &mut Output) {
    let memory = cache.tree().root().usage(cache.metrics().memory);
    stat("items:1:number", cache.store().len(), out);
    stat("items:1:number_cold", cache.store().len(), out);
    stat("items:1:mem_requested", memory.current, out);
    for (name, total) in totals(cache) {
        let name_here = match name {
            "evictions" => "evicted",
            "store_no_memory" => "outofmemory",
            "get_hits" => "hits_to_cold",
            "evicted_unfetched" | "expired_unfetched" | "reclaimed" => name,
            _ => continue,
        };
        let total = cache.statistics().since_reset(name, total);
        stat(&format!("items:1:{name_here}"), total, out);
    }
    for name in foreign_names::ITEMS.into_iter().chain(foreign_names::MOVES) {
        stat(&format!("items:1:{name}"), 0, out);
    }
}

/// Reports slabs. The allocator has no chunks either: each item is one chunk of its own size, and
/// the mean size is shown.
fn slabs(cache: &Cache, out: &mut Output) {
    let memory = cache.tree().root().usage(cache.metrics().memory);
    let items = cache.store().len();
    let chunk = memory.current.checked_div(items as u64).unwrap_or(OVERHEAD_BYTES).max(1);
    stat("1:chunk_size", chunk, out);
    stat("1:chunks_per_page", (PAGE_BYTES / chunk).max(1), out);
    stat("1:total_pages", memory.current.div_ceil(PAGE_BYTES), out);
    stat("1:chunk_overhead", OVERHEAD_BYTES, out);
    stat("1:used_chunks", items, out);
    stat("1:total_chunks", items, out);
    stat("1:free_chunks", 0, out);
    stat("1:free_chunks_end", 0, out);
    stat("1:mem_requested", memory.current, out);
    for (name, total) in totals(cache) {
        if matches!(
            name,
            "get_hits"
                | "cmd_set"
                | "delete_hits"
                | "incr_hits"
                | "decr_hits"
                | "cas_hits"
                | "cas_badval"
                | "touch_hits"
        ) {
            stat(&format!("1:{name}"), cache.statistics().since_reset(name, total), out);
        }
    }
    stat("active_slabs", u8::from(items > 0), out);
    stat("total_malloced", memory.current, out);
}

impl Cache {
    /// Writes one line for each prefix that was requested while `stats detail` was on.
    pub(crate) fn list_prefixes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, prefix) in self.statistics().detail.dump(self.tree(), self.metrics()) {
            let Prefix { gets, hits, sets, deletes } = prefix;
            // Writing to a vector cannot fail.
            let _ =
                write!(text, "PREFIX {name} get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
        text.extend_from_slice(b"END\r\n");
        text
    }

    /// Writes one line for each tenant and number: `STAT <path>:<name> <value>`.
    pub(crate) fn list_tenants(&self) -> Vec<u8> {
        let metrics = self.metrics();
        let snapshot = self.tree().snapshot();
        let mut text = Vec::new();
        for group in snapshot.groups() {
            let path = group.path();
            let mut stat = |name: &str, value: &dyn Display| {
                // Writing to a vector cannot fail.
                let _ = write!(text, "STAT {path}:{name} {value}\r\n");
            };
            stat("cmd_get", &group.counter(metrics.cmd_get));
            stat("cmd_set", &group.counter(metrics.cmd_set));
            stat("get_hits", &group.counter(metrics.get_hits));
            stat("get_misses", &group.counter(metrics.get_misses));
            stat("evictions", &group.counter(metrics.evictions));
            stat("bytes_read", &group.counter(metrics.bytes_in));
            stat("bytes_written", &group.counter(metrics.bytes_out));
            stat("cpu_ns", &group.counter(metrics.cpu));
            stat("curr_items", &group.gauge(metrics.items));
            let memory = group.usage(metrics.memory);
            stat("bytes", &memory.current);
            if let Some(limit) = memory.limit {
                stat("limit_maxbytes", &limit);
            }
        }
        text.extend_from_slice(b"END\r\n");
        text
    }
}
