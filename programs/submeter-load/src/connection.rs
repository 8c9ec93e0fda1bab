//! One connection: keeps up to a given number of requests in flight, and checks and counts every
//! answer.
//!
//! One loop over readiness both reads and writes. A client that only writes while the server only
//! writes would deadlock once both sockets' buffers are full.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::answer::{self, Answer};
use super::burst::Burst;
use super::pattern::{Pattern, excerpt};
use super::profile::exptime;
use super::progress::Progress;
use super::stream::{Request, Stream, Tenant};
use super::tally::{Corruption, Tallies};
use super::verb::Verb;

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may leave requests unanswered.
const QUIET: Duration = Duration::from_secs(10);
/// How often to look whether answers are missing.
const LOOK: Duration = Duration::from_secs(1);
/// The error when the server has closed the connection.
const CLOSED: &str = "it closed the connection";
/// Tokens for `cas` kept per tenant.
const TOKENS_MAX: usize = 16;
/// Maximum number of stores that fills may replace, per tenant: after a cold start the mix must
/// return to normal.
const FILLED_MAX: u32 = 64;
/// The buffer size of one read.
const READ: usize = 64 << 10;

/// The state that all connections of a load share.
#[derive(Debug)]
pub struct Shared {
    /// The server.
    pub server: SocketAddr,
    /// The tenants that requests are drawn for.
    pub tenants: Vec<Tenant>,
    /// The source of the values' bytes.
    pub pattern: Pattern,
    /// Seed of keys and operations.
    pub seed: u64,
    /// Requests that a connection may have in flight.
    pub pipeline: usize,
    /// The time between two requests of one connection; `None` to send as fast as answers arrive.
    pub interval: Option<Duration>,
    /// The answers so far.
    pub progress: Progress,
}

/// What a connection sends.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The mix of all tenants, up to a number of requests.
    Mix {
        /// The number of requests.
        requests: u64,
    },
    /// The bursts of one tenant, timed from this moment.
    Burst(Burst, Instant),
}

/// A request that was sent.
#[derive(Debug)]
struct Sent {
    request: Request,
    bytes: usize,
    at: Instant,
    is_fill: bool,
}

/// How long the server has been silent.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the last answer arrived, plus the time during which nobody could have heard one.
    heard: Instant,
    looked: Instant,
}

impl Silence {
    fn new(now: Instant) -> Silence {
        Silence { heard: now, looked: now }
    }

    /// Returns whether the server has been silent for too long. Looks that are far apart mean that
    /// this process was stopped, and perhaps the server with it.
    fn look(&mut self, now: Instant) -> bool {
        let gap = now.saturating_duration_since(self.looked);
        if gap >= 2 * LOOK {
            self.heard += gap;
        }
        self.looked = now;
        now.saturating_duration_since(self.heard) >= QUIET
    }
}

/// A connection's state for one tenant.
#[derive(Debug, Default)]
struct Memory {
    tokens: VecDeque<(u32, u64)>,
    /// Fills for which no store of the mix has been omitted yet.
    filled: u32,
}

struct Connection<'a> {
    shared: &'a Shared,
    stream: Stream<'a>,
    memory: Vec<Memory>,
    fills: VecDeque<(u16, u32)>,
    sent: VecDeque<Sent>,
    out: Vec<u8>,
    written: usize,
    incoming: Vec<u8>,
    tallies: Tallies,
    /// Requests that may still be sent.
    left: u64,
    /// When the next request is due, if there is an interval.
    due: Instant,
    silence: Silence,
    /// Whether requests are overdue because answers are.
    behind: bool,
    role: Role,
    /// Answers to requests before this moment are discarded; `None` once that is over.
    counts_from: Option<Instant>,
    stopping: bool,
}

/// Connects.
///
/// # Errors
/// One line that names the server and the remedy.
pub async fn connect(server: SocketAddr) -> Result<TcpStream, String> {
    let connected = match tokio::time::timeout(CONNECT, TcpStream::connect(server)).await {
        Ok(connected) => connected.and_then(|s| s.set_nodelay(true).map(|()| s)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    connected.map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "cannot connect to {server}: connection refused; start a server with \"submeter \
             serve\", or specify one with --connect"
        ),
        _ => format!(
            "cannot connect to {server}: {e}; check --connect, \
             or try fewer --connections"
        ),
    })
}

/// Drives connection number `index` until `stop` is set or the requests of its role were sent, and
/// waits for the answers.
///
/// # Errors
/// One line that names the server and the remedy.
pub async fn drive(
    shared: &Shared,
    socket: &TcpStream,
    index: usize,
    role: Role,
    stop: watch::Receiver<bool>,
) -> Result<Tallies, String> {
    drive_from(shared, socket, index, role, Instant::now(), stop).await
}

