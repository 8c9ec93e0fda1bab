//! `stats`: the numbers under memcached's names.

use submeter_cache::{Config, Users};

use crate::common::memcached::Memcached;
use crate::common::{Client, eventually, start_default, start_with};

/// The names of memcached 1.6.18, by the word after `stats`, without the numbers of connections and
/// classes.
const NAMES: [(&str, &str); 6] = [
    (
        "",
        "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections \
         curr_connections total_connections rejected_connections connection_structures \
         response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes \
         read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch \
         cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits \
         incr_misses incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits \
         touch_misses store_too_large store_no_memory auth_cmds auth_errors bytes_read \
         bytes_written limit_maxbytes accepting_conns listen_disabled_num \
         time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes \
         hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues \
         slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items \
         slab_reassign_busy_deletes slab_reassign_running slabs_moved lru_crawler_running \
         lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped \
         log_worker_written log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids \
         round_robin_fallback bytes curr_items total_items slab_global_page_pool \
         expired_unfetched evicted_unfetched evicted_active evictions reclaimed crawler_reclaimed \
         crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm moves_within_lru \
         direct_reclaims lru_bumps_dropped",
    ),
    (
        "settings",
        "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket umask \
         shutdown_command growth_factor chunk_size num_threads num_threads_per_udp \
         stat_key_prefix detail_enabled reqs_per_event cas_enabled tcp_backlog binding_protocol \
         auth_enabled_sasl auth_enabled_ascii item_size_max maxconns_fast hashpower_init \
         slab_reassign slab_automove slab_automove_ratio slab_automove_window slab_chunk_max \
         lru_crawler lru_crawler_sleep lru_crawler_tocrawl tail_repair_time flush_enabled \
         dump_enabled hash_algorithm lru_maintainer_thread lru_segmented hot_lru_pct warm_lru_pct \
         hot_max_factor warm_max_factor temp_lru temporary_ttl idle_timeout watcher_logbuf_size \
         worker_logbuf_size read_buf_mem_limit track_sizes inline_ascii_response ext_item_size \
         ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under ext_drop_under \
         ext_max_sleep ext_max_frag slab_automove_freeratio ext_drop_unread ssl_enabled \
         ssl_chain_cert ssl_key ssl_verify_mode ssl_keyformat ssl_ciphers ssl_ca_cert \
         ssl_wbuf_size ssl_session_cache ssl_kernel_tls ssl_min_version num_napi_ids memory_file",
    ),
    (
        "items",
        "number number_hot number_warm number_cold age_hot age_warm age mem_requested evicted \
         evicted_nonzero evicted_time outofmemory tailrepairs reclaimed expired_unfetched \
         evicted_unfetched evicted_active crawler_reclaimed crawler_items_checked \
         lrutail_reflocked moves_to_cold moves_to_warm moves_within_lru direct_reclaims \
         hits_to_hot hits_to_warm hits_to_cold hits_to_temp",
    ),
    (
        "slabs",
        "chunk_size chunks_per_page total_pages total_chunks used_chunks free_chunks \
         free_chunks_end get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval \
         touch_hits active_slabs total_malloced",
    ),
    ("sizes", "sizes_status"),
    ("conns", "addr state secs_since_last_cmd listen_addr"),
];

/// Returns the numbers of `stats` with these names.
fn stats<const N: usize>(client: &mut Client, names: [&str; N]) -> [u64; N] {
    let answer = client.talk("stats\r\n");
    names.map(|name| {
        let line = answer.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {answer}"))
    })
}

/// Checks by how much some requests change some numbers.
fn change<const N: usize>(requests: &str, names: [&str; N], by: [u64; N]) {
    let server = start_default();
    let mut client = server.connect();
    client.talk("set k 0 0 1\r\n5\r\n");
    let before = stats(&mut client, names);
    client.talk(requests);
    let after = stats(&mut client, names);
    let grown: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(grown, by, "{names:?} after {requests:?}");
}

