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

/// Returns whether the page with this word has memory.
#[cfg(all(target_os = "linux", not(miri)))]
fn has_memory(word: &std::sync::atomic::AtomicI64) -> bool {
    use std::os::unix::fs::FileExt;

    // An entry of eight bytes for each page; the highest bit says that it has memory.
    let page = std::ptr::from_ref(word).addr() / submeter_sys::memory::page_size();
    let mut entry = [0; 8];
    let pages = std::fs::File::open("/proc/self/pagemap").expect("it was there");
    pages.read_exact_at(&mut entry, page as u64 * 8).expect("of this process");
    u64::from_ne_bytes(entry) >> 63 == 1
}

/// A trim that is due returns the memory of each row, and says how much.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_due_trim_returns_memory() {
    if let Err(error) = std::fs::File::open("/proc/self/pagemap") {
        eprintln!("skipped: no pages are listed here: {error}");
        return;
    }
    let lines = 20_000;
    let (area, owned) = Area::with_owner(|_| (1, 1)).expect("address space");
    assert_eq!(area.trim_when_due(|_| true), 0);
    let block = area.block(lines * LINE_WORDS).expect("room");
    let middle = block.first_line() + lines / 2;
    let (shared, own) = (&area.shared_lines(0)[middle][0], &owned.lines().line(0, middle)[0]);
    [shared, own].into_iter().for_each(|word| word.store(1, Ordering::Relaxed));
    assert!(has_memory(shared) && has_memory(own));
    drop(block);
    assert!(has_memory(shared), "until it is trimmed");
    let mut seen = 0;
    let given = area.trim_when_due(|lines| {
        seen += lines.len();
        owned.discard(lines).is_ok()
    });
    assert_eq!(given, seen * LINE_WORDS * 8);
    assert!(seen > lines - 1024 && !has_memory(shared) && !has_memory(own));
    assert_eq!(area.trim_when_due(|_| true), 0, "it is done");
}

/// What a trim leaves is due again, also if a block ends in the meantime.
#[test]
fn a_trim_that_was_put_off_stays_due() {
    let lines = 20_000;
    let area = Area::new(|_| 0).expect("address space");
    let Ok(large) = area.block(lines * LINE_WORDS) else {
        eprintln!("skipped: rows are too short here (64-bit addresses without Miri have room)");
        return;
    };
    let mut other = Some(area.block(1).expect("room"));
    drop(large);
    area.trim_when_due(|_| {
        other = None;
        false
    });
    assert!(other.is_none(), "it was due");
    let mut seen = 0;
    area.trim_when_due(|lines| {
        seen += lines.len();
        true
    });
    assert!(seen > lines - 1024, "{seen}");
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
