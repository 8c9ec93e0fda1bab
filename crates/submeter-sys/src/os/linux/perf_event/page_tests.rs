//! The protocol of a page, on pages that no kernel writes.

use std::cell::Cell;

use super::*;

/// The capability of user mode to read counters.
const MAY: u64 = 1 << 2;

/// Returns the page of an event on counter `index - 1`.
fn page(lock: u32, index: u32, offset: i64, width: u16) -> Words {
    let words = [0, u64::from(index) << 32 | u64::from(lock), offset as u64, 0, 0, MAY];
    let mut page = Words::default();
    for (word, value) in page.iter_mut().zip(words) {
        *word = AtomicU64::new(value);
    }
    page[6] = AtomicU64::new(u64::from(width));
    page
}

fn set(word: &AtomicU64, value: u64) {
    // Relaxed: one thread.
    word.store(value, Ordering::Relaxed);
}

#[test]
fn a_count_is_the_offset_and_the_counter() {
    let asked = Cell::new(None);
    let counted = count(&page(2, 4, 1_000, 48), |index| {
        asked.set(Some(index));
        234
    });
    assert_eq!((counted, asked.get()), (Some(1_234), Some(3)));
}

#[test]
fn a_counter_below_zero_is_extended_by_its_width() {
    let below = (1u64 << 48) - 100;
    assert_eq!(count(&page(0, 1, 1_000, 48), |_| below), Some(900));
    // Bits above the width mean nothing.
    assert_eq!(count(&page(0, 1, 1_000, 48), |_| 0xabcd << 48 | below), Some(900));
    assert_eq!(count(&page(0, 1, 1_000, 32), |_| below), Some(900));
    assert_eq!(count(&page(0, 1, 7, 64), |_| u64::MAX), Some(6));
}

/// Without a counter or permission the instruction is not run.
#[test]
fn without_leave_the_instruction_is_not_run() {
    let never = |_| -> u64 { panic!("would trap") };
    assert_eq!(count(&page(0, 0, 5, 48), never), None);
    assert_eq!(count(&page(0, 1, 5, 0), never), None);
    assert_eq!(count(&page(0, 1, 5, 65), never), None);
    let forbidden = page(0, 1, 5, 48);
    set(&forbidden[5], !MAY);
    assert_eq!(count(&forbidden, never), None);
}

/// A switch in between is noticed and its new counter is read.
#[test]
fn a_switch_in_between_is_noticed() {
    let words = page(2, 1, 100, 48);
    let asked = Cell::new(0);
    let counted = count(&words, |index| {
        asked.set(asked.get() + 1);
        if asked.get() == 1 {
            // Switched out and in: another counter, which starts again, with the old one's count in
            // the offset.
            set(&words[1], 7 << 32 | 6);
            set(&words[2], 150);
            return 999_999;
        }
        u64::from(index)
    });
    assert_eq!((counted, asked.get()), (Some(156), 2));
}

#[test]
fn switched_out_for_good_in_between_is_no_count() {
    let words = page(2, 1, 100, 48);
    let counted = count(&words, |_| {
        set(&words[1], 4);
        1
    });
    assert_eq!(counted, None);
}

#[test]
fn a_page_that_never_settles_is_given_up() {
    let words = page(0, 1, 0, 48);
    let asked = Cell::new(0);
    let counted = count(&words, |_| {
        asked.set(asked.get() + 1);
        set(&words[1], (1 << 32) + 2 * asked.get());
        0
    });
    assert_eq!((counted, asked.get()), (None, ATTEMPTS as u64));
    // In the middle of a write.
    assert_eq!(count(&page(1, 1, 0, 48), |_| 0), None);
}

#[cfg(not(miri))]
#[test]
fn switches_are_told_and_nothing_else() {
    let Ok(mut switches) = Switches::watch() else {
        eprintln!("skipped: perf pages tell no switches here: grant CAP_PERFMON");
        return;
    };
    assert!(switches.happened(), "unknown at first");
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_micros(50));
        assert!(switches.happened(), "a wait is a switch");
    }
    // Preemption may come between the two calls, but not each time.
    assert!((0..10_000).any(|_| !switches.happened()), "always told");
}
