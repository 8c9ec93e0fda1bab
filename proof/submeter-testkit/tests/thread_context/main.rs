//! What an external profiler reads about threads, in processes of their own: this program again, as
//! a writer.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, submeter_portable))
))]
#![expect(unsafe_code, reason = "reads another process, and forks")]

mod reader;
mod writer;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use reader::{Context, Process};
use writer::{LONG, SERVICE};

/// A process that publishes, one step at a time.
struct Writer {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// The place where it waits.
#[derive(Clone, Copy)]
struct At {
    process: i32,
    thread: i32,
}

impl Writer {
    fn start(scenario: &str) -> Writer {
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .args(["writer::writes", "--exact", "--nocapture"])
            .env(writer::SCENARIO, scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Writer { child, output }
    }

    /// Waits until it has reached the step.
    fn at(&mut self, step: &str) -> At {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("readable") > 0 {
            if let Some((_, at)) = line.split_once('@') {
                let words: Vec<_> = at.split_whitespace().collect();
                assert_eq!(words[0], step);
                let number = |at: usize| words[at].parse().expect("a number");
                return At { process: number(1), thread: number(2) };
            }
            line.clear();
        }
        panic!("it ended before {step}");
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// Returns what a reader finds at a step, and lets the writer continue; `Err` if it may not
    /// look.
    fn found_at(&mut self, step: &str) -> Result<Option<String>, Forbidden> {
        let at = self.at(step);
        let path = at.context()?.map(path);
        self.go_on();
        Ok(path)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("ours");
        assert!(thread::panicking() || status.success(), "{status}");
    }
}

/// The system lets no process trace another.
#[derive(Debug)]
struct Forbidden;

impl At {
    fn context(self) -> Result<Option<Context>, Forbidden> {
        let process = Process(self.process);
        let stopped = process.stop(self.thread).ok_or(Forbidden)?;
        Ok(stopped.context())
    }
}

fn path(context: Context) -> String {
    assert_eq!((context.trace, context.flags), ([0; 24], 0), "there is no trace");
    let [(0, path)] = &context.attributes[..] else { panic!("{context:?}") };
    path.clone()
}

fn some(path: &str) -> Option<String> {
    Some(path.to_owned())
}

/// A process announces its resource and the key of paths once.
#[test]
fn a_process_announces_resource_and_key_once() {
    let mut writer = Writer::start("announced");
    assert_eq!(Process(writer.at("before").process).announced(), None);
    writer.go_on();
    let announced = Process(writer.at("after").process).announced().expect("announced");
    writer.go_on();
    assert_eq!(announced.resource, [("service.name".to_owned(), SERVICE.to_owned())]);
    assert_eq!(announced.schema_version, "tlsdesc_v1_dev");
    assert_eq!(announced.keys, ["submeter.group"]);
}

#[test]
fn each_switch_is_found_the_last_leaves_none() -> Result<(), Forbidden> {
    let mut writer = Writer::start("switches");
    assert_eq!(writer.found_at("before")?, None);
    assert_eq!(writer.found_at("in")?, some("/acme/web"));
    assert_eq!(writer.found_at("same")?, some("/acme/web"));
    assert_eq!(writer.found_at("nested")?, some("/acme/mail"));
    assert_eq!(writer.found_at("switched")?, some("/"));
    assert_eq!(writer.found_at("outer")?, some("/acme/web"));
    assert_eq!(writer.found_at("out")?, None);
    Ok(())
}

#[test]
fn a_long_path_is_cut_at_a_character() -> Result<(), Forbidden> {
    let mut writer = Writer::start("long");
    let at = writer.at("long");
    let context = at.context()?.expect("in a group");
    writer.go_on();
    assert!(context.len <= 640, "as long as the specification recommends: {}", context.len);
    let path = path(context);
    assert_eq!(path.len(), 254, "the next character has two bytes");
    assert!(LONG.starts_with(&path));
    Ok(())
}

#[test]
fn threads_are_found_apart() -> Result<(), Forbidden> {
    let mut writer = Writer::start("threads");
    let (one, two) = (writer.at("one"), writer.at("two"));
    let found = [one.context()?, two.context()?].map(|context| context.map(path));
    writer.go_on();
    writer.go_on();
    assert_eq!(found, [some("/one"), some("/two")]);
    Ok(())
}

#[test]
fn a_killed_group_is_found_until_it_is_left() -> Result<(), Forbidden> {
    let mut writer = Writer::start("killed");
    assert_eq!(writer.found_at("killed")?, some("/gone"));
    assert_eq!(writer.found_at("again")?, some("/gone"));
    assert_eq!(writer.found_at("left")?, None);
    Ok(())
}

#[test]
fn a_thread_ending_in_a_group_takes_record_back() -> Result<(), Forbidden> {
    let mut writer = Writer::start("ends");
    assert_eq!(writer.found_at("in")?, some("/forgotten"));
    assert_eq!(writer.found_at("ended")?, None);
    Ok(())
}

#[test]
fn a_forked_child_keeps_and_announces_a_record() -> Result<(), Forbidden> {
    let mut writer = Writer::start("forks");
    let at = writer.at("child");
    let found = (at.context()?.map(path), Process(at.process).announced());
    writer.go_on();
    assert_eq!(found, (some("/web"), None));
    let at = writer.at("announced");
    let (found, announced) = (at.context()?.map(path), Process(at.process).announced());
    writer.go_on();
    assert_eq!(found, some("/child"));
    assert_eq!(announced.expect("by the child").resource[0].1, "child");
    Ok(())
}

/// A thread goes from group to group, each of which is killed and freed behind it. Whenever it is
/// stopped, its record is that of an existing group, or there is none.
#[test]
fn a_record_is_whole_whenever_a_thread_stops() -> Result<(), Forbidden> {
    let mut writer = Writer::start("busy");
    let at = writer.at("busy");
    let mut found = HashSet::new();
    for _ in 0..300 {
        let path = at.context()?.map(path);
        if let Some(path) = &path {
            let number = path.strip_prefix("/tenant-").expect("one of its groups");
            number.parse::<u64>().expect("a number");
        }
        found.insert(path);
        thread::sleep(Duration::from_micros(500));
    }
    writer.go_on();
    assert!(found.len() > 50, "it is stopped in many groups: {}", found.len());
    Ok(())
}
