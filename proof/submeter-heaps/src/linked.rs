//! The allocator that this program has, judged by the behaviour of its blocks and not by its
//! source.

use std::alloc::System;
use std::fs;
use std::hint::black_box;

use submeter_alloc::{Exact, Sampled};

use crate::{Inner, Rung};

const SIZE: usize = 64;

/// Says how the program's allocator differs from the required one. To be called by the first
/// thread.
#[must_use]
pub fn difference(inner: Inner, rung: Rung) -> Option<String> {
    let wrappers =
        [submeter_alloc::is_linked(), Sampled::<System>::is_linked(), Exact::<System>::is_linked()];
    let expected = match rung {
        Rung::Bare | Rung::OwnCounts(_) => [false; 3],
        Rung::Volume => [true, false, false],
        Rung::Sampled => [false, true, false],
        Rung::Exact => [false, false, true],
    };
    if wrappers != expected {
        return Some(format!("{rung:?}: volume, sampled, exact are {wrappers:?}"));
    }
    let is_glibc = is_glibc();
    (is_glibc != (inner == Inner::Glibc)).then(|| format!("glibc has its blocks: {is_glibc}"))
}

/// Returns whether blocks of this thread, the first, are in the heap that glibc grows by `brk`,
/// which other allocators leave alone.
fn is_glibc() -> bool {
    let block = black_box(Box::new(black_box([0_u8; SIZE])));
    let address = (&raw const *block).addr();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.ends_with("[heap]")).any(|line| {
        let ends = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let parsed = ends.map(|(from, to)| {
            [from, to].map(|end| usize::from_str_radix(end, 16).unwrap_or_default())
        });
        parsed.is_some_and(|[from, to]| (from..to).contains(&address))
    })
}
