//! What surrounds the process and is not part of submeter: the container, what it refuses, and an
//! allocator that uses the same kernel feature. What cannot be seen from inside is not guessed.

use std::path::Path;

use serde::Serialize;
use submeter_sys::perf_event::{Config, Event, SOFTWARE_DUMMY, TYPE_SOFTWARE};

/// What has put the process into a container; it decides the wording of advice on permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Container {
    Kubernetes,
    Docker,
    Podman,
}

impl Container {
    /// Returns its name as people write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Container::Kubernetes => "Kubernetes",
            Container::Docker => "Docker",
            Container::Podman => "Podman",
        }
    }
}

/// Looks for the traces of each container runtime.
pub(super) fn container() -> Option<Container> {
    let kubelet = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    told(kubelet, &|path| Path::new(path).exists())
}

fn told(kubelet: bool, exists: &dyn Fn(&str) -> bool) -> Option<Container> {
    // A pod's containers show a runtime's traces too, but the pod is what is configured.
    if kubelet {
        Some(Container::Kubernetes)
    } else if exists("/run/.containerenv") {
        Some(Container::Podman)
    } else {
        exists("/.dockerenv").then_some(Container::Docker)
    }
}

/// Opens the event that a thread's clock would open, and returns the error number of the refusal.
pub(super) fn perf_event_errno() -> Option<i32> {
    let opened = Event::open(&Config::new(TYPE_SOFTWARE, SOFTWARE_DUMMY), None);
    opened.err().map(|error| error.raw_os_error().unwrap_or(0))
}

/// Returns the file of a tcmalloc that this process has mapped. A tcmalloc that is linked
/// statically into another program cannot be seen here.
pub(super) fn tcmalloc() -> Option<String> {
    mapped(&std::fs::read_to_string("/proc/self/maps").ok()?)
}

fn mapped(maps: &str) -> Option<String> {
    let files = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let is_tcmalloc = |file: &&str| file.rsplit('/').next().is_some_and(|f| f.contains("tcmalloc"));
    files.into_iter().find(is_tcmalloc).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_told_by_its_runtimes_traces() {
        let with = |kubelet, file: &'static str| told(kubelet, &|path| path == file);
        assert_eq!(with(false, ""), None);
        assert_eq!(with(false, "/.dockerenv"), Some(Container::Docker));
        assert_eq!(with(false, "/run/.containerenv"), Some(Container::Podman));
        assert_eq!(with(true, "/.dockerenv"), Some(Container::Kubernetes));
    }

    #[test]
    fn tcmalloc_is_found_by_its_file_only() {
        let line = |file: &str| format!("7f00-7f01 r-xp 00000000 fe:00 123    {file}\n");
        let libc = line("/usr/lib/x86_64-linux-gnu/libc.so.6");
        let maps = |file: &str| libc.clone() + "7ffd-7ffe rw-p 00000000 00:00 0\n" + &line(file);
        let file = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";
        assert_eq!(mapped(&maps(file)).as_deref(), Some(file));
        assert_eq!(mapped(&maps("/srv/tcmalloc/bin/program")), None, "a directory");
        assert_eq!(mapped(""), None);
    }
}
