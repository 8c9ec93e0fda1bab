//! Executes requests: from a parsed request to its metered answer.

mod batch;
mod classic;
mod current_group;
mod foreign_names;
mod meta;
mod meter;
mod rate;
mod room;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use submeter::Group;
use submeter::refs::{Guard, pin};
use submeter_documents::Document;

use crate::cache::{Cache, List};
use crate::clock::{Clock, Tick};
use crate::output::Output;
use crate::protocol::{Refusal, Request, Verb, reply};
use crate::statistics::{Total, Totals};
use crate::tenant::Account;

use meter::{Effect, Kind};

pub(crate) use batch::Batch;

/// The state of one connection: executes and meters its requests.
pub(crate) struct Session<'c> {
    cache: &'c Cache,
    now: Tick,
    /// When the bytes in work could be read, and when this batch of them began.
    arrival: u64,
    began: u64,
    /// Number of bytes to hold room for before the request at the front continues, if its value
    /// waits for that.
    room: usize,
    /// The key, if there is one, whose value is being skipped. It is not the key's tenant: the rest
    /// of the value may take long to arrive, and a waiting connection must not hold a deleted
    /// tenant.
    swallowing: Box<[u8]>,
    /// The group of the tenant for whose rate the request at the front waits.
    waits_in: Option<Group>,
}

/// The next step of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    /// The answer has grown large, or waits for room: send it, then call [`Session::get`] for the
    /// rest.
    Pause(Paused),
    /// Nothing was done: retry after this time.
    Wait(Duration),
    /// Nothing was done: hold [`Session::room`], then retry.
    Again,
    /// The same as [`Next::Pause`], after this time.
    PauseFor(Paused, Duration),
    /// The answer is a list that [`Session::list`] gets.
    List(List),
    Close,
}

/// A retrieval that continues where it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    with_cas: bool,
    touch: Option<i64>,
    /// The offset of the remaining keys in the request's bytes.
    pub(crate) keys_at: usize,
    /// Bytes of the request that have not been charged to a key yet.
    bytes_in: usize,
}

impl<'c> Session<'c> {
    pub(crate) fn new(cache: &'c Cache) -> Session<'c> {
        let arrival = cache.store().clock.raw();
        let now = cache.store().clock.tick(arrival);
        let (began, room, swallowing, waits_in) = (arrival, 0, Box::default(), None);
        Session { cache, now, arrival, began, room, swallowing, waits_in }
    }

    /// Starts work on bytes that could be read since `ready_at`, or have just arrived.
    pub(crate) fn begin(&mut self, ready_at: Option<u64>) {
        self.resume();
        self.arrival = ready_at.unwrap_or(self.began);
    }

    /// Records that the rest could be worked on from now on, and not before: until now the client
    /// was slow to take its answers, or its own requests were in front, which is its own doing.
    /// From here on, time that others take counts as a wait.
    pub(crate) fn free(&mut self) {
        self.arrival = self.cache.store().clock.raw();
    }

    /// Continues after answers were sent.
    pub(crate) fn resume(&mut self) {
        self.began = self.cache.store().clock.raw();
        self.now = self.cache.store().clock.tick(self.began);
        self.cache.store().flush_if_due(self.now);
    }

    /// Returns a batch to execute requests in.
    pub(crate) fn batch<'g>(&self, guard: &'g Guard) -> Batch<'g>
    where
        'c: 'g,
    {
        Batch::new(self.cache, guard, self.arrival, self.began)
    }

