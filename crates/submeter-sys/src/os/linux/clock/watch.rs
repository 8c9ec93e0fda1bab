//! Tells whether a thread was switched out since it last checked, at the price of a load.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::clock::Source;
use crate::os::perf_event::{self, Page};

/// A word of the calling thread that changes when it is switched out, if there is one.
///
/// Only for its own thread: hence neither `Send` nor `Sync`.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The page's, or `NEVER`.
    word: NonNull<AtomicU64>,
    page: Option<Page>,
}

/// The word of a watch without a page: always 0.
static NEVER: AtomicU64 = AtomicU64::new(0);

impl Watch {
    /// Starts to watch the calling thread.
    pub(crate) fn new(source: Source) -> io::Result<Watch> {
        if source != Source::PerfPage {
            return Ok(Watch::blind());
        }
        let page = Page::open()?;
        Ok(Watch { word: page.word(), page: Some(page) })
    }

    /// Creates a watch that sees nothing and answers every question with "maybe".
    pub(crate) fn blind() -> Watch {
        Watch { word: NonNull::from(&NEVER), page: None }
    }

    /// Returns the value to pass to [`holds`](Watch::holds) later.
    pub(crate) fn arm(&self) -> u64 {
        match self.page {
            // SAFETY: 1. The page is mapped: it lives in `self`, which `ThreadClock` gives up in a
            // forked child.
            Some(_) => unsafe { perf_event::load(self.word) },
            None => 1,
        }
    }

    /// Returns whether the thread ran without a break since [`arm`](Watch::arm) returned `armed`.
    /// It may say no although it did, but never yes although it did not.
    #[inline(always)]
    pub(crate) fn holds(&self, armed: u64) -> bool {
        // SAFETY: 1. A page's word lives as long as the page in `self`, and `ThreadClock` asks only
        // in the process that mapped it. 2. `NEVER` is static.
        unsafe { perf_event::load(self.word) == armed }
    }

    /// Returns whether the thread was switched out since, if there is a page to tell.
    #[inline]
    pub(crate) fn switched(&self, armed: u64) -> Option<bool> {
        self.page.is_some().then(|| !self.holds(armed))
    }

    /// Drops it without unmapping, in a forked child.
    pub(crate) fn forget(self) {
        if let Some(page) = self.page {
            page.forget();
        }
    }
}
