//! The real memcached, if the machine has it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A memcached on its own port; dropping it ends it.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) addr: SocketAddr,
    port_file: PathBuf,
}

impl Memcached {
    /// Starts a memcached, or returns why it cannot.
    pub(crate) fn start(test: &str) -> Option<Memcached> {
        let port_file =
            std::env::temp_dir().join(format!("submeter-{}-{test}", std::process::id()));
        let _ = std::fs::remove_file(&port_file);
        let spawned = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root", "-t", "2"])
            .env("MEMCACHED_PORT_FILENAME", &port_file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = spawned else {
            eprintln!("SKIPPED {test}: no memcached on this machine (Debian: memcached)");
            return None;
        };
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let text = std::fs::read_to_string(&port_file).unwrap_or_default();
            if let Some(port) = text.strip_prefix("TCP INET: ") {
                let port = port.trim().parse().expect("memcached writes a port");
                return Some(Memcached { child, addr: ([127, 0, 0, 1], port).into(), port_file });
            }
            if child.try_wait().expect("a child can be waited for").is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        eprintln!("SKIPPED {test}: memcached does not start here");
        None
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.port_file);
    }
}