/// The same as [`drive`], but answers count only if their requests were sent after a moment.
///
/// # Errors
/// The same as [`drive`].
pub async fn drive_from(
    shared: &Shared,
    socket: &TcpStream,
    index: usize,
    role: Role,
    counts_from: Instant,
    mut stop: watch::Receiver<bool>,
) -> Result<Tallies, String> {
    let (left, stream) = match role {
        Role::Mix { requests } => (requests, Stream::new(&shared.tenants, shared.seed, index)?),
        Role::Burst(burst, _) => {
            (u64::MAX, Stream::of(&shared.tenants, burst.tenant, shared.seed, index)?)
        }
    };
    let mut connection = Connection {
        shared,
        stream,
        memory: shared.tenants.iter().map(|_| Memory::default()).collect(),
        fills: VecDeque::new(),
        sent: VecDeque::new(),
        out: Vec::with_capacity(READ),
        written: 0,
        incoming: Vec::with_capacity(READ),
        tallies: Tallies::new(shared.tenants.len()).map_err(|e| e.to_string())?,
        left,
        // Spread over one interval; otherwise all connections would send at the same instant.
        due: Instant::now() + shared.interval.unwrap_or_default().mul_f64(phase(index)),
        silence: Silence::new(Instant::now()),
        behind: false,
        role,
        counts_from: Some(counts_from),
        stopping: false,
    };
    connection.run(socket, &mut stop).await?;
    // No request sent after the warm-up was answered.
    if connection.counts_from.is_some() {
        connection.tallies.begin();
    }
    Ok(connection.tallies)
}

