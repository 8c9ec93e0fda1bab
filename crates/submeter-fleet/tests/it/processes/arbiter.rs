//! Counts what all members use together, as they report it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::LIMITS;
use crate::world::until;

pub(super) struct Arbiter {
    directory: TempDir,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Default)]
struct Counts {
    members: BTreeMap<u32, Count>,
    granted: u64,
    excess: Vec<String>,
}

#[derive(Default)]
struct Count {
    /// One entry for each limit.
    used: [u64; LIMITS.len()],
    granted: u64,
    is: Is,
}

/// A process that is stopped for longer than its lease holds memory in addition to what others were
/// lent, until it has looked and given it back.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Is {
    #[default]
    Awake,
    Stopped,
    GoingOn,
}

impl Counts {
    fn check(&mut self) {
        for (at, (path, limit)) in LIMITS.iter().enumerate() {
            let awake = self.members.values().filter(|member| member.is == Is::Awake);
            let used: u64 = awake.map(|member| member.used[at]).sum();
            if used > *limit {
                self.excess.push(format!("{used} of {limit} used of {path}"));
            }
        }
    }
}

impl Arbiter {
    pub(super) fn start() -> Arbiter {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("arbiter")).expect("a socket");
        let counts = Arc::<Mutex<Counts>>::default();
        let counted = Arc::clone(&counts);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, counts) = (stream.expect("a member"), Arc::clone(&counted));
                std::thread::spawn(move || serve(&stream, &counts));
            }
        });
        Arbiter { directory, counts }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("arbiter")
    }

    /// Called before the process is stopped.
    pub(super) fn stops(&self, pid: u32) {
        if let Some(member) = self.counts.lock().members.get_mut(&pid) {
            member.is = Is::Stopped;
        }
    }

    /// Called before the process continues.
    pub(super) fn goes_on(&self, pid: u32) {
        if let Some(member) = self.counts.lock().members.get_mut(&pid) {
            member.is = Is::GoingOn;
        }
    }

    pub(super) fn granted(&self) -> u64 {
        self.counts.lock().granted
    }

    /// Waits until each of this many members was granted this many more charges.
    pub(super) fn until_each_was_granted(&self, members: usize, charges: u64) {
        self.counts.lock().members.values_mut().for_each(|member| member.granted = 0);
        until("each member was granted charges", || {
            let counts = self.counts.lock();
            let granted = counts.members.values().filter(|member| member.granted >= charges);
            granted.count() == members
        });
    }

    pub(super) fn assert_no_excess(&self) {
        let counts = self.counts.lock();
        assert!(counts.excess.is_empty(), "{:?}", counts.excess);
    }
}

/// Messages are `hold WHICH N`, `give WHICH N` and `awake`, after the process's number; each is
/// answered, so that it is counted before the member continues.
fn serve(stream: &UnixStream, counts: &Mutex<Counts>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(pid) = lines.next().and_then(|line| line.parse().ok()) else { return };
    counts.lock().members.insert(pid, Count::default());
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let mut all = counts.lock();
        let all = &mut *all;
        let member = all.members.get_mut(&pid).expect("inserted above");
        match words[..] {
            ["hold", which, n] => {
                all.granted += 1;
                member.granted += 1;
                change(&mut member.used, which, |used| used + number(n));
                all.check();
            }
            ["give", which, n] => change(&mut member.used, which, |used| used - number(n)),
            ["awake"] => {
                if member.is == Is::GoingOn {
                    member.is = Is::Awake;
                }
                all.check();
            }
            _ => panic!("{line}"),
        }
        let mut to = stream;
        if to.write_all(b"\n").is_err() {
            break;
        }
    }
    // The system closes the connection of a process that was killed.
    counts.lock().members.remove(&pid);
}

fn number(n: &str) -> u64 {
    n.parse().expect("a number")
}

/// Use of the child is also use of the root.
fn change(used: &mut [u64; 2], which: &str, change: impl Fn(u64) -> u64) {
    used[0] = change(used[0]);
    if which == "/acme" {
        used[1] = change(used[1]);
    }
}

/// A member's end.
pub(super) struct Teller(BufReader<UnixStream>);

impl Teller {
    pub(super) fn connect(path: &Path) -> Teller {
        let mut stream = UnixStream::connect(path).expect("the test listens");
        writeln!(stream, "{}", std::process::id()).expect("the test reads");
        Teller(BufReader::new(stream))
    }

    /// Returns whether the test has counted it; otherwise the test has ended.
    pub(super) fn tell(&mut self, what: &str) -> bool {
        let mut answer = String::new();
        let told = writeln!(self.0.get_mut(), "{what}");
        told.is_ok() && self.0.read_line(&mut answer).is_ok_and(|n| n > 0)
    }
}