#[test]
fn hits_and_misses_are_counted_by_command() {
    let get = ["cmd_get", "get_hits", "get_misses"];
    change("get k no k\r\n", get, [3, 2, 1]);
    change("mg k\r\nmg no\r\n", get, [2, 1, 1]);
    let touch = ["cmd_touch", "touch_hits", "touch_misses", "cmd_get", "get_hits", "get_misses"];
    change("touch k 0\r\ntouch no 0\r\n", touch, [2, 1, 1, 0, 0, 0]);
    change("gat 0 k no k\r\n", touch, [3, 2, 1, 0, 0, 0]);
    let delete = ["delete_hits", "delete_misses"];
    change("delete k\r\ndelete k\r\nmd k\r\nset k 0 0 1\r\n5\r\nmd k\r\n", delete, [2, 2]);
    let arithmetic = ["incr_hits", "incr_misses", "decr_hits", "decr_misses"];
    change("incr k 1\r\nincr no 1\r\nma k\r\ndecr k 1\r\nma no MD\r\n", arithmetic, [2, 1, 1, 1]);
    change("incr k x\r\nset k 0 0 1\r\na\r\nincr k 1\r\n", arithmetic, [0; 4]);
    let cas = ["cas_hits", "cas_misses", "cas_badval"];
    change("cas no 0 0 1 1\r\na\r\ncas k 0 0 1 1\r\na\r\nms k 1 C1\r\na\r\n", cas, [0, 1, 2]);
    change("ms k 1 E7\r\na\r\ncas k 0 0 1 7\r\nb\r\nadd k 0 0 1\r\na\r\n", cas, [1, 0, 0]);
}

#[test]
fn a_retrieval_of_an_expired_item_is_counted() {
    let server = start_default();
    let mut client = server.connect();
    for retrieval in ["get gone", "mg gone", "touch gone 0"] {
        let [before] = stats(&mut client, ["get_expired"]);
        // The background may find the item first: repeat until the retrieval does.
        eventually(retrieval, || {
            client.talk(format!("set gone 0 -1 1\r\n1\r\n{retrieval}\r\n"));
            stats(&mut client, ["get_expired"]) == [before + 1]
        });
    }
}

#[test]
fn stores_flushes_and_meta_commands_are_counted() {
    let names =
        ["total_items", "cmd_set", "curr_items", "cmd_flush", "cmd_meta", "store_too_large"];
    let requests =
        "set a 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\nadd a 0 0 1\r\n3\r\nms b 1\r\n4\r\nmg b\r\n";
    change(requests, names, [3, 4, 2, 0, 2, 0]);
    let over = format!("set a 0 0 {}\r\n{}\r\n", (1 << 20) + 1, "v".repeat((1 << 20) + 1));
    change(&over, names, [0, 1, 0, 0, 0, 1]);
    let server = start_default();
    let mut client = server.connect();
    client.talk("flush_all\r\nflush_all 0\r\nflush_all noreply\r\n");
    assert_eq!(stats(&mut client, ["cmd_flush"]), [3]);
}

#[test]
fn what_nobody_fetched_is_counted_as_it_leaves() {
    let server = start_default();
    let mut client = server.connect();
    client.talk("set seen 0 0 1\r\n1\r\nget seen\r\ntouch seen -1\r\nset unseen 0 -1 1\r\n1\r\n");
    let names = ["curr_items", "reclaimed", "expired_unfetched"];
    eventually("both are reclaimed", || stats(&mut client, names) == [0, 2, 1]);
}

/// A reset begins at zero and leaves the metrics alone.
#[test]
fn a_reset_leaves_the_metrics_alone() {
    let server = start_default();
    let mut client = server.connect();
    client.talk("set acme:k 0 0 1\r\n1\r\nget acme:k no\r\ndelete no\r\n");
    let names = ["cmd_get", "cmd_set", "get_hits", "delete_misses", "total_items", "bytes_read"];
    assert!(!stats(&mut client, names).contains(&0));
    assert_eq!(client.ask("stats reset\r\n"), "RESET");
    let [before @ .., bytes] = stats(&mut client, names);
    assert_eq!(before, [0; 5]);
    assert!(bytes < 30, "those of this request alone: {bytes}");
    assert_eq!(
        stats(&mut client, ["curr_items", "curr_connections"]),
        [1, 1],
        "they are no totals"
    );
    client.talk("get acme:k\r\n");
    assert_eq!(stats(&mut client, ["cmd_get"]), [1]);
    let acme = server.cache.tree().get("/acme").expect("it was stored for");
    assert_eq!(acme.sum(server.cache.metrics().cmd_get), 2, "who scrapes them relies on that");
}

