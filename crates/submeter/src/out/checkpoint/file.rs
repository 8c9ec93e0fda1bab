//! The file of a checkpoint: its lock, and its replacement.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::content::Content;
use super::error::{CheckpointError, Kind};

/// The file of a checkpoint, held exclusively by this handle until it is dropped.
///
/// The lock is an advisory lock of the system, on a file beside it whose name ends in `.lock` and
/// which is not removed. The lock ends with the process, however that ends. On a network file
/// system it is worth as much as that system's locks. A forked child has a copy of the handle, but
/// the lock belongs to the parent, and ends when the parent drops its own handle.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    state: FileState,
    /// The number of this process among those that used the file, once that is known.
    epoch: u64,
    /// The number of times that this process has saved.
    sequence: u64,
    /// Holds the lock.
    lock: File,
    /// The process that holds the lock.
    process: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// The file may have totals that no tree has.
    Unrestored,
    /// The tree of this epoch has the file's totals.
    Of(u64),
}

impl CheckpointFile {
    /// Opens the file exclusively. It need not exist yet, but its directory must. Symbolic links
    /// are followed.
    ///
    /// # Errors
    /// When another handle has the file, when it is a directory, or when the system returns an
    /// error.
    pub fn open(path: impl Into<PathBuf>) -> Result<CheckpointFile, CheckpointError> {
        let path = resolved(path.into());
        if path.file_name().is_none() || path.is_dir() {
            return Err(failed("use", io::ErrorKind::IsADirectory.into()).in_file(&path));
        }
        let beside = with_suffix(&path, "lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&beside);
        let lock = lock.map_err(|cause| failed("lock", cause).in_file(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Kind::Locked.in_file(&path)),
            Err(TryLockError::Error(cause)) => return Err(failed("lock", cause).in_file(&path)),
        }
        let process = std::process::id();
        Ok(CheckpointFile {
            path,
            state: FileState::Unrestored,
            epoch: 1,
            sequence: 0,
            lock,
            process,
        })
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of this process among those that used the file, from 1. The number is
    /// known once the file has been restored or saved.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how often this handle has saved.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Reads the content; `None` if there is no file.
    pub(super) fn load(&mut self) -> Result<Option<Content>, CheckpointError> {
        if let FileState::Of(_) = self.state {
            return Err(Kind::Restored.in_file(&self.path));
        }
        let file = match File::open(&self.path) {
            Ok(file) => BufReader::new(file),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed("read", cause).in_file(&self.path)),
        };
        let content = read(file).map_err(|kind| kind.in_file(&self.path))?;
        self.epoch = content.epoch + 1;
        Ok(Some(content))
    }

    /// Notes that the tree of epoch `tree` has the loaded counts.
    pub(super) fn restored(&mut self, tree: u64) {
        self.state = FileState::Of(tree);
    }

    /// Replaces the content with what `content` returns for an epoch and a sequence number: the
    /// counts of the tree of epoch `tree`.
    pub(super) fn save(
        &mut self,
        tree: u64,
        content: impl FnOnce(u64, u64) -> Content,
    ) -> Result<(), CheckpointError> {
        match self.state {
            FileState::Of(of) if of == tree => {}
            FileState::Of(_) => return Err(Kind::OfAnother.in_file(&self.path)),
            FileState::Unrestored => match self.path.try_exists() {
                // Checked only before the first save: nothing else writes to the file.
                Ok(false) => {}
                Ok(true) => return Err(Kind::Unrestored.in_file(&self.path)),
                Err(cause) => return Err(failed("look for", cause).in_file(&self.path)),
            },
        }
        let content = content(self.epoch, self.sequence + 1);
        self.replace(&content).map_err(|cause| failed("write", cause).in_file(&self.path))?;
        self.state = FileState::Of(tree);
        self.sequence += 1;
        Ok(())
    }

    fn replace(&self, content: &Content) -> io::Result<()> {
        let beside = with_suffix(&self.path, "new");
        let mut file = BufWriter::new(File::create(&beside)?);
        content.lines(|line| {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")
        })?;
        // Before the rename: the name must never lead to a file whose content was lost in a crash
        // of the system.
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync_directory(&self.path)
    }
}

impl Drop for CheckpointFile {
    /// Releases the lock here. Closing the descriptor is not enough: a child that is being started
    /// or was forked has a copy, and would keep the lock for as long as it has the copy.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // On failure, the lock ends with the last descriptor at the latest.
            let _ = self.lock.unlock();
        }
    }
}

/// Makes a rename survive a crash of the system.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Elsewhere a directory cannot be opened as a file; the rename is as durable as the system makes
/// it.
#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn read(file: impl BufRead) -> Result<Content, Kind> {
    let mut lines = Vec::new();
    // As bytes, because a truncated file may end within a character.
    for (index, line) in file.split(b'\n').enumerate() {
        let line = line.map_err(|cause| failed("read", cause))?;
        let value = serde_json::from_slice(&line);
        let damaged =
            |error: serde_json::Error| Kind::Damaged { line: index + 1, problem: no_json(&error) };
        lines.push(value.map_err(damaged)?);
    }
    Content::parse(lines)
}

/// The column within the line: the parser's own text says that it is in line 1.
fn no_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.split_once(" at line ").unwrap_or((&text, ""));
    format!("not JSON ({what} at column {})", error.column())
}

/// Follows symbolic links of the file itself, even if the last leads to nothing yet: the lock and
/// the new content must be beside the file, so that another name of it finds them. More links than
/// Linux follows are an error when the file is opened.
fn resolved(mut path: PathBuf) -> PathBuf {
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

fn failed(act: &'static str, cause: io::Error) -> Kind {
    Kind::Io { act, cause }
}

/// Appends to the whole name: `totals` and `totals.old` must not share a lock.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a path for a checkpoint that no other test uses, where there is no checkpoint.
    fn path(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("submeter-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        path.join("totals")
    }

    /// A copied descriptor keeps no lock: a process that is being started has one until it executes
    /// its program.
    #[test]
    fn a_copied_descriptor_keeps_no_lock() {
        let path = path("copied");
        let first = CheckpointFile::open(&path).expect("a directory");
        let copy = first.lock.try_clone().expect("a descriptor");
        drop(first);
        drop(CheckpointFile::open(&path).expect("nobody has it"));
        drop(copy);
        let _ = fs::remove_dir_all(path.parent().expect("a directory"));
    }

    /// The parent still has the lock when the child has ended.
    #[test]
    fn a_forked_child_leaves_the_lock() {
        let path = path("forked");
        let first = CheckpointFile::open(&path).expect("a directory");
        drop(CheckpointFile {
            path: path.clone(),
            state: FileState::Unrestored,
            epoch: 1,
            sequence: 0,
            lock: first.lock.try_clone().expect("a descriptor"),
            process: 0,
        });
        assert!(CheckpointFile::open(&path).expect_err("another has it").is_locked());
        drop(first);
        let _ = fs::remove_dir_all(path.parent().expect("a directory"));
    }
}
