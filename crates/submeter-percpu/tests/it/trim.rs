//! Memory is returned to the system while other words are in use.

use std::sync::atomic::{AtomicUsize, Ordering};

use submeter_percpu::Area;
use submeter_percpu::storage::LINE_WORDS;

/// A trim keeps words in use, and reused words start at zero.
#[test]
fn a_trim_keeps_what_is_in_use() {
    // Miri's rows have 1,000 lines, and it returns no memory; the rest is the same.
    let blocks = if cfg!(miri) { 20 } else { 10_000 };
    let area = Area::new(|_| 1).expect("address space");
    let mut held: Vec<_> = (0..blocks).map(|_| Some(area.block(20).expect("room"))).collect();
    for block in held.iter().flatten() {
        (0..20).for_each(|word| block.add(word, 1 + word as i64));
        area.shared(0, block.first_word()).store(9, Ordering::Relaxed);
    }
    // Drop all but every hundredth. Blocks have 3 lines, so that some cross a page boundary.
    let ends = held.iter_mut().enumerate().filter(|(at, _)| at % 100 != 0);
    ends.for_each(|(_, block)| drop(block.take()));
    let given = area.trim();
    let all = blocks * 3 * LINE_WORDS * 8;
    assert!(cfg!(miri) || given > all / 2, "{given} of {all} bytes");
    for block in held.iter().flatten() {
        assert!((0..20).all(|word| block.sum(word) == 1 + word as i64));
        let shared = area.shared(0, block.first_word());
        assert_eq!(shared.load(Ordering::Relaxed), 9);
    }
    for slot in held.iter_mut().filter(|slot| slot.is_none()) {
        let block = area.block(20).expect("what was freed");
        assert!((0..20).all(|word| block.sum(word) == 0));
        block.add(19, 5);
        assert_eq!(block.sum(19), 5);
        let shared = area.shared(0, block.first_word());
        assert_eq!(shared.load(Ordering::Relaxed), 0);
        *slot = Some(block);
    }
    assert_eq!(area.trim(), 0, "nothing is free");
}

/// Trims, new blocks and adds race, and every word holds its own.
#[test]
fn trims_race_with_adds_stress() {
    let (rounds, blocks) = if cfg!(miri) { (2, 10) } else { (300, 50) };
    let area = Area::new(|_| 0).expect("address space");
    let given = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for id in 1..=3i64 {
            let (area, given) = (&area, &given);
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut blocks: Vec<_> =
                        (0..blocks).map(|_| area.block(64).expect("room")).collect();
                    for block in &blocks {
                        assert_eq!(block.sum(63), 0);
                        block.add(63, id * round);
                    }
                    // This happens while the others add. Blocks have eight lines each, so that
                    // whole pages are free.
                    blocks.truncate(blocks.len() / 5);
                    given.fetch_add(area.trim(), Ordering::Relaxed);
                    assert!(blocks.iter().all(|block| block.sum(63) == id * round));
                }
            });
        }
    });
    // The interpreter returns no memory.
    assert!(cfg!(miri) || given.into_inner() > 0, "no trim found anything free");
}
