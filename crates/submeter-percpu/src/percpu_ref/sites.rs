//! Who holds references: counted by place in the source, in debug builds; nothing at all in others.

use std::panic::Location;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicI64, Ordering};

/// Where a reference was taken; empty in release builds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    #[cfg(debug_assertions)]
    place: &'static Location<'static>,
}

/// What is held, by place. Wait-free, does not allocate: a signal handler may take references.
#[derive(Debug, Default)]
pub(super) struct Sites {
    #[cfg(debug_assertions)]
    places: [(super::raw::Place, AtomicI64); PLACES],
    /// Places for which there was no room.
    #[cfg(debug_assertions)]
    elsewhere: AtomicI64,
}

/// More places than a program takes references of one object at.
#[cfg(debug_assertions)]
const PLACES: usize = 16;

impl Sites {
    /// Notes `n` references taken (or, negative, put) by the caller's caller.
    #[cfg(debug_assertions)]
    #[track_caller]
    pub(super) fn took(&self, n: impl Into<i64>) -> Site {
        let place = Location::caller();
        self.note(place, n.into());
        Site { place }
    }

    /// Nothing to note.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub(super) fn took(&self, _: impl Into<i64>) -> Site {
        Site {}
    }

    /// Notes that a reference is gone which was taken at `site`.
    #[inline(always)]
    pub(super) fn gave(&self, site: Site) {
        #[cfg(debug_assertions)]
        self.note(site.place, -1);
        #[cfg(not(debug_assertions))]
        let _ = site;
    }

    #[cfg(debug_assertions)]
    fn note(&self, location: &'static Location<'static>, n: i64) {
        let place = self.places.iter().find(|(place, _)| place.claim(location));
        let held = place.map_or(&self.elsewhere, |(_, held)| held);
        // Relaxed: a statistic for people.
        held.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the places with what is held from each.
    pub(super) fn list(&self) -> Vec<(Option<&'static Location<'static>>, i64)> {
        #[cfg(debug_assertions)]
        {
            // Relaxed: as in `note`.
            let read = |held: &AtomicI64| held.load(Ordering::Relaxed);
            let places = self.places.iter();
            let mut list: Vec<_> = places
                .filter_map(|(place, held)| Some((Some(place.get()?), read(held))))
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
