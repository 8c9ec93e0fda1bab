//! Lines that keep their marks, from inside: who needs a barrier, and who loses a mark again.

use super::*;
use crate::{Count, Unit};
use kept_lines::{COLD, COLD_MAX, LINES_MAX, STREAK};

const MASK: u64 = Count::KIND.batch_mask();

/// A tree on one simulated CPU, where no thread moves between rows.
struct Tree {
    rstat: Arc<Rstat>,
    groups: Vec<GroupStats>,
    /// What was added to each.
    counted: Vec<i64>,
}

impl Tree {
    /// A root and `children` below it, each with a line.
    fn new(children: usize) -> Tree {
        let rstat = Arc::new(Rstat::new(1, 10_000, Some(1)).expect("address space"));
        let root = GroupStats::new(&rstat, None).expect("room");
        let mut tree = Tree { rstat, groups: vec![root], counted: vec![0] };
        (0..children).for_each(|_| tree.add_child());
        tree
    }

    fn add_child(&mut self) {
        self.groups.push(GroupStats::new(&self.rstat, Some(&self.groups[0])).expect("room"));
        self.counted.push(0);
    }

    fn add(&mut self, groups: std::ops::Range<usize>) {
        for group in groups {
            self.groups[group].add(0, 1, MASK);
            self.counted[group] += 1;
        }
    }

    /// Flushes; returns whether that took a barrier.
    fn flush(&self, scope: FlushScope) -> bool {
        let mut barrier = false;
        let issue = |_: &Area| {
            barrier = true;
            Ok(())
        };
        let mut state = self.rstat.flushes.lock();
        self.rstat.flush_locked(&mut state, scope, issue).expect("granted");
        assert!(state.is_at_rest());
        barrier
    }

    /// Flushes everything, and checks that all totals are exact and known to be.
    fn flush_all(&self) -> bool {
        let barrier = self.flush(FlushScope::Tree);
        for (group, &counted) in self.groups.iter().zip(&self.counted).skip(1) {
            let reading = group.read(0, MASK);
            assert_eq!((reading.value, reading.bound), (counted, 0));
        }
        let reading = self.groups[0].read(0, MASK);
        assert_eq!((reading.value, reading.bound), (self.total(), 0));
        barrier
    }

    fn total(&self) -> i64 {
        self.counted.iter().sum()
    }

    /// Adds to some groups and flushes, until these keep their marks.
    fn warm(&mut self, groups: std::ops::Range<usize>) {
        for _ in 0..STREAK {
            self.add(groups.clone());
            assert!(self.flush_all());
        }
    }

    fn marked(&self) -> u64 {
        self.rstat.area.dirty_lines(u64::MAX)
    }
}

/// Children end before their parents.
impl Drop for Tree {
    fn drop(&mut self) {
        while self.groups.pop().is_some() {}
    }
}

#[test]
fn lines_that_change_between_all_flushes_need_no_barrier_and_stay_exact() {
    let mut tree = Tree::new(9);
    tree.warm(1..6);
    for round in 0..50 {
        tree.add(1..6);
        let read = tree.groups[0].read(0, MASK);
        assert!(read.bound >= (tree.total() - read.value) as u64 && read.bound > 0);
        assert!(!tree.flush_all(), "{round}");
        assert_eq!(tree.marked(), 5);
    }
    tree.add(5..8);
    assert!(tree.flush_all(), "two of these lines are new");
    assert_eq!(tree.marked(), 5);
}

#[test]
fn a_flush_visits_each_group_once_whatever_of_it_was_kept() {
    let rstat = Arc::new(Rstat::new(16, 100, Some(1)).expect("address space"));
    let root = GroupStats::new(&rstat, None).expect("room");
    let (inner, words) = (GroupStats::new(&rstat, Some(&root)).expect("room"), [0, 8]);
    let leaf = GroupStats::new(&rstat, Some(&inner)).expect("room");
    for round in 1..20 {
        for group in [&inner, &leaf] {
            // One of the two lines is kept; the other changes now and then.
            group.add(words[0], 1, MASK);
            if round % 6 == 0 {
                group.add(words[1], 1, MASK);
            }
        }
        let report = rstat.flush();
        assert_eq!(report.groups, 3);
        assert_eq!(report.lines, if round % 6 == 0 { 4 } else { 2 });
        let mut visits = rstat.flushes.lock().take_visits();
        assert_eq!(visits, [leaf.id(), inner.id(), root.id()]);
        visits.dedup();
        let expected = [2 * round, 2 * (round / 6)];
        assert_eq!(words.map(|word| root.total(word)), expected);
        assert_eq!(words.map(|word| leaf.total(word)), expected.map(|n| n / 2));
    }
}

