//! Files: input of bounded size, and results that are written whole or not at all.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::output::print;

/// Maximum number of bytes read from a file that people write: far more than they write, and small
/// enough for any machine.
const MOST: u64 = 16 << 20;

/// Reads a file or a pipe that people or their programs write: settings, limits, certificates. The
/// text is UTF-8, or UTF-16 as on Windows; a byte order mark at its beginning is dropped. Where
/// lines end in a carriage return alone, as on old Macs, the result has line feeds.
///
/// # Errors
/// When it cannot be read, has more than 16 MiB, or is not text.
pub fn read_file(path: &Path) -> io::Result<String> {
    read_open_file(fs::File::open(path)?)
}

/// The same as [`read_file`], for a file that the caller has already opened.
///
/// # Errors
/// The same as [`read_file`].
pub fn read_open_file(file: fs::File) -> io::Result<String> {
    let mut bytes = Vec::new();
    // One byte more, which shows whether there is more. A device may have no end.
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        let why = format!("it is larger than {} MiB, the maximum", MOST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let mut text = decode(bytes).ok_or_else(|| {
        let why = "it is not UTF-8 text: save it as UTF-8";
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    let mark = text.len() - without_mark(&text).len();
    text.drain(..mark);
    Ok(text)
}

/// Decodes UTF-16 only with its byte order mark: without one, UTF-8 text may look like it. What
/// contains a NUL is no text but, most likely, UTF-16 without a mark. Carriage returns end lines
/// where nothing else does.
fn decode(bytes: Vec<u8>) -> Option<String> {
    let of: fn([u8; 2]) -> u16 = match bytes[..] {
        [0xFF, 0xFE, ..] => u16::from_le_bytes,
        [0xFE, 0xFF, ..] => u16::from_be_bytes,
        _ => {
            let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
            return text.map(with_line_feeds);
        }
    };
    let (units, rest) = bytes.as_chunks();
    let units = rest.is_empty().then(|| units.iter().map(|&unit| of(unit)));
    String::from_utf16(&units?.collect::<Vec<u16>>()).ok().map(with_line_feeds)
}

fn with_line_feeds(text: String) -> String {
    if text.contains('\n') { text } else { text.replace('\r', "\n") }
}

/// Returns a text without the byte order mark that some editors put before UTF-8; [`read_file`]
/// drops it already.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Where a result that a flag names goes: to a file, or to standard output for `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Output,
    /// The file of this name.
    File(PathBuf),
}

impl Destination {
    /// Checks whether a file can be written, as [`try_file`] does, before there is something to
    /// write: a long run must not end with that error.
    ///
    /// # Errors
    /// One line that names the file and the flag.
    pub fn check(&self, flag: &str) -> Result<(), String> {
        match self {
            Destination::Output => Ok(()),
            Destination::File(path) => try_file(path).map_err(|error| cannot(path, &error, flag)),
        }
    }

    /// Writes the result, whole or not at all: see [`write_file`].
    ///
    /// # Errors
    /// The same as [`check`](Destination::check), and when standard output cannot be written to.
    pub fn write(&self, text: &str, flag: &str) -> Result<(), String> {
        match self {
            Destination::Output => print(text),
            Destination::File(path) => {
                write_file(path, text).map_err(|error| cannot(path, &error, flag))
            }
        }
    }
}

impl From<OsString> for Destination {
    fn from(name: OsString) -> Destination {
        if name == "-" { Destination::Output } else { Destination::File(name.into()) }
    }
}

fn cannot(path: &Path, error: &io::Error, flag: &str) -> String {
    format!("cannot write {}: {error}; choose another file with {flag}", path.display())
}

/// Writes a file whole or not at all: a full disk leaves what was there before. A device or a pipe
/// is written to as it is.
///
/// # Errors
/// When the file or its folder cannot be written to.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => fs::write(path, text),
        // A link stays a link: its target is replaced.
        Ok(_) => replace(&fs::canonicalize(path)?, text),
        Err(_) => replace(path, text),
    }
}

/// Checks whether [`write_file`] can write there, before there is something to write. Leaves
/// nothing behind, and any existing file unchanged.
///
/// # Errors
/// When the folder of the file cannot be written to, or the path is that of a folder.
pub fn try_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // Nothing can be known about a device or a pipe before something is written to it.
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

/// Returns the name of the temporary file that becomes the one at `path` when it is complete.
fn part_of(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", std::process::id()));
    // In the same folder: a rename does not work across disks.
    Ok(path.with_file_name(part))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let part = part_of(path)?;
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not even have been created.
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_editors_write_is_read_if_it_is_text() {
        let with = |unit: fn(u16) -> [u8; 2]| "\u{feff}a\r\nä😀".encode_utf16().flat_map(unit);
        for bytes in [with(u16::to_le_bytes).collect(), with(u16::to_be_bytes).collect()] {
            let text = decode(bytes);
            assert_eq!(text.as_deref().map(without_mark), Some("a\r\nä😀"));
        }
        for (text, read) in [("/a 1m\r/b 2m\r", "/a 1m\n/b 2m\n"), ("a\rb\r\n", "a\rb\r\n")] {
            assert_eq!(decode(text.into()).as_deref(), Some(read));
        }
        for bytes in
            [&b"\xFF\xFEa"[..], b"\xFF\xFE\x00\xD8", b"a\xE4b", b"\xFF", b"/\0a\0", b"\0/\0a"]
        {
            assert_eq!(decode(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}
