//! An index from groups to small numbers.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::scheduler::GroupKey;

/// The number that no group has in a [`GroupIndex`].
pub const NONE: u32 = 0;

/// The number of groups that share a page: two cache lines.
const PAGE: usize = 32;

/// The number of pages that a thread finds without hashing: those of the first half million groups
/// of a process, in 64 KiB.
const NEAR: usize = 1 << 14;

/// An index from groups to numbers.
///
/// Groups are numbered in the order of creation, and groups created together are often used
/// together. Therefore the entries of neighbours lie next to each other, in pages. A hash table of
/// all groups would scatter them, and each switch among many groups would cost two cache misses
/// that cannot be prefetched.
#[derive(Debug)]
pub struct GroupIndex {
    /// The index in `pages` by page number, as far as needed so far; 0 if there is no page.
    near: Vec<u32>,
    /// The same for page numbers from `NEAR` on, because keys may be any number.
    far: HashMap<u64, u32, FixedState>,
    /// The first page stays empty.
    pages: Vec<Page>,
    /// Unused pages, whose last group no longer has a number.
    free: Vec<u32>,
    groups: usize,
}

/// The number of each group; `NONE` if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Page([u32; PAGE]);

const EMPTY: Page = Page([NONE; PAGE]);

impl Default for GroupIndex {
    fn default() -> GroupIndex {
        GroupIndex::new()
    }
}

impl GroupIndex {
    /// Creates an index in which no group has a number.
    #[must_use]
    pub fn new() -> GroupIndex {
        GroupIndex {
            near: Vec::new(),
            far: HashMap::default(),
            pages: vec![EMPTY],
            free: Vec::new(),
            groups: 0,
        }
    }

    /// Returns the number of `group`, if it has one.
    #[inline]
    #[must_use]
    pub fn find(&self, group: GroupKey) -> Option<u32> {
        let (number, at) = split(group);
        let found = self.pages[self.page(number) as usize].0[at];
        (found != NONE).then_some(found)
    }

    /// Returns how many groups have a number.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Gives a number other than [`NONE`] to `group`, which has none.
    pub fn insert(&mut self, group: GroupKey, value: u32) {
        debug_assert!(value != NONE && self.find(group).is_none());
        let (number, at) = split(group);
        let mut page = self.page(number);
        if page == 0 {
            page = self.free.pop().unwrap_or_else(|| {
                self.pages.push(EMPTY);
                (self.pages.len() - 1) as u32
            });
            self.set_page(number, page);
        }
        self.pages[page as usize].0[at] = value;
        self.groups += 1;
    }

    /// Removes the number of `group`, which has one.
    pub fn remove(&mut self, group: GroupKey) {
        debug_assert!(self.find(group).is_some());
        let (number, at) = split(group);
        let page = self.page(number);
        self.pages[page as usize].0[at] = NONE;
        self.groups -= 1;
        if self.pages[page as usize] == EMPTY {
            self.set_page(number, 0);
            self.free.push(page);
        }
    }

    #[inline]
    fn page(&self, number: u64) -> u32 {
        match near(number) {
            Some(at) => self.near.get(at).copied().unwrap_or(0),
            None => self.far.get(&number).copied().unwrap_or(0),
        }
    }

    fn set_page(&mut self, number: u64, page: u32) {
        match near(number) {
            Some(at) => {
                if self.near.len() <= at {
                    self.near.resize(at + 1, 0);
                }
                self.near[at] = page;
            }
            None if page == 0 => drop(self.far.remove(&number)),
            None => drop(self.far.insert(number, page)),
        }
    }
}

/// Returns the index for a page number that is found without hashing.
#[inline]
fn near(number: u64) -> Option<usize> {
    usize::try_from(number).ok().filter(|&at| at < NEAR)
}

#[inline]
fn split(GroupKey(key): GroupKey) -> (u64, usize) {
    (key / PAGE as u64, (key % PAGE as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_map_and_keeps_no_empty_page() {
        const STEPS: u32 = if cfg!(miri) { 500 } else { 20_000 };
        let (mut index, mut map) = (GroupIndex::new(), HashMap::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for step in 0..STEPS {
            let few = rng.u64(..128);
            let key = match rng.u8(..4) {
                0 => few,
                1 => (NEAR * PAGE) as u64 - 64 + few,
                2 => few << 40,
                _ => u64::MAX - few,
            };
            let group = GroupKey(key);
            assert_eq!(index.find(group), map.get(&key).copied());
            if map.remove(&key).is_some() {
                index.remove(group);
            } else {
                index.insert(group, step + 1);
                map.insert(key, step + 1);
            }
            assert_eq!(index.groups(), map.len());
        }
        for key in map.into_keys() {
            index.remove(GroupKey(key));
        }
        assert!(index.far.is_empty() && index.near.iter().all(|&page| page == 0));
        assert_eq!(index.free.len(), index.pages.len() - 1);
    }
}
