//! One running peer, which answers each line with a line: a sample.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use submeter_sys::cpu::set_affinity;

use super::Folder;

/// A peer that waits for requests. Dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its name in errors.
    variant: &'static str,
    /// `None` once it is told to end.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The folder of its program, if it is to be removed.
    _folder: Option<Rc<Folder>>,
}

/// A sample that a process measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Operations per second over all its threads.
    pub rate: f64,
    /// The longest time between two clock reads of one thread.
    pub longest: Duration,
    /// The time between the start of the first thread and that of the last.
    pub apart: Duration,
    /// Operations done by its loops in all samples.
    pub asked: u64,
    /// Operations counted by its counter in all samples.
    pub counted: u64,
}

impl Process {
    /// Starts `command` on `cpus`, and waits until it reports that it is ready.
    pub(super) fn start(
        variant: &'static str,
        mut command: Command,
        cpus: &[usize],
        folder: Option<Rc<Folder>>,
    ) -> io::Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // In a process group of its own: an interrupt goes only to this process, which ends the
        // peer when it has its results.
        command.process_group(0);
        // A child inherits the CPUs of the thread that starts it: a short-lived thread, so that
        // this one keeps its own.
        let spawn = || set_affinity(cpus).and_then(|()| command.spawn());
        let spawned = thread::scope(|scope| scope.spawn(spawn).join().expect("it panics nowhere"));
        let mut child = spawned.map_err(|e| io::Error::new(e.kind(), format!("{variant}: {e}")))?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Process { child, variant, questions, answers, _folder: folder };
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(io::Error::other(format!(
                "{variant} started with {other:?} instead of \"ready\""
            ))),
        }
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// When the process has exited, or its answer is not a sample.
    pub fn sample(&mut self) -> io::Result<Sampled> {
        let questions = self.questions.as_mut().expect("only the drop takes it");
        questions.write_all(b"\n")?;
        questions.flush()?;
        let line = self.line()?;
        parse(&line).ok_or_else(|| io::Error::other(format!("{} answered {line:?}", self.variant)))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("{} exited unexpectedly", self.variant)));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It exits when its input is closed; one that does not is killed.
        drop(self.questions.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Option<Sampled> {
    let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [rate, longest, apart, asked, counted] = numbers[..] else { return None };
    let (longest, apart) = (Duration::from_nanos(longest), Duration::from_nanos(apart));
    Some(Sampled { rate: rate as f64, longest, apart, asked, counted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_five_numbers() {
        let sampled = parse("5 6 7 8 9").expect("a sample");
        assert_eq!((sampled.rate, sampled.asked, sampled.counted), (5.0, 8, 9));
        assert_eq!((sampled.longest.as_nanos(), sampled.apart.as_nanos()), (6, 7));
        for wrong in ["", "5 6 7 8", "5 6 7 8 9 10", "5 6 7 8 x", "ready"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
