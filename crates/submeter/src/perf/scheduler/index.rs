//! Which line is a group's.
//!
//! Groups are numbered as they are made, and those made together are often served together. So the lines of neighbours
//! lie next to each other, in pages. A hash of all groups would scatter them, and cost each switch among many groups two
//! lines of the cache that nothing foretells.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::GroupKey;
use super::lines::{EVERYWHERE, LineId};

/// How many groups share a page: two lines of the cache.
const PAGE: usize = 32;

/// How many pages a thread finds without a hash: those of the first half million groups of a process, in 64 KiB.
const NEAR: usize = 1 << 14;

#[derive(Debug)]
pub(super) struct Index {
    /// Where in `pages` a page is, by its number; as far as one was needed, 0 where none is.
    near: Vec<u32>,
    /// The same for numbers of `NEAR` and more: keys may be any.
    far: HashMap<u64, u32, FxBuildHasher>,
    /// The first one stays empty.
    pages: Vec<Page>,
    /// Pages that no number has, as their last group has no events any more.
    free: Vec<u32>,
    groups: usize,
}

/// The line of each group; `EVERYWHERE`, which is no group's, where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Page([LineId; PAGE]);

const EMPTY: Page = Page([EVERYWHERE; PAGE]);

impl Index {
    pub(super) fn new() -> Index {
        Index {
            near: Vec::new(),
            far: HashMap::default(),
            pages: vec![EMPTY],
            free: Vec::new(),
            groups: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, group: GroupKey) -> Option<LineId> {
        let (number, at) = split(group);
        let line = self.pages[self.page(number) as usize].0[at];
        (line != EVERYWHERE).then_some(line)
    }

    /// How many groups have a line.
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// Gives `group`, which has none, a line.
    pub(super) fn insert(&mut self, group: GroupKey, line: LineId) {
        debug_assert!(line != EVERYWHERE && self.find(group).is_none());
        let (number, at) = split(group);
        let mut page = self.page(number);
        if page == 0 {
            page = self.free.pop().unwrap_or_else(|| {
                self.pages.push(EMPTY);
                (self.pages.len() - 1) as u32
            });
            self.set_page(number, page);
        }
        self.pages[page as usize].0[at] = line;
        self.groups += 1;
    }

    /// Takes the line of `group`, which has one.
    pub(super) fn remove(&mut self, group: GroupKey) {
        debug_assert!(self.find(group).is_some());
        let (number, at) = split(group);
        let page = self.page(number);
        self.pages[page as usize].0[at] = EVERYWHERE;
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

/// Returns the place of a page's number, if it is found without a hash.
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
    fn it_finds_what_a_map_finds_and_keeps_no_page_without_groups() {
        const STEPS: u32 = if cfg!(miri) { 500 } else { 20_000 };
        let (mut index, mut map) = (Index::new(), HashMap::new());
        let mut random = 1u64;
        for step in 0..STEPS {
            // Knuth's generator; its upper bits are the better ones.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let few = random >> 57;
            let key = match random >> 40 & 3 {
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
