//! Executes requests: from a parsed request to its metered answer.

mod classic;
mod current_group;
mod meta;
mod meter;
mod stats;

use std::sync::Arc;

use submeter::refs::pin;

use crate::cache::{Cache, List};
use crate::clock::{Clock, Tick};
use crate::documents::Document;
use crate::output::Output;
use crate::protocol::{Refusal, Request, reply};
use crate::statistics::{Total, Totals};
use crate::tenant::{Account, Resolver};

use meter::{BatchMeter, Context, Effect, Kind};

pub(crate) use current_group::CurrentGroup;

/// The state of one connection: executes and meters its requests.
pub(crate) struct Session {
    cache: Cache,
    resolver: Resolver,
    meter: BatchMeter,
    now: Tick,
    /// The key, if there is one, whose value is being skipped. Not its tenant: the rest of the
    /// value may take long to arrive, and a waiting connection must not hold a deleted tenant.
    swallowing: Box<[u8]>,
}

/// What the connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    /// The answer has grown large: send it, then call [`Session::get`] for the rest.
    Pause(Paused),
    /// The answer is a list that [`Session::list`] gets.
    List(List),
    Close,
}

/// A retrieval that continues where it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    with_cas: bool,
    touch: Option<i64>,
    /// Where in the request's bytes the remaining keys begin.
    pub(crate) keys_at: usize,
    /// Bytes of the request that were not charged to a key yet.
    bytes_in: usize,
}

impl Session {
    pub(crate) fn new(cache: Cache) -> Session {
        let now = cache.store().clock.now();
        let resolver = Resolver::new(cache.tenants());
        let meter = BatchMeter::default();
        Session { cache, resolver, meter, now, swallowing: Box::default() }
    }

    /// Begins a batch whose bytes have just arrived.
    pub(crate) fn begin(&mut self) {
        let raw = self.cache.store().clock.raw();
        self.now = self.cache.store().clock.tick(raw);
        self.meter.begin(raw);
        self.cache.store().flush_if_due(self.now);
    }

    /// Continues after answers were sent.
    pub(crate) fn resume(&mut self) {
        let raw = self.cache.store().clock.raw();
        self.now = self.cache.store().clock.tick(raw);
        self.cache.store().flush_if_due(self.now);
    }

    /// Ends a batch: adds all that its requests consumed to the totals, and holds no tenant after
    /// that.
    pub(crate) fn settle(&mut self) {
        if self.cache.config().metering {
            let (meter, context) = self.meter_with_context();
            meter.flush(context);
        }
        self.resolver.forget();
    }

    fn meter_with_context(&mut self) -> (&mut BatchMeter, Context<'_>) {
        let Session { cache, resolver, meter, .. } = self;
        let context = Context { resolver, clock: &cache.store().clock, metrics: cache.metrics() };
        (meter, context)
    }

    fn totals(&self) -> &Totals {
        &self.cache.store().totals
    }

    /// Executes one request of `bytes_in` bytes.
    pub(crate) fn request(
        &mut self,
        request: Request<'_>,
        bytes_in: usize,
        current: &mut CurrentGroup,
        out: &mut Output,
    ) -> Next {
        let before = out.written();
        if self.cache.config().metering && !self.meter.may_share(bytes_in) {
            let (meter, context) = self.meter_with_context();
            meter.boundary(context);
        }
        let (account, effect) = match request {
            Request::Get { with_cas, touch, keys_at, keys } => {
                let paused = Paused { with_cas, touch, keys_at, bytes_in };
                return self.get(paused, keys, current, out);
            }
            Request::Meta(meta) => {
                self.totals().count(Total::Meta);
                self.meta(&meta, current, out)
            }
            Request::Quit => {
                self.account(Account::ROOT, Effect::new(Kind::Other), bytes_in, 0);
                return Next::Close;
            }
            Request::Shutdown { known: true } if self.cache.config().shutdown => {
                self.account(Account::ROOT, Effect::new(Kind::Other), bytes_in, 0);
                self.cache.ask_shutdown();
                return Next::Close;
            }
            Request::Stats { topic: b"tenants", .. } => return Next::List(List::Tenants),
            Request::Stats { topic: b"conns", .. } => return Next::List(List::Connections),
            Request::Stats { topic: b"detail", rest: b"dump" } => {
                return Next::List(List::Prefixes);
            }
            request => match self.classic(&request, current, out) {
                Some(done) => done,
                None => {
                    self.keyless(&request, out);
                    (Account::ROOT, Effect::new(Kind::Other))
                }
            },
        };
        self.account(account, effect, bytes_in, out.written() - before);
        Next::Go
    }

