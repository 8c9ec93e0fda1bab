//! What groups that have ended left of gauges.
//!
//! A count stays in the totals above its group and need not be in any group's own part. A gauge is
//! different: later adjustments of the parent take off what is given back. So the rest of a gauge
//! becomes the parent's own; otherwise the parent's own part would fall below what the parent has.

use std::collections::HashMap;

use submeter_percpu::storage::LINE_WORDS;

pub(super) struct Remains {
    /// The words of gauges.
    levels: Box<[usize]>,
    /// What passed to a group, by its number: one for each gauge. Groups to which nothing passed
    /// are not listed.
    of: HashMap<usize, Box<[i64]>>,
}

impl Remains {
    pub(super) fn new(levels: &[usize]) -> Remains {
        Remains { levels: levels.into(), of: HashMap::new() }
    }

    /// Passes a group's own part to its parent. `read` sums a word, given by line and place.
    pub(super) fn pass_on(
        &mut self,
        id: usize,
        parent: Option<usize>,
        read: impl Fn(usize, usize) -> i64,
    ) {
        let had = self.of.remove(&id);
        let left = self.levels.iter().enumerate().map(|(at, word)| {
            let had = had.as_ref().map_or(0, |had| had[at]);
            read(word / LINE_WORDS, word % LINE_WORDS).wrapping_add(had)
        });
        let left: Box<[i64]> = left.collect();
        let Some(parent) = parent.filter(|_| left.iter().any(|&left| left != 0)) else { return };
        let to = self.of.entry(parent).or_insert_with(|| vec![0; left.len()].into());
        to.iter_mut().zip(left).for_each(|(to, left)| *to = to.wrapping_add(left));
    }

    /// Adds what passed to a group to its words.
    pub(super) fn add_to(&self, id: usize, words: &mut [i64]) {
        if let Some(left) = self.of.get(&id) {
            for (&word, &left) in self.levels.iter().zip(left) {
                words[word] = words[word].wrapping_add(left);
            }
        }
    }
}
