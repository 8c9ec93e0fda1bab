//! Files that hold a whole result or what they held before.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Writes a file whole or not at all: a full disk leaves what was there before. A device or a pipe
/// is written to as it is.
///
/// # Errors
/// When the file or its folder cannot be written to.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => fs::write(path, text),
        // A link stays one: what it leads to is replaced.
        Ok(_) => replace(&fs::canonicalize(path)?, text),
        Err(_) => replace(path, text),
    }
}

/// Finds out whether [`write_file`] can write there, before there is something to write. Leaves
/// nothing behind, and what was there as it was.
///
/// # Errors
/// When the folder of the file cannot be written to, or the path is that of a folder.
pub fn try_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // Nothing is known of a device or a pipe before something is written to it.
        Ok(there) if !there.is_file() => Ok(()),
        Ok(_) => try_part(&fs::canonicalize(path)?),
        Err(_) => try_part(path),
    }
}

fn try_part(path: &Path) -> io::Result<()> {
    let part = part_of(path)?;
    fs::write(&part, "")?;
    fs::remove_file(&part)
}

/// Names the file that becomes the one at `path` when it is whole.
fn part_of(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", std::process::id()));
    // Beside it: a rename does not lead from one disk to another.
    Ok(path.with_file_name(part))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let part = part_of(path)?;
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&part);
    }
    written
}
