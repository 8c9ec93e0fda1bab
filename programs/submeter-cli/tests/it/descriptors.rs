//! A server that the system allows too few open files.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{FREE, SUBMETER, cache_address, line, stat};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// More clients than the server may have files.
fn crowd(addr: SocketAddr) -> Vec<TcpStream> {
    (0..150).map(|_| TcpStream::connect(addr).expect("the system takes it")).collect()
}

/// Returns how often the server has stopped accepting connections.
fn stops(client: &TcpStream) -> u64 {
    stat(client, "listen_disabled_num")
}

/// A server out of descriptors serves its clients, says so once, and recovers.
#[test]
fn a_lack_of_descriptors_is_survived() {
    let mut server = SUBMETER.start_with_files_at_most(96, &FREE);
    let addr = cache_address(&mut server);
    let mut early = TcpStream::connect(addr).expect("it listens");
    assert_eq!(stops(&early), 0);
    for round in 1..=2 {
        let before = stops(&early);
        let crowd = crowd(addr);
        let began = Instant::now();
        while stops(&early) == before {
            assert!(began.elapsed() < PATIENCE, "round {round}: it has accepted all");
            std::thread::sleep(Duration::from_millis(5));
        }
        early.write_all(b"set k 0 0 1\r\nx\r\n").expect("sent");
        assert_eq!(line(&early), "STORED", "who is connected is served");
        drop(crowd);
        let mut late = TcpStream::connect(addr).expect("it listens");
        late.set_read_timeout(Some(PATIENCE)).expect("a socket");
        late.write_all(b"mn\r\n").expect("sent");
        assert_eq!(line(&late), "MN", "round {round}: it accepts again");
    }
    server.signal("TERM");
    let (code, out) = server.end();
    assert_eq!(code, Some(0), "{out}");
    let warnings: Vec<_> = out.lines().filter(|line| line.starts_with("warning: ")).collect();
    let [warning] = warnings[..] else { panic!("one warning: {out}") };
    for part in ["Too many open files", "ulimit -n", "--connections"] {
        assert!(warning.contains(part), "{warning} names {part}");
    }
}
