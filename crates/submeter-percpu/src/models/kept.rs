//! Marks that a flush leaves: without a barrier while they stay, behind one when they are removed.
//!
//! Sequences, their barrier and handlers are modelled as in `sequences`; the marks and the readers'
//! comparison are the real ones.

use loom::sync::Arc;
use loom::thread;

use super::cpu::{Cpu, Flusher, Mistake};
use super::{Note, either_first, explore, explore_apart, witness};
use crate::pending::Numbers;
use crate::sync::atomic::Ordering;

fn update(cpu: &Arc<Cpu>, line: usize) -> thread::JoinHandle<()> {
    let cpu = Arc::clone(cpu);
    thread::spawn(move || cpu.update(line))
}

/// A flush without a barrier finds every update that happened before.
///
/// A kept line is read without a barrier, and has every update that happened before, even the one
/// that set the mark, and one that found it half set.
#[test]
fn loom_kept_a_flush_needs_no_barrier() {
    explore(|| {
        let cpu = Cpu::new();
        let both = [0, 0].map(|line| update(&cpu, line));
        let mut flusher = Flusher { kept: 1, ..Flusher::default() };
        cpu.flush(&mut flusher);
        witness("a flush that finds one of two updates", flusher.total == 1);
        for (n, update) in both.into_iter().enumerate() {
            update.join().expect("no panic");
            cpu.flush(&mut flusher);
            assert!(flusher.total > n as i64, "a returned update was not found");
        }
        assert_eq!((flusher.total, cpu.row().count()), (2, 1));
    });
}

/// Marks that a flush finds stay, whichever thread made them: each flush from then on reads the
/// line that an update marked.
fn marks_that_stay<const REMEMBER: bool>() {
    let (cpu, ended) = (Cpu::new(), Note::default());
    let both = [0, 0].map(|line| {
        let (cpu, ended) = (Arc::clone(&cpu), ended.clone());
        thread::spawn(move || {
            cpu.update(line);
            ended.take();
        })
    });
    let mut flusher = Flusher::default();
    cpu.flush_and_keep::<REMEMBER>(&mut flusher);
    witness("a flush that finds one of two updates", flusher.total == 1);
    for (n, update) in both.into_iter().enumerate() {
        update.join().expect("no panic");
        let running = ended.count() < 2;
        let looks = cpu.flush_and_keep::<REMEMBER>(&mut flusher);
        witness(
            "a flush that looks for no marks, and finds an update that has not ended",
            !looks && running && flusher.total == 2,
        );
        assert!(flusher.total > n as i64, "a returned update was not found");
    }
}

#[test]
fn loom_kept_marks_that_stay_lose_nothing() {
    explore(marks_that_stay::<true>);
}

/// Finds that a mark left and forgotten loses an update.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_a_forgotten_mark() {
    explore(marks_that_stay::<false>);
}

/// Two updates of a line, one of which marks it, and a flush that counts marks first. `EARLY`: a
/// mark counts before it is set.
fn a_flush_that_counts_marks_first<const EARLY: bool>() {
    let (cpu, begun, ended) = (Cpu::new(), Note::default(), Note::default());
    let marks = {
        let (cpu, begun, ended) = (Arc::clone(&cpu), begun.clone(), ended.clone());
        thread::spawn(move || {
            begun.take();
            // SeqCst, all: as in the real ones.
            cpu.linking.fetch_add(1, Ordering::SeqCst);
            if EARLY {
                cpu.tally.fetch_add(1, Ordering::SeqCst);
            }
            cpu.lines[0].fetch_or(1, Ordering::SeqCst);
            cpu.summary[0].fetch_or(1, Ordering::SeqCst);
            if !EARLY {
                cpu.tally.fetch_add(1, Ordering::SeqCst);
            }
            cpu.linking.fetch_sub(1, Ordering::SeqCst);
            ended.take();
        })
    };
    // Only if it finds the mark set: it makes none.
    let added = cpu.try_add(0, 1);
    let marking = || begun.is_taken() && !ended.is_taken();
    witness("an update that finds a mark while another makes it", added && marking());
    let mut flusher = Flusher::default();
    let looks = cpu.flush_and_keep::<true>(&mut flusher);
    witness("a flush that looks for no marks while one is made", !looks && marking());
    assert_eq!(flusher.total, i64::from(added), "a returned update was not found");
    marks.join().expect("no panic");
}

