//! Says who keeps a release waiting.

use std::fmt;
use std::panic::Location;

/// Says that a reference count was not released by the deadline, and why.
#[derive(Clone, Debug)]
pub struct StillHeld {
    pub(super) name: String,
    pub(super) dying: bool,
    pub(super) references: Option<i64>,
    pub(super) sites: Vec<(Option<&'static Location<'static>>, i64)>,
}

impl StillHeld {
    /// Returns how many references are held; `None` while they are counted per CPU, before the kill.
    #[must_use]
    pub fn references(&self) -> Option<i64> {
        self.references
    }

    /// Returns the places in the source where what is held was taken, with how many; empty in release
    /// builds. `None` sums up places beyond the first few. A plain `put` cannot know its
    /// get: it is listed under its own place, negative.
    pub fn places(&self) -> impl Iterator<Item = (Option<&'static Location<'static>>, i64)> + '_ {
        self.sites.iter().copied()
    }
}

impl fmt::Display for StillHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was not released by the deadline: ", self.name)?;
        match self.references {
            _ if !self.dying => f.write_str("nobody killed it")?,
            Some(0) => f.write_str("the release callback is running")?,
            Some(n) => write!(f, "{n} references are held")?,
            None => f.write_str("the kill is under way")?,
        }
        for (number, &(place, held)) in self.sites.iter().enumerate() {
            let what = if held < 0 { "put" } else { "taken" };
            let lead = if number == 0 { ":" } else { "," };
            write!(f, "{lead} {} {what} at ", held.unsigned_abs())?;
            match place {
                Some(place) => write!(f, "{place}")?,
                None => f.write_str("other places")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for StillHeld {}
