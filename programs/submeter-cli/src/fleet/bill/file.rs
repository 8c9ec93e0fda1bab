//! Readings in a file, one line of JSON each, appended at the end.
//!
//! A line is synced before the next is written, so that a crash leaves at most the last one torn. A
//! torn line is ignored, and removed before the next is added; its member is read again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use submeter_terminal::Failure;

use super::ledger::Ledger;
use super::record::Record;

/// The first line, which identifies a file of another kind before anything is written to it.
const HEAD: &[u8] = b"{\"format\":\"submeter-bill-1\"}\n";

/// The file, held by this process alone until it is dropped.
#[derive(Debug)]
pub(super) struct BillFile {
    path: PathBuf,
    file: File,
    ledger: Ledger,
    /// The offset of the next line.
    end: u64,
}

impl BillFile {
    /// Opens or creates the file, waits until no other process writes to it, and removes what a
    /// crash left torn.
    pub(super) fn open(path: &Path) -> Result<BillFile, Failure> {
        check_kind(path)?;
        let cannot = |e| failed("open", path, &e);
        let options = File::options().create(true).truncate(false).read(true).write(true).clone();
        let mut file = options.open(path).map_err(cannot)?;
        file.lock().map_err(|e| failed("lock", path, &e))?;
        let (ledger, end, is_torn) = content(&mut file, path)?;
        if is_torn {
            warn_of_torn(path, "is removed");
        }
        let mut file = BillFile { path: path.to_owned(), file, ledger, end };
        file.file.set_len(end).map_err(|e| failed("write", path, &e))?;
        if end == 0 {
            file.append(HEAD)?;
            sync_directory(path).map_err(|e| failed("write", path, &e))?;
        }
        Ok(file)
    }

    /// Adds a reading; returns whether it is newer than those before.
    pub(super) fn add(&mut self, mut record: Record) -> Result<bool, Failure> {
        if !self.ledger.is_new(&record.reading) {
            return Ok(false);
        }
        let epoch = &record.reading.epoch;
        // What is already in the file need not be repeated.
        record.reading.groups.retain(|group| !self.ledger.has(epoch, group));
        let json = serde_json::to_vec(&record);
        let cannot = |error| Failure::new(format_args!("cannot write JSON: {error}"));
        let mut line = json.map_err(cannot)?;
        line.push(b'\n');
        self.append(&line)?;
        Ok(self.ledger.add(record))
    }

    fn append(&mut self, line: &[u8]) -> Result<(), Failure> {
        let write = |mut file: &File| {
            file.seek(SeekFrom::Start(self.end))?;
            file.write_all(line)?;
            file.sync_all()
        };
        let written = write(&self.file);
        if let Err(error) = written {
            // As far as a full disk allows; otherwise the next process to open the file does it.
            let _ = self.file.set_len(self.end);
            return Err(failed("write", &self.path, &error));
        }
        self.end += line.len() as u64;
        Ok(())
    }
}

/// Reads a file without changing it.
pub(super) fn read(path: &Path) -> Result<Ledger, Failure> {
    check_kind(path)?;
    let mut file = File::open(path).map_err(|e| failed("read", path, &e))?;
    file.lock_shared().map_err(|e| failed("lock", path, &e))?;
    let (ledger, _, is_torn) = content(&mut file, path)?;
    if is_torn {
        warn_of_torn(path, "is ignored");
    }
    Ok(ledger)
}

/// Warns that there is less to bill than was read: whose reading was lost is unknown.
fn warn_of_torn(path: &Path, and: &str) {
    log::warn!(
        "the last entry of {} is incomplete because its write was interrupted, and {and}: bill all \
         servers again, since it is unknown whose it was (--file)",
        path.display()
    );
}

/// Returns the readings, where they end, and whether the last is incomplete.
fn content(file: &mut File, path: &Path) -> Result<(Ledger, u64, bool), Failure> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| failed("read", path, &e))?;
    let mut ledger = Ledger::default();
    if bytes.len() < HEAD.len() && HEAD.starts_with(&bytes) {
        // Without the heading there is no entry yet.
        return Ok((ledger, 0, false));
    }
    if !bytes.starts_with(HEAD) {
        let name = path.display();
        return Err(Failure::new(format_args!(
            "{name} is not a bill: use a file of `submeter fleet bill`, or one that does not exist \
             (--file)"
        )));
    }
    let mut end = HEAD.len();
    for (index, line) in bytes[end..].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let record = match line.strip_suffix(b"\n") {
            Some(line) => serde_json::from_slice::<Record>(line).ok(),
            None => None,
        };
        match record {
            Some(record) => drop(ledger.add(record)),
            // Only the last line can have been in progress when a process or the machine ended.
            None if end + line.len() == bytes.len() => break,
            None => {
                return Err(Failure::new(format_args!(
                    "{}: line {} is damaged, and it is not the last: restore the file from a copy \
                     (--file)",
                    path.display(),
                    index + 2
                )));
            }
        }
        end += line.len();
    }
    Ok((ledger, end as u64, end < bytes.len()))
}

/// Refuses a pipe, whose other end might never be opened, a device, which may have no end, and a
/// folder. A missing file is left to the caller.
fn check_kind(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(Failure::new(format_args!(
            "{} is not a regular file: use a file of `submeter fleet bill`, or one that does not \
             exist (--file)",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn failed(act: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot {act} {}: {error} (--file)", path.display()))
}

/// Makes the name of a new file outlast a crash of the system.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
