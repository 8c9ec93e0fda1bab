//! What one thread counted, by group.

use std::collections::HashMap;

use super::ground::{Ground, Occupant, place_of};
use crate::schema::Totals;

/// What one thread counted: by place for the living, by the id of the parent for the rest.
///
/// A note for each group that ever was would not fit into memory.
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
    pub(super) fn new(ground: &Ground) -> Notes {
        let note = |occupant: Occupant| {
            let Occupant { id, parent, .. } = occupant;
            Note { id, parent, totals: Totals::default() }
        };
        let places = ground.occupants().into_iter().map(note).collect();
        Notes { places, orphans: HashMap::new() }
    }

    /// What was counted for this group and no other, while the notes still tell.
    pub(super) fn alone(&self, occupant: &Occupant) -> Option<&Totals> {
        let note = &self.places[place_of(occupant.id)];
        (note.id == occupant.id).then_some(&note.totals)
    }

    /// Where to count for a group that is, or was, at its place.
    pub(super) fn of(&mut self, occupant: &Occupant) -> &mut Totals {
        let note = &mut self.places[place_of(occupant.id)];
        if note.id > occupant.id {
            // A successor was met already: this one is dead, and counts for its parent.
            return self.orphans.entry(occupant.parent).or_default();
        }
        if note.id < occupant.id {
            let Occupant { id, parent, .. } = *occupant;
            let last = std::mem::replace(note, Note { id, parent, totals: Totals::default() });
            self.orphans.entry(last.parent).or_default().merge(&last.totals);
        }
        &mut note.totals
    }

    /// Calls `each` with all that was counted and the place of the lowest group that lives and has
    /// it in its totals.
    pub(super) fn by_place(
        &mut self,
        ground: &Ground,
        occupants: &[Occupant],
        mut each: impl FnMut(usize, &Totals),
    ) {
        for (place, occupant) in occupants.iter().enumerate() {
            each(place, self.of(occupant));
        }
        // Under the ids of living groups, so that they do not become more and more.
        for (parent, totals) in std::mem::take(&mut self.orphans) {
            let place = living(ground, occupants, &[parent]);
            each(place, &totals);
            self.orphans.entry(occupants[place].id).or_default().merge(&totals);
        }
    }
}

/// The place of the first of `ids`, each the parent of the one before, that lives, or else of the
/// top above the last.
pub(super) fn living(ground: &Ground, occupants: &[Occupant], ids: &[u64]) -> usize {
    let mut places = ids.iter().map(|&id| (id, place_of(id)));
    let alive = places.find(|&(id, place)| occupants[place].id == id);
    // Tops live as long as the tree.
    alive.map_or_else(|| ground.shape.parent(place_of(ids[ids.len() - 1])), |(_, place)| place)
}
