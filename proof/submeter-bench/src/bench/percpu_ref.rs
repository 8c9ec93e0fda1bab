//! The `percpu_ref` table: take a reference, copy some bytes into a per-CPU buffer, drop the
//! reference.
//!
//! This is the loop with which per-CPU reference counts were introduced to Linux: the copy stands
//! for work done while the reference is held, and overlaps with part of the cost of counting. With
//! nothing to copy, `none` is an empty loop: not a result, only the upper limit.

use std::cell;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crossbeam_utils::CachePadded;
use submeter::refs::Options;
use submeter_percpu::{Area, PercpuRef};
use submeter_sys::{Backend, probe};

use super::runner::{Cell, Plan};
use super::threads::{Work, rate_cell, settings};
use crate::row::Param;

/// Bytes to copy; with 0 only the counting remains.
const COPY_BYTES: [usize; 6] = [0, 32, 64, 128, 256, 512];
const BUFFER_BYTES: usize = 1024;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined, or there is no address space for per-CPU
/// words.
pub(crate) fn plan() -> io::Result<Plan> {
    let counted = Counted::new()?;
    let mut groups = Vec::new();
    for (name, cpus) in settings()? {
        for bytes in COPY_BYTES {
            let cell = |(variant, work): (&'static str, Work)| {
                let mut cell = rate_cell(name, &cpus, variant, "loops/s", &work);
                cell.params.0.insert(0, ("copy_bytes".into(), Param::number(bytes as u64)));
                cell
            };
            let cells: [Cell; 5] = counted.variants(bytes).map(cell);
            groups.push(cells.into());
        }
    }
    let without = || format!("percpu_ref runs on the locked backend too: {}", probe().reason);
    Ok(Plan {
        notes: probe().rseq().is_none().then(without).into_iter().collect(),
        ..Plan::new("percpu_ref", groups)
    })
}

/// The objects whose references the variants count: one each, shared by all CPUs.
struct Counted {
    atomic: Arc<CachePadded<AtomicU64>>,
    percpu: Arc<MidPage<PercpuRef>>,
    fallback: Arc<MidPage<PercpuRef>>,
    arc: Arc<CachePadded<u8>>,
}

/// A count in the middle of a page. The first words of an area are at the start of a page, one line
/// further for each CPU.
///
/// A count at the same offset within a page as its word shares a set of the first-level cache with
/// it, and a pair then took a third longer. That is one of 64 offsets, and which one occurs would
/// depend on what else the program has allocated.
#[repr(C, align(4096))]
pub(super) struct MidPage<T> {
    _before: [u8; 2048],
    pub(super) count: T,
}

impl MidPage<PercpuRef> {
    /// Creates a count with the first word of an area on `backend`.
    pub(super) fn new(backend: Backend) -> io::Result<Arc<MidPage<PercpuRef>>> {
        let area = Area::with_backend(backend, |_| 0)?;
        let count = PercpuRef::with(Options::new().area(&area), || ())?;
        Ok(Arc::new(MidPage { _before: [0; 2048], count }))
    }
}

impl Counted {
    fn new() -> io::Result<Counted> {
        Ok(Counted {
            atomic: Arc::new(CachePadded::new(AtomicU64::new(1))),
            percpu: MidPage::new(Backend::LibcRseq)?,
            fallback: MidPage::new(Backend::LockedByCpu)?,
            arc: Arc::new(CachePadded::new(0)),
        })
    }