impl Connection<'_> {
    async fn run(
        &mut self,
        socket: &TcpStream,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), String> {
        loop {
            self.stopping |= *stop.borrow();
            let ended = self.stopping || self.left == 0;
            if !ended {
                self.send_due();
            }
            self.write(socket)?;
            if ended && self.sent.is_empty() {
                return Ok(());
            }
            let is_lost = self.silence.look(Instant::now());
            if is_lost && !self.sent.is_empty() {
                return Err(self.lost("it has not answered for 10 s"));
            }
            let interest = if self.written < self.out.len() {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            tokio::select! {
                ready = socket.ready(interest) => {
                    ready.map_err(|e| self.failed(&e))?;
                }
                () = tokio::time::sleep_until(self.wake(ended).into()) => {}
                changed = stop.changed(), if !self.stopping => {
                    // An error means that the sender was dropped, which is a stop too.
                    self.stopping |= changed.is_err();
                }
            }
            self.read(socket)?;
        }
    }

    /// Returns when to check again even if the socket stays quiet.
    fn wake(&self, ended: bool) -> Instant {
        let full = self.sent.len() >= self.shared.pipeline;
        // With nothing in flight this wake-up is unnecessary but harmless.
        let lost = self.silence.looked + LOOK;
        if let Role::Burst(burst, started) = self.role
            && self.sent.is_empty()
        {
            // During a burst something is in flight, unless it began this instant.
            return burst.next(started, Instant::now());
        }
        if self.shared.interval.is_some() && !full && !ended { self.due.min(lost) } else { lost }
    }

    /// Encodes what may be sent now.
    fn send_due(&mut self) {
        let now = Instant::now();
        if let Role::Burst(burst, started) = self.role
            && burst.next(started, now) > now
        {
            return;
        }
        if self.sent.is_empty() {
            // The server owes no answers, so its silence begins with the requests sent now.
            self.silence.heard = now;
        }
        // The date matters only for times to live beyond 30 days, where an error of a second is
        // negligible.
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        while self.sent.len() < self.shared.pipeline && self.left > 0 {
            let at = match self.shared.interval {
                None => now,
                Some(_) if self.due > now => {
                    self.behind = false;
                    break;
                }
                // The latency of a request that was delayed by late answers counts from when it was
                // due. Otherwise a slow server would look fast, because it delays the very requests
                // that would show its slowness. A request that only the timer (1 ms resolution)
                // delayed counts from now.
                Some(interval) => {
                    let at = if self.behind { self.due } else { now };
                    self.due += interval;
                    at
                }
            };
            let (request, is_fill) = self.next();
            let before = self.out.len();
            self.encode(request, date);
            let bytes = self.out.len() - before;
            self.sent.push_back(Sent { request, bytes, at, is_fill });
            self.left -= 1;
        }
        self.behind |= self.sent.len() >= self.shared.pipeline && self.due <= now;
    }

    /// Returns the next request: a fill of an earlier miss, or one from the mix.
    ///
    /// Clients of a cache store what they missed, and most stores in the statistics are of this
    /// kind. Therefore each fill replaces one store of the mix.
    fn next(&mut self) -> (Request, bool) {
        if let Some((tenant, key)) = self.fills.pop_front() {
            return (self.stream.fill(tenant, key), true);
        }
        loop {
            let mut request = self.stream.draw();
            let memory = &mut self.memory[usize::from(request.tenant)];
            if request.verb.fills() && memory.filled > 0 {
                memory.filled -= 1;
                continue;
            }
            if request.verb == Verb::Cas {
                match memory.tokens.front() {
                    Some(&(key, _)) => request.key = key,
                    // There is no token yet: read one for the next `cas`.
                    None => request.verb = Verb::Gets,
                }
            }
            return (request, false);
        }
    }

    fn encode(&mut self, request: Request, date: Duration) {
        let tenant = &self.shared.tenants[usize::from(request.tenant)];
        let (verb, out) = (request.verb, &mut self.out);
        let shape = tenant.shape(request.key);
        let expires = exptime(request.ttl_s, date);
        out.extend_from_slice(verb.name().as_bytes());
        out.push(b' ');
        if matches!(verb, Verb::Gat | Verb::Gats) {
            out.extend_from_slice(format!("{expires} ").as_bytes());
        }
        tenant.write_key(request.key, out);
        let line = match verb {
            Verb::Get | Verb::Gets | Verb::Delete | Verb::Gat | Verb::Gats => String::new(),
            Verb::Incr | Verb::Decr => " 1".to_owned(),
            Verb::Touch => format!(" {expires}"),
            Verb::Append | Verb::Prepend => format!(" {} 0 {}", shape.flags(), shape.piece),
            Verb::Cas => {
                let tokens = &mut self.memory[usize::from(request.tenant)].tokens;
                let token = tokens.pop_front().map_or(0, |(_, token)| token);
                format!(" {} {expires} {} {token}", shape.flags(), Pattern::len(shape))
            }
            Verb::Set | Verb::Add | Verb::Replace => {
                format!(" {} {expires} {}", shape.flags(), Pattern::len(shape))
            }
        };
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
        match verb {
            Verb::Set | Verb::Add | Verb::Replace | Verb::Cas => {
                self.shared.pattern.write(shape, out);
                out.extend_from_slice(b"\r\n");
            }
            Verb::Append | Verb::Prepend => {
                self.shared.pattern.write_piece(shape, out);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
    }

    fn write(&mut self, socket: &TcpStream) -> Result<(), String> {
        while self.written < self.out.len() {
            match socket.try_write(&self.out[self.written..]) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(self.failed(&e)),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    fn read(&mut self, socket: &TcpStream) -> Result<(), String> {
        loop {
            self.incoming.reserve(READ);
            match socket.try_read_buf(&mut self.incoming) {
                Ok(0) => return Err(self.lost(CLOSED)),
                Ok(_) => self.take_answers()?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(self.failed(&e)),
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let now = Instant::now();
        // Moved out, so that an answer can borrow it while `self` changes.
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut taken = 0;
        let (mut answered, mut took) = (0, Duration::ZERO);
        while let Some(sent) = self.sent.pop_front() {
            match answer::parse(sent.request.verb, &incoming[taken..]) {
                Ok(None) => {
                    self.sent.push_front(sent);
                    break;
                }
                Ok(Some((answer, len))) => {
                    self.count(&sent, answer, len, now);
                    taken += len;
                    answered += 1;
                    took += now.saturating_duration_since(sent.at);
                }
                Err(line) => return Err(self.unexpected_answer(&sent, line)),
            }
        }
        if self.sent.is_empty() && taken < incoming.len() {
            return Err(format!(
                "{} sent {} without a request: is it a memcached-compatible server?",
                self.shared.server,
                excerpt(&incoming[taken..], 0)
            ));
        }
        incoming.drain(..taken);
        self.incoming = incoming;
        self.shared.progress.answered(answered, took);
        if answered > 0 {
            self.silence.heard = now;
        }
        Ok(())
    }

    fn count(&mut self, sent: &Sent, answer: Answer<'_>, len: usize, now: Instant) {
        let Sent { request, bytes, at, is_fill } = *sent;
        let index = usize::from(request.tenant);
        if self.counts_from.is_some_and(|from| at >= from) {
            self.counts_from = None;
            self.tallies.begin();
        }
        let tally = &mut self.tallies.tenants[index];
        tally.answered(request.verb, bytes, len, now.saturating_duration_since(at));
        tally.fills += u64::from(is_fill);
        match answer {
            Answer::Value { key, flags, data, token } => {
                tally.hits += 1;
                if let Some(token) = token {
                    let tokens = &mut self.memory[index].tokens;
                    tokens.truncate(TOKENS_MAX - 1);
                    tokens.push_back((request.key, token));
                }
                self.check(request, key, flags, data);
            }
            Answer::Miss => {
                tally.misses += 1;
                self.fills.push_back((request.tenant, request.key));
                let filled = &mut self.memory[index].filled;
                *filled = (*filled + 1).min(FILLED_MAX);
            }
            Answer::Done => tally.done += 1,
            Answer::NotStored => tally.not_stored += 1,
            Answer::Exists => tally.exists += 1,
            Answer::NotFound => tally.not_found += 1,
            Answer::Refused(_) => tally.refused += 1,
        }
    }

    /// Checks that the answer is for the requested key, and that the value belongs to that key.
    fn check(&mut self, request: Request, key: &[u8], flags: u32, data: &[u8]) {
        let tenant = &self.shared.tenants[usize::from(request.tenant)];
        let shape = tenant.shape(request.key);
        let mut asked = Vec::with_capacity(tenant.key_len());
        tenant.write_key(request.key, &mut asked);
        let what = if key != asked {
            Some(format!("got the item of key {}", key.escape_ascii()))
        } else if flags != shape.flags() {
            Some(format!("expected flags {}, got {flags}", shape.flags()))
        } else {
            self.shared.pattern.check(shape, data).err()
        };
        if let Some(what) = what {
            self.shared.progress.corrupt();
            self.tallies.corrupt(usize::from(request.tenant), || Corruption {
                key: asked.escape_ascii().to_string(),
                what,
            });
        }
    }

    /// Returns the message for a socket's error. Whether a server's exit shows as an end of file, a
    /// reset or a broken pipe depends on what was in flight.
    fn failed(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => self.lost(CLOSED),
            _ => self.lost(&error.to_string()),
        }
    }

    fn lost(&self, why: &str) -> String {
        let unanswered = self.sent.len();
        let requests: u64 = self.tallies.tenants.iter().map(super::tally::Tally::requests).sum();
        format!(
            "lost the connection to {}: {why} ({requests} requests of this connection answered, \
             {unanswered} not); check whether it is still running, or try fewer --connections",
            self.shared.server
        )
    }

    fn unexpected_answer(&self, sent: &Sent, line: &[u8]) -> String {
        format!(
            "{} answered {} to {}: {}",
            self.shared.server,
            excerpt(line, 0),
            sent.request.verb.name(),
            remedy(line)
        )
    }
}

/// Returns what to do about an answer that is no answer to the request.
fn remedy(line: &[u8]) -> &'static str {
    let says = |part: &[u8]| line.windows(part.len()).any(|at| at == part);
    if says(b"Too many open connections") {
        "try fewer --connections, or allow the server more"
    } else if says(b"unauthenticated") {
        "this load cannot log in: use a server that requires no login"
    } else {
        "is it a memcached-compatible server?"
    }
}

/// Returns the phase of a connection within an interval: halves, quarters, eighths and so on, so
/// that any number of connections is spread evenly.
fn phase(index: usize) -> f64 {
    f64::from((index as u32).reverse_bits()) / 2f64.powi(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_a_connection_has_its_remedy() {
        for (line, part) in [
            (&b"ERROR Too many open connections\r\n"[..], "--connections"),
            (b"CLIENT_ERROR unauthenticated\r\n", "log in"),
            (b"ERROR\r\n", "memcached-compatible"),
            (b"HTTP/1.1 400 Bad Request\r\n", "memcached-compatible"),
        ] {
            assert!(remedy(line).contains(part), "{}", line.escape_ascii());
        }
    }

    /// A stop of the process is no silence of the server; a server that is silent is given up.
    #[test]
    fn only_silence_that_could_be_heard_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::new(start);
        assert!(!(1..=9).any(|second| silence.look(at(second))));
        assert!(!silence.look(at(100)), "it was stopped");
        assert!(silence.look(at(101)), "ten looks found nothing");
        silence.heard = at(101);
        assert!(!silence.look(at(200)) && !(201..210).any(|second| silence.look(at(second))));
        assert!(silence.look(at(210)));
    }
}