/// A flush that counts no marks beyond its own need not look for any.
#[test]
fn loom_kept_a_flush_alone_need_not_look() {
    explore(a_flush_that_counts_marks_first::<true>);
}

/// Finds that a mark counted after it is set is missed.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_a_mark_counted_late() {
    explore(a_flush_that_counts_marks_first::<false>);
}

/// An update finds a mark that another thread has not quite finished making, and the updating
/// thread reads. `FENCE`: the reader orders the marks that its updates saw.
fn a_thread_that_reads_after_its_update<const FENCE: bool>() {
    let cpu = Cpu::new();
    let marks = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || cpu.row().mark(0))
    };
    // Only if it finds the mark set: it makes none.
    let added = cpu.try_add(0, 1);
    witness("an update that finds the mark of another", added);
    if FENCE {
        crate::dirty::after_own_updates();
    }
    assert!(!added || cpu.row().count() != 0, "a returned update is in no total and in no bound");
    marks.join().expect("no panic");
}

/// The bound of a read includes the thread's own update.
#[test]
fn loom_kept_a_bound_has_the_threads_own_update() {
    explore(a_thread_that_reads_after_its_update::<true>);
}

/// Finds that a read without a fence misses the amount its thread added.
#[test]
#[should_panic(expected = "a returned update is in no total and in no bound")]
fn loom_kept_finds_a_read_without_a_fence() {
    explore(a_thread_that_reads_after_its_update::<false>);
}

/// A thread updates and asks for a flush; another's flush with a higher number than the first
/// thread got must have the update. No barrier ensures that. `FENCE`: the thread that asks orders
/// everything before it.
fn a_flush_that_another_issues<const FENCE: bool>() {
    let cpu = Cpu::new();
    cpu.row().mark(0);
    let numbers = Arc::new(Numbers::default());
    let asks = {
        let (cpu, numbers) = (Arc::clone(&cpu), Arc::clone(&numbers));
        thread::spawn(move || {
            cpu.update(0);
            if FENCE { numbers.ask() } else { numbers.ask_unfenced() }
        })
    };
    let mut flusher = Flusher { kept: 1, ..Flusher::default() };
    let number = numbers.begin();
    cpu.flush(&mut flusher);
    let asked = asks.join().expect("no panic");
    witness("a flush that was asked for before it began", number > asked);
    witness("a flush that began before", number <= asked);
    assert!(number <= asked || flusher.total == 1, "a returned update was not found");
}

/// A flush by another thread finds every update made before the flush was requested.
#[test]
fn loom_kept_shared_flush_finds_what_was_before() {
    explore(a_flush_that_another_issues::<true>);
}

/// Finds that asking without a fence promises too much.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_asking_without_a_fence() {
    explore(a_flush_that_another_issues::<false>);
}

/// A mark is removed while an update is under way; then a flush must find the rest.
fn a_mark_that_goes<const BARRIER: bool, const AGAIN: bool>() {
    let cpu = Cpu::new();
    cpu.row().mark(0);
    let update = update(&cpu, 0);
    let mut flusher = Flusher { kept: 1, ..Flusher::default() };
    cpu.flush(&mut flusher);
    cpu.let_go::<BARRIER, AGAIN>(&mut flusher);
    witness("a mark that goes before the update", flusher.total == 0);
    witness("a mark that goes after it", flusher.total == 1);
    update.join().expect("no panic");
    cpu.flush(&mut flusher);
    assert_eq!(flusher.total, 1, "a returned update was not found");
}

/// A mark that is removed behind a barrier loses nothing.
#[test]
fn loom_kept_a_mark_that_goes_loses_nothing() {
    explore(a_mark_that_goes::<true, true>);
}

/// Finds that a mark cleared without a barrier loses an update.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_a_mark_gone_without_barrier() {
    explore(a_mark_that_goes::<false, true>);
}

/// Finds that a line not read again behind the barrier loses an update.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_a_line_not_read_again() {
    explore(a_mark_that_goes::<true, false>);
}

