//! `stats conns`: which clients are connected, and what each connection waits for.

use std::io::Write;
use std::sync::Arc;

use super::{ConnectionState, Connections, Phase};

/// The two ends of a connection, as memcached writes them: `tcp:127.0.0.1:11211`.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) client: Box<str>,
    /// The address that the server listens on, shared by its connections.
    pub(crate) server: Arc<str>,
}

/// A listening server.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) address: Arc<str>,
    /// Number of its own threads that serve connections.
    pub(crate) threads: usize,
    pub(crate) has_users: bool,
    pub(crate) speaks_tls: bool,
}

/// A server's place in the list, for as long as it listens.
pub(crate) struct Listening {
    connections: Arc<Connections>,
    address: Arc<str>,
}

impl Connections {
    /// Lists a server until the result is dropped.
    pub(crate) fn listen(self: &Arc<Self>, listener: Listener) -> Listening {
        let address = Arc::clone(&listener.address);
        self.listening.lock().push(listener);
        Listening { connections: Arc::clone(self), address }
    }

    /// Returns the listening servers.
    pub(crate) fn listening(&self) -> Vec<Listener> {
        self.listening.lock().clone()
    }

    /// Writes some lines for each server, as number 0, and for each connection in order of arrival.
    pub(crate) fn list(&self, now_ms: u64) -> Vec<u8> {
        // Copied: writing takes longer than a new connection should have to wait.
        let listening = self.listening();
        let mut seats: Vec<(u64, Arc<ConnectionState>)> = {
            let places = self.places.lock();
            places.taken.iter().map(|(number, taken)| (*number, Arc::clone(&taken.seat))).collect()
        };
        seats.sort_unstable_by_key(|(number, _)| *number);
        let mut text = Vec::new();
        for Listener { address, .. } in listening {
            // Writing to a vector cannot fail, here and below.
            let _ = write!(text, "STAT 0:addr {address}\r\nSTAT 0:state conn_listening\r\n");
        }
        for (number, seat) in seats {
            if let Some(ends) = seat.ends.get() {
                line(&mut text, number, &seat, ends, now_ms);
            }
        }
        text.extend_from_slice(b"END\r\n");
        text
    }
}

fn line(text: &mut Vec<u8>, number: u64, seat: &ConnectionState, ends: &Ends, now_ms: u64) {
    let (phase, since_ms) = seat.state();
    let state = match phase {
        Phase::Idle => "conn_read",
        Phase::Reading => "conn_nread",
        Phase::Sending => "conn_mwrite",
    };
    let waited_s = now_ms.saturating_sub(since_ms) / 1000;
    let Ends { client, server } = ends;
    let _ = write!(
        text,
        "STAT {number}:addr {client}\r\nSTAT {number}:listen_addr {server}\r\n\
         STAT {number}:state {state}\r\nSTAT {number}:secs_since_last_cmd {waited_s}\r\n"
    );
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listening = self.connections.listening.lock();
        if let Some(at) = listening.iter().position(|at| Arc::ptr_eq(&at.address, &self.address)) {
            listening.remove(at);
        }
    }
}