    /// Answers a client that has said who it is.
    pub(crate) fn login(&mut self, admitted: bool, bytes_in: usize, out: &mut Output) {
        let before = out.written();
        out.line(if admitted { "STORED" } else { reply::LOGIN_FAILED });
        let effect = Effect::new(Kind::Other);
        self.account(Account::ROOT, effect, bytes_in, out.written() - before);
    }

    /// Gets a list, and adds a request of `bytes_in` bytes with that answer to the totals.
    pub(crate) async fn list(&mut self, list: List, bytes_in: usize) -> Arc<Document> {
        let document = self.cache.list(list).await;
        self.account(Account::ROOT, Effect::new(Kind::Other), bytes_in, document.len());
        self.settle();
        document
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now.ms
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.cache.store().clock
    }

    /// Answers a request that was refused.
    pub(crate) fn refuse(&mut self, refusal: &Refusal<'_>, bytes_in: usize, out: &mut Output) {
        let before = out.written();
        if !refusal.quiet {
            out.line(refusal.reply);
        }
        self.totals().count_if(refusal.reply == reply::TOO_LARGE, Total::StoreTooLarge);
        let (account, effect) = match &refusal.store {
            Some(key) => {
                if refusal.purge {
                    self.cache.store().slot(key, self.now, &pin()).remove();
                }
                (self.resolve(key), Effect::new(Kind::Set))
            }
            None => (Account::ROOT, Effect::new(Kind::Other)),
        };
        self.account(account, effect, bytes_in, out.written() - before);
        self.swallowing = refusal.store.as_deref().map(Box::from).unwrap_or_default();
    }

    /// Counts bytes of a refused value.
    pub(crate) fn swallowed(&mut self, bytes: usize) {
        if self.cache.config().metering {
            let key = std::mem::take(&mut self.swallowing);
            let account = self.resolve(&key);
            let tenant = self.resolver.tenant(account);
            tenant.group.add(self.cache.metrics().bytes_in, bytes as u64);
            self.swallowing = key;
        }
    }

    #[inline]
    fn account(&mut self, account: Account, effect: Effect, bytes_in: usize, bytes_out: usize) {
        if self.cache.config().metering {
            let (meter, context) = self.meter_with_context();
            meter.add(account, effect, bytes_in, bytes_out);
            if !meter.may_share(bytes_in) {
                meter.boundary(context);
            }
        }
    }

    /// Finds the account of a key and enters its group.
    #[inline]
    fn enter(&mut self, key: &[u8], current: &mut CurrentGroup) -> Account {
        let account = self.resolve(key);
        self.enter_account(account, current);
        account
    }

    #[inline]
    fn enter_account(&self, account: Account, current: &mut CurrentGroup) {
        if self.cache.config().metering {
            current.move_to(&self.resolver.tenant(account).group);
        }
    }

    #[inline]
    fn resolve(&mut self, key: &[u8]) -> Account {
        if self.resolver.is_full() {
            self.settle();
        }
        self.resolver.resolve(self.cache.tenants(), key)
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
            Request::Stats { topic, rest } => stats::answer(&self.cache, topic, rest, out),
            Request::Shutdown { .. } if self.cache.config().shutdown => {
                out.line(reply::BAD_SHUTDOWN);
            }
            Request::Shutdown { .. } => out.line(reply::NO_SHUTDOWN),
            _ => {}
        }
    }
}
