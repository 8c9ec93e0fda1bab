//! One connection: reads, executes requests in batches, and sends all answers of a batch at once.
//!
//! A batch is the content of the buffer, up to a bound on requests and on bytes of answers; between
//! batches other connections get their turn. The server does not read while answers wait to be
//! sent, so that a client that does not read is no longer served and costs a bounded amount of
//! memory. Both what a connection holds while it waits for its client and the time it may wait are
//! bounded; memory is bounded for all connections together ([`BufferHold`]).

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use submeter::refs::pin;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::arrival::Arrival;
use super::buffers;
use super::stream::Stream;
use super::{Foreign, Hook};
use crate::cache::Cache;
use crate::cache::List;
use crate::connections::{BufferHold, Phase, Place, Unwelcome};
use crate::exec::{self, Next, Paused, Session};
use crate::output::{Output, SLICES_MAX};
use crate::protocol::{Access, Outcome, Parser, Refusal, Step, reply};
use crate::store;
use crate::users::Users;

/// Maximum number of requests in a batch: about a tenth of a millisecond of work.
pub(crate) const BATCH_MAX: usize = 256;

/// After this many malformed requests in a row, the other end does not speak this protocol.
const ERRORS_MAX: usize = 100;

/// How much to read, and for how long, from a client that was refused: if the server closed at
/// once, the kernel would discard the answer together with the unread bytes.
const LINGER_BYTES: usize = 1 << 20;
const LINGER: Duration = Duration::from_secs(1);

/// How long to look for bytes that arrived before the server was told to stop.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// Serves one connection until its client leaves or the server stops.
pub(super) async fn serve(
    stream: Stream,
    cache: Cache,
    users: Option<Users>,
    place: Place,
    on_foreign: Option<Hook<Foreign>>,
    stopped: watch::Receiver<bool>,
) {
    stream.send_at_once();
    let access = if users.is_some() { Access::Login } else { Access::Everything };
    let mut connection = Connection {
        arrival: Arrival::new(cache.clone()),
        ready_at: None,
        parser: Parser::new(cache.config().value_max, access),
        users,
        session: Session::new(&cache),
        hold: place.hold(),
        on_foreign,
        place,
        stream,
        input: Vec::new(),
        at: 0,
        wanted: 1,
        out: Output::default(),
        paused: None,
        errors: 0,
        has_released: false,
        is_last: false,
    };
    // An error means that the client is gone.
    let _ = connection.serve(stopped).await;
    // The same here: a client that does not notice the end is not waited for.
    let _ = timeout(LINGER, connection.stream.close()).await;
    buffers::give(connection.input);
}

struct Connection<'c> {
    arrival: Arrival,
    /// When the worker learned of the bytes that are read next, if it had to wait for them.
    ready_at: Option<u64>,
    stream: Stream,
    parser: Parser,
    users: Option<Users>,
    session: Session<'c>,
    place: Place,
    on_foreign: Option<Hook<Foreign>>,
    hold: BufferHold,
    input: Vec<u8>,
    /// The offset of the next request in `input`.
    at: usize,
    /// Number of bytes, counted from there, that parsing needs to continue.
    wanted: usize,
    out: Output,
    /// A retrieval at the front of the input whose answer is sent in parts, and its length.
    paused: Option<(Paused, usize)>,
    /// Malformed requests in a row.
    errors: usize,
    /// Whether the last batch removed items from the store.
    has_released: bool,
    /// The server is stopping: what has arrived is served, and nothing else.
    is_last: bool,
}

/// Why a batch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batch {
    /// The input holds no whole request.
    Drained,
    /// There may be more, but it is time to send or to yield.
    Long,
    /// The client sent `quit`.
    Quit,
    /// The client was refused.
    Refused,
    /// A request of this many bytes asks for a list.
    List(List, usize),
    /// The next request is over its tenant's rate for this long.
    Throttled(Duration),
}

