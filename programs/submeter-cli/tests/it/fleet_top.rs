//! `submeter fleet top` without a terminal, against real servers.

use submeter_program::text;

use crate::fleet::{Directory, bank, server, until};
use crate::support::{SUBMETER, Server};

/// The tenants of all servers are added up, and a missing server is named.
#[test]
fn servers_are_added_up_and_missing_ones_named() {
    let directory = Directory::new("top");
    let address = directory.bank();
    let _bank = bank(&address, &["--lease", "1"]);
    let limit = ["--limit-fleet", "/acme=memory=8m"];
    let mut servers: Vec<Server> = ["web-1", "web-2"]
        .iter()
        .map(|name| server(&address, &[&limit[..], &["--member", name]].concat()))
        .collect();
    until("both have leases", || servers.iter().all(|server| server.rule() == "lease"));
    until("each holds items", || servers[0].store_large(3) == 3 && servers[1].store_large(5) == 5);
    let pages: Vec<String> = servers.iter().map(|server| server.page.to_string()).collect();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let top = || {
        let output = SUBMETER.run(
            &[&["fleet", "top", "--once", "--columns", "items,memory_bytes"], &pages[..]].concat(),
        );
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, notices) = top();
    assert_eq!((code, notices.as_str()), (Some(0), ""), "{said}");
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| rows.iter().find(|row| row[0] == name).expect("a row").clone();
    assert_eq!(row("acme")[1], "8", "{said}");
    assert_eq!((row(pages[0])[1], row(pages[1])[1]), ("3", "5"), "{said}");
    assert_eq!(row("/")[1], "8", "{said}");
    assert_eq!(rows.len(), 5, "heading, root, tenant, and it on each server: {said}");

    let again = format!("http://{}/", pages[0]);
    let args = ["fleet", "top", "--once", "--columns", "items,memory_bytes"];
    let twice = SUBMETER.run(&[&args[..], &pages, &[pages[1], &again]].concat());
    // Limits are leases, which change from one look to the next.
    let items = |table: &str| -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect();
        table.lines().map(words).collect()
    };
    let twice = text(&twice.stdout);
    assert_eq!(items(&twice), items(&said), "each server counts once, however it is named");

    servers.remove(0).signal("KILL");
    let away = format!("{} does not answer", pages[0]);
    until("it is named", || top().2.contains(&away));
    let (code, said, _) = top();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(pages[1]) && !said.contains(pages[0]), "{said}");
    drop(servers);
    until("nobody answers", || top().0 == Some(2));
    SUBMETER.refuses(&["fleet", "top"], &["URL"]);
}
