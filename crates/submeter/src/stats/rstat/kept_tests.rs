//! Lines that keep their marks, from inside: which flushes need a barrier, and which lines lose
//! their marks again.

use std::time::Duration;

use super::*;
use crate::metric::reading::Reading;
use crate::{Count, Unit};
use kept_lines::{BUSY_MAX, COLD, COLD_MAX, QUIET_MAX};

const MASK: u64 = Count::KIND.batch_mask();

/// A tree on one simulated CPU, where no thread moves between rows.
struct Tree {
    rstat: Arc<Rstat>,
    groups: Vec<GroupStats>,
    /// The sum of the adds to each group.
    counted: Vec<i64>,
}

impl Tree {
    /// Returns a root with `children` below it, each with a line.
    fn new(children: usize) -> Tree {
        let rstat = Arc::new(Rstat::new(1, &[], 10_000, &one_cpu()).expect("address space"));
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

    /// Flushes, and returns whether that took a barrier.
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

    /// Sets the time of the last barrier: just now, or long ago.
    fn last_barrier(&self, just_now: bool) {
        // A time later than that of any flush, or none.
        self.rstat.flushes.lock().barrier_ns = just_now.then_some(u64::MAX);
    }

    fn flush_part(&self, group: usize) -> bool {
        self.flush(FlushScope::Below(self.groups[group].id() as usize))
    }

    /// Flushes everything, and checks that all totals are exact and known to be exact.
    fn flush_all(&self) -> bool {
        let barrier = self.flush(FlushScope::Tree);
        for (group, &counted) in self.groups.iter().zip(&self.counted).skip(1) {
            let reading = group.read(0, MASK);
            assert_eq!((reading.value, reading.max_error), (counted, 0));
        }
        let reading = self.groups[0].read(0, MASK);
        assert_eq!((reading.value, reading.max_error), (self.total(), 0));
        barrier
    }

    /// Flushes `scope`, and reads all groups between its steps, as a reader on another CPU may.
    fn flush_with_reads(&self, scope: FlushScope, mut check: impl FnMut(usize, Reading<i64>)) {
        let mut read = || {
            for (n, group) in self.groups.iter().enumerate() {
                check(n, group.read(0, MASK));
            }
        };
        let mut state = self.rstat.flushes.lock();
        state.take(scope, &[], 0, || self.rstat.flushes.take_births(usize::MAX));
        read();
        // No barrier is needed: no other thread adds.
        state.list_kept(scope);
        read();
        state.bring_up();
        read();
        state.finish();
        read();
    }

    fn total(&self) -> i64 {
        self.counted.iter().sum()
    }

    /// Adds to some groups and flushes, so that these keep their marks.
    fn warm(&mut self, groups: std::ops::Range<usize>) {
        self.add(groups);
        assert!(!self.flush_all());
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
fn few_lines_need_no_barrier_and_stay_exact() {
    let mut tree = Tree::new(QUIET_MAX + 1);
    for round in 0..50 {
        tree.add(1 + round % 3..6);
        let read = tree.groups[0].read(0, MASK);
        assert!(read.max_error >= (tree.total() - read.value) as u64 && read.max_error > 0);
        assert!(!tree.flush_all(), "{round}");
        assert_eq!(tree.marked(), 5);
    }
    tree.add(6..QUIET_MAX + 1);
    assert!(!tree.flush_all());
    assert_eq!(tree.marked(), QUIET_MAX as u64);
    tree.add(1..QUIET_MAX + 2);
    assert!(tree.flush_all(), "one too many");
    assert_eq!(tree.marked(), QUIET_MAX as u64 - 5, "those that changed in the flush before");
}

#[test]
fn a_report_says_how_long_the_flush_took() {
    let (mut tree, pause) = (Tree::new(QUIET_MAX + 1), Duration::from_millis(1));
    tree.add(1..QUIET_MAX + 2);
    let mut state = tree.rstat.flushes.lock();
    let barrier = |_: &Area| {
        std::thread::sleep(pause);
        Ok(())
    };
    let report = tree.rstat.flush_locked(&mut state, FlushScope::Tree, barrier).expect("granted");
    assert!(report.duration >= pause, "{report}");
}

/// Kept lines that have not changed do not count, whatever else has.
#[test]
fn the_bound_ignores_kept_lines() {
    let mut tree = Tree::new(QUIET_MAX);
    tree.warm(1..QUIET_MAX);
    for changed in [1, 3, 7] {
        tree.add(1..1 + changed);
        assert_eq!(tree.groups[0].read(0, MASK).max_error, changed as u64 * MASK);
        // A line that is not kept.
        tree.add(QUIET_MAX..QUIET_MAX + usize::from(changed == 7));
        let others = u64::from(changed == 7);
        assert_eq!(tree.groups[0].read(0, MASK).max_error, (changed as u64 + others) * MASK);
        tree.flush_all();
    }
}

/// Their totals are exact all the while.
#[test]
fn many_lines_wait_for_their_barrier() {
    let mut tree = Tree::new(BUSY_MAX + 1);
    tree.last_barrier(true);
    for round in 0..5 {
        tree.add(1 + round..BUSY_MAX / 2);
        assert!(!tree.flush(FlushScope::Tree));
    }
    tree.add(1..BUSY_MAX + 1);
    assert!(!tree.flush_all());
    assert_eq!(tree.marked(), BUSY_MAX as u64);
    tree.add(1..BUSY_MAX + 2);
    assert!(tree.flush_all(), "there is no room for one more");
    assert_eq!(tree.marked(), BUSY_MAX as u64, "all of them change");
    // The barrier was real, so the next one waits. Then all unchanged lines lose their marks.
    tree.last_barrier(true);
    tree.add(1..3);
    assert!(!tree.flush_all());
    tree.last_barrier(false);
    assert!(tree.flush_all());
    assert_eq!(tree.marked(), 2);
}

/// A flush visits a group once, however many of its lines were kept.
#[test]
fn a_flush_visits_a_kept_group_once() {
    let rstat = Arc::new(Rstat::new(16, &[], 100, &one_cpu()).expect("address space"));
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

/// Quiet lines lose their marks without being asked for.
#[test]
fn many_quiet_lines_lose_their_marks() {
    let mut tree = Tree::new(COLD_MAX + 2);
    let cold = 1..COLD_MAX + 1;
    tree.warm(cold.clone());
    for _ in 0..2 * COLD {
        tree.add(COLD_MAX + 1..COLD_MAX + 2);
        assert!(!tree.flush_all());
        assert_eq!(tree.marked(), COLD_MAX as u64 + 1);
    }
    // Another line, which then stays unchanged.
    tree.add(COLD_MAX + 2..COLD_MAX + 3);
    for _ in 0..COLD {
        assert!(!tree.flush_all());
        // A flush finds the new counts of one group, whose line is young again.
        tree.add(1..2);
    }
    assert!(!tree.flush_all());
    assert!(tree.flush(FlushScope::Tree) || tree.flush_all(), "one barrier for all of them");
    assert_eq!(tree.marked(), 1);
    tree.add(cold);
    assert!(!tree.flush_all(), "they are as any others again");
}

#[test]
fn a_flush_of_a_part_lets_no_line_elsewhere_go() {
    let mut tree = Tree::new(QUIET_MAX + 3);
    tree.last_barrier(true);
    tree.add(1..QUIET_MAX + 2);
    tree.flush_all();
    tree.flush_all();
    tree.last_barrier(false);
    tree.add(QUIET_MAX + 2..QUIET_MAX + 3);
    // There are too many kept lines, and this group has one of them.
    assert!(tree.flush_part(QUIET_MAX + 2));
    tree.add(1..2);
    tree.last_barrier(true);
    assert!(!tree.flush_part(2));
    assert_eq!((tree.marked(), tree.groups[1].total(0)), (QUIET_MAX as u64 + 1, 1));
    tree.last_barrier(false);
    assert!(tree.flush_all());
}

/// A refused barrier loses no counts, neither of kept lines nor of lines about to lose their marks.
#[test]
fn a_refused_barrier_loses_nothing() {
    let mut tree = Tree::new(QUIET_MAX + 2);
    tree.warm(1..QUIET_MAX);
    tree.add(1..2);
    tree.flush_all();
    // Kept and warm, kept and cold, neither.
    tree.add(1..QUIET_MAX + 3);
    let refused = |_: &Area| Err(io::ErrorKind::PermissionDenied.into());
    let mut state = tree.rstat.flushes.lock();
    tree.rstat.flush_locked(&mut state, FlushScope::Tree, refused).expect_err("refused");
    assert!(state.is_at_rest());
    assert_eq!(state.kept.len(), 1);
    drop(state);
    let reading = tree.groups[0].read(0, MASK);
    assert!(reading.max_error >= tree.total().abs_diff(reading.value) && reading.max_error > 0);
    assert!(tree.flush_all());
}

/// A reused block starts from zero and unmarked, whichever way its last group was forgotten.
#[test]
fn kept_lines_end_with_their_group() {
    for by_flush in [true, false] {
        let mut tree = Tree::new(2);
        for _ in 0..3 {
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

/// Readers whose tolerance is 0 flush where a bound is not 0: if a flush that finds nothing made
/// bounds meaningless while it runs, two of them would make each other flush without end.
#[test]
fn an_empty_flush_is_not_noticed() {
    let mut tree = Tree::new(3);
    tree.warm(1..3);
    tree.add(1..3);
    tree.flush_all();
    assert_eq!(tree.marked(), 2);
    for scope in [FlushScope::Tree, FlushScope::Below(tree.groups[1].id() as usize)] {
        tree.flush_with_reads(scope, |_, reading| assert_eq!(reading.max_error, 0));
    }
}

/// A reader compares the line with its last flush, and counts no error for it.
#[test]
fn a_marked_unchanged_line_leaves_no_doubt() {
    let tree = Tree::new(1);
    tree.groups[1].add(0, 0, MASK);
    assert_eq!(tree.marked(), 1);
    assert!(!tree.flush_all());
}

/// Once the mark of a line that is no longer kept is released, another line may be marked: as many
/// marks count as before, and no kept line has changed.
#[test]
fn readers_see_a_flush_before_its_marks_go() {
    let mut tree = Tree::new(QUIET_MAX + 2);
    tree.last_barrier(true);
    tree.warm(1..QUIET_MAX + 2);
    tree.flush_all();
    tree.last_barrier(false);
    let marked = tree.marked();
    let exact = || {
        let unread = tree.rstat.unread(|| marked);
        unread.lines == 0 && tree.rstat.kept.holds(&unread)
    };
    assert!(exact());
    tree.groups[1].add(0, 0, MASK);
    let mut state = tree.rstat.flushes.lock();
    state.take(FlushScope::Tree, &[], 0, || tree.rstat.flushes.take_births(usize::MAX));
    assert_eq!(state.kept.len(), 0, "they were let go");
    state.list_kept(FlushScope::Tree);
    state.bring_up();
    assert!(!exact());
    state.finish();
}

/// A gauge may be back at its last read value, while the total that a flush stores is from a moment
/// in between.
#[test]
fn a_total_of_a_later_flush_is_not_exact() {
    let mut tree = Tree::new(1);
    tree.warm(1..2);
    let (gauge, is_first) = (&tree.groups[1], std::cell::Cell::new(true));
    let reading = gauge.read_words(0..1, MASK, || {
        if is_first.take() {
            gauge.add(0, 1, MASK);
            tree.flush(FlushScope::Tree);
            gauge.add(0, -1, MASK);
        }
        gauge.total(0)
    });
    assert_eq!(reading.value, 2, "what the flush has found");
    assert_eq!(reading.max_error, MASK, "one line: all marks count");
    tree.flush_all();
}

/// A read at any step of a flush of kept lines is within its bound.
#[test]
fn a_read_amid_a_flush_keeps_its_bound() {
    let mut tree = Tree::new(4);
    tree.warm(1..3);
    for round in 0..40 {
        // Kept lines alone, then with others that need a barrier; some of those become kept.
        tree.add(1..if round % 3 == 0 { 5 } else { 2 + round % 2 });
        let scope = match round % 5 {
            0 => FlushScope::Below(tree.groups[1].id() as usize),
            _ => FlushScope::Tree,
        };
        let counted: Vec<i64> =
            std::iter::once(tree.total()).chain(tree.counted[1..].to_vec()).collect();
        let mut reads = 0;
        tree.flush_with_reads(scope, |group, reading| {
            reads += 1;
            let off = counted[group].abs_diff(reading.value);
            assert!(off <= reading.max_error, "round {round}, group {group}: off by {off}");
        });
        assert_eq!(reads, 4 * counted.len());
    }
    tree.flush_all();
}

/// Crossings elsewhere stay pending, even above the part that is flushed.
#[test]
fn a_flush_of_a_part_covers_no_error_elsewhere() {
    let mut tree = Tree::new(2);
    let crosses = 3 * MASK.cast_signed();
    for flushes in 0..4 {
        tree.groups[2].add(0, crosses, MASK);
        tree.counted[2] += crosses;
        for _ in 0..flushes {
            tree.flush_part(1);
        }
        for (group, counted) in [(2, tree.counted[2]), (0, tree.total())] {
            let reading = tree.groups[group].read(0, MASK);
            let off = counted.abs_diff(reading.value);
            assert!(
                off > 0 && off <= reading.max_error,
                "group {group}: off by {off}, {reading:?}"
            );
        }
        tree.flush_all();
    }
}

/// A flush of a part covers everything below it, whatever changes elsewhere.
#[test]
fn a_partial_flush_covers_all_below_it() {
    let tree = Tree::new(2);
    let above = &tree.groups[1];
    let below = GroupStats::new(&tree.rstat, Some(above)).expect("room");
    let leaf = GroupStats::new(&tree.rstat, Some(&below)).expect("room");
    // Up and down, so that no total changes and no flush visits the groups above.
    for by in [3, -3, 3] {
        leaf.add(0, by * MASK.cast_signed(), MASK);
        // Another group's update, so that reads are not exact.
        tree.groups[2].add(0, 1, MASK);
        let bounds = || [&leaf, &below, above].map(|group| group.read(0, MASK).max_error);
        let before = bounds();
        tree.rstat.flush_below(above);
        // At most a batch is left for each marked line.
        assert!(bounds().iter().zip(before).all(|(&now, was)| was >= now + 2 * MASK), "{before:?}");
    }
}

/// A dead group's line is kept for as long as flushes defer the group or are refused their barrier.
/// It then goes with the group, whatever other lines are kept.
#[test]
fn a_dead_groups_kept_line_is_read_once_more() {
    let mut tree = Tree::new(4);
    for _ in 0..3 {
        tree.add(1..5);
        assert!(!tree.flush_all(), "all are kept");
        tree.add(1..5);
        let id = tree.groups[4].id();
        drop(tree.groups.pop());
        let gone = tree.counted.pop().expect("as many");
        tree.counted[0] += gone;
        let elsewhere = FlushScope::Below(tree.groups[1].id() as usize);
        assert!(!tree.flush(elsewhere), "nothing is taken there");
        let refused = |_: &Area| Err(io::ErrorKind::PermissionDenied.into());
        let mut state = tree.rstat.flushes.lock();
        tree.rstat.flush_locked(&mut state, FlushScope::Tree, refused).expect_err("refused");
        drop(state);
        let reading = tree.groups[0].read(0, MASK);
        assert!(tree.total().abs_diff(reading.value) <= reading.max_error);
        assert!(tree.flush_all(), "the mark of the dead goes behind a barrier");
        assert_eq!((tree.marked(), tree.rstat.len()), (3, 4));
        tree.add_child();
        assert_eq!((tree.groups[4].id(), tree.groups[4].total(0)), (id, 0));
        tree.flush_all();
    }
}

/// A group that threads add to, and what they know of it.
struct Counted {
    stats: GroupStats,
    started: AtomicI64,
    returned: AtomicI64,
}

impl Counted {
    fn new(rstat: &Arc<Rstat>, parent: Option<&GroupStats>) -> Counted {
        let stats = GroupStats::new(rstat, parent).expect("room");
        Counted { stats, started: AtomicI64::new(0), returned: AtomicI64::new(0) }
    }

    /// Adds here, and notes it `above` too.
    fn add(&self, above: &Counted, by: i64) {
        for at in [self, above] {
            // SeqCst throughout: adds that a reader finds returned before it reads have returned.
            at.started.fetch_add(by, Ordering::SeqCst);
        }
        self.stats.add(0, by, MASK);
        for at in [self, above] {
            // SeqCst: as above.
            at.returned.fetch_add(by, Ordering::SeqCst);
        }
    }

    fn check(&self) {
        // SeqCst, both: as in `add`.
        let returned = self.returned.load(Ordering::SeqCst);
        let Reading { value, max_error: bound, .. } = self.stats.read(0, MASK);
        let started = self.started.load(Ordering::SeqCst);
        let bound = bound.min(i64::MAX.cast_unsigned()).cast_signed();
        assert!(returned <= value.saturating_add(bound), "{returned} > {value} + {bound}");
        assert!(value <= started, "{value} > {started}");
    }
}

/// The updaters, and the words that each adds to.
struct Adders {
    rstat: Arc<Rstat>,
    root: Counted,
    leaves: [Counted; 4],
    adding: AtomicUsize,
}

impl Adders {
    const ADDS: i64 = if cfg!(miri) { 40 } else { 60_000 };

    /// Adds to two of the leaves, sometimes across a batch boundary.
    fn add(&self, thread: usize) {
        for n in 0..Adders::ADDS {
            let by = if n % 1000 == 0 { 3 * MASK.cast_signed() } else { 1 };
            self.leaves[(thread + usize::from(n % 3 == 0)) % 4].add(&self.root, by);
        }
        // SeqCst, here and below: any order will do.
        self.adding.fetch_sub(1, Ordering::SeqCst);
    }

    /// Adds to groups whose lines are kept and which then end.
    fn come_and_go(&self) {
        for _ in 0..Adders::ADDS / 400 {
            let brief = Counted::new(&self.rstat, Some(&self.root.stats));
            for _ in 0..6 {
                brief.add(&self.root, 1);
                self.rstat.flush_below(&brief.stats);
                brief.check();
            }
        }
        self.adding.fetch_sub(1, Ordering::SeqCst);
    }

    fn read(&self, part: Option<usize>) {
        while self.adding.load(Ordering::SeqCst) != 0 {
            self.root.check();
            self.leaves.iter().for_each(Counted::check);
            if let Some(part) = part {
                self.rstat.flush_below(&self.leaves[part].stats);
            }
        }
    }

    /// Flushes continuously, until lines were kept and all adds are over. It also adds before each
    /// flush, because where threads share a CPU their own lines change too rarely.
    fn flush(&self) {
        let start = Instant::now();
        let mut kept = cfg!(miri);
        while self.adding.load(Ordering::SeqCst) != 0 || !kept {
            assert!(cfg!(miri) || start.elapsed().as_secs() < 120, "nothing was kept");
            self.leaves[0].add(&self.root, 1);
            self.rstat.flush();
            kept |= self.rstat.flushes.lock().kept.len() != 0;
            self.root.check();
        }
    }
}

/// Totals stay exact with a few groups that change all the time, so that their lines keep their
/// marks, and others that come, are kept and go. Uses real sequences where the machine has them.
#[test]
fn kept_marks_keep_totals_exact_stress() {
    let rstat = Arc::new(Rstat::new(1, &[], 1000, &Simulated::default()).expect("address space"));
    let root = Counted::new(&rstat, None);
    let leaves = [(); 4].map(|()| Counted::new(&rstat, Some(&root.stats)));
    let all = Adders { rstat, root, leaves, adding: AtomicUsize::new(6) };
    std::thread::scope(|threads| {
        let all = &all;
        (0..4).for_each(|thread| drop(threads.spawn(move || all.add(thread))));
        (0..2).for_each(|_| drop(threads.spawn(|| all.come_and_go())));
        [None, Some(0)].into_iter().for_each(|part| drop(threads.spawn(move || all.read(part))));
        all.flush();
    });
    let Adders { rstat, root, leaves, .. } = all;
    rstat.flush();
    for counted in leaves.iter().chain([&root]) {
        // SeqCst: as in `add`.
        let returned = counted.returned.load(Ordering::SeqCst);
        let reading = counted.stats.read(0, MASK);
        assert_eq!((reading.value, reading.max_error), (returned, 0));
    }
    leaves.into_iter().for_each(drop);
}

fn one_cpu() -> Simulated {
    Simulated { cpus: Some(1), ..Simulated::default() }
}