impl Connection<'_> {
    async fn serve(&mut self, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        // Shows with one load what the future below waits for.
        let told = stopped.clone();
        // Unconstrained: it is polled once, and would not be ready in a task without budget.
        let mut stop = pin!(unconstrained(stopped.wait_for(|stopped| *stopped)));
        let mut asked: Option<Waker> = None;
        loop {
            self.settle().await;
            let is_between = self.at == self.input.len();
            let is_last = &mut self.is_last;
            // Not a `select!` of both: that would wait for the stop again in each batch, under a
            // lock that all connections share. The registered waker stays valid as long as it is
            // the task's.
            let arrived = poll_fn(|context| {
                if is_between && told.has_changed().unwrap_or(true) {
                    return Poll::Ready(Ok(!std::mem::replace(is_last, true)));
                }
                let (ready_at, waker) = self.arrival.next(context.waker());
                let mut waiting = Context::from_waker(waker);
                if let Poll::Ready(ready) = self.stream.poll_read_ready(&mut waiting) {
                    self.ready_at = ready_at;
                    return Poll::Ready(ready.map(|()| true));
                }
                // In the middle of a request only the end of the server's patience stops it.
                if is_between
                    && !asked.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
                {
                    if stop.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Ok(!std::mem::replace(is_last, true)));
                    }
                    asked = Some(context.waker().clone());
                }
                Poll::Pending
            });
            if !arrived.await? {
                // If it closed with unread bytes, the kernel would discard the last answers.
                return self.linger().await;
            }
            if self.read().await? == 0 {
                return Ok(());
            }
            if self.input.len() - self.at < self.wanted {
                continue;
            }
            match self.batches().await? {
                Batch::Quit => return Ok(()),
                Batch::Refused => return self.linger().await,
                _ => {}
            }
        }
    }

    /// Executes and answers what the input holds. Returns why it stopped.
    async fn batches(&mut self) -> io::Result<Batch> {
        self.session.begin(self.ready_at.take());
        loop {
            let before = self.at;
            if self.out.held() == 0 {
                self.out.set_buffer(buffers::take());
            }
            let batch = self.work();
            // Another byte of the same request is no progress: a client could send one a minute.
            if self.at != before || batch != Batch::Drained {
                self.place.seat.enter(Phase::Idle, self.session.now_ms());
            }
            // If the client is gone, the buffer is dropped too, because it holds answers that
            // cannot be sent.
            self.send().await?;
            if let Batch::List(list, bytes_in) = batch {
                self.list(list, bytes_in).await?;
            }
            let room = self.session.room_wanted();
            if room > 0 {
                self.place.seat.enter(Phase::Sending, self.session.now_ms());
                self.shrink();
                // Includes the buffer of `out`, which stays.
                self.account(self.input.capacity(), room).await;
            } else {
                buffers::give(self.out.take_buffer());
            }
            if self.has_released {
                self.session.keep_garbage_low().await;
            }
            match batch {
                Batch::Long | Batch::List(..) => {
                    self.session.free();
                    self.session.count_yield();
                    tokio::task::yield_now().await;
                }
                // For no longer than the server's patience with requests.
                Batch::Throttled(time) => self.session.wait_out(time).await,
                Batch::Drained => break,
                Batch::Quit | Batch::Refused => return Ok(batch),
            }
            self.session.resume();
        }
        if self.at == self.input.len() {
            self.at = 0;
            buffers::give(std::mem::take(&mut self.input));
        }
        Ok(Batch::Drained)
    }

    /// Prepares for a wait: records what it waits for, releases what is not needed in the meantime,
    /// and accounts for the rest.
    async fn settle(&mut self) {
        let held = self.input.len() - self.at;
        if held > 0 {
            if self.place.seat.phase() != Phase::Reading {
                self.place.seat.enter(Phase::Reading, self.session.clock().now().ms);
            }
            self.shrink();
        }
        self.account(self.input.capacity(), 0).await;
    }

    /// Releases a large input buffer that is not needed.
    fn shrink(&mut self) {
        let held = self.input.len() - self.at;
        let is_large = self.input.capacity() > buffers::BUFFER_BYTES;
        if is_large && self.wanted.max(held) <= buffers::BUFFER_BYTES {
            let mut small = Vec::with_capacity(buffers::BUFFER_BYTES);
            small.extend_from_slice(&self.input[self.at..]);
            buffers::give(std::mem::replace(&mut self.input, small));
            self.at = 0;
        }
    }

    /// Accounts for an input buffer of this size, for the rest of an announced value, for unsent
    /// answers, and for a value of `room` bytes that waits for room to become an answer.
    async fn account(&mut self, input: usize, room: usize) {
        let input = if self.at < self.input.len() { input.max(self.wanted) } else { input };
        let held = buffers::excess(input) + buffers::excess(self.out.held() + room);
        self.hold.set(held, self.session.clock()).await;
    }

    /// Reads what has arrived, after making room for it.
    async fn read(&mut self) -> io::Result<usize> {
        if self.input.capacity() == 0 {
            self.input = buffers::take();
        }
        let held = self.input.len() - self.at;
        if self.wanted.max(held + 1) > self.input.capacity() - self.at {
            self.input.drain(..self.at);
            self.at = 0;
            if held > 0 && self.place.seat.phase() != Phase::Reading {
                self.place.seat.enter(Phase::Reading, self.session.clock().now().ms);
            }
            // Grown as bytes arrive, not as they are announced: an announcement costs a client
            // nothing. Grown by a whole buffer at least, since the end of the line may be anywhere.
            let missing = self.wanted.saturating_sub(held);
            let room = missing.clamp(buffers::BUFFER_BYTES, held.max(buffers::BUFFER_BYTES));
            self.account((held + room).max(self.input.capacity()), 0).await;
            self.input.reserve_exact(room);
        }
        if self.is_last && held == 0 {
            // Not a single poll: what has arrived may not have been reported to the runtime yet.
            let read = self.stream.read_buf(&mut self.input);
            return timeout(LAST_LOOK, read).await.unwrap_or(Ok(0));
        }
        self.stream.read_buf(&mut self.input).await
    }

    /// Executes what the input holds and adds it to the totals before the answers leave, so that a
    /// client that has its answer finds the request in the totals. Then sends what the socket takes
    /// at once.
    fn work(&mut self) -> Batch {
        let let_go = store::let_go();
        let guard = pin();
        let mut batch = self.session.batch(&guard);
        let ended = self.batch(&mut batch);
        // The last request's tenant is charged for both: sending takes longer than a small request,
        // and most batches have one tenant.
        let current = batch.end();
        drop(guard);
        // `send` will meet the same error.
        let _ = self.send_now();
        drop(current);
        self.has_released = store::let_go() != let_go;
        store::collect_if_due();
        ended
    }

    /// Executes what the input holds.
    fn batch(&mut self, batch: &mut exec::Batch<'_>) -> Batch {
        for _ in (0..BATCH_MAX).take_while(|_| !store::is_due()) {
            if self.paused.is_some() || self.session.is_full(&self.out) {
                match self.go_on(batch) {
                    Some(ended) => return ended,
                    None => continue,
                }
            }
            let input = &self.input[self.at..];
            if input.len() < self.wanted {
                return Batch::Drained;
            }
            let Step { consumed, outcome } = self.parser.step(input);
            let mut next = Next::Go;
            match outcome {
                Outcome::More { wanted } => {
                    self.wanted = wanted;
                    return Batch::Drained;
                }
                Outcome::Swallowed => self.session.swallowed(consumed, batch),
                Outcome::Request(request) => {
                    self.errors = 0;
                    next = self.session.request(request, consumed, batch, &mut self.out);
                }
                Outcome::Login(login) => {
                    let entered = self.users.as_ref().and_then(|u| u.enter(login, &self.place));
                    if let Some(ended) = self.logged_in(entered, consumed, batch) {
                        return ended;
                    }
                }
                Outcome::Refused(refusal) => {
                    self.errors += 1;
                    self.session.refuse(&refusal, consumed, batch, &mut self.out);
                }
                Outcome::Foreign(protocol) => {
                    self.tell_of(protocol);
                    let unread = self.input.len() - self.at;
                    let silence = Refusal::new(reply::ERROR).quiet_if(true);
                    self.session.refuse(&silence, unread, batch, &mut self.out);
                    return Batch::Refused;
                }
            }
            if self.errors == ERRORS_MAX {
                let refusal = Refusal::new(reply::TOO_MANY_ERRORS);
                self.session.refuse(&refusal, 0, batch, &mut self.out);
                return Batch::Refused;
            }
            match next {
                Next::Go => self.at += consumed,
                Next::Pause(paused) => {
                    self.paused = Some((paused, consumed));
                    return Batch::Long;
                }
                Next::List(list) => {
                    self.at += consumed;
                    self.wanted = 1;
                    return Batch::List(list, consumed);
                }
                Next::Wait(time) => return Batch::Throttled(time),
                Next::Again => return Batch::Long,
                Next::PauseFor(paused, time) => {
                    self.paused = Some((paused, consumed));
                    return Batch::Throttled(time);
                }
                Next::Close => return Batch::Quit,
            }
            self.wanted = 1;
        }
        Batch::Long
    }

    /// Answers a client that has identified itself. Returns why the connection ends, if it does.
    fn logged_in(
        &mut self,
        entered: Option<(Access, Result<(), Unwelcome>)>,
        consumed: usize,
        batch: &mut exec::Batch<'_>,
    ) -> Option<Batch> {
        let (answer, ended) = match entered {
            Some((access, Ok(()))) => {
                self.errors = 0;
                self.parser.allow(access);
                (reply::LOGGED_IN, None)
            }
            Some((_, Err(Unwelcome::TooMany))) => (reply::TOO_MANY_OF_USER, Some(Batch::Refused)),
            Some((_, Err(Unwelcome::Gone))) => (reply::TOO_MANY_OF_USER, Some(Batch::Quit)),
            None => {
                self.errors += 1;
                (reply::LOGIN_FAILED, None)
            }
        };
        self.session.login(answer, consumed, batch, &mut self.out);
        ended
    }

    /// Tells the program about a client that speaks another protocol.
    fn tell_of(&self, protocol: Option<&'static str>) {
        if let (Some(protocol), Some(Hook(hook))) = (protocol, &self.on_foreign) {
            hook(&Foreign { protocol, client: self.place.seat.client().to_owned() });
        }
    }

    /// Resumes an interrupted retrieval. Returns why there are no more answers now.
    fn go_on(&mut self, batch: &mut exec::Batch<'_>) -> Option<Batch> {
        if self.session.is_full(&self.out) {
            return Some(Batch::Long);
        }
        let (paused, consumed) = self.paused.take()?;
        let line = &self.input[self.at..self.at + consumed];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.session.get(paused, &line[paused.keys_at..], batch, &mut self.out) {
            Next::Pause(paused) => {
                self.paused = Some((paused, consumed));
                Some(Batch::Long)
            }
            Next::PauseFor(paused, time) => {
                self.paused = Some((paused, consumed));
                Some(Batch::Throttled(time))
            }
            _ => {
                self.at += consumed;
                self.wanted = 1;
                None
            }
        }
    }

    /// Sends what the socket takes without waiting.
    fn send_now(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = self.out.slices(&mut slices);
            match self.stream.try_write_vectored(&slices[..filled]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.out.sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends every answer that is left.
    async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() && self.stream.is_flushed() {
            return Ok(());
        }
        // A client that does not read must not hold a deleted tenant: its request at the front asks
        // again afterwards.
        self.session.forget_wait();
        self.place.seat.enter(Phase::Sending, self.session.clock().now().ms);
        while !self.out.is_empty() {
            self.account(self.input.capacity(), 0).await;
            self.stream.writable().await?;
            self.send_now()?;
        }
        self.stream.flush().await?;
        self.place.seat.enter(Phase::Idle, self.session.clock().now().ms);
        Ok(())
    }

    /// Sends a list, made elsewhere, a part at a time.
    async fn list(&mut self, list: List, bytes_in: usize) -> io::Result<()> {
        let document = self.session.list(list, bytes_in).await;
        let mut at = 0;
        loop {
            let part = document.part(at).map_err(io::Error::other)?;
            if part.is_empty() {
                return Ok(());
            }
            at += part.len();
            self.out.bytes(&part);
            self.send_now()?;
            self.send().await?;
            // Others have their turn, even when the client reads faster than this writes.
            tokio::task::yield_now().await;
        }
    }

    /// Closes in a way that lets the last answer arrive.
    async fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let drain = async {
            let mut left = LINGER_BYTES;
            self.input.clear();
            while left > 0 {
                match self.stream.read_buf(&mut self.input).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => break,
                }
                self.input.clear();
            }
        };
        // The server does not wait for a client that neither reads nor leaves.
        let _ = timeout(LINGER, drain).await;
        Ok(())
    }
}
