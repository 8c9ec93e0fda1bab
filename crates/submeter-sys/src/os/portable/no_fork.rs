//! Systems without forks.

use std::io;

use crate::memory::Reservation;

pub(crate) fn wipe(_: &Reservation) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn note_handlers(_: Option<extern "C" fn()>, _: extern "C" fn()) {}
