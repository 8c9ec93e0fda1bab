//! Storage and counters, the same tests on every backend.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use submeter_percpu::pending::Updated;
use submeter_percpu::storage::{DirtyLines, LINE_WORDS, Lines};
use submeter_percpu::{Area, Block, PercpuCounter};
use submeter_sys::cpu;

use crate::common::on_every_backend_with;
use crate::stop::StopOnDrop;
use crate::witness::Witness;

/// Number of adds that each thread makes; few under Miri, which takes microseconds for each.
const ADDS: i64 = if cfg!(miri) { 50 } else { 50_000 };

/// Number of blocks beside those to which a test adds: zeroing them takes most of Miri's time.
const BLOCKS: usize = if cfg!(miri) { 41 } else { 100 };
/// One of the last blocks.
const LATE: usize = BLOCKS - 10;

/// Runs `test` in areas with two shared rows.
fn on_every_backend(test: impl Fn(&Area)) {
    on_every_backend_with(2, test);
}

/// Runs `work` on four threads that change CPU between rounds.
fn on_threads(rounds: usize, work: impl Fn(i64) + Sync) {
    // Empty on systems where a thread cannot choose its CPU.
    let allowed = cpu::affinity().unwrap_or_default();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (work, allowed) = (&work, &allowed);
            scope.spawn(move || {
                for round in 0..rounds {
                    let to = allowed.iter().cycle().nth((thread + round) % allowed.len().max(1));
                    if let Some(&to) = to {
                        cpu::set_affinity(&[to]).expect("allowed");
                    }
                    work(thread as i64);
                }
            });
        }
    });
}

#[test]
fn adds_of_many_threads_add_up_stress() {
    on_every_backend(|area| {
        let block = area.block(20).expect("room");
        on_threads(4, |thread| {
            for i in 0..ADDS {
                block.add((i % 20) as usize, thread - 1);
            }
        });
        let sum: i64 = (0..20).map(|word| block.sum(word)).sum();
        assert_eq!(sum, 4 * ADDS * 2);
    });
}

