//! Events that are read together.

use std::io::{self, Read};

use super::{Attributes, Event, WITH_TIMES};
use crate::perf_event::{Config, SOFTWARE_DUMMY, TYPE_SOFTWARE};

/// Events of the calling thread that one system call reads, whatever their number.
///
/// Worth it from the second event on: each that is read alone costs as much as all together.
/// For events of the kernel, which need no counter: so being together costs none of them its place.
///
/// # Differences from Linux
/// The group's leader is an event of its own that counts nothing, so that any other may be closed.
#[derive(Debug)]
pub struct Together {
    leader: Event,
    /// The kernel's answer, in words: how many events, then for each its value and its number, the
    /// leader's first.
    bytes: Vec<u8>,
}

impl Together {
    /// Makes a group without events, on the calling thread.
    ///
    /// # Errors
    /// As [`Event::open`].
    pub fn new() -> io::Result<Together> {
        /// `PERF_FORMAT_ID | PERF_FORMAT_GROUP`
        const ALL: u64 = 4 | 8;
        let config = Config::new(TYPE_SOFTWARE, SOFTWARE_DUMMY);
        let leader = Event::open_with(&Attributes::new(&config, ALL), None)?;
        Ok(Together { leader, bytes: vec![0; 3 * WORD] })
    }

    /// Opens an event in the group; returns it, and the number by which [`read`](Together::read)
    /// names it. It counts until it is dropped, and may be read alone too.
    ///
    /// # Errors
    /// As [`Event::open`]; `EINVAL` for one that is pinned.
    pub fn open(&mut self, config: &Config) -> io::Result<(Event, u64)> {
        let event = Event::open_with(&Attributes::new(config, WITH_TIMES), Some(&self.leader))?;
        let id = event.id()?;
        // An event that joins a counting group may be left out until the next switch of the thread:
        // events of the clocks are. The whole group comes when its leader does.
        self.leader.control(super::IOC_DISABLE, 0)?;
        self.leader.control(super::IOC_ENABLE, 0)?;
        // Those that went leave room: only what the kernel finds too small for all of them grows.
        let read = (&self.leader.file).read(&mut self.bytes);
        if read.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)) {
            self.bytes.extend([0; 2 * WORD]);
        }
        Ok((event, id))
    }

    /// Reads all events: a system call. Returns the number and the value of each.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&mut self) -> io::Result<impl Iterator<Item = (u64, u64)>> {
        let len = (&self.leader.file).read(&mut self.bytes)?;
        let word = |bytes: &[u8; WORD]| u64::from_ne_bytes(*bytes);
        let pairs = self.bytes[..len].as_chunks::<WORD>().0.iter().skip(3).map(word);
        let ids = pairs.clone().skip(1).step_by(2);
        Ok(ids.zip(pairs.step_by(2)))
    }
}

const WORD: usize = size_of::<u64>();