/// A line that currently has no mark is released while an update marks it. `LOOK`: it is released
/// because a load shows no mark, and not by taking its mark, if any, after the others.
fn a_line_that_is_let_go_unmarked<const LOOK: bool>() {
    let cpu = Cpu::new();
    let update = update(&cpu, 0);
    let mut flusher = Flusher { kept: 1, ..Flusher::default() };
    let unmarked = cpu.row().marked(0, 1) == 0;
    cpu.flush(&mut flusher);
    witness("an update of a line without a mark by then", unmarked && flusher.total == 1);
    if !LOOK {
        cpu.let_go::<true, true>(&mut flusher);
    } else if unmarked {
        flusher.kept = 0;
    }
    update.join().expect("no panic");
    cpu.flush(&mut flusher);
    // It is read by its place until it is released; from then on it must be found by its mark.
    cpu.update(0);
    cpu.flush(&mut flusher);
    assert_eq!(flusher.total, 2, "a returned update was not found");
}

/// A line that is released unmarked is found by its next mark.
#[test]
fn loom_kept_a_line_let_go_is_found_again() {
    explore(a_line_that_is_let_go_unmarked::<false>);
}

/// Finds that a line released after only a load is not found again.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_kept_finds_a_line_let_go_by_a_look() {
    explore(a_line_that_is_let_go_unmarked::<true>);
}

/// Line 0 is kept. Updates come before or during a partial flush, which leaves line 1, and finds
/// line 2 and keeps it; and there is a reader.
fn a_reader_of_kept_lines(mistake: Mistake, before: &[usize], during: &'static [usize]) {
    let cpu = Cpu::keeping();
    before.iter().for_each(|&line| cpu.update(line));
    let updater = (!during.is_empty()).then(|| {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || during.iter().for_each(|&line| cpu.update(line)))
    });
    let reader = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || {
            // SeqCst, here and below: as in the real ones.
            let before = cpu.returned.load(Ordering::SeqCst);
            let early = cpu.row().count();
            let count = || match mistake {
                Mistake::CountsOutside => early,
                _ => cpu.row().count(),
            };
            let found = cpu.kept.unread(count, |_, line| cpu.is_same(line));
            let total = cpu.total.load(Ordering::Relaxed);
            let exact = cpu.is_exact(&found);
            witness("a total that is called exact", exact);
            witness("one that is not", !exact);
            assert!(!exact || total >= before, "exact, but it is not");
        })
    };
    if mistake == Mistake::CountsOutside {
        // Earlier than necessary: within its preemptions, loom finds the mistake only this way.
        cpu.kept.begin();
    }
    let mut total = 0;
    let note = |line: usize| {
        let now = cpu.words[line].load(Ordering::SeqCst);
        if mistake != Mistake::NotesBeforeItBegins {
            cpu.kept.begin();
        }
        // Relaxed: as the real one.
        cpu.last[line].store(now, Ordering::Relaxed);
        now
    };
    // Line 0 is read without a barrier.
    if !cpu.is_same(0) {
        total += note(0);
    }
    if cpu.row().marked(0, 4) != 0 {
        total += note(2);
        cpu.kept.put(0, 0, 0, 5);
    }
    if mistake == Mistake::NotesBeforeItBegins {
        cpu.kept.begin();
    }
    if mistake == Mistake::EndsBeforeTheTotals {
        cpu.kept.end(1);
    }
    // Relaxed: as the real one.
    cpu.total.store(total, Ordering::Relaxed);
    if mistake != Mistake::EndsBeforeTheTotals {
        cpu.kept.end(1);
    }
    updater.into_iter().for_each(|updater| updater.join().expect("no panic"));
    reader.join().expect("no panic");
}

/// A read that finds no change includes all updates that returned.
#[test]
fn loom_kept_an_unchanged_read_has_all() {
    explore(|| a_reader_of_kept_lines(Mistake::None, &[0], &[]));
    explore(|| a_reader_of_kept_lines(Mistake::None, &[], &[0]));
    explore(|| a_reader_of_kept_lines(Mistake::None, &[], &[1, 2]));
}

/// Finds a flush that ends before its totals are stored.
#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_kept_finds_a_flush_ended_too_early() {
    explore(|| a_reader_of_kept_lines(Mistake::EndsBeforeTheTotals, &[0], &[]));
}

/// Finds a flush that records line contents before it tells readers.
#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_kept_finds_a_flush_that_notes_too_early() {
    explore(|| a_reader_of_kept_lines(Mistake::NotesBeforeItBegins, &[0], &[]));
}

