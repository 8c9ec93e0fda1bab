//! The running program. It prints `ready` once it is warm, then answers each line with a sample:
//! operations per second over all its threads, the longest time between two clock reads, the time
//! between the first and the last start (both in nanoseconds), the operations asked for and those
//! granted, so far.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use submeter_sys::cpu::set_affinity;

/// A peer that waits for requests. Dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its name in errors.
    variant: &'static str,
    /// `None` once it is told to end.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
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
        let mut process = Process { child, variant, questions, answers };
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
    use submeter_sys::cpu::affinity;

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

    /// A process that answers wrongly or exits is an error that names it.
    #[test]
    fn a_wrong_answer_is_an_error_with_its_name() {
        let cpus = affinity().expect("this process may run somewhere");
        let begun = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            Process::start("shell", shell, &cpus)
        };
        let error = begun("echo no").expect_err("not ready").to_string();
        assert_eq!(error, "shell started with \"no\" instead of \"ready\"");
        let error = begun("exit 0").expect_err("not ready").to_string();
        assert_eq!(error, "shell exited unexpectedly");
        let mut process = begun("echo ready; read line; echo 1 2; read line").expect("ready");
        let error = process.sample().expect_err("two numbers").to_string();
        assert_eq!(error, "shell answered \"1 2\"");
        // It still waits for a line: the drop ends it.
    }
}
