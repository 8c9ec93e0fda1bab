//! The words of sections that were added to an existing tree.

use once_cell::race::OnceBox;

use crate::stats::rstat::OtherStats;

/// The added sections' words in one group, in the order of their first updates. A single pointer
/// while there are none.
///
/// A list, because there are few. It has no lock: a forked child could find it held by a thread
/// that it does not have.
#[derive(Default)]
pub(super) struct AddedSections {
    first: OnceBox<Link>,
}

struct Link {
    stats: OtherStats,
    next: OnceBox<Link>,
}

impl AddedSections {
    pub(super) fn iter(&self) -> impl Iterator<Item = &OtherStats> {
        let links = std::iter::successors(self.first.get(), |link| link.next.get());
        links.map(|link| &link.stats)
    }

    /// Appends `stats`, unless the list has words of that section by then.
    pub(super) fn add(&self, stats: OtherStats) -> &OtherStats {
        let mut link = Box::new(Link { stats, next: OnceBox::new() });
        let mut place = &self.first;
        loop {
            let refused = place.set(link).err();
            let there = place.get().expect("set by this thread or another");
            match refused {
                Some(late) if late.stats.section_id != there.stats.section_id => link = late,
                _ => return &there.stats,
            }
            place = &there.next;
        }
    }
}
