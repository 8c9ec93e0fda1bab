//! Reads the servers' statistics, through the protocol that both speak.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Variant;

/// Time limit for a server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The counts of one tenant: those of a server, or of the requests sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) stores: u64,
}

/// A connection for reading a server's statistics.
#[derive(Debug)]
pub(super) struct Control(BufReader<TcpStream>);

impl Control {
    /// Connects.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Control> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Control(BufReader::new(socket)))
    }

    /// Returns the number called `name` in the answer to `stats`.
    pub(super) fn stat(&mut self, name: &str) -> io::Result<u64> {
        let lines = self.ask("stats")?;
        let found = lines.iter().find_map(|line| {
            let rest = line.strip_prefix("STAT ")?.strip_prefix(name)?;
            rest.strip_prefix(' ')?.parse().ok()
        });
        found.ok_or_else(|| io::Error::other(format!("its stats have no {name}")))
    }

    /// Returns what the server counted for each tenant.
    pub(super) fn counts(&mut self, variant: Variant) -> io::Result<BTreeMap<String, Counts>> {
        if variant.is_memcached() {
            self.ask("stats detail dump").map(|lines| of_memcached(&lines))
        } else {
            self.ask("stats tenants").map(|lines| of_submeter(&lines))
        }
    }

    /// Returns the lines of the answer, without `END`.
    fn ask(&mut self, request: &str) -> io::Result<Vec<String>> {
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if line == "END" {
                return Ok(lines);
            }
            if !["STAT ", "PREFIX "].iter().any(|start| line.starts_with(start)) {
                return Err(io::Error::other(format!("its answer to {request} is {line:?}")));
            }
            lines.push(line.to_owned());
        }
    }
}

/// Reads `PREFIX tenant1 get 5 hit 4 set 3 del 1`.
fn of_memcached(lines: &[String]) -> BTreeMap<String, Counts> {
    let parse = |line: &String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["PREFIX", name, "get", gets, "hit", hits, "set", stores, ..] = words[..] else {
            return None;
        };
        let [gets, hits, stores] = [gets.parse().ok()?, hits.parse().ok()?, stores.parse().ok()?];
        Some((name.to_owned(), Counts { gets, hits, stores }))
    };
    lines.iter().filter_map(parse).collect()
}

/// Reads `STAT /tenant1:cmd_get 5`.
fn of_submeter(lines: &[String]) -> BTreeMap<String, Counts> {
    let mut all = BTreeMap::<String, Counts>::new();
    for line in lines {
        let found = line.strip_prefix("STAT /").and_then(|rest| {
            let (name, value) = rest.rsplit_once(' ')?;
            let (path, what) = name.rsplit_once(':')?;
            Some((path, what, value.parse().ok()?))
        });
        let Some((path, what, value)) = found else { continue };
        // The root, which includes all tenants.
        if path.is_empty() {
            continue;
        }
        let counts = all.entry(path.to_owned()).or_default();
        match what {
            "cmd_get" => counts.gets = value,
            "get_hits" => counts.hits = value,
            "cmd_set" => counts.stores = value,
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_both_servers_are_parsed() {
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let expected = BTreeMap::from([("a".to_owned(), Counts { gets: 5, hits: 4, stores: 3 })]);
        assert_eq!(of_memcached(&lines("PREFIX a get 5 hit 4 set 3 del 1")), expected);
        let tenants = "STAT /:cmd_get 9\nSTAT /a:cmd_get 5\nSTAT /a:cmd_set 3\nSTAT /a:get_hits 4\n\
                       STAT /a:bytes 70";
        assert_eq!(of_submeter(&lines(tenants)), expected);
        assert_eq!(of_submeter(&lines("STAT pid 7")), BTreeMap::new());
    }
}