    /// Returns the variants with their loops, which copy `bytes`.
    fn variants(&self, bytes: usize) -> [(&'static str, Work); 5] {
        let percpu = |counted: &Arc<MidPage<PercpuRef>>| {
            let counted = Arc::clone(counted);
            work(bytes, move |copy| {
                counted.count.get();
                copy();
                counted.count.put();
            })
        };
        let (atomic, arc) = (Arc::clone(&self.atomic), Arc::clone(&self.arc));
        [
            (
                "atomic",
                work(bytes, move |copy| {
                    // Relaxed, Release: the orderings of a reference count that checks and frees
                    // nothing.
                    atomic.fetch_add(1, Ordering::Relaxed);
                    copy();
                    atomic.fetch_sub(1, Ordering::Release);
                }),
            ),
            ("percpu_ref", percpu(&self.percpu)),
            ("percpu_ref_fallback", percpu(&self.fallback)),
            (
                "arc",
                work(bytes, move |copy| {
                    let held = Arc::clone(&arc);
                    copy();
                    drop(held);
                }),
            ),
            ("none", work(bytes, |copy| copy())),
        ]
    }
}

/// Makes the loop around `once`, which must call its argument while it holds its reference.
fn work(bytes: usize, once: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Work {
    Arc::new(move |loops| {
        // Taken, not borrowed through `with`: a loop inside a closure would load what it captures
        // in every iteration, unless link-time optimisation happens to remove the closure.
        let mut buffers = BUFFERS.take().unwrap_or_default();
        // If the compiler knew the length, it would choose special instructions; if it knew that
        // the source is zero, it would not read it.
        let (copied, bytes) = (black_box(&mut *buffers), black_box(bytes));
        for _ in 0..loops {
            once(&mut || {
                if bytes > 0 {
                    copied.target[..bytes].copy_from_slice(&copied.source[..bytes]);
                }
                // SeqCst, for the compiler only: it must not remove a copy that the next one
                // overwrites, or a loop that does nothing. Unlike `black_box`, it emits no
                // instruction.
                compiler_fence(Ordering::SeqCst);
            });
        }
        BUFFERS.set(Some(buffers));
    })
}

thread_local! {
    /// A measuring thread stays on its CPU, so its thread-local buffers are per-CPU.
    static BUFFERS: cell::Cell<Option<Box<Buffers>>> = const { cell::Cell::new(None) };
}

/// Source and destination of the copies, at a fixed position in a page.
///
/// A load waits for an earlier store whose address has the same low 12 bits, as if both were to the
/// same word. The first per-CPU words are at the start of their page: a buffer that happens to
/// start there too makes a pair that copies 512 bytes cost two or three times as much.
#[repr(C, align(4096))]
struct Buffers {
    _where_words_are: [u8; 2 * BUFFER_BYTES],
    source: [u8; BUFFER_BYTES],
    target: [u8; BUFFER_BYTES],
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            _where_words_are: [0; 2 * BUFFER_BYTES],
            source: [0; BUFFER_BYTES],
            target: [0; BUFFER_BYTES],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_planned_once() {
        let plan = plan().expect("this process may run somewhere");
        assert_eq!(plan.groups.len(), 2 * COPY_BYTES.len());
        assert!(plan.groups.iter().all(|group| group.len() == 5));
        for (group, bytes) in plan.groups.iter().zip(COPY_BYTES.iter().cycle()) {
            for cell in group {
                assert_eq!(cell.params.0[0], ("copy_bytes".into(), Param::number(*bytes as u64)));
                assert_eq!(cell.params.0[1].0, "cpus");
            }
        }
    }

    #[test]
    fn every_variant_drops_what_it_takes() {
        let counted = Counted::new().expect("address space");
        for bytes in [0, 512] {
            counted.variants(bytes).iter().for_each(|(_, work)| work(1000));
        }
        // Relaxed: this thread did everything.
        assert_eq!(counted.atomic.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&counted.arc), 1);
        for count in [&counted.percpu.count, &counted.fallback.count] {
            assert!(count.kill() && count.is_released(), "{count:?}");
        }
    }

    #[test]
    fn the_copy_is_made_in_every_loop() {
        let copies = std::sync::Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&copies);
        let work = work(32, move |copy| {
            copy();
            // Relaxed: a statistic of this thread's.
            counted.fetch_add(1, Ordering::Relaxed);
        });
        work(512);
        // Relaxed: as above.
        assert_eq!(copies.load(Ordering::Relaxed), 512);
    }
}