#[test]
fn detail_counts_by_prefix_while_it_is_on() {
    let server = start_default();
    let mut client = server.connect();
    let dump = |client: &mut Client| client.talk("stats detail dump\r\n");
    client.talk("set a:k 0 0 1\r\n1\r\nget a:k\r\n");
    assert_eq!(dump(&mut client), "END\r\n", "not before");
    assert_eq!(client.talk("stats detail on\r\nstats detail on\r\n"), "OK\r\nOK\r\n");
    client.talk(
        "get a:k a:no\r\nset a:b:k 0 0 1\r\n1\r\ngat 0 b:no\r\nmd a:no\r\nset k 0 0 1\r\n1\r\n",
    );
    let on = "PREFIX a get 2 hit 1 set 1 del 1\r\nPREFIX b get 1 hit 0 set 0 del 0\r\nEND\r\n";
    assert_eq!(dump(&mut client), on, "with what is below, without what has no prefix");
    assert!(client.talk("stats settings\r\n").contains("STAT detail_enabled yes\r\n"));
    assert_eq!(client.ask("stats detail off\r\n"), "OK");
    client.talk("get a:k\r\n");
    assert_eq!(dump(&mut client), on, "not after");
    client.talk("stats detail on\r\nget a:k\r\n");
    assert!(dump(&mut client).starts_with("PREFIX a get 3 hit 2 set 1 del 1\r\n"), "it goes on");
    client.talk("stats reset\r\n");
    assert_eq!(dump(&mut client), "END\r\n");
    client.talk("get a:k\r\n");
    assert_eq!(dump(&mut client), "PREFIX a get 1 hit 1 set 0 del 0\r\nEND\r\n");
    assert_eq!(client.ask("stats detail\r\n"), "CLIENT_ERROR usage: stats detail on|off|dump");
}

#[test]
fn a_tenant_deleted_amid_detail_counts_from_zero() {
    let server = start_default();
    let mut client = server.connect();
    client.talk("get a:1 a:2 a:3\r\nstats detail on\r\n");
    server.cache.tree().get("/a").expect("it was asked for").kill().expect("no children");
    client.talk("get a:1 a:2\r\n");
    assert_eq!(client.talk("stats detail dump\r\n"), "PREFIX a get 2 hit 0 set 0 del 0\r\nEND\r\n");
}

/// Conns says who is connected and what each connection waits for.
#[test]
fn conns_says_who_is_connected_and_waits() {
    let server = start_default();
    let mut client = server.connect();
    let (idle, mut halfway) = (server.connect(), server.connect());
    halfway.send("set k 0 0 10\r\nabc");
    let name = |client: &Client| format!("tcp:{}", client.stream.local_addr().expect("connected"));
    // Returns the state of the connection with this client, if there is one.
    let mut state = |name: &str| {
        let lines = client.talk("stats conns\r\n");
        let of = lines.lines().find(|line| line.ends_with(&format!(":addr {name}")))?;
        let number = of.split([' ', ':']).nth(1).expect("a number");
        let of = |what: &str| {
            let start = format!("STAT {number}:{what} ");
            lines.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("").to_owned()
        };
        assert!(of("secs_since_last_cmd").parse::<u64>().is_ok_and(|s| s < 60), "{lines}");
        assert_eq!(of("listen_addr"), format!("tcp:{}", server.addr), "{lines}");
        Some(of("state"))
    };
    eventually("it waits for the rest", || state(&name(&halfway)).as_deref() == Some("conn_nread"));
    assert_eq!(state(&name(&idle)).as_deref(), Some("conn_read"));
    let left = name(&idle);
    drop(idle);
    eventually("it has left", || state(&left).is_none());
    let listening = format!("STAT 0:addr tcp:{}\r\nSTAT 0:state conn_listening\r\n", server.addr);
    let mut client = server.connect();
    assert!(client.talk("stats conns\r\n").starts_with(&listening));
    let settings = client.talk("stats settings\r\n");
    let port = format!("STAT tcpport {}\r\nSTAT domain_socket NULL\r\n", server.addr.port());
    assert!(settings.contains(&port), "{settings}");
}

