//! Files that hold a whole result or what they held before.

use std::ffi::OsString;
use std::path::Path;
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

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", std::process::id()));
    // Beside it: a rename does not lead from one disk to another.
    let part = path.with_file_name(part);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&part);
    }
    written
}
