//! Requests over their tenant's rate, or whose tenant owes CPU time: refused, or made to wait. Also
//! requests without memory.

use std::time::Duration;

use tokio::time::timeout;

use super::batch::{HeldBack, When};
use super::{Batch, Effect, Kind, Next, Session};
use crate::limits::OverRate;
use crate::output::Output;
use crate::protocol::{Request, Verb, reply, token};
use crate::tenant::{Account, Tenant};

impl Session<'_> {
    /// Takes a request with one key from its tenant's rate, if the tenant owes no CPU time. Returns
    /// the next step if it is held back. A retrieval takes key by key, but the debts of its keys'
    /// tenants are checked here, before any key is answered.
    #[inline]
    pub(super) fn admit(
        &mut self,
        request: &Request<'_>,
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Option<Next> {
        let waited = self.waits_in.take();
        if !self.cache.tenants().has_rates() {
            return None;
        }
        let (key, kind, quiet) = match request {
            Request::Store { key, quiet, .. } => (*key, Kind::Set, *quiet),
            Request::Delete { key, quiet } => (*key, Kind::Delete, *quiet),
            Request::Touch { key, quiet, .. } => (*key, Kind::Touch, *quiet),
            Request::Arithmetic { key, quiet, .. } => (*key, Kind::Arithmetic, *quiet),
            // Errors of meta commands are reported, quiet or not.
            Request::Meta(meta) => (&meta.key[..], kind(meta.verb), false),
            Request::Get { touch, keys, .. } => {
                let kind = if touch.is_some() { Kind::Touch } else { Kind::Get };
                let (account, held) = owing(keys, batch)?;
                let held = held.after(waited.as_ref(), &batch.resolver.tenant(account).group);
                return Some(self.hold_back(account, held, (kind, false), bytes_in, batch, out));
            }
            _ => return None,
        };
        let account = batch.resolve(key);
        let held = batch.admit(account).and_then(|()| batch.take(account)).err()?;
        let held = held.after(waited.as_ref(), &batch.resolver.tenant(account).group);
        Some(self.hold_back(account, held, (kind, quiet), bytes_in, batch, out))
    }

    /// Refuses a request, or lets it wait.
    pub(super) fn hold_back(
        &mut self,
        account: Account,
        held: HeldBack,
        (kind, quiet): (Kind, bool),
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Next {
        // A refusal is work too: for this tenant, not for the previous one on the connection.
        batch.work_for(account);
        let held = match self.wait(account, held, batch) {
            Ok(wait) => return Next::Wait(wait),
            Err(held) => held,
        };
        let before = out.written();
        if !quiet {
            refuse(held, out);
        }
        self.account(batch, account, Effect::new(kind), bytes_in, out.written() - before);
        Next::Go
    }

    /// Returns how long a client waits before its request is retried, or why it is refused.
    fn wait(
        &mut self,
        account: Account,
        held: HeldBack,
        batch: &Batch<'_>,
    ) -> Result<Duration, HeldBack> {
        let config = self.cache.config();
        let has_time = match held.when {
            _ if config.over_rate != OverRate::Wait => false,
            When::After(after) => after <= config.request_timeout,
            When::Unknown => {
                let waited_ns = self.clock().between_ns(self.arrival, self.clock().raw());
                Duration::from_nanos(waited_ns) < config.request_timeout
            }
            When::Never => false,
        };
        if !has_time {
            return Err(held);
        }
        let group = batch.resolver.tenant(account).group.try_clone_live();
        self.waits_in = Some(group.ok_or(HeldBack { when: When::Never, ..held })?);
        Ok(match held.when {
            When::After(after) => after.min(LOOK),
            _ => LOOK_AGAIN,
        })
    }

    /// Waits for nothing: releases the tenant whose rate the request at the front waits for.
    pub(crate) fn forget_wait(&mut self) {
        self.waits_in = None;
    }

    /// Waits for that time, or until the tenant of the request at the front is deleted. After
    /// [`forget_wait`](Session::forget_wait) it returns at once. That cannot spin: everything is
    /// sent by then, so the next wait of the same request is not forgotten.
    pub(crate) async fn wait_out(&mut self, time: Duration) {
        if let Some(group) = &self.waits_in {
            // Either way the request is retried.
            let _ = timeout(time, group.killed()).await;
        }
    }
}

impl Session<'_> {
    /// Returns the answer when there is no memory to store something: memcached's, unless the
    /// tenant may have none at all, such as a tenant of a fleet without a lease. In that case no
    /// memory is short.
    pub(super) fn no_memory(&self, tenant: &Tenant) -> &'static str {
        match tenant.group.usage_at_most(self.cache.metrics().memory).limit {
            Some(0) => reply::NO_MEMORY_GRANTED,
            _ => reply::NO_MEMORY,
        }
    }
}

/// Returns the first of the tenants of these keys that owes CPU time. The check is charged to the
/// first of them. A tenant is not asked again for its next key, because a soft budget counts each
/// query.
fn owing(mut keys: &[u8], batch: &mut Batch<'_>) -> Option<(Account, HeldBack)> {
    let mut asked = None;
    loop {
        let (key, rest) = token::first(keys);
        if key.is_empty() {
            return None;
        }
        let account = batch.resolve(key);
        if asked.is_none() {
            batch.work_for(account);
        }
        if asked.replace(account) != Some(account)
            && let Err(held) = batch.admit(account)
        {
            return Some((account, held));
        }
        keys = rest;
    }
}

fn kind(verb: Verb) -> Kind {
    match verb {
        Verb::Get => Kind::Get,
        Verb::Set(_) => Kind::Set,
        Verb::Delete => Kind::Delete,
        Verb::Arithmetic(_) => Kind::Arithmetic,
        Verb::Debug => Kind::Debug,
    }
}

/// The longest time until a retry, as for [`submeter::Group::take`]: the limit may have been raised
/// or lifted meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// How often to retry when it is unknown when something is granted, as on a server without a lease:
/// often compared with the seconds that a first lease takes, and seldom compared with the cost of a
/// look.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Tells a client when to retry. The tenant is not named: a name may contain a line's end.
fn refuse(held: HeldBack, out: &mut Output) {
    out.bytes(b"SERVER_ERROR ");
    out.bytes(held.of.as_bytes());
    let after = match held.when {
        When::After(after) => after,
        When::Unknown => return out.line(": none is granted for now"),
        When::Never => return out.line(": the tenant was deleted"),
    };
    let after_ms = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    out.bytes(b": retry after ");
    out.number(after_ms);
    out.line(" ms");
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::output::SLICES_MAX;

    #[test]
    fn a_client_is_told_when_to_return_if_known() {
        for (when, told) in [
            (When::After(Duration::from_micros(1_500)), "retry after 2 ms"),
            (When::After(Duration::from_secs(365 * 24 * 3600)), "retry after 31536000000 ms"),
            (When::Unknown, "none is granted for now"),
            (When::Never, "the tenant was deleted"),
        ] {
            let mut out = Output::default();
            refuse(HeldBack { when, of: "too many requests" }, &mut out);
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            assert_eq!(out.slices(&mut slices), 1);
            let said = str::from_utf8(&slices[0]).expect("ASCII");
            assert_eq!(said, format!("SERVER_ERROR too many requests: {told}\r\n"));
        }
    }
}
