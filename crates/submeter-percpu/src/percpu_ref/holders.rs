//! The holders of references: counted by source location in debug builds, and not at all in other
//! builds.

use std::fmt;
use std::panic::Location;
#[cfg(debug_assertions)]
use std::sync::OnceLock;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// The place where a reference was taken; empty in release builds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    #[cfg(debug_assertions)]
    location: &'static Location<'static>,
}

/// The references held, by place. It is wait-free and does not allocate: a signal handler may take
/// references.
#[derive(Debug, Default)]
pub(super) struct Sites {
    #[cfg(debug_assertions)]
    places: [HolderPlace; PLACES],
    /// The number of references from places for which there was no room.
    #[cfg(debug_assertions)]
    elsewhere: AtomicI64,
}

/// More places than a program has at which it takes references to one object.
#[cfg(debug_assertions)]
const PLACES: usize = 16;

#[cfg(debug_assertions)]
#[derive(Debug, Default)]
struct HolderPlace {
    /// The location's address, 0 while the place is free. Writer: the first thread that needs a
    /// place.
    claimed: AtomicUsize,
    /// Set only by the thread that claimed the place, so that setting it never blocks: a signal
    /// handler would wait for the thread that it interrupted.
    location: OnceLock<&'static Location<'static>>,
    held: AtomicI64,
}

#[cfg(debug_assertions)]
impl HolderPlace {
    /// Claims the place for `location`. Returns whether it belongs to `location`, newly or already.
    fn claim(&self, location: &'static Location<'static>) -> bool {
        let address = std::ptr::from_ref(location).addr();
        // Relaxed: the address only tells places apart; `location` is published by its own cell.
        match self.claimed.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => self.location.set(location).is_ok(),
            // A location that was compiled more than once has several addresses.
            Err(claimed) => {
                claimed == address || self.location.get().is_some_and(|own| *own == location)
            }
        }
    }
}

impl Sites {
    /// Notes `n` references taken (or, if negative, put) at the caller's caller.
    #[cfg(debug_assertions)]
    #[track_caller]
    pub(super) fn took(&self, n: impl Into<i64>) -> Site {
        let location = Location::caller();
        self.note(location, n.into());
        Site { location }
    }

    /// Does nothing.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub(super) fn took(&self, _: impl Into<i64>) -> Site {
        Site {}
    }

    /// Notes that a reference taken at `site` is gone.
    #[inline(always)]
    pub(super) fn gave(&self, site: Site) {
        #[cfg(debug_assertions)]
        self.note(site.location, -1);
        #[cfg(not(debug_assertions))]
        let _ = site;
    }

    #[cfg(debug_assertions)]
    fn note(&self, location: &'static Location<'static>, n: i64) {
        let place = self.places.iter().find(|place| place.claim(location));
        let held = place.map_or(&self.elsewhere, |place| &place.held);
        // Relaxed: a statistic for people.
        held.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the places with the number of references held from each.
    pub(super) fn list(&self) -> Vec<(Option<&'static Location<'static>>, i64)> {
        #[cfg(debug_assertions)]
        {
            // Relaxed: as in `note`.
            let read = |held: &AtomicI64| held.load(Ordering::Relaxed);
            let mut list: Vec<_> = self
                .places
                .iter()
                .map(|place| (place.location.get().copied(), read(&place.held)))
                .chain([(None, read(&self.elsewhere))])
                .filter(|&(_, held)| held != 0)
                .collect();
            list.sort_by_key(|&(_, held)| std::cmp::Reverse(held));
            list
        }
        #[cfg(not(debug_assertions))]
        Vec::new()
    }
}

/// The error of a wait for a release that did not come in time: the references that prevent it.
#[derive(Clone, Debug)]
pub struct StillHeldError {
    pub(super) name: String,
    pub(super) dying: bool,
    pub(super) references: Option<i64>,
    pub(super) sites: Vec<(Option<&'static Location<'static>>, i64)>,
}

impl StillHeldError {
    /// Returns how many references are held; `None` while they are counted per CPU, before the
    /// kill.
    #[must_use]
    pub fn references(&self) -> Option<i64> {
        self.references
    }

    /// Returns the places in the source where the references were taken, with the number held from
    /// each; empty in release builds.
    ///
    /// `None` sums up places beyond the first few. A plain `put` cannot know its get, so it is
    /// listed under its own place with a negative number.
    pub fn places(&self) -> impl Iterator<Item = (Option<&'static Location<'static>>, i64)> + '_ {
        self.sites.iter().copied()
    }
}

impl fmt::Display for StillHeldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not released: ", self.name)?;
        match self.references {
            _ if !self.dying => f.write_str("it was not killed")?,
            Some(0) => f.write_str("the release callback is running")?,
            Some(n) => write!(f, "{n} references are held")?,
            None => f.write_str("the kill is in progress")?,
        }
        for (number, &(place, held)) in self.sites.iter().enumerate() {
            let what = if held < 0 { "put" } else { "taken" };
            let lead = if number == 0 { ":" } else { "," };
            write!(f, "{lead} {} {what} at ", held.unsigned_abs())?;
            match place {
                Some(place) => write!(f, "{place}")?,
                None => f.write_str("other places")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for StillHeldError {}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_location_compiled_twice_has_one_place() {
        static AGAIN: OnceLock<Location<'static>> = OnceLock::new();
        let (sites, here, elsewhere) = (Sites::default(), Location::caller(), Location::caller());
        let again = AGAIN.get_or_init(|| *here);
        [here, again, here].into_iter().for_each(|location| sites.note(location, 2));
        sites.note(elsewhere, -1);
        assert_eq!(sites.list(), [(Some(here), 6), (Some(elsewhere), -1)]);
    }

    #[test]
    fn the_text_has_each_place_and_what_it_did() {
        let here = Location::caller();
        let sites = vec![(Some(here), 2), (Some(here), -3), (None, 1)];
        let name = String::from("web");
        let held = StillHeldError { name, dying: true, references: None, sites };
        let expected = format!(
            "web is not released: the kill is in progress: 2 taken at {here}, 3 put at {here}, \
             1 taken at other places"
        );
        assert_eq!(held.to_string(), expected);
    }
}
