//! `submeter top` in a terminal of the test's own: whatever ends it, the terminal is restored.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a terminal; killed when dropped.
struct Shown {
    child: Child,
    /// The program's end of the terminal, which outlives it.
    terminal: File,
    /// The terminal's other end, for what is typed.
    keys: Option<File>,
    output: Receiver<Vec<u8>>,
    /// Reads the terminal's other end.
    reader: Option<JoinHandle<()>>,
    seen: String,
}

impl Shown {
    fn start(args: &[&str]) -> Shown {
        Shown::start_on("xterm", args)
    }

    /// Starts it with this value of `TERM`, or without one.
    fn start_on<'a>(term: impl Into<Option<&'a str>>, args: &[&str]) -> Shown {
        // The program must not hold open its own terminal's other end.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let mut ours = File::from(openpt(flags).expect("a pty"));
        grantpt(&ours).expect("its owner's");
        unlockpt(&ours).expect("its owner's");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let terminal = File::options().read(true).write(true).open(path).expect("its other end");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a terminal");
        let end = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        let child = Command::new(env!("CARGO_BIN_EXE_submeter"))
            .env_remove("TERM")
            .envs(term.into().map(|term| ("TERM", term)))
            .args(args)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            // A job of its own, as a shell starts it.
            .process_group(0)
            .spawn()
            .expect("the program starts");
        let keys = Some(ours.try_clone().expect("a descriptor"));
        let (sender, output) = channel();
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            // An error is the end of a terminal that nothing has open.
            while let Ok(n @ 1..) = ours.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Shown { child, terminal, keys, output, reader: Some(reader), seen: String::new() }
    }

    /// Closes the other end, as when a terminal's window is closed or a connection is lost.
    fn hang_up(&mut self) {
        (self.output, self.keys) = (channel().1, None);
        // A byte to read, after which the reader finds that its receiver is gone. This fails if the
        // program wrote in between, in which case the reader has noticed already.
        let _ = self.terminal.write_all(b".");
        self.reader.take().expect("once").join().expect("no panic");
    }

    /// Returns whether keys go to the program as they are typed.
    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("a terminal").local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Reads until the program has written `text`.
    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = self.output.recv_timeout(PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn press(&mut self, key: &[u8]) {
        self.keys.as_ref().expect("it has not hung up").write_all(key).expect("a terminal");
    }

    /// Waits until it has stopped, as its shell does.
    fn wait_until_stopped(&mut self) {
        let id = Pid::from_child(&self.child);
        let since = Instant::now();
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        while !waitpid(Some(id), options).expect("a child").is_some_and(|(_, how)| how.stopped()) {
            assert!(since.elapsed() < PATIENCE, "it does not stop: {:?}", self.seen);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(since.elapsed() < PATIENCE, "it does not exit: {:?}", self.seen);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn any_signal_leaves_the_terminal_as_it_was() {
    // A silent server: the terminal is taken before there is an answer.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    for command in [&["top"][..], &["fleet", "top"]] {
        for signal in ["INT", "TERM", "HUP"] {
            let mut top = Shown::start(&[command, &[&address]].concat());
            // The mouse is taken last.
            top.wait_for("\u{1b}[?1000h");
            assert!(top.is_raw(), "{signal}");
            top.signal(signal);
            let status = top.end();
            assert_eq!(status.code(), Some(0), "{command:?} {signal}: {status}");
            assert!(!top.is_raw(), "{command:?} {signal}");
            // The mouse, the previous screen and the cursor.
            for restored in ["\u{1b}[?1000l", "\u{1b}[?1049l", "\u{1b}[?25h"] {
                top.wait_for(restored);
            }
        }
    }
}

/// When it stops, the terminal is the shell's; when it goes on, it takes the terminal again, even
/// where it could not leave it, because nothing can catch SIGSTOP.
#[test]
fn a_job_that_stops_leaves_the_terminal() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    let mut top = Shown::start(&["top", &address]);
    let mut cooked = tcgetattr(&top.terminal).expect("a terminal");
    cooked.local_modes.insert(LocalModes::ICANON | LocalModes::ECHO);
    top.wait_for("Waiting for the server");
    for how in ["Ctrl-Z", "TSTP", "STOP"] {
        top.seen.clear();
        match how {
            "Ctrl-Z" => top.press(b"\x1a"),
            signal => top.signal(signal),
        }
        top.wait_until_stopped();
        if how == "STOP" {
            tcsetattr(&top.terminal, OptionalActions::Now, &cooked).expect("a terminal");
        } else {
            for restored in ["\u{1b}[?1000l", "\u{1b}[?1049l", "\u{1b}[?25h"] {
                top.wait_for(restored);
            }
        }
        assert!(!top.is_raw(), "{how}");
        top.seen.clear();
        top.signal("CONT");
        for taken in ["\u{1b}[?1049h", "\u{1b}[?25l", "\u{1b}[?1000h", "Waiting for the server"] {
            top.wait_for(taken);
        }
        assert!(top.is_raw(), "{how}");
    }
    top.press(b"q");
    assert_eq!(top.end().code(), Some(0), "keys are read: {:?}", top.seen);
}

/// A terminal that moves no cursor is refused, and the error says what to add.
#[test]
fn a_terminal_without_a_cursor_is_refused() {
    for command in [&["top"][..], &["fleet", "top"]] {
        for term in [None, Some(""), Some("dumb")] {
            let mut top = Shown::start_on(term, &[command, &["127.0.0.1:1"]].concat());
            top.wait_for("add --once for one table");
            assert_eq!(top.end().code(), Some(2), "{command:?} {term:?}: {}", top.seen);
            assert!(!top.seen.contains("\u{1b}[?1049h"), "{term:?}: {:?}", top.seen);
        }
    }
}

/// A terminal that is gone ends the program, with or without a signal.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("bound").to_string();
    drop(gone);
    for signal in [None, Some("HUP")] {
        let mut top = Shown::start(&["top", &address]);
        // From here on every frame is the same, and nothing is written: no error ends it.
        top.wait_for("lost, retrying");
        top.hang_up();
        if let Some(signal) = signal {
            top.signal(signal);
        }
        assert_eq!(top.end().code(), Some(0), "{signal:?}");
    }
}
