//! The counts of one thread, by group.

use std::collections::HashMap;

use super::shared_tree::{Occupant, SharedTree, place_of};
use crate::schema::Totals;

/// The counts of one thread: by place for live groups, by the parent's ID for the others.
///
/// A note for every group that ever existed would not fit into memory.
pub(super) struct Notes {
    places: Vec<Note>,
    orphans: HashMap<u64, Totals>,
}

#[derive(Clone, Copy)]
struct Note {
    id: u64,
    parent: u64,
    totals: Totals,
}

impl Notes {
    pub(super) fn new(shared: &SharedTree) -> Notes {
        let note = |occupant: Occupant| {
            let Occupant { id, parent, .. } = occupant;
            Note { id, parent, totals: Totals::default() }
        };
        let places = shared.occupants().into_iter().map(note).collect();
        Notes { places, orphans: HashMap::new() }
    }

    /// Returns what was counted for this group alone, while the notes still keep it apart.
    pub(super) fn alone(&self, occupant: &Occupant) -> Option<&Totals> {
        let note = &self.places[place_of(occupant.id)];
        (note.id == occupant.id).then_some(&note.totals)
    }

    /// Returns the totals in which to count for a group that is, or was, at its place.
    pub(super) fn of(&mut self, occupant: &Occupant) -> &mut Totals {
        let note = &mut self.places[place_of(occupant.id)];
        if note.id > occupant.id {
            // A successor was seen already, so this group was killed and counts for its parent.
            return self.orphans.entry(occupant.parent).or_default();
        }
        if note.id < occupant.id {
            let Occupant { id, parent, .. } = *occupant;
            let last = std::mem::replace(note, Note { id, parent, totals: Totals::default() });
            self.orphans.entry(last.parent).or_default().merge(&last.totals);
        }
        &mut note.totals
    }

    /// Calls `each` with everything that was counted, and the place of the lowest live group whose
    /// totals include it.
    pub(super) fn by_place(
        &mut self,
        shared: &SharedTree,
        occupants: &[Occupant],
        mut each: impl FnMut(usize, &Totals),
    ) {
        for (place, occupant) in occupants.iter().enumerate() {
            each(place, self.of(occupant));
        }
        // Under the IDs of live groups, so that entries do not accumulate.
        for (parent, totals) in std::mem::take(&mut self.orphans) {
            let place = living(shared, occupants, &[parent]);
            each(place, &totals);
            self.orphans.entry(occupants[place].id).or_default().merge(&totals);
        }
    }
}

/// Returns the place of the first live group among `ids`, each the parent of the one before, or
/// else of the top group above the last.
pub(super) fn living(shared: &SharedTree, occupants: &[Occupant], ids: &[u64]) -> usize {
    let mut places = ids.iter().map(|&id| (id, place_of(id)));
    let alive = places.find(|&(id, place)| occupants[place].id == id);
    // Top groups live as long as the tree.
    alive.map_or_else(|| shared.shape.parent(place_of(ids[ids.len() - 1])), |(_, place)| place)
}