/// Returns the overflow of an add that reports how many batches of 64 it crosses, or 0.
fn overflow_of(add: impl FnOnce(&dyn Fn(Updated<'_>))) -> i64 {
    let by = Cell::new(0);
    add(&|updated| by.set(64 * updated.batches()));
    by.get()
}

/// Overflows are exact at each exit of the fast sequence: no mark, a boundary crossed upwards and
/// downwards, a wrap-around, and none.
#[test]
fn overflows_are_exact_however_the_batch_is_left() {
    on_every_backend(|area| {
        let block = area.block(10).expect("room");
        let adds =
            [1, 62, 1, -1, -1, -62, -1, -64, 1000, 0, i64::MAX, i64::MAX, i64::MIN, -5, 64, 3];
        for word in [1, 9] {
            let (mut overflow, mut truth) = (0i64, 0i64);
            for n in adds {
                let by = overflow_of(|crossed| block.add_dirty(word, n, 63, crossed));
                assert_eq!(by % 64, 0, "{by} by {n}");
                overflow = overflow.wrapping_add(by);
                truth = truth.wrapping_add(n);
                assert_eq!(block.sum(word), truth);
                let rest = truth.wrapping_sub(overflow);
                let rows = area.rows_in_use().len() as i64;
                assert!((0..=63 * rows).contains(&rest), "{rest} after {n}");
            }
        }
        assert_eq!(take(area), [0, 1], "the lines of the marked words, and no other");
    });
}

#[test]
fn a_counter_wraps_around() {
    on_every_backend(|area| {
        let counter = PercpuCounter::with_batch(area, 1 << 20).expect("room");
        counter.add(i64::MAX);
        counter.add(i64::MAX);
        counter.add(3);
        assert_eq!(counter.sum(), 1);
    });
}

#[test]
fn freed_words_come_back_as_zero() {
    on_every_backend(|area| {
        let mut seen = std::collections::HashSet::new();
        for round in 0..if cfg!(miri) { 3 } else { 50 } {
            let (word, block) = (area.word().expect("room"), area.block(9).expect("room"));
            assert_eq!(word.sum(0), 0, "round {round}");
            seen.insert((word.first_word(), block.first_word()));
            for index in 0..9 {
                assert_eq!(block.sum(index), 0, "round {round}");
                block.add(index, i64::MIN + round);
            }
            word.add(0, -1);
            area.shared(1, block.first_word() + 3).store(9, Ordering::Relaxed);
            let kept = block.clone();
            drop(block);
            assert_eq!(kept.sum(8), i64::MIN + round, "a clone keeps the words");
        }
        assert_eq!(seen.len(), 1, "reused each time");
        let block = area.block(9).expect("room");
        assert_eq!(area.shared(1, block.first_word() + 3).load(Ordering::Relaxed), 0);
    });
}

#[test]
fn blocks_never_overlap() {
    on_every_backend(|area| {
        let many = if cfg!(miri) { 8 } else { 40 };
        let blocks: Vec<_> = (1..many).map(|words| area.block(words).expect("room")).collect();
        let words: Vec<_> = (0..many).map(|_| area.word().expect("room")).collect();
        let all = blocks.iter().chain(&words);
        for (n, block) in all.clone().enumerate() {
            for word in 0..block.len() {
                block.add(word, n as i64 + 1);
            }
        }
        for (n, block) in all.enumerate() {
            assert!((0..block.len()).all(|word| block.sum(word) == n as i64 + 1));
        }
    });
}

/// A word beyond the block is refused, and the neighbour's word is not touched.
#[test]
fn a_word_beyond_the_block_is_refused() {
    on_every_backend(|area| {
        let [block, next] = [0; 2].map(|_| area.block(8).expect("room"));
        // Once the first word of `next` has its mark, only the check refuses.
        block.add_dirty(7, 1, 63, |_| ());
        next.add_dirty(0, 1, 63, |_| ());
        // The last one is word 0 if the number is cut to 32 bits.
        let words = [8, 16, 1 << 31, usize::MAX, 1_usize.checked_shl(32).unwrap_or(9)];
        // Each takes the interpreter seconds, so it tries only the first and the last.
        for word in words.into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
            let add = || block.add(word, 1);
            let add_dirty = || block.add_dirty(word, 1, 63, |_| ());
            let ways: [&dyn Fn(); 2] = [&add, &add_dirty];
            for way in ways {
                let panic = catch_unwind(AssertUnwindSafe(way)).expect_err("no such word");
                let why = panic.downcast_ref::<&str>().expect("a literal");
                assert!(why.contains("no such word"), "{word}: {why}");
            }
        }
        let sums = |block: &Block| (0..8).map(|word| block.sum(word)).sum::<i64>();
        assert_eq!((sums(&block), sums(&next), next.sum(0)), (1, 1, 1));
    });
}

#[test]
fn more_rows_than_addresses_are_refused() {
    for shared in [usize::MAX, usize::MAX >> 8] {
        assert!(Area::new(|_| shared).is_err(), "{shared}");
        // The number of all rows wraps around to 1, fewer than there are rows of CPUs.
        assert!(Area::new(|data| shared - data.saturating_sub(2)).is_err(), "{shared}");
    }
}

#[test]
fn a_batch_that_would_wrap_around_is_refused() {
    let area = Area::new(|_| 0).expect("address space");
    let counter = PercpuCounter::with_batch(&area, 1 << 48).expect("room");
    // Rows without adds do not widen the bound.
    counter.add(1);
    let read = counter.read();
    assert!(read.low() < read.high());
    let too_wide = || PercpuCounter::with_batch(&area, 1 << 49);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(too_wide)).is_err());
}

/// Finds marks.
fn find(area: &Area, lines: Lines) -> Vec<DirtyLines> {
    let mut found = Vec::new();
    area.find_dirty(&lines, |lines| found.push(lines));
    found
}

/// Takes marks.
fn take_in(area: &Area, lines: Lines) -> Vec<DirtyLines> {
    let mut found = find(area, lines);
    area.take_dirty(&mut found);
    found
}

