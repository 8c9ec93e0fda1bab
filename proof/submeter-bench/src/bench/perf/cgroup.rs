//! The kernel's control groups for threads, which accuracy is compared with.
//!
//! They are created as threaded groups below the group of this process: the process stays where it
//! is, and a user to whom that group is delegated needs no further privilege to create them.
//! Counting their events does need privilege.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use submeter::perf::{self, EventGroup, EventKind, parse};
use submeter_sys::cpu::affinity;
use submeter_sys::perf_event::{self, Config, Event};

/// Number of control groups that this process has created, so that no two share a name.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A threaded control group, removed when dropped.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Creates a control group below that of this process.
    pub(super) fn new(name: &str) -> io::Result<Cgroup> {
        let read = |path| fs::read_to_string(path);
        let (mounts, own) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let parent = own_directory(&mounts, &own).ok_or_else(|| {
            io::Error::other("no cgroup v2 hierarchy is mounted (mount -t cgroup2)")
        })?;
        // Relaxed: the number only has to be unique.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        Cgroup::create(parent.join(format!("submeter-bench-{process}-{number}-{name}")))
    }

    /// Creates one below this one, which must be dropped later.
    pub(super) fn child(&self, name: &str) -> io::Result<Cgroup> {
        Cgroup::create(self.directory.join(name))
    }

    fn create(directory: PathBuf) -> io::Result<Cgroup> {
        fs::create_dir(&directory).map_err(|error| at(&directory, &error))?;
        let cgroup = Cgroup { directory };
        let kind = cgroup.directory.join("cgroup.type");
        fs::write(&kind, "threaded").map_err(|error| at(&kind, &error))?;
        Ok(cgroup)
    }

    /// Moves the calling thread into it.
    pub(super) fn join(&self) -> io::Result<()> {
        let threads = self.directory.join("cgroup.threads");
        // 0 stands for the writing thread.
        fs::write(&threads, "0").map_err(|error| at(&threads, &error))
    }

    /// Returns the CPU time of all its threads, including those that have exited, from `cpu.stat`.
    pub(super) fn usage_us(&self) -> io::Result<u64> {
        let stat = self.directory.join("cpu.stat");
        let text = fs::read_to_string(&stat).map_err(|error| at(&stat, &error))?;
        usage_us(&text).ok_or_else(|| at(&stat, &io::Error::other("it has no usage_usec")))
    }

    /// Counts its CPU time with perf events, one for each CPU of this process.
    pub(super) fn events(&self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for cpu in affinity()? {
            events.extend(self.open("task-clock", cpu)?);
        }
        Ok(events)
    }

    /// Counts the events of `list` on one CPU.
    pub(super) fn open(&self, list: &str, cpu: usize) -> io::Result<Vec<Event>> {
        let directory = File::open(&self.directory)?;
        let lists = parse(list).map_err(io::Error::other)?;
        let open = |event: &perf::Event| {
            let (kind, number) = match event.kind() {
                EventKind::Hardware(number) => (perf_event::TYPE_HARDWARE, number),
                EventKind::Software(number) => (perf_event::TYPE_SOFTWARE, number),
                _ => return Err(io::ErrorKind::Unsupported.into()),
            };
            let config = Config { kernel: true, ..Config::new(kind, number) };
            Event::open_for_cgroup(&config, &directory, cpu)
        };
        lists.iter().flat_map(EventGroup::events).map(open).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that remains holds no thread and does no harm.
        let _ = fs::remove_dir(&self.directory);
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the directory of this process's group in the v2 hierarchy.
fn own_directory(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A line has: … root mount-point options - type source …
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4))?
    })?;
    Some(Path::new(mount).join(path))
}

fn usage_us(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_s_own_group_is_found() {
        let mounts = "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = "9:name=systemd:/\n0::/user.slice/a\n";
        let found = own_directory(mounts, own).expect("there");
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/user.slice/a"));
        let root = own_directory(mounts, "0::/\n").expect("there");
        assert_eq!(root, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(own_directory("", own), None);
        assert_eq!(own_directory(mounts, "1:cpu:/\n"), None);
    }

    #[test]
    fn usage_is_read() {
        assert_eq!(usage_us("usage_usec 4711\nuser_usec 1\n"), Some(4711));
        assert_eq!(usage_us("user_usec 1\n"), None);
    }
}
