//! Groups of a snapshot by their paths.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::GroupValues;

/// The indices of groups by the hashes of their paths.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Paths may come from untrusted sources, so collisions must be unpredictable.
    seed: RandomState,
    places: HashTable<u32>,
}

impl Index {
    pub(super) fn new(groups: &[GroupValues]) -> Index {
        let seed = RandomState::new();
        let hash = |&place: &u32| seed.hash_one(groups[place as usize].path());
        let mut places = HashTable::with_capacity(groups.len());
        // A tree has fewer groups than its area has words, whose numbers fit into 32 bits.
        for place in 0..groups.len() as u32 {
            places.insert_unique(hash(&place), place, hash);
        }
        Index { seed, places }
    }

    /// Finds a group among those that the index was made from.
    pub(super) fn find<'a>(
        &self,
        groups: &'a [GroupValues],
        path: &str,
    ) -> Option<&'a GroupValues> {
        let is_it = |&place: &u32| groups[place as usize].path() == path;
        let place = self.places.find(self.seed.hash_one(path), is_it)?;
        Some(&groups[*place as usize])
    }
}