/// Returns the lines, each once.
fn lines(found: &[DirtyLines]) -> Vec<usize> {
    let mut lines: Vec<usize> = found.iter().copied().flat_map(DirtyLines::lines).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Takes every mark and returns the lines, each once.
fn take(area: &Area) -> Vec<usize> {
    let marked = take_in(area, Lines::All);
    area.release_dirty(&marked);
    lines(&marked)
}

#[test]
fn only_lines_that_were_added_to_are_marked() {
    on_every_backend(|area| {
        let blocks: Vec<_> = (0..BLOCKS).map(|_| area.block(24).expect("room")).collect();
        assert_eq!(area.dirty_lines(u64::MAX), 0);
        blocks[7].add_dirty(9, 1, 63, |_| ());
        blocks[7].add_dirty(15, 1, 63, |_| ());
        blocks[LATE].add_dirty(0, 1, 63, |_| ());
        assert_ne!(area.dirty_lines(u64::MAX), 0);
        assert_eq!(take(area), [7 * 3 + 1, LATE * 3]);
        assert_eq!(take(area), [0usize; 0]);
        blocks[7].add_dirty(9, 1, 63, |_| ());
        assert_eq!(take(area), [7 * 3 + 1]);
        assert_eq!((blocks[7].sum(9), blocks[7].sum(15), blocks[LATE].sum(0)), (2, 1, 1));
    });
}

/// Some lines are taken, and the others are left or marked again.
#[test]
fn some_lines_are_taken_and_the_others_left() {
    on_every_backend(|area| {
        let blocks: Vec<_> = (0..BLOCKS).map(|_| area.block(24).expect("room")).collect();
        for block in [1, 21, 22, LATE] {
            blocks[block].add_dirty(8, 1, 63, |_| ());
        }
        // Lines 63 to 65, of which 64 is marked; then all lines of block 22.
        let mut marked = take_in(area, Lines::Range(63..66));
        assert_eq!(lines(&marked), [64]);
        let mut some = find(area, Lines::Some);
        some.iter_mut().for_each(|lines| lines.bits = lines.among(&(66..69)));
        area.take_dirty(&mut some);
        marked.extend(some);
        assert_eq!(lines(&marked), [64, 67]);
        assert_eq!(area.dirty_lines(u64::MAX), 4, "what was taken is not released yet");
        area.restore_dirty(&marked);
        assert_eq!(area.dirty_lines(u64::MAX), 4);
        assert_eq!(take(area), [4, 64, 67, LATE * 3 + 1]);
        assert_eq!(area.dirty_lines(u64::MAX), 0);
    });
}

/// Found lines stay marked until they are taken, by their place.
#[test]
fn found_lines_stay_marked_until_taken() {
    on_every_backend(|area| {
        let blocks: Vec<_> = (0..71).map(|_| area.block(8).expect("room")).collect();
        // Where the thread moves between adds, a line is marked in two rows.
        let add =
            |which: &[usize]| which.iter().for_each(|&n| blocks[n].add_dirty(0, 1, 63, |_| ()));
        let find = |lines: Lines| find(area, lines);
        add(&[1, 2, 70]);
        assert_eq!(lines(&find(Lines::Some)), [1, 2, 70]);
        let mut kept = find(Lines::All);
        assert_eq!(lines(&kept), [1, 2, 70], "also those that some look has found");
        assert_eq!(find(Lines::All), [], "but not those that one for all has");
        assert_eq!(lines(&find(Lines::Range(2..71))), [2, 70]);
        assert_ne!(area.dirty_lines(u64::MAX), 0);
        // Others are found together with those of their 64.
        add(&[3]);
        assert_eq!(lines(&find(Lines::All)), [1, 2, 3]);
        kept.extend(find(Lines::Range(0..100)));
        area.take_dirty(&mut kept);
        area.release_dirty(&kept);
        assert!(find(Lines::Range(0..100)).is_empty() && area.dirty_lines(u64::MAX) == 0);
        add(&[1, 2, 70]);
        assert_eq!(take(area), [1, 2, 70], "they are as any other again");
    });
}

#[test]
fn lines_of_64_are_those_of_a_range() {
    let all = DirtyLines { row: 0, word: 2, bits: u64::MAX };
    for range in [0..0, 0..128, 0..129, 100..1000, 129..191, 128..192, 191..192, 192..200] {
        let expected = all.lines().filter(|line| range.contains(line));
        let bits = all.among(&range);
        assert!(DirtyLines { bits, ..all }.lines().eq(expected), "{range:?}");
    }
}

#[test]
fn owned_rows_are_apart_from_all_others() {
    let mut told = 0;
    let rows = |data| {
        told = data;
        (1, 2)
    };
    let (area, owned) = Area::with_owner(rows).expect("address space");
    assert_eq!(area.data_rows(), told);
    let word = |row: usize, line: usize, n: usize| &owned.lines().line(row, line)[n];
    // Relaxed, all: one thread.
    let store = |row, line, n, to| word(row, line, n).store(to, Ordering::Relaxed);
    let load = |row, line, n| word(row, line, n).load(Ordering::Relaxed);
    let block = area.block(8).expect("room");
    let line = block.first_line();
    store(0, line, 0, 1);
    store(1, line, 0, 2);
    block.add(3, 7);
    area.shared(0, block.first_word()).store(9, Ordering::Relaxed);
    assert_eq!((load(0, line, 0), load(1, line, 0), load(0, line, 3)), (1, 2, 0));
    assert_eq!((block.sum(3), area.shared_lines(0)[line][0].load(Ordering::Relaxed)), (7, 9));
    // Whole pages are given back, and nothing outside the range is touched.
    let (lines, edge) = if cfg!(miri) { (150, 15) } else { (10_000, 100) };
    drop((block, area.block((lines - 1 - line) * LINE_WORDS).expect("room"), area));
    assert_eq!(load(0, line, 0), 1, "keeps the reservation");
    (0..lines).for_each(|line| store(1, line, 7, 5));
    let granted = owned.discard(edge..lines - edge);
    // Miri and Windows use the allocator's memory, which cannot be returned in parts.
    assert!(granted.is_ok() || cfg!(any(miri, windows)), "{granted:?}");
    let left = |range: std::ops::Range<usize>| range.filter(|&line| load(1, line, 7) == 5).count();
    assert_eq!((left(0..edge), left(lines - edge..lines)), (edge, edge));
    // Less than two pages remain.
    assert!(cfg!(any(miri, windows)) || left(edge..lines - edge) <= 2 * (1 << 16) / 64);
    owned.discard(5..6).expect("nothing to do");
    assert_eq!(load(1, 5, 7), 5);
    assert!(std::panic::catch_unwind(|| owned.lines().line(2, 0)).is_err());
}

#[test]
fn data_rows_have_the_lines_that_are_open() {
    on_every_backend(|area| {
        let block = area.block(2 * LINE_WORDS).expect("room");
        block.add(LINE_WORDS + 2, 7);
        let (data, rows, open) = (area.data(), area.data_rows(), area.shared_lines(0).len());
        let line = block.first_line() + 1;
        assert!(data.has(rows - 1, open - 1) && data.has(0, line));
        assert!(!data.has(rows, 0) && !data.has(0, open) && !data.has(rows, open));
        let lines = || (0..rows).map(|row| data.load_line(row, line));
        assert_eq!(lines().map(|words| words[2]).sum::<i64>(), 7);
        for (row, words) in lines().enumerate() {
            assert!(data.is_line(row, line, &words.map(AtomicI64::new)));
            for n in 0..LINE_WORDS {
                let mut other = words;
                other[n] += 1;
                assert!(!data.is_line(row, line, &other.map(AtomicI64::new)), "{n} differs");
            }
        }
    });
}

#[test]
fn a_block_says_which_words_it_has() {
    on_every_backend(|area| {
        let _first = area.block(LINE_WORDS + 1).expect("room");
        let block = area.block(20).expect("room").with("mine");
        assert!(!block.is_empty() && block.len() == 20);
        let (word, line) = (block.first_word(), block.first_line());
        assert_eq!(word, line * LINE_WORDS);
        let at = block.block_ref();
        assert_eq!((at.first_word(), at.first_line(), **at), (word, line, "mine"));
        let text = format!("Block({word}+20)");
        assert_eq!((format!("{block:?}"), format!("{at:?}")), (text.clone(), text));
    });
}

#[test]
fn a_row_is_used_as_far_as_blocks_reach() {
    // Where rows are long, use more than one page of dirty bits, which covers 2 MiB of lines.
    let long = cfg!(target_pointer_width = "64") && !cfg!(miri);
    let lines = match long {
        true => [1, 4096, 50_000, 1],
        // More lines than one word of dirty bits covers.
        false if cfg!(miri) => [1, 70, 130, 1],
        false => [1, 300, 500, 1],
    };
    on_every_backend(|area| {
        let blocks = lines.map(|lines| area.block(lines * LINE_WORDS).expect("room"));
        let mut expected = Vec::new();
        for block in &blocks {
            for word in [0, block.len() / 2, block.len() - 1] {
                block.add_dirty(word, 3, u64::MAX >> 1, |_| ());
                expected.push((block.first_word() + word) / LINE_WORDS);
            }
            assert!(block.sum(0) >= 3 && block.sum(block.len() - 1) >= 3);
            area.shared(0, block.first_word() + block.len() - 1).store(9, Ordering::Relaxed);
            assert!(area.shared_lines(0).len() > block.first_line());
        }
        expected.sort_unstable();
        expected.dedup();
        let mut found = take(area);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, expected);
        // Lines that were never handed out are refused without being touched.
        let behind = submeter_sys::STRIDE / 8 - 1;
        let catch = |look: &dyn Fn() -> i64| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err()
        };
        assert!(catch(&|| area.load(0, behind)));
        assert!(catch(&|| area.shared(0, behind).load(Ordering::Relaxed)));
        assert!(catch(&|| area.data().load_line(0, behind / LINE_WORDS)[0]));
    });
}

