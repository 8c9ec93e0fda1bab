//! `submeter top` without a terminal, against a real server.

use serde_json::Value;

use crate::support::{SUBMETER, Server};

/// Starts a server with one tenant and one item, and returns its page's address.
fn server() -> (Server, String) {
    let server = Server::start(&["--tenant-limit", "/acme=1m"]);
    server.store("acme:web", 1);
    let page = format!("{}/", server.url());
    (server, page)
}

#[test]
fn once_prints_one_table() {
    let (_server, page) = server();
    let out = SUBMETER.prints(&["top", "--once", &page]);
    let lines: Vec<&str> = out.lines().map(str::trim_start).collect();
    assert_eq!(lines.len(), 4, "{out}");
    for (line, start) in lines.iter().zip(["tenant", "/", "acme", "web"]) {
        assert!(line.starts_with(start), "{out}");
    }
    assert!(lines[2].contains("1.00 MiB"), "the limit of /acme: {out}");
    assert!(!out.contains('\u{1b}'), "no colours without a terminal: {out}");
    let is_plain = |c: char| !c.is_whitespace() || matches!(c, ' ' | '\n');
    assert!(out.chars().all(is_plain), "nor spaces at which awk does not split: {out}");
}

/// Columns are shown as named; for a wrong name the error lists the existing ones.
#[test]
fn a_wrong_column_is_told_which_there_are() {
    let (_server, page) = server();
    let out = SUBMETER.prints(&["top", "--once", "--columns", "items,requests_per_s", &page]);
    let heading: Vec<&str> = out.lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(heading, ["tenant", "items", "requests/s", "rate", "limit"]);
    SUBMETER.refuses(
        &["top", "--once", "--columns", "items,nope", &page],
        &["\"nope\"", "--columns", "requests_per_s", "memory_bytes"],
    );
    SUBMETER.refuses(&["top", "--json", "--columns", "items", &page], &["--columns", "--json"]);
}

#[test]
fn once_json_prints_one_object() {
    let (_server, page) = server();
    // Scheme and slash are optional.
    let host = page.trim_start_matches("http://").trim_end_matches('/');
    for url in [page.as_str(), host] {
        let out = SUBMETER.prints(&["top", "--once", "--json", url]);
        assert_eq!(out.lines().count(), 1);
        let tree: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(tree["groups"][2]["path"], "/acme/web");
        assert_eq!(tree["groups"][0]["values"]["cmd_set"], 1);
    }
}

#[test]
fn json_prints_a_line_a_second_until_a_signal() {
    let (_server, page) = server();
    let mut top = SUBMETER.start(&["top", "--json", &page]);
    let mut at = 0;
    for _ in 0..2 {
        let tree: Value = serde_json::from_str(&top.line_with("{")).expect("JSON");
        let next = tree["at_ms"].as_u64().expect("a time");
        assert!(next > at, "{next} after {at}");
        at = next;
    }
    top.end_by("INT");
}

#[test]
fn json_ends_with_one_line_when_the_server_does() {
    let (server, page) = server();
    let mut top = SUBMETER.start(&["top", "--json", &page]);
    top.line_with("{");
    drop(server);
    let (code, out) = top.end();
    assert_eq!(code, Some(2), "{out}");
    let last = out.lines().last().expect("a line");
    assert!(last.starts_with("error: ") && last.contains("--http"), "{last}");
}

#[test]
fn an_absent_server_is_named_with_a_remedy() {
    // A port that was free just now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("bound"));
    drop(free);
    for flags in [&["--once"][..], &["--once", "--json"], &["--json"]] {
        SUBMETER.refuses(&[&["top"], flags, &[&url]].concat(), &[&url, "submeter serve", "--http"]);
    }
}

#[test]
fn what_is_no_submeter_is_told_apart() {
    let (_server, page) = server();
    SUBMETER.refuses(&["top", "--once", &format!("{page}nowhere")], &["nowhere", "has no tree"]);
    SUBMETER.refuses(&["top", "--once", "https://127.0.0.1:1"], &["https", "http://"]);
    SUBMETER.refuses(&["top", "--once", "a b"], &["\"a b\"", "http://127.0.0.1:9411"]);
}

#[test]
fn without_a_terminal_it_says_what_to_add() {
    SUBMETER.refuses(&["top", "127.0.0.1:1"], &["--once", "--json"]);
}
