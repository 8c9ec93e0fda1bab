//! Carries requests out: from a parsed request to its answer, metered.

mod classic;
mod meta;
mod meter;
mod stats;

use std::sync::Arc;

use crate::cache::Cache;
use crate::protocol::{Refusal, Request, reply};
use crate::server::Output;
use crate::store::Tick;
use crate::tenant::{Resolver, Tenant};

use meter::{Effect, Kind, Meter};

/// Carries out the requests of one connection.
pub(crate) struct Session {
    cache: Cache,
    resolver: Resolver,
    meter: Meter,
    now: Tick,
    /// Whose value is being swallowed.
    swallowing: Option<Arc<Tenant>>,
}

/// What the connection has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    /// The answer has grown large: send it, then call [`Session::get`] for the rest.
    Pause(Paused),
    Close,
}

/// A retrieval that goes on where it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paused {
    with_cas: bool,
    touch: Option<i64>,
    /// Where in the request's bytes the remaining keys begin.
    pub(crate) keys_at: usize,
    /// Bytes of the request that no key was charged for yet.
    bytes_in: usize,
}

impl Session {
    pub(crate) fn new(cache: Cache) -> Session {
        let now = cache.store().clock.now();
        Session {
            cache,
            resolver: Resolver::default(),
            meter: Meter::default(),
            now,
            swallowing: None,
        }
    }

    /// Begins a batch: its bytes have just arrived.
    pub(crate) fn begin(&mut self) {
        let raw = self.cache.store().clock.raw();
        self.now = self.cache.store().clock.tick(raw);
        self.meter.begin(raw);
        self.cache.store().flush_if_due(self.now);
    }

    /// Goes on after answers were sent.
    pub(crate) fn resume(&mut self) {
        let raw = self.cache.store().clock.raw();
        self.now = self.cache.store().clock.tick(raw);
        self.meter.resume(raw);
        self.cache.store().flush_if_due(self.now);
    }

    /// Ends a batch: all that its requests consumed is on the books after this.
    pub(crate) fn settle(&mut self) {
        if self.cache.config().metering {
            self.meter.flush(&self.cache.store().clock, self.cache.metrics());
        }
    }

    /// Carries out one request of `bytes_in` bytes.
    pub(crate) fn request(
        &mut self,
        request: Request<'_>,
        bytes_in: usize,
        out: &mut Output,
    ) -> Next {
        let before = out.written();
        let (tenant, effect) = match request {
            Request::Get { with_cas, touch, keys_at, keys } => {
                let paused = Paused { with_cas, touch, keys_at, bytes_in };
                return self.get(paused, keys, out);
            }
            Request::Meta(meta) => self.meta(&meta, out),
            Request::Quit => {
                self.account_root(bytes_in, 0);
                return Next::Close;
            }
            request => match self.classic(&request, out) {
                Some(done) => done,
                None => {
                    self.keyless(&request, out);
                    self.account_root(bytes_in, out.written() - before);
                    return Next::Go;
                }
            },
        };
        self.account(&tenant, effect, bytes_in, out.written() - before);
        Next::Go
    }

    /// Answers a request that was refused.
    pub(crate) fn refuse(&mut self, refusal: &Refusal<'_>, bytes_in: usize, out: &mut Output) {
        let before = out.written();
        if !refusal.quiet {
            out.line(refusal.reply);
        }
        let Some(key) = &refusal.store else {
            self.account_root(bytes_in, out.written() - before);
            self.swallowing = None;
            return;
        };
        let tenant = self.tenant(key);
        if refusal.purge {
            self.cache.store().slot(key, self.now).remove();
        }
        self.account(&tenant, Effect::new(Kind::Set), bytes_in, out.written() - before);
        self.swallowing = Some(tenant);
    }

    /// Accounts for bytes of a refused value.
    pub(crate) fn swallowed(&mut self, bytes: usize) {
        if self.cache.config().metering {
            let tenant = self.swallowing.as_ref().unwrap_or(self.cache.tenants().root());
            self.meter.turn(tenant, &self.cache.store().clock, self.cache.metrics());
            self.meter.add_bytes(bytes, 0);
        }
    }

    /// Accounts for bytes that belong to no request, and for the answer to them.
    pub(crate) fn account_root(&mut self, bytes_in: usize, bytes_out: usize) {
        let root = Arc::clone(self.cache.tenants().root());
        self.account(&root, Effect::new(Kind::Other), bytes_in, bytes_out);
    }

    fn account(&mut self, tenant: &Arc<Tenant>, effect: Effect, bytes_in: usize, bytes_out: usize) {
        if self.cache.config().metering {
            let (clock, metrics) = (&self.cache.store().clock, self.cache.metrics());
            self.meter.turn(tenant, clock, metrics);
            self.meter.add(effect, bytes_in, bytes_out);
            self.meter.boundary(clock, metrics);
        }
    }

    fn tenant(&mut self, key: &[u8]) -> Arc<Tenant> {
        Arc::clone(self.resolver.resolve(self.cache.tenants(), key))
    }

    /// Answers what has no key.
    fn keyless(&self, request: &Request<'_>, out: &mut Output) {
        match request {
            Request::Noop => out.line("MN"),
            Request::FlushAll { delay, quiet } => {
                if *delay > 0 {
                    self.cache.store().flush_at(self.now.deadline_ms(*delay));
                } else {
                    self.cache.store().flush();
                }
                if !quiet {
                    out.line("OK");
                }
            }
            Request::Verbosity { quiet: false } => out.line("OK"),
            Request::Version => out.line(stats::VERSION_LINE),
            Request::Stats { topic } => stats::answer(&self.cache, topic, out),
            Request::Shutdown => out.line(reply::NO_SHUTDOWN),
            _ => {}
        }
    }
}