#[test]
fn items_and_slabs_are_of_one_class() {
    let server = start_default();
    let mut client = server.connect();
    assert!(client.talk("stats slabs\r\n").contains("STAT active_slabs 0\r\n"));
    client.talk("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nget a no\r\n");
    let slabs = client.talk("stats slabs\r\n");
    for line in ["1:used_chunks 2", "1:get_hits 1", "1:cmd_set 2", "active_slabs 1"] {
        assert!(slabs.contains(&format!("STAT {line}\r\n")), "{line} in {slabs}");
    }
    let held = server.cache.tree().root().usage(server.cache.metrics().memory).current;
    assert!(slabs.contains(&format!("STAT total_malloced {held}\r\n")), "{held}: {slabs}");
    let items = client.talk("stats items\r\n");
    for line in ["number 2", "evicted 0", "reclaimed 0", "outofmemory 0"] {
        assert!(items.contains(&format!("STAT items:1:{line}\r\n")), "{line} in {items}");
    }
}

/// Returns the names that a server reports, after a store.
fn names(client: &mut Client, topic: &str) -> Vec<String> {
    client.talk("set k 0 0 1\r\n1\r\n");
    let answer = client.talk(format!("stats {topic}\r\n"));
    let names = answer.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next());
    names.map(|name| name.rsplit(':').next().expect("one").to_owned()).collect()
}

#[test]
fn every_name_that_memcached_has_is_there() {
    let memcached = Memcached::start("names");
    let server = start_default();
    for (topic, known) in NAMES {
        let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
        let theirs = memcached.as_ref().map(|memcached| {
            let mut client = Client::connect(memcached.addr);
            let of_1_6_18 = client.ask("version\r\n").starts_with("VERSION 1.6.18");
            if of_1_6_18 { names(&mut client, topic) } else { Vec::new() }
        });
        let here = names(&mut server.connect(), topic);
        let known = known.into_iter().chain(theirs.into_iter().flatten());
        let missing: Vec<String> = known.filter(|name| !here.contains(name)).collect();
        assert!(missing.is_empty(), "stats {topic}: {missing:?}");
        let mut twice = here.clone();
        twice.retain(|name| topic != "conns" && here.iter().filter(|n| *n == name).count() > 1);
        assert!(twice.is_empty(), "stats {topic}: {twice:?}");
    }
}

#[test]
fn what_is_known_under_a_foreign_name_is_no_zero() {
    let users = Users::parse("ops:tr0ub4dor /\n", &Config::default()).expect("well-formed");
    let server = start_with(Config::default(), |server| server.users(users));
    let mut client = server.connect();
    client.talk("set a 0 0 9\r\nops wrong\r\nset a 0 0 13\r\nops tr0ub4dor\r\n");
    let [tries, errors, structures] =
        stats(&mut client, ["auth_cmds", "auth_errors", "connection_structures"]);
    assert_eq!((tries, errors, structures), (2, 1, 2), "one of them listens");
    assert!(client.talk("stats settings\r\n").contains("STAT auth_enabled_ascii yes\r\n"));
    client.send("mn\r\n".repeat(1000) + "version\r\n");
    while client.line() == "MN" {}
    assert!(stats(&mut client, ["conn_yields"])[0] > 0);
    // The process has used some by now, in steps of 10 ms.
    eventually("CPU time is known", || {
        let answer = client.talk("stats\r\n");
        let spent = answer.lines().find_map(|line| line.strip_prefix("STAT rusage_user "));
        let (seconds, rest) = spent.expect("a time").split_once('.').expect("a fraction");
        assert_eq!(rest.len(), 6, "as in memcached");
        seconds != "0" || rest != "000000"
    });
}

#[test]
fn the_version_has_three_numbers_alone() {
    let server = start_default();
    let mut client = server.connect();
    let line = client.ask("version\r\n");
    let numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    assert!(numbers.eq(["1", "6", "18"]), "{line}");
    let stats = client.talk("stats\r\n");
    let version = line.strip_prefix("VERSION ").expect("a version");
    assert!(stats.contains(&format!("STAT version {version}\r\n")), "{stats}");
}
