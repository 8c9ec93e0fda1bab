//! Processes that stay up and are asked for samples, one line each.
//!
//! Between its samples a process sleeps, so that many take turns within milliseconds.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that answers; it ends when its input does.
pub(super) struct Asked {
    process: Child,
    /// `None` once it is told to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Asked {
    /// Starts the process, and returns what `read` makes of its first line.
    ///
    /// # Errors
    /// The system's error, or the first line that the process printed instead.
    pub(super) fn start<T>(
        mut command: Command,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> io::Result<(Asked, T)> {
        // A terminal's Ctrl-C does not reach it: it ends with the table, after the last sample.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;
        let gone = || io::Error::other("no pipe");
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().ok_or_else(gone)?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if let Some(said) = read(line.trim_end()) {
            return Ok((Asked { process, input, output }, said));
        }
        drop(input);
        let mut all = String::new();
        process.stderr.take().ok_or_else(gone)?.read_to_string(&mut all)?;
        process.wait()?;
        Err(io::Error::other(all.lines().next().unwrap_or("it ended at once").to_owned()))
    }

    /// Makes the process take a sample: a figure, and whether it was disturbed.
    ///
    /// # Errors
    /// When the process has ended, or cannot measure.
    pub(super) fn ask(&mut self, what: &dyn Display) -> io::Result<(f64, bool)> {
        if let Some(input) = &mut self.input {
            writeln!(input, "{what}")?;
        }
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let figure = words.next().and_then(|word| word.parse().ok());
        let disturbed = words.next().map(|word| word == "true");
        figure.zip(disturbed).ok_or_else(|| io::Error::other(format!("{what}: answered {line:?}")))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error means that it has ended already.
        let _ = self.process.wait();
    }
}