/// A gauge goes up and down while a flush reads it; then a reader compares. `LOOKS_LATE`: it checks
/// whether the comparison holds after it loaded the total, not before.
fn a_reader_of_a_gauge<const LOOKS_LATE: bool>() {
    let cpu = Cpu::keeping();
    let reader = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || {
            cpu.change(0, 1);
            cpu.change(0, -1);
            let found = cpu.unread();
            let early = !LOOKS_LATE && cpu.is_exact(&found);
            // Relaxed: as the real one.
            let total = cpu.total.load(Ordering::Relaxed);
            let exact = early || LOOKS_LATE && cpu.is_exact(&found);
            witness("a total that is called exact", exact);
            assert!(!exact || total == 0, "exact, but it is not");
        })
    };
    either_first();
    // SeqCst: as in the real one.
    let now = cpu.words[0].load(Ordering::SeqCst);
    witness("a flush that reads a moment between", now != 0);
    if now != 0 {
        cpu.kept.begin();
        // Relaxed, both: as in the real ones.
        cpu.last[0].store(now, Ordering::Relaxed);
        cpu.total.store(now, Ordering::Relaxed);
        cpu.kept.end(1);
    }
    reader.join().expect("no panic");
}

/// A gauge that has returned to its value is not taken for an earlier total.
#[test]
fn loom_kept_a_returned_gauge_is_no_old_total() {
    explore(a_reader_of_a_gauge::<true>);
}

/// Finds that comparing only before the total is loaded is wrong.
#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_kept_finds_a_reader_that_compares_once() {
    explore(a_reader_of_a_gauge::<false>);
}

/// A flush releases the only kept line, while an update marks another: the number of marks is then
/// the same as before, and the line has not changed. `BEGINS`: it tells readers before it releases
/// the mark.
fn a_reader_while_a_line_is_let_go<const BEGINS: bool>() {
    let cpu = Cpu::keeping();
    let update = update(&cpu, 1);
    let reader = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || {
            // SeqCst, here and below: as in the real ones.
            let before = cpu.returned.load(Ordering::SeqCst);
            let exact = cpu.is_exact(&cpu.unread());
            witness("a total that is called exact", exact);
            witness("one that is not, after the update", !exact && before != 0);
            assert!(!exact || before == 0, "exact, but it is not");
        })
    };
    let mut flusher = Flusher { kept: 1, ..Flusher::default() };
    if BEGINS {
        cpu.kept.begin();
    }
    cpu.let_go::<true, true>(&mut flusher);
    if !BEGINS {
        // Too late.
        cpu.kept.begin();
    }
    cpu.kept.end(0);
    update.join().expect("no panic");
    reader.join().expect("no panic");
}

#[test]
fn loom_kept_readers_are_told_before_a_release() {
    explore(a_reader_while_a_line_is_let_go::<true>);
}

#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_kept_finds_a_begin_behind_a_release() {
    explore(a_reader_while_a_line_is_let_go::<false>);
}

/// A flush and a reader where nothing is new. `BEGINS`: the flush announces changes that it does
/// not make.
fn a_reader_while_nothing_is_new<const BEGINS: bool>() {
    let cpu = Cpu::new();
    cpu.update(0);
    // Relaxed: before the threads start.
    cpu.last[0].store(1, Ordering::Relaxed);
    cpu.kept.put(0, 0, 0, 1);
    cpu.kept.end(1);
    let reader = {
        let cpu = Arc::clone(&cpu);
        thread::spawn(move || {
            // SeqCst: as in the real one.
            assert!(cpu.is_exact(&cpu.unread()), "noticed a flush");
        })
    };
    if BEGINS {
        cpu.kept.begin();
    }
    cpu.row().find(64, |_, bits| assert_eq!(bits, 1, "it is kept"));
    assert!(cpu.is_same(0));
    cpu.kept.end(1);
    reader.join().expect("no panic");
}

/// A reader does not notice a flush that finds nothing.
#[test]
fn loom_kept_an_empty_flush_is_not_noticed() {
    explore_apart(a_reader_while_nothing_is_new::<false>);
}

#[test]
#[should_panic(expected = "noticed a flush")]
fn loom_kept_finds_a_flush_that_always_begins() {
    explore(a_reader_while_nothing_is_new::<true>);
}

/// Finds a reader that counts marks before it checks whether a flush is running.
#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_kept_finds_marks_counted_before_the_look() {
    explore(|| a_reader_of_kept_lines(Mistake::CountsOutside, &[], &[1, 2]));
}
