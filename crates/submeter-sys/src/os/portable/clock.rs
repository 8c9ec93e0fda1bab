//! The system's thread clock, asked each time: no word shows a context switch.

use std::io;

use crate::clock::{Choice, Source, syscall};

pub(crate) use super::system::clock::{NAME, process_cpu_ns, thread_cpu_ns};

pub(crate) fn decide() -> Choice {
    syscall(format!("threads on {} cannot tell that they were switched out", std::env::consts::OS))
}

/// The same as [`decide`]: what `reason` asks for is not available.
pub(crate) fn ticks_or_syscall(_: String) -> Choice {
    decide()
}

pub(crate) mod ticks {
    //! No counter: without a word that shows switches it would be useless.

    use crate::clock::Rate;

    #[inline(always)]
    pub(crate) fn now() -> u64 {
        0
    }

    pub(crate) fn rate() -> Result<Rate, &'static str> {
        Err("a counter is of no use where switches cannot be seen")
    }
}

/// A watch that sees nothing and answers every question with "maybe".
#[derive(Debug)]
pub(crate) struct Watch(());

impl Watch {
    pub(crate) fn new(source: Source) -> io::Result<Watch> {
        match source {
            Source::PerfPage | Source::Ticks => Err(io::ErrorKind::Unsupported.into()),
            Source::Syscall => Ok(Watch::blind()),
        }
    }

    pub(crate) fn blind() -> Watch {
        Watch(())
    }

    pub(crate) fn arm(&self) -> u64 {
        0
    }

    #[inline(always)]
    pub(crate) fn holds(&self, _: u64) -> bool {
        false
    }

    pub(crate) fn switched(&self, _: u64) -> Option<bool> {
        None
    }

    pub(crate) fn forget(self) {}
}
