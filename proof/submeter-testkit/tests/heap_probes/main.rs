//! What an external profiler learns about samples: the notes in the program's file, and the content
//! of the registers when a thread passes.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(any(miri, submeter_portable))))]
#![expect(unsafe_code, reason = "puts breakpoints into its own code")]

use std::alloc::System;
use std::collections::HashMap;
use std::hint::black_box;

use submeter_alloc::Sampled;

mod listener;
mod reader;
#[path = "../../../../crates/submeter-alloc/tests/common/samples.rs"]
mod samples;

use listener::{Heard, heard, listen};
use reader::probes;
use samples::samples;

#[global_allocator]
static HEAP: Sampled<System> = Sampled::new(System);

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[test]
fn the_notes_describe_two_probes_that_do_nothing() {
    let probes = probes();
    let said: Vec<_> = probes.iter().map(|p| (p.name.as_str(), p.arguments.as_str())).collect();
    assert_eq!(said.len(), 2, "each is in one place: {said:?}");
    assert!(said.contains(&("alloc", "8@%rdi 8@%rsi 8@%rdx")), "{said:?}");
    assert!(said.contains(&("free", "8@%rdi")), "{said:?}");
    for probe in &probes {
        assert_eq!((probe.provider.as_str(), probe.semaphore), ("otel_memory", 0));
    }
}

/// The blocks that a listener knows about: what each one is, and what it stands for.
#[derive(Default)]
struct Known(HashMap<usize, (usize, usize)>);

impl Known {
    /// Hears the rest, and returns how much there was.
    fn hear(&mut self) -> usize {
        let all = heard();
        for one in &all {
            match *one {
                Heard::Alloc(block, size, weight) => {
                    assert!(weight >= size, "{one:?}");
                    assert_eq!(self.0.insert(block, (size, weight)), None, "{one:?} twice");
                }
                Heard::Free(block) => {
                    assert!(self.0.remove(&block).is_some(), "{one:?} of no sample");
                }
            }
        }
        all.len()
    }

    fn weight(&self) -> i64 {
        self.0.values().map(|&(_, weight)| weight as i64).sum()
    }
}

/// A listener hears of each sample, and knows as much as the gauge.
#[test]
fn a_listener_hears_of_each_sample() {
    let (samples, _alone) = samples();
    let a = samples.tree.get_or_create("/heard").expect("room");
    a.run(|| ());
    let all = probes();
    // Before anything listens, the instruction there does nothing.
    assert!(all.iter().all(|probe| probe.code[0] == 0x90), "{all:?}");
    let named = |name| all.iter().find(|probe| probe.name == name).expect("one");
    listen(named("alloc"), named("free"));
    let mut known = Known::default();

    // A known block, wherever it moves.
    let mut large = a.run(|| block(100_000));
    let first = large.as_ptr().addr();
    assert_eq!(heard(), [Heard::Alloc(first, 100_000, 100_000)]);
    large.reserve_exact(200_000);
    let moved = large.as_ptr().addr();
    assert_eq!(heard(), [Heard::Free(first), Heard::Alloc(moved, 200_000, 200_000)]);
    drop(large);
    assert_eq!(heard(), [Heard::Free(moved)]);

    // Blocks outside of all groups, and blocks without a sample.
    drop(block(100_000));
    let outside: Vec<Vec<u8>> = (0..20_000).map(|_| block(1_000)).collect();
    assert_eq!(heard(), []);

    let mut small: Vec<Vec<u8>> = Vec::with_capacity(20_000);
    a.run(|| small.extend((0..20_000).map(|_| block(500))));
    assert!(known.hear() > 50, "of 10 MB");
    assert!(known.0.values().all(|&(size, _)| size == 500));
    let are = |known: &Known| known.0.keys().copied().collect::<Vec<_>>();
    let addresses = |small: &[Vec<u8>]| -> Vec<usize> {
        small.iter().map(|block| block.as_ptr().addr()).collect()
    };
    assert!(are(&known).iter().all(|block| addresses(&small).contains(block)));
    assert_eq!((samples.of(&a), samples.count(&a)), (known.weight(), known.0.len() as i64));
    samples.must_be_near(&a, 20_000 * 500);

    // Blocks grow and shrink, in place and elsewhere, into known ones and back.
    for size in [600, 3_000, 400, 9_000, 500, 20_000, 12_000, 100] {
        for block in &mut small {
            if size > block.capacity() {
                block.reserve_exact(size);
            } else {
                block.shrink_to(size);
            }
        }
        known.hear();
        assert!(known.0.values().all(|&(at, _)| at == size), "{size}");
        assert_eq!(samples.of(&a), known.weight(), "{size}");
    }
    drop((small, outside));
    known.hear();
    assert_eq!((samples.of(&a), known.0.len()), (0, 0));
    samples.must_balance();
}
