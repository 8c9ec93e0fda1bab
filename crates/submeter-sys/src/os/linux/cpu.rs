//! CPUs, as numbered by `/sys` and the scheduler's calls.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::CPUS_MAX;

pub(crate) fn possible() -> Option<usize> {
    /// 0: not read yet; 1: unknown; otherwise the answer plus 1. No lock, which a fork could leave
    /// held: two threads that both read the file get the same result.
    static POSSIBLE: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only the number itself matters.
    match POSSIBLE.load(Ordering::Relaxed) {
        0 => {}
        known => return (known > 1).then(|| known - 1),
    }
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    let possible = text.and_then(|text| parse_list(&text)?.iter().last()).map(|last| last + 1);
    // Relaxed: as above.
    POSSIBLE.store(possible.map_or(1, |cpus| cpus + 1), Ordering::Relaxed);
    possible
}

/// Returns the CPUs of a kernel's list (`0-3,8`), or `None` if it is not one.
pub(super) fn parse_list(text: &str) -> Option<Set> {
    let mut set = Set::empty();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        (first..=last).for_each(|cpu| set.insert(cpu));
    }
    Some(set)
}

pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    Set::of(0).map(|set| set.iter().collect())
}

pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = Set::empty();
    cpus.iter().for_each(|&cpu| set.insert(cpu));
    set.apply()
}

pub(crate) fn current() -> Option<usize> {
    // SAFETY: 1. The call takes nothing and touches no memory of ours: sched_getcpu(3) says so.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).ok()
}

/// A CPU mask. A type of our own, because `libc::cpu_set_t` ends at CPU 1023.
#[repr(C)]
pub(super) struct Set {
    words: [libc::c_ulong; CPUS_MAX / BITS],
}

const BITS: usize = libc::c_ulong::BITS as usize;

impl Set {
    pub(super) const fn empty() -> Set {
        Set { words: [0; CPUS_MAX / BITS] }
    }

    pub(super) const fn all() -> Set {
        Set { words: [libc::c_ulong::MAX; CPUS_MAX / BITS] }
    }

    pub(super) fn one(cpu: usize) -> Set {
        let mut set = Set::empty();
        set.insert(cpu);
        set
    }

    /// Returns the CPUs on which a thread may run; 0 is the calling one.
    pub(super) fn of(thread: libc::pid_t) -> io::Result<Set> {
        let mut set = Set::empty();
        // SAFETY: 1. `set` is live and writable for the size given: it is the size of its type.
        // 2. The call writes at most that: sched_setaffinity(2) says so.
        let written =
            unsafe { libc::sched_getaffinity(thread, size_of::<Set>(), (&raw mut set).cast()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(set) }
    }

    /// Restricts the calling thread to these.
    pub(super) fn apply(&self) -> io::Result<()> {
        // SAFETY: 1. The set is live for the size given: it is the size of its type. 2. The call
        // only reads it: sched_setaffinity(2) says so.
        let result =
            unsafe { libc::sched_setaffinity(0, size_of::<Set>(), ptr::from_ref(self).cast()) };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / BITS).is_some_and(|word| word >> (cpu % BITS) & 1 == 1)
    }

    pub(super) fn insert(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / BITS) {
            *word |= 1 << (cpu % BITS);
        }
    }

    pub(super) fn keep(&mut self, others: &Set) {
        self.words.iter_mut().zip(&others.words).for_each(|(word, others)| *word &= others);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..CPUS_MAX).filter(|&cpu| self.contains(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_parse_as_the_kernel_writes_them() {
        let parse = |text| parse_list(text).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse("0-3,8,16-17\n"), Some(vec![0, 1, 2, 3, 8, 16, 17]));
        for none in ["", "3-1", "x", "0-8192"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn affinity_round_trips() {
        let before = affinity().expect("readable");
        assert!(!before.is_empty());
        std::thread::spawn(move || {
            let one = [before[before.len() - 1]];
            set_affinity(&one).expect("a CPU we were on");
            assert_eq!(affinity().expect("readable"), one);
            assert_eq!(current(), Some(one[0]));
        })
        .join()
        .expect("no panic");
    }
}
