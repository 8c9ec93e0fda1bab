//! Peers of other languages, each in a process of its own: Java's `LongAdder`, and a counter a
//! thread of liburcu.
//!
//! Compiled when they are asked for, into a folder that goes with them, by compilers that the
//! machine has or has not. Linked into this program they would need `unsafe` and a call for each
//! operation; a process of their own measures the loop that their users write, with their own
//! clock. What two processes do is not interleaved more finely than by samples, which is how all
//! variants of a table are measured.

mod process;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use process::{Process, Sampled};

use crate::Absence;

const JAVA: &str = include_str!("LongAdderPeer.java");
const URCU: &str = include_str!("urcu_peer.c");

/// A peer that was compiled.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is called in records.
    pub variant: &'static str,
    language: Language,
    folder: Rc<Folder>,
}

#[derive(Clone, Copy, Debug)]
enum Language {
    Java,
    C,
}

/// Compiles what this machine has compilers for, in some seconds; says why the others are absent.
#[must_use]
pub fn programs() -> (Vec<Program>, Vec<Absence>) {
    let (mut programs, mut absent) = (Vec::new(), vec![librseq()]);
    for (variant, compile) in
        [("long_adder", java as fn(&Path) -> Result<Language, String>), ("urcu_per_thread", urcu)]
    {
        let compiled = Folder::new()
            .map_err(|error| format!("no folder to compile it in: {error}: set TMPDIR"))
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

/// Nothing to look for on this machine: a user who built it has it where only they know.
fn librseq() -> Absence {
    let reason =
        "neither Debian 12 nor crates.io has librseq; submeter's own sequences are what it \
        would be compared with"
            .to_owned();
    Absence { variant: "librseq", reason }
}

impl Program {
    /// Starts it on these CPUs, and waits until it is warm.
    ///
    /// # Errors
    /// When it does not start, or says something else than that it is ready.
    pub fn start(&self, cpus: &[usize], sample_ns: u64, batch: u32) -> io::Result<Process> {
        let (sample_ns, batch) = (sample_ns.to_string(), batch.to_string());
        let folder = &self.folder.0;
        let command = match self.language {
            Language::Java => {
                let mut java = Command::new("java");
                // A heap that is never collected meanwhile, and no thread of a collector beside
                // those that count.
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
        Process::start(self.variant, command, cpus, Rc::clone(&self.folder))
    }
}

fn java(folder: &Path) -> Result<Language, String> {
    write(folder, "LongAdderPeer.java", JAVA)?;
    let mut javac = Command::new("javac");
    javac.current_dir(folder).args(["-d", ".", "LongAdderPeer.java"]);
    let missing = "no Java compiler: apt install openjdk-17-jdk-headless";
    succeeds(javac, missing)?;
    // Without arguments it only says that it starts: a compiler may be of a newer Java than what
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
    // As above: the library may be where only the linker finds it.
    succeeds(Command::new(folder.join("urcu_peer")), missing)?;
    Ok(Language::C)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    let refused = |error| format!("cannot write {}: {error}: set TMPDIR", path.display());
    fs::write(&path, text).map_err(refused)
}

/// Runs a compiler, or what it made; says `missing`, and what it said first, where it does not do
/// its work.
fn succeeds(mut command: Command, missing: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{missing} ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{missing} ({})", said.lines().next().unwrap_or("it said nothing").trim()))
}

/// A folder of this process that goes when it is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number that nobody else has is all that is asked.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("submeter-peers-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        // Not if it exists: another's folder of that name in a place that all can write is no place
        // to run from.
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the folder of what is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