#[test]
fn a_kept_line_that_no_longer_changes_loses_its_mark_behind_the_next_barrier() {
    let mut tree = Tree::new(3);
    tree.warm(1..2);
    tree.add(1..2);
    for _ in 0..=COLD {
        tree.flush_all();
        assert_eq!(tree.marked(), 1);
    }
    // What it counted since it was looked at last, and while its mark goes, is found.
    tree.add(1..3);
    tree.flush_all();
    for _ in 0..=COLD {
        tree.flush_all();
    }
    tree.add(2..3);
    assert!(tree.flush_all());
    assert_eq!(tree.marked(), 0);
    tree.add(1..2);
    assert!(tree.flush_all(), "it is as any other again");
}

#[test]
fn many_kept_lines_that_no_longer_change_lose_their_marks_by_themselves() {
    let mut tree = Tree::new(COLD_MAX + 1);
    let all = 1..tree.groups.len();
    tree.warm(all.clone());
    tree.add(all.clone());
    let flushes = (0..=COLD + 1).filter(|_| tree.flush_all()).count();
    assert_eq!((flushes, tree.marked()), (1, 0), "one barrier for all of them");
}

#[test]
fn a_flush_of_more_lines_than_can_be_kept_keeps_none_of_them() {
    let mut tree = Tree::new(LINES_MAX + 1);
    let all = 1..tree.groups.len();
    for _ in 0..STREAK + 2 {
        tree.add(all.clone());
        assert!(tree.flush_all());
        assert_eq!(tree.marked(), 0);
    }
}

#[test]
fn a_flush_of_a_part_leaves_kept_lines_elsewhere_and_their_bound() {
    let mut tree = Tree::new(2);
    tree.warm(1..3);
    tree.add(1..3);
    let part = FlushScope::Below(tree.groups[1].id() as usize);
    assert!(!tree.flush(part));
    let totals = [1, 2].map(|group| tree.groups[group].total(0));
    assert_eq!(totals, [i64::from(STREAK) + 1, i64::from(STREAK)]);
    assert!(tree.groups[0].read(0, MASK).bound > 0, "the other one's add is nowhere yet");
    assert!(!tree.flush_all());
}

#[test]
fn a_refused_barrier_loses_nothing_of_kept_lines_and_of_those_that_lose_their_marks() {
    let mut tree = Tree::new(4);
    tree.warm(1..3);
    for _ in 0..=COLD {
        tree.add(1..2);
        tree.flush_all();
    }
    // Kept and warm, kept and cold, neither.
    tree.add(1..4);
    let refused = |_: &Area| Err(io::ErrorKind::PermissionDenied.into());
    let mut state = tree.rstat.flushes.lock();
    tree.rstat.flush_locked(&mut state, FlushScope::Tree, refused).expect_err("refused");
    assert!(state.is_at_rest());
    drop(state);
    let reading = tree.groups[0].read(0, MASK);
    assert!(reading.bound >= tree.total().abs_diff(reading.value) && reading.bound > 0);
    assert!(tree.flush_all());
}

/// A block that is used again starts from zero and unmarked, whichever way its group was forgotten.
#[test]
fn kept_lines_of_groups_that_end_are_let_go_with_them() {
    for by_flush in [true, false] {
        let mut tree = Tree::new(2);
        for _ in 0..3 {
            for _ in 0..STREAK {
                tree.add(1..3);
                tree.flush_all();
            }
            tree.add(1..3);
            assert!(!tree.flush_all(), "both are kept");
            tree.add(1..3);
            let id = tree.groups[2].id();
            drop(tree.groups.pop());
            let gone = tree.counted.pop().expect("as many");
            tree.counted[0] += gone;
            if by_flush {
                tree.flush_all();
            } else {
                tree.rstat.reclaim();
            }
            tree.add_child();
            assert_eq!((tree.groups[2].id(), tree.groups[2].total(0)), (id, 0));
            tree.add(2..3);
            tree.flush_all();
        }
    }
}
