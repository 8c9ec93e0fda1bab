//! CPUs have no numbers here: updates go to a row by thread.

use std::io;

pub(crate) fn possible() -> Option<usize> {
    None
}

pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_affinity(_: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn current() -> Option<usize> {
    None
}