    fn totals(&self) -> &'c Totals {
        &self.cache.store().totals
    }

    /// Executes one request of `bytes_in` bytes.
    pub(crate) fn request(
        &mut self,
        request: Request<'_>,
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Next {
        let before = out.written();
        // A request that waited for room has already passed the rate.
        if self.room == 0
            && let Some(next) = self.admit(&request, bytes_in, batch, out)
        {
            return next;
        }
        let (account, effect) = match request {
            Request::Get { with_cas, touch, keys_at, keys } => {
                let paused = Paused { with_cas, touch, keys_at, bytes_in };
                return self.get(paused, keys, batch, out);
            }
            Request::Meta(meta) => {
                let wants_value = meta.verb == Verb::Get && meta.flags.value;
                let guard = batch.resolver.guard();
                if wants_value && self.lacks_room(&meta.key, meta.flags.cas, guard) {
                    return Next::Again;
                }
                self.totals().count(Total::Meta);
                self.meta(&meta, batch, out)
            }
            Request::Quit => {
                self.account(batch, Account::ROOT, Effect::new(Kind::Other), bytes_in, 0);
                return Next::Close;
            }
            Request::Shutdown { known: true } if self.cache.config().shutdown => {
                self.account(batch, Account::ROOT, Effect::new(Kind::Other), bytes_in, 0);
                self.cache.ask_shutdown();
                return Next::Close;
            }
            Request::Stats { topic: b"tenants", .. } => return Next::List(List::Tenants),
            Request::Stats { topic: b"conns", .. } => return Next::List(List::Connections),
            Request::Stats { topic: b"detail", rest: b"dump" } => {
                return Next::List(List::Prefixes);
            }
            request => match self.classic(&request, batch, out) {
                Some(done) => done,
                None => {
                    self.keyless(&request, out);
                    (Account::ROOT, Effect::new(Kind::Other))
                }
            },
        };
        self.account(batch, account, effect, bytes_in, out.written() - before);
        Next::Go
    }

    /// Answers a client that has identified itself.
    pub(crate) fn login(
        &self,
        answer: &str,
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) {
        let before = out.written();
        out.line(answer);
        self.totals().count(Total::Logins);
        self.totals().count_if(answer != reply::LOGGED_IN, Total::LoginsFailed);
        let effect = Effect::new(Kind::Other);
        self.account(batch, Account::ROOT, effect, bytes_in, out.written() - before);
    }

    /// Gets a list, and adds a request of `bytes_in` bytes with that answer to the totals.
    pub(crate) async fn list(&self, list: List, bytes_in: usize) -> Arc<Document> {
        let document = self.cache.list(list).await;
        let guard = pin();
        let mut batch = self.batch(&guard);
        let other = Effect::new(Kind::Other);
        self.account(&mut batch, Account::ROOT, other, bytes_in, document.len());
        batch.end();
        document
    }

    /// Waits until enough of what has left the store is freed.
    pub(crate) async fn keep_garbage_low(&self) {
        self.cache.store().keep_garbage_low().await;
    }

    /// Counts that others had their turn before everything that had arrived was done.
    pub(crate) fn count_yield(&self) {
        self.totals().count(Total::Yields);
    }

    /// Returns how much room the waiting value needs; 0 if none waits.
    pub(crate) fn room_wanted(&self) -> usize {
        self.room
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now.ms
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.cache.store().clock
    }

    /// Answers a refused request.
    pub(crate) fn refuse(
        &mut self,
        refusal: &Refusal<'_>,
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) {
        let before = out.written();
        if !refusal.quiet {
            out.line(refusal.reply);
        }
        self.totals().count_if(refusal.reply == reply::TOO_LARGE, Total::StoreTooLarge);
        let (account, effect) = match &refusal.store {
            Some(key) => {
                if refusal.purge {
                    self.cache.store().slot(key, self.now, batch.resolver.guard()).remove();
                }
                (batch.resolve(key), Effect::new(Kind::Set))
            }
            None => (Account::ROOT, Effect::new(Kind::Other)),
        };
        self.account(batch, account, effect, bytes_in, out.written() - before);
        self.swallowing = refusal.store.as_deref().map(Box::from).unwrap_or_default();
    }

    /// Counts bytes of a refused value.
    pub(crate) fn swallowed(&self, bytes: usize, batch: &mut Batch<'_>) {
        if self.cache.config().metering {
            let account = batch.resolve(&self.swallowing);
            batch.meter.add_bytes(account, bytes, 0);
        }
    }

    #[inline]
    fn account(
        &self,
        batch: &mut Batch<'_>,
        account: Account,
        effect: Effect,
        bytes_in: usize,
        bytes_out: usize,
    ) {
        if self.cache.config().metering {
            batch.meter.add(account, effect, bytes_in, bytes_out);
        }
    }

    /// Answers a request without a key.
    fn keyless(&self, request: &Request<'_>, out: &mut Output) {
        match request {
            Request::Noop => out.line("MN"),
            Request::FlushAll { delay, quiet } => {
                self.totals().count(Total::Flushes);
                let allowed = self.cache.config().flush_all;
                if allowed && *delay > 0 {
                    self.cache.store().flush_at(self.now.deadline_ms(*delay));
                } else if allowed {
                    self.cache.store().flush();
                }
                if !quiet {
                    out.line(if allowed { "OK" } else { reply::NO_FLUSH });
                }
            }
            Request::Verbosity { quiet: false } => out.line("OK"),
            Request::Version => out.line(stats::VERSION_LINE),
            Request::Stats { topic, rest } => stats::answer(self.cache, topic, rest, out),
            Request::Shutdown { .. } if self.cache.config().shutdown => {
                out.line(reply::BAD_SHUTDOWN);
            }
            Request::Shutdown { .. } => out.line(reply::NO_SHUTDOWN),
            _ => {}
        }
    }
}
