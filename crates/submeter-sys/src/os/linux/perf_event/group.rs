//! Events that are read together.

use std::io::{self, Read};

use super::{Attributes, Event, WITH_TIMES};
use crate::perf_event::{Config, SOFTWARE_DUMMY, TYPE_SOFTWARE};

/// Events of the calling thread that are read by one system call, whatever their number.
///
/// Worthwhile from the second event on: each event that is read alone costs as much as all
/// together. Meant for kernel events: they need no counter, so being in one group costs none of
/// them its place.
///
/// # Differences from Linux
/// The group's leader is a separate event that counts nothing, so that any other may be closed.
#[derive(Debug)]
pub struct Together {
    leader: Event,
    /// The kernel's answer, in words: the number of events, then the value and number of each, the
    /// leader's first.
    bytes: Vec<u8>,
}

impl Together {
    /// Creates a group without events, on the calling thread.
    ///
    /// # Errors
    /// The same as [`Event::open`].
    pub fn new() -> io::Result<Together> {
        /// `PERF_FORMAT_ID | PERF_FORMAT_GROUP`
        const ALL: u64 = 4 | 8;
        let config = Config::new(TYPE_SOFTWARE, SOFTWARE_DUMMY);
        let leader = Event::open_with(&Attributes::new(&config, ALL), None)?;
        Ok(Together { leader, bytes: vec![0; 3 * WORD] })
    }

    /// Opens an event in the group, and returns it with the number by which
    /// [`read`](Together::read) identifies it. It counts until it is dropped, and may also be read
    /// alone.
    ///
    /// # Errors
    /// The same as [`Event::open`]; `EINVAL` for a pinned event.
    pub fn open(&mut self, config: &Config) -> io::Result<(Event, u64)> {
        let event = Event::open_with(&Attributes::new(config, WITH_TIMES), Some(&self.leader))?;
        let id = event.id()?;
        // An event that joins a counting group may not count until the thread's next switch: clock
        // events do not. Enabling the leader starts the whole group.
        self.leader.control(super::IOC_DISABLE, 0)?;
        self.leader.control(super::IOC_ENABLE, 0)?;
        // Closed events leave room: the buffer grows only if the kernel finds it too small for all
        // events.
        let read = (&self.leader.file).read(&mut self.bytes);
        if read.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)) {
            self.bytes.extend([0; 2 * WORD]);
        }
        Ok((event, id))
    }

    /// Reads all events by one system call. Returns the number and the value of each.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&mut self) -> io::Result<impl Iterator<Item = (u64, u64)>> {
        let len = (&self.leader.file).read(&mut self.bytes)?;
        let word = |bytes: &[u8; WORD]| u64::from_ne_bytes(*bytes);
        let pairs = self.bytes[..len].as_chunks::<WORD>().0.iter().skip(3).map(word);
        let ids = pairs.clone().skip(1).step_by(2);
        Ok(ids.zip(pairs.step_by(2)))
    }
}

const WORD: usize = size_of::<u64>();
