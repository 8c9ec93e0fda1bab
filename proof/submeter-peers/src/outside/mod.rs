//! Peers of other languages, each in a separate process: Java's `LongAdder`, and a counter per
//! thread with liburcu.
//!
//! They are compiled on demand into a temporary folder, if the machine has their compilers. Linked
//! into this program they would need `unsafe` and a call for each operation; a separate process
//! measures the loop that their users write, with their own clock. Two processes can only alternate
//! sample by sample, which is how all variants of a table are measured. A program that takes
//! minutes to compile is not compiled on demand: see [`DataFusion`].

mod datafusion;
mod process;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use datafusion::{DataFusion, Pool};
pub use process::{Process, Sampled};

use crate::Absence;

const JAVA: &str = include_str!("LongAdderPeer.java");
const URCU: &str = include_str!("urcu_peer.c");

/// A compiled peer.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in records.
    pub variant: &'static str,
    language: Language,
    folder: Rc<Folder>,
}

#[derive(Clone, Copy, Debug)]
enum Language {
    Java,
    C,
}

/// Compiles the programs that this machine has compilers for, which takes a few seconds; says why
/// the others are absent.
#[must_use]
pub fn programs() -> (Vec<Program>, Vec<Absence>) {
    let (mut programs, mut absent) = (Vec::new(), vec![librseq()]);
    for (variant, compile) in
        [("long_adder", java as fn(&Path) -> Result<Language, String>), ("urcu_per_thread", urcu)]
    {
        let compiled = Folder::new()
            .map_err(|error| {
                format!("cannot create a folder to compile it in: {error}; set TMPDIR")
            })
            .and_then(|folder| Ok((compile(&folder.0)?, folder)));
        match compiled {
            Ok((language, folder)) => {
                programs.push(Program { variant, language, folder: Rc::new(folder) });
            }
            Err(reason) => absent.push(Absence { variant, reason }),
        }
    }
    (programs, absent)
}

/// Returns librseq as absent, without a search: no package installs it at a known place.
fn librseq() -> Absence {
    let reason = "neither Debian 12 nor crates.io has librseq; submeter's own sequences are its \
        counterpart"
        .to_owned();
    Absence { variant: "librseq", reason }
}

impl Program {
    /// Starts it on these CPUs, and waits until it has warmed up.
    ///
    /// # Errors
    /// When it does not start, or does not report that it is ready.
    pub fn start(&self, cpus: &[usize], sample_ns: u64, batch: u32) -> io::Result<Process> {
        let (sample_ns, batch) = (sample_ns.to_string(), batch.to_string());
        let folder = &self.folder.0;
        let command = match self.language {
            Language::Java => {
                let mut java = Command::new("java");
                // A heap that is not collected during samples, and no collector thread in addition
                // to the counting ones.
                java.args(["-XX:+UseSerialGC", "-Xms64m", "-Xmx64m", "-cp"]).arg(folder);
                java.arg("LongAdderPeer").args([cpus.len().to_string(), sample_ns, batch]);
                java
            }
            Language::C => {
                let mut peer = Command::new(folder.join("urcu_peer"));
                peer.args([sample_ns, batch]).args(cpus.iter().map(usize::to_string));
                peer
            }
        };
        Process::start(self.variant, command, cpus, Some(Rc::clone(&self.folder)))
    }
}

fn java(folder: &Path) -> Result<Language, String> {
    write(folder, "LongAdderPeer.java", JAVA)?;
    let mut javac = Command::new("javac");
    javac.current_dir(folder).args(["-d", ".", "LongAdderPeer.java"]);
    let missing = "no Java compiler: apt install openjdk-17-jdk-headless";
    succeeds(javac, missing)?;
    // Without arguments it only checks that it starts: the compiler may be newer than the Java that
    // runs it.
    let mut java = Command::new("java");
    java.arg("-cp").arg(folder).arg("LongAdderPeer");
    succeeds(java, missing)?;
    Ok(Language::Java)
}

fn urcu(folder: &Path) -> Result<Language, String> {
    write(folder, "urcu_peer.c", URCU)?;
    let missing = "no C compiler with liburcu: apt install gcc liburcu-dev";
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.current_dir(folder);
    cc.args(["-O2", "-o", "urcu_peer", "urcu_peer.c", "-lurcu", "-lpthread"]);
    succeeds(cc, missing)?;
    // As above: the library may be in a place that only the linker finds.
    succeeds(Command::new(folder.join("urcu_peer")), missing)?;
    Ok(Language::C)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    let refused = |error| format!("cannot write {}: {error}; set TMPDIR", path.display());
    fs::write(&path, text).map_err(refused)
}

/// Runs a compiler or its output; on failure the error is `missing` and the first line that the
/// command printed.
fn succeeds(mut command: Command, missing: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{missing} ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{missing} ({})", said.lines().next().unwrap_or("it printed nothing").trim()))
}

/// A temporary folder of this process, removed when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be unique.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("submeter-peers-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        // This fails if it exists: in a directory that everyone can write to, another user's folder
        // of that name cannot be trusted to run programs from.
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is left to the system's cleanup of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