#[test]
fn thousands_of_rows_are_used_like_a_few() {
    if cfg!(miri) || cfg!(windows) || cfg!(not(target_pointer_width = "64")) {
        eprintln!("skipped: too little address space: take a 64-bit system, without Miri");
        return;
    }
    for cpus in [2000, 2100] {
        let (area, owned) = Area::simulated_with_owner(cpus, |_| (1, 1)).expect("addresses");
        let block = area.block(100 * LINE_WORDS).expect("room");
        for cpu in [0, cpus - 1] {
            Area::simulate_cpu(cpu as u32);
            block.add_dirty(0, 3, u64::MAX >> 1, |_| ());
            block.add_dirty(block.len() - 1, 4, u64::MAX >> 1, |_| ());
        }
        assert_eq!((block.sum(0), block.sum(block.len() - 1)), (6, 8));
        let found: std::collections::BTreeSet<_> = take(&area).into_iter().collect();
        assert_eq!(found, [block.first_line(), block.first_line() + 99].into());
        owned.lines().line(0, block.first_line() + 99)[7].store(1, Ordering::Relaxed);
    }
}

/// A reader that follows the protocol (take, barrier, read, `last`) finds each update exactly once
/// and misses none that returned before it began.
#[test]
fn who_follows_the_marks_misses_nothing_stress() {
    on_every_backend(|area| {
        let blocks: Vec<_> = (0..8).map(|_| area.block(8).expect("room")).collect();
        let (done, stop) = (AtomicI64::new(0), AtomicBool::new(false));
        let witness = Witness::new();
        std::thread::scope(|scope| {
            let stopping = StopOnDrop(&stop);
            let reader = scope.spawn(|| {
                let mut last = std::collections::HashMap::new();
                let (mut total, mut finish) = (0, false);
                loop {
                    let returned = done.load(Ordering::SeqCst);
                    let marked = take_in(area, Lines::All);
                    area.barrier();
                    for at in &marked {
                        for (line, word) in at.lines().flat_map(|l| (0..8).map(move |w| (l, w))) {
                            let now = area.data().load_line(at.row as usize, line)[word];
                            total += now - last.insert((at.row, line, word), now).unwrap_or(0);
                        }
                    }
                    area.release_dirty(&marked);
                    assert!(total >= returned, "{returned} had returned, {total} were found");
                    witness.met(returned != 0 && done.load(Ordering::SeqCst) != returned);
                    if finish {
                        return total;
                    }
                    finish = stop.load(Ordering::SeqCst);
                }
            });
            on_threads(3, |thread| {
                for i in (0..).take_while(|&i| witness.goes_on(i as u64, ADDS as u64 / 10)) {
                    blocks[(i * (thread + 1)) as usize % 8].add_dirty(
                        i as usize % 8,
                        1,
                        63,
                        |_| (),
                    );
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            drop(stopping);
            let found = reader.join().expect("no panic");
            assert_eq!(found, done.load(Ordering::SeqCst));
        });
        witness.assert_met();
    });
}

/// An add is in flight while its overflow is posted and no longer.
#[test]
fn an_add_is_in_flight_while_it_posts() {
    on_every_backend(|area| {
        let block = area.block(1).expect("room");
        block.add_dirty(0, 63, 63, |_| unreachable!("within the batch"));
        let mut reported = Vec::new();
        block.add_dirty(0, 2, 63, |first| {
            reported.push((first.batches(), area.in_flight()));
            block.add_dirty(0, 1000, 63, |second| {
                reported.push((second.batches(), area.in_flight()));
            });
        });
        assert_eq!(reported.len(), 2);
        assert!(reported.iter().zip([1, 2]).all(|(&(by, in_flight), n)| by > 0 && in_flight == n));
        assert_eq!(area.in_flight(), 0);
    });
}

/// A thread's first add uses no locked row, even in a process where libc registers no thread, so
/// that each registers at its first add.
#[test]
fn a_threads_first_add_uses_no_locked_row() {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    const UNREGISTERED: &str = "glibc.pthread.rseq=0";
    if !cfg!(miri) && std::env::var(TUNABLES).is_err() {
        let this = std::env::current_exe().expect("the test's own program");
        let name = "storage::a_threads_first_add_uses_no_locked_row";
        let child = std::process::Command::new(this)
            .args(["--exact", name, "--nocapture"])
            .env(TUNABLES, UNREGISTERED)
            .output()
            .expect("it starts");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{name} was run");
    }
    let area = Area::new(|_| 0).expect("address space");
    let Some(rseq) = area.rseq() else {
        println!("skipped: no sequences on this machine");
        return;
    };
    let block = area.block(1).expect("room");
    on_threads(2, |_| block.add_dirty(0, 1, 63, |_| ()));
    assert_eq!(area.rows_in_use().len(), rseq.cpus() as usize);
    assert_eq!(block.sum(0), 4 * 2);
}

/// Marks are found in every row that has any, and bounds count no others.
#[test]
fn marks_are_found_in_every_marked_row() {
    let area = Area::simulated(128).expect("address space");
    let block = area.block(1).expect("room");
    assert_eq!((area.marked_rows().next(), area.dirty_lines(1)), (None, 0));
    for (n, row) in [127, 3, 64, 3].into_iter().enumerate() {
        Area::simulate_cpu(row);
        block.add_dirty(0, 1, 63, |_| ());
        assert_eq!(area.dirty_lines(9), n.min(2) as u64 + 1);
    }
    assert_eq!(area.marked_rows().collect::<Vec<_>>(), [3, 64, 127]);
    let mut found = Vec::new();
    area.find_dirty(&Lines::All, |lines| found.push(lines.row));
    assert_eq!(found, [3, 64, 127]);
}

/// Barriers that can wait are spaced as the machine's own need it.
#[test]
fn barriers_have_the_spacing_of_their_kind() {
    on_every_backend(|area| {
        let spacing = area.barrier_spacing();
        assert!(!spacing.is_zero() && spacing == submeter_sys::probe().barrier.spacing());
    });
}

#[test]
fn a_simulated_area_has_a_row_for_each_cpu() {
    let cpus = if cfg!(miri) { 5 } else { 200 };
    let area = Area::simulated(cpus).expect("address space");
    assert_eq!((area.data_rows(), area.rows_in_use()), (cpus, 0..cpus));
    let word = area.word().expect("room");
    for cpu in 0..cpus {
        Area::simulate_cpu(cpu as u32);
        word.add(0, cpu as i64 + 1);
    }
    for row in 0..cpus {
        assert_eq!(area.load(row, word.first_word()), row as i64 + 1);
    }
    Area::simulate_cpu(cpus as u32);
    word.add(0, 100);
    assert_eq!(area.load(0, word.first_word()), 101, "modulo the number of CPUs");
}
