//! Tells whether a thread was switched out since it last looked, at the price of a load.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mark;
use crate::clock::Source;
use crate::os::perf_event::{self, Page};

/// A word of the calling thread that changes when it is switched out.
///
/// For its own thread only: hence neither `Send` nor `Sync`.
#[derive(Debug)]
pub(crate) struct Watch {
    word: NonNull<AtomicU64>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Page(Page),
    Mark {
        descriptor: u64,
    },
    /// The word is `NEVER`, which never holds what `arm` says.
    Nothing,
}

/// What [`Kind::Nothing`] looks at: always 0.
static NEVER: AtomicU64 = AtomicU64::new(0);

impl Watch {
    /// Starts to watch the calling thread.
    pub(crate) fn new(source: Source) -> io::Result<Watch> {
        match source {
            Source::PerfPage => {
                let page = Page::open()?;
                Ok(Watch { word: page.word(), kind: Kind::Page(page) })
            }
            Source::RseqMark => {
                let word = mark::word().ok_or(io::ErrorKind::Unsupported)?;
                Ok(Watch { word, kind: Kind::Mark { descriptor: mark::descriptor() } })
            }
            Source::Syscall => Ok(Watch::blind()),
        }
    }

    /// Watches nothing: every question is answered with "maybe".
    pub(crate) fn blind() -> Watch {
        Watch { word: NonNull::from(&NEVER), kind: Kind::Nothing }
    }

    /// Returns what [`holds`](Watch::holds) is to be asked later.
    pub(crate) fn arm(&self) -> u64 {
        match self.kind {
            // SAFETY: 1. The page is mapped: it lives in `self`, which `ThreadClock` gives up in a
            // forked child.
            Kind::Page(_) => unsafe { perf_event::load(self.word) },
            Kind::Mark { descriptor } => {
                // SAFETY: 1. The word is `rseq_cs` of the calling thread, which lives as long as
                // the thread: a `Watch` does not leave its thread.
                let word = unsafe { self.word.as_ref() };
                // Relaxed: read by the kernel on this very thread.
                word.store(descriptor, Ordering::Relaxed);
                descriptor
            }
            Kind::Nothing => 1,
        }
    }

    /// Returns whether the thread ran without a break since [`arm`](Watch::arm) returned `armed`.
    /// May say no where it did, never yes where it did not.
    #[inline(always)]
    pub(crate) fn holds(&self, armed: u64) -> bool {
        // SAFETY: 1. A page's word lives as long as the page in `self`, and `ThreadClock` asks only
        // in the process that mapped it. 2. `rseq_cs` is part of the calling thread's area, which
        // lives as long as the thread; a `Watch` does not leave its thread. 3. `NEVER` is static.
        unsafe { perf_event::load(self.word) == armed }
    }

    /// Returns what [`arm`](Watch::arm) does, and how long the thread had run when it last came
    /// back, if there is a page to tell: on a scale of the page's own.
    #[inline]
    pub(crate) fn running_ns(&self) -> Option<(u64, u64)> {
        match &self.kind {
            // SAFETY: 1. It is mapped here: `ThreadClock` asks only in the process that mapped it.
            Kind::Page(page) => Some(unsafe { page.running_ns() }),
            Kind::Mark { .. } | Kind::Nothing => None,
        }
    }

    /// Lets go without giving back, in a forked child.
    pub(crate) fn forget(self) {
        if let Kind::Page(page) = self.kind {
            page.forget();
        }
    }
}
