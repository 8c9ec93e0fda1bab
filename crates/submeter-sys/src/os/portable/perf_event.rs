//! No events: opening one is refused, so no value of these types exists.

use std::convert::Infallible;
use std::fs::File;
use std::io;

use crate::perf_event::{Config, Counts};

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A counter of a thread: none on this system.
#[derive(Debug)]
pub struct Event(Infallible);

impl Event {
    /// Refuses.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], always.
    pub fn open(_: &Config, _: Option<&Event>) -> io::Result<Event> {
        refused()
    }

    /// Refuses.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], always.
    pub fn open_for_cgroup(_: &Config, _: &File, _: usize) -> io::Result<Event> {
        refused()
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(&self) -> io::Result<Counts> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn disable(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn enable(&self) -> io::Result<()> {
        match self.0 {}
    }
}

/// Events that are read together: none on this system.
#[derive(Debug)]
pub struct Together(Infallible);

impl Together {
    /// Refuses.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], always.
    pub fn new() -> io::Result<Together> {
        refused()
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn open(&mut self, _: &Config) -> io::Result<(Event, u64)> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(&mut self) -> io::Result<impl Iterator<Item = (u64, u64)>> {
        match self.0 {}
        #[expect(unreachable_code, reason = "names the type of what is never returned")]
        Ok(std::iter::empty())
    }
}

/// The page that shows a thread that it was switched out: none on this system.
#[derive(Debug)]
pub struct Switches(Infallible);

impl Switches {
    /// Refuses.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], always.
    pub fn watch() -> io::Result<Switches> {
        refused()
    }

    /// Never called.
    pub fn happened(&mut self) -> bool {
        match self.0 {}
    }
}

/// A counter that an instruction reads: none on this system.
#[derive(Debug)]
pub struct FastRead(Infallible);

impl FastRead {
    /// Refuses.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], always.
    pub fn of(_: &Event) -> io::Result<FastRead> {
        refused()
    }

    /// Never called.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        match self.0 {}
    }
}
