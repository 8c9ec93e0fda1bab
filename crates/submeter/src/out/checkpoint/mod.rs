//! Totals that outlive their process: a file to which a tree's totals are saved, and from which the
//! next process restores them.
//!
//! [`Tree::checkpoint`] writes what has been counted; [`Tree::restore`] adds that to the tree of a
//! restarted process. Counters and histograms are kept. Gauges and quotas are not: they say what a
//! process holds, and a new process holds nothing.
//!
//! A process that dies loses its counts since the last checkpoint. That is not reported as zero:
//! [`Restored::is_complete`] says whether anything may be missing, and [`Restored::at`] since when.
//! Only [`Tree::checkpoint_last`] makes a file complete.
//!
//! # Examples
//! ```
//! use submeter::checkpoint::CheckpointFile;
//! use submeter::{Count, Counter, Schema, Tree};
//!
//! fn new_tree() -> Result<(Tree, Counter<Count>), Box<dyn std::error::Error>> {
//!     let mut schema = Schema::builder();
//!     let requests = schema.counter::<Count>("requests", "Requests answered");
//!     Ok((Tree::new(schema.build()?)?, requests))
//! }
//!
//! # let directory = std::env::temp_dir().join(format!("submeter-doc-{}", std::process::id()));
//! # std::fs::create_dir(&directory)?;
//! # let path = directory.join("totals");
//! let (tree, requests) = new_tree()?;
//! let mut file = CheckpointFile::open(&path)?;
//! assert!(tree.restore(&mut file)?.is_none(), "the first process of its name");
//! tree.get_or_create("/acme/web")?.add(requests, 3);
//! tree.checkpoint(&mut file)?; // every ten seconds, say
//! drop((tree, file)); // it crashes
//!
//! let (tree, requests) = new_tree()?;
//! let mut file = CheckpointFile::open(&path)?;
//! let restored = tree.restore(&mut file)?.expect("there is a checkpoint");
//! assert!(!restored.is_complete(), "who knows what came after it");
//! let snapshot = tree.snapshot();
//! assert_eq!(snapshot.get("/acme").expect("restored").counter(requests), 3);
//! # tree.checkpoint_last(file)?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The file
//! The file has lines of JSON. The first says what the file is and which metrics it has; then there
//! is a line for each group; the last has their number, by which a truncated file is recognised. A
//! group's values are what it counted itself and what killed groups left it, so they may be added
//! up:
//!
//! ```json
//! {"complete":false,"epoch":2,"format":"submeter-checkpoint-1","metrics":[…],"sequence":7,…}
//! {"path":"/","values":{}}
//! {"path":"/acme","values":{"latency":{"counts":[[12,3]],"sum":15000},"requests":3}}
//! {"groups":2}
//! ```
//!
//! A metric is `{"kind":"counter","name":"requests","unit":"count"}`; a histogram's also has
//! `buckets`, the upper bounds of the first and of the last bucket that has one. A histogram's
//! counts are pairs of a bucket and its count, for buckets that are not empty.
//!
//! Left out above are `unix_ms`, the time of the save, and `totals`: the counts of the process that
//! saved the file and of earlier ones, for [`Tree::totals`] of the next process. Of the earlier
//! processes the file has the last one, and more as long as together they have at most as many
//! groups as the tree, or 1,000. The epoch of the file counts the processes that used it; its
//! sequence counts the saves of each.

mod content;
mod error;
mod file;
mod process_counts;

use std::fmt;
use std::time::{Duration, SystemTime};

pub use error::CheckpointError;
pub use file::CheckpointFile;

use crate::Tree;
use content::Content;

/// Totals that outlive the process.
impl Tree {
    /// Saves the totals to the file, which is replaced completely or not at all, even in a crash of
    /// the system: the new file is written beside the old one, synced and renamed.
    ///
    /// Costs a snapshot, and a few hundred bytes of file for each group. Blocks for as long as the
    /// disk takes: in an async program, call it on a thread for blocking work.
    ///
    /// # Errors
    /// When the file has totals that were not restored, or that another tree has, because saving
    /// would destroy them; or when the system returns an error. The old file is then unchanged.
    pub fn checkpoint(&self, file: &mut CheckpointFile) -> Result<(), CheckpointError> {
        file.save(self.stats().epoch(), |epoch, sequence| Content::of(self, epoch, sequence, false))
    }

    /// Saves like [`checkpoint`](Tree::checkpoint), and notes that nothing follows because the
    /// program has finished its work. Consumes the file, so that nothing can follow.
    ///
    /// # Errors
    /// The same as `checkpoint`.
    pub fn checkpoint_last(&self, mut file: CheckpointFile) -> Result<(), CheckpointError> {
        file.save(self.stats().epoch(), |epoch, sequence| Content::of(self, epoch, sequence, true))
    }

    /// Creates the groups that are missing and adds the file's totals to this tree, once. Returns
    /// `None` if there is no file yet.
    ///
    /// The counts of killed groups are in the totals of the groups above them, as before, and now
    /// count as those groups' own. Groups that exist keep what they have counted.
    ///
    /// # Errors
    /// When a tree already has the file's totals; when the file is damaged; when one of its metrics
    /// differs from the tree's or is missing there (a library's must be [declared](Tree::declare)
    /// first); or when its groups do not fit into the tree. In each case nothing was added, and no
    /// group was created.
    pub fn restore(&self, file: &mut CheckpointFile) -> Result<Option<Restored>, CheckpointError> {
        let Some(content) = file.load()? else {
            return Ok(None);
        };
        let restored = Restored {
            groups: content.groups.len(),
            at: content.at(),
            complete: content.complete,
            epoch: content.epoch,
            sequence: content.sequence,
        };
        content.add_to(self).map_err(|error| error.in_file(file.path()))?;
        file.restored(self.stats().epoch());
        Ok(Some(restored))
    }
}

/// The result of [`Tree::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    groups: usize,
    at: SystemTime,
    complete: bool,
    epoch: u64,
    sequence: u64,
}

impl Restored {
    /// Returns how many groups the file had, the root included.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Returns when the former process saved the totals, by its clock.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Returns whether the former process ended with [`Tree::checkpoint_last`]. If not, what it
    /// counted after [`at`](Restored::at) is unknown.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of the former process among those that used the file.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of the checkpoint among those of the former process.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Writes `2 groups restored; counts of the 12 s since are unknown`.
impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} groups restored", self.groups)?;
        if self.complete {
            return Ok(());
        }
        let since = self.at.elapsed().unwrap_or(Duration::ZERO).as_secs();
        write!(f, "; counts of the {since} s since are unknown")
    }
}
