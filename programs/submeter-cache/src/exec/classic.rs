//! The commands of the classic protocol.

use std::sync::Arc;

use submeter::Charge;
use submeter::refs::{Guard, RcuBorrow, pin};

use super::{Batch, Effect, Kind, Next, Paused, Session};
use crate::item::{BINARY_KEY, Draft, STALE, WON};
use crate::output::Output;
use crate::protocol::{Mode, Request, reply, token};
use crate::statistics::Total;
use crate::store::Slot;
use crate::tenant::{Account, Item, Tenant};

/// The outcome of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreOutcome {
    Yes { cas: u64, len: usize },
    No,
    Exists,
    Missing,
    NoMemory,
}

/// A value to store, and the conditions.
pub(super) struct StoreRequest<'a> {
    pub(super) mode: Mode,
    pub(super) draft: Draft<'a>,
    /// The `cas` that the item must have; 0 for any, except in [`Mode::Cas`].
    pub(super) cas: u64,
    pub(super) new_cas: Option<u64>,
    /// Whether an older `cas` suffices; the item is then stale.
    pub(super) invalidate: bool,
    /// The expiry of an item made by appending to nothing; without it, none is made.
    pub(super) vivify_ms: Option<u64>,
}

/// The outcome of counting up or down.
pub(super) enum CountOutcome {
    Yes(Sum),
    NotFound,
    Exists,
    NotNumeric,
    NoMemory,
}

/// The number that is stored after counting.
pub(super) struct Sum {
    pub(super) value: u64,
    pub(super) cas: u64,
    pub(super) expires_ms: u64,
}

/// A step to count by, and the conditions.
#[derive(Default)]
pub(super) struct CountRequest {
    pub(super) up: bool,
    pub(super) delta: u64,
    /// The `cas` that the item must have, if any.
    pub(super) cas: Option<u64>,
    pub(super) new_cas: Option<u64>,
    /// The item's new expiry, if it gets one.
    pub(super) expires_ms: Option<u64>,
}

/// Maximum padding of a number that shrank.
const PADDING: &[u8] = &[b' '; 256];

/// How often a change under a lock is retried after room was made outside of the lock.
pub(super) const RETRIES_MAX: usize = 8;

/// Values up to this size are copied into the answer, which is cheaper than counting a reference
/// and sending another piece.
const COPY_MAX: usize = 4096;

impl Session<'_> {
    /// Executes a request with one key; returns nothing for other requests.
    pub(super) fn classic(
        &mut self,
        request: &Request<'_>,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Option<(Account, Effect)> {
        match *request {
            Request::Store { mode, key, flags, exptime, cas, value, quiet } => {
                let account = batch.enter(key);
                let draft = Draft {
                    key,
                    value: [value, b""],
                    client_flags: flags,
                    expires_ms: self.now.deadline_ms(exptime),
                    marks: 0,
                };
                let tenant = batch.resolver.tenant(account);
                Some((account, self.classic_store(tenant, mode, draft, cas, quiet, out)))
            }
            Request::Delete { key, quiet } => {
                let account = batch.enter(key);
                let mut slot = self.cache.store().slot(key, self.now, batch.resolver.guard());
                let found = slot.item().is_some();
                slot.remove();
                drop(slot);
                self.totals().hit_or_miss(found, Total::DeleteHits, Total::DeleteMisses);
                answer(if found { "DELETED" } else { "NOT_FOUND" }, quiet, out);
                Some((account, Effect::new(Kind::Delete)))
            }
            Request::Touch { key, exptime, quiet } => {
                let account = batch.enter(key);
                let found = self.fetch(key, Some(exptime), batch.resolver.guard()).is_some();
                self.totals().hit_or_miss(found, Total::TouchHits, Total::TouchMisses);
                answer(if found { "TOUCHED" } else { "NOT_FOUND" }, quiet, out);
                Some((account, Effect::new(Kind::Touch)))
            }
            Request::Arithmetic { key, up, delta, quiet } => {
                let account = batch.enter(key);
                let mut effect = Effect::new(Kind::Arithmetic);
                let tenant = batch.resolver.tenant(account);
                match self.count(
                    tenant,
                    key,
                    &CountRequest { up, delta, ..CountRequest::default() },
                ) {
                    CountOutcome::Yes(sum) if !quiet => {
                        out.number(sum.value);
                        out.line("");
                    }
                    CountOutcome::Yes(_) => {}
                    CountOutcome::NotNumeric => answer(reply::NOT_NUMERIC, quiet, out),
                    CountOutcome::NoMemory => {
                        effect.no_memory = true;
                        answer("SERVER_ERROR out of memory", quiet, out);
                    }
                    CountOutcome::NotFound | CountOutcome::Exists => {
                        answer("NOT_FOUND", quiet, out)
                    }
                }
                Some((account, effect))
            }
            _ => None,
        }
    }

    fn classic_store(
        &self,
        tenant: &Arc<Tenant>,
        mode: Mode,
        draft: Draft<'_>,
        cas: u64,
        quiet: bool,
        out: &mut Output,
    ) -> Effect {
        let store =
            StoreRequest { mode, draft, cas, new_cas: None, invalidate: false, vivify_ms: None };
        let line = match self.store(tenant, &store) {
            StoreOutcome::Yes { .. } => "STORED",
            StoreOutcome::No => "NOT_STORED",
            StoreOutcome::Exists => "EXISTS",
            StoreOutcome::Missing => "NOT_FOUND",
            StoreOutcome::NoMemory => {
                answer(self.no_memory(tenant), quiet, out);
                return Effect::no_memory(Kind::Set);
            }
        };
        answer(line, quiet, out);
        Effect::new(Kind::Set)
    }

    /// Looks up keys until none is left or the answer has grown large.
    pub(crate) fn get(
        &mut self,
        mut paused: Paused,
        keys: &[u8],
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Next {
        let kind = if paused.touch.is_some() { Kind::Touch } else { Kind::Get };
        let metering = self.cache.config().metering;
        let rated = self.cache.tenants().has_rates();
        let waited = self.waits_in.take();
        let guard = batch.resolver.guard();
        let mut last = Account::ROOT;
        let mut rest = keys;
        loop {
            let (key, after) = token::first(rest);
            if key.is_empty() {
                break;
            }
            if self.is_full(out) {
                paused.keys_at += keys.len() - rest.len();
                // Each key was charged the bytes up to its end; the first one also the bytes before
                // it.
                return Next::Pause(paused);
            }
            let before = out.written();
            let account = (metering || rated).then(|| batch.enter(key));
            // A request that waited for room had passed the rate.
            let has_room = self.room > 0;
            if let Some(account) = account
                && !has_room
                && let Err(held) = batch.take(account)
            {
                let held = held.after(waited.as_ref(), &batch.resolver.tenant(account).group);
                let bytes_in = paused.bytes_in;
                paused.keys_at += keys.len() - rest.len();
                // A refusal ends the answer, as any error does.
                return match self.hold_back(account, held, (kind, false), bytes_in, batch, out) {
                    Next::Wait(wait) => Next::PauseFor(paused, wait),
                    ended => ended,
                };
            }
            if self.lacks_room(key, None, guard) {
                paused.keys_at += keys.len() - rest.len();
                return Next::Pause(paused);
            }
            let item = self.fetch(key, paused.touch, guard);
            let hit = item.is_some();
            if kind == Kind::Touch {
                self.totals().hit_or_miss(hit, Total::GatHits, Total::GatMisses);
            }
            if let Some((item, cas)) = item {
                value(item, cas, paused.with_cas, out);
            }
            if let Some(account) = account
                && metering
            {
                // The bytes of later keys are theirs; the rest of the line belongs to the first
                // key.
                let later = after.len();
                let bytes_in = std::mem::replace(&mut paused.bytes_in, later) - later;
                let bytes_out = out.written() - before;
                batch.meter.add(account, Effect::fetch(kind, hit), bytes_in, bytes_out);
                last = account;
            }
            rest = after;
        }
        let last = (!token::first(keys).0.is_empty()).then_some(last);
        self.end_of_get(last, paused.bytes_in, batch, out)
    }

    /// Ends an answer, which counts for the last key's account, if there was any.
    fn end_of_get(
        &self,
        last: Option<Account>,
        bytes_in: usize,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> Next {
        let before = out.written();
        out.line("END");
        let bytes_out = out.written() - before;
        match last {
            None => {
                self.account(batch, Account::ROOT, Effect::new(Kind::Other), bytes_in, bytes_out);
            }
            Some(last) if self.cache.config().metering => {
                batch.meter.add_bytes(last, bytes_in, bytes_out);
            }
            Some(_) => {}
        }
        Next::Go
    }

    /// Finds an item, marks it as fetched, and sets its expiry if one is given.
    pub(super) fn fetch<'g>(
        &self,
        key: &[u8],
        touch: Option<i64>,
        guard: &'g Guard,
    ) -> Option<(RcuBorrow<'g, Item>, u64)> {
        let now = self.now;
        let mut slot = self.cache.store().slot(key, now, guard);
        let Some(item) = slot.find() else {
            self.totals().count_if(slot.found_expired(), Total::GetExpired);
            return None;
        };
        item.bump(now);
        if let Some(exptime) = touch {
            slot.expire_at(item.value(), now.deadline_ms(exptime));
        }
        Some((item, item.cas()))
    }

    /// Stores under conditions, as one step.
    pub(super) fn store(&self, tenant: &Arc<Tenant>, store: &StoreRequest<'_>) -> StoreOutcome {
        let outcome = self.try_store(tenant, store);
        if store.mode == Mode::Cas {
            match outcome {
                StoreOutcome::Yes { .. } => self.totals().count(Total::CasHits),
                StoreOutcome::Exists => self.totals().count(Total::CasBadval),
                StoreOutcome::Missing => self.totals().count(Total::CasMisses),
                StoreOutcome::No | StoreOutcome::NoMemory => {}
            }
        }
        outcome
    }

    fn try_store(&self, tenant: &Arc<Tenant>, store: &StoreRequest<'_>) -> StoreOutcome {
        if matches!(store.mode, Mode::Append | Mode::Prepend) {
            return self.extend(tenant, store);
        }
        let guard = pin();
        let draft = store.draft;
        let Ok(charge) = self.cache.store().charge(tenant, draft.cost(), self.now) else {
            // The client must not read again what it believes overwritten.
            if store.mode == Mode::Set {
                self.cache.store().slot(draft.key, self.now, &guard).remove();
            }
            return StoreOutcome::NoMemory;
        };
        let mut slot = self.cache.store().slot(draft.key, self.now, &guard);
        let mut draft = draft;
        match (store.mode, slot.item()) {
            (Mode::Add, Some(item)) => {
                item.used(self.now);
                return StoreOutcome::No;
            }
            (Mode::Replace, None) => return StoreOutcome::No,
            (Mode::Cas, None) => return StoreOutcome::Missing,
            (Mode::Cas, Some(item)) if item.cas() != store.cas => {
                if !(store.invalidate && store.cas < item.cas()) {
                    return StoreOutcome::Exists;
                }
                draft.expires_ms = item.expires_ms();
                draft.marks |= STALE | (item.marks() & WON);
            }
            _ => {}
        }
        let len = draft.value[0].len();
        StoreOutcome::Yes { cas: slot.put(draft, tenant, charge, store.new_cas), len }
    }

    /// Appends or prepends, as one step.
    fn extend(&self, tenant: &Arc<Tenant>, store: &StoreRequest<'_>) -> StoreOutcome {
        let added = store.draft.value[0];
        let guard = pin();
        for _ in 0..RETRIES_MAX {
            let mut slot = self.cache.store().slot(store.draft.key, self.now, &guard);
            let Some(item) = slot.item() else {
                drop(slot);
                let Some(expires_ms) = store.vivify_ms else { return StoreOutcome::No };
                let draft = Draft { expires_ms, ..store.draft };
                return self
                    .store(tenant, &StoreRequest { mode: Mode::Add, draft, cas: 0, ..*store });
            };
            if store.cas != 0 && store.cas != item.cas() {
                return StoreOutcome::Exists;
            }
            let value = if store.mode == Mode::Append {
                [item.value(), added]
            } else {
                [added, item.value()]
            };
            let len = value[0].len() + value[1].len();
            if len > self.cache.config().value_max {
                return StoreOutcome::No;
            }
            let draft = inherit(item, value, item.marks() & BINARY_KEY);
            match self.room(slot, tenant, draft) {
                StoreRoom::Granted(mut slot, charge) => {
                    return StoreOutcome::Yes {
                        cas: slot.put(draft, tenant, charge, store.new_cas),
                        len,
                    };
                }
                StoreRoom::Made => {}
                StoreRoom::None => return StoreOutcome::NoMemory,
            }
        }
        StoreOutcome::NoMemory
    }

    /// Adds to or subtracts from an item's number, as one step.
    pub(super) fn count(
        &self,
        tenant: &Arc<Tenant>,
        key: &[u8],
        count: &CountRequest,
    ) -> CountOutcome {
        let guard = pin();
        for _ in 0..RETRIES_MAX {
            let mut slot = self.cache.store().slot(key, self.now, &guard);
            let Some(item) = slot.item() else {
                let miss = if count.up { Total::IncrMisses } else { Total::DecrMisses };
                self.totals().count(miss);
                return CountOutcome::NotFound;
            };
            if count.cas.is_some_and(|cas| cas != 0 && cas != item.cas()) {
                return CountOutcome::Exists;
            }
            let Some(number) = token::stored_number(item.value()) else {
                return CountOutcome::NotNumeric;
            };
            let value = if count.up {
                number.wrapping_add(count.delta)
            } else {
                number.saturating_sub(count.delta)
            };
            let mut buffer = itoa::Buffer::new();
            let digits = buffer.format(value).as_bytes();
            // A number that loses a digit keeps its length, as in memcached.
            let padding = item.value().len().saturating_sub(digits.len()).min(PADDING.len());
            // A number that grows is a new item in memcached: not fetched, not stale.
            let grows = digits.len() > item.value().len();
            let marks = if grows { item.marks() & BINARY_KEY } else { item.marks() };
            let mut draft = inherit(item, [digits, &PADDING[..padding]], marks);
            draft.expires_ms = count.expires_ms.unwrap_or(draft.expires_ms);
            match self.room(slot, tenant, draft) {
                StoreRoom::Granted(mut slot, charge) => {
                    let cas = slot.put(draft, tenant, charge, count.new_cas);
                    let hit = if count.up { Total::IncrHits } else { Total::DecrHits };
                    self.totals().count(hit);
                    return CountOutcome::Yes(Sum { value, cas, expires_ms: draft.expires_ms });
                }
                StoreRoom::Made => {}
                StoreRoom::None => return CountOutcome::NoMemory,
            }
        }
        CountOutcome::NoMemory
    }

    /// Charges for a draft under the lock, or makes room outside of it for another try.
    pub(super) fn room<'s, 'g>(
        &self,
        slot: Slot<'s, 'g>,
        tenant: &Arc<Tenant>,
        draft: Draft<'_>,
    ) -> StoreRoom<'s, 'g> {
        match slot.try_charge(tenant, draft.cost()) {
            Ok(charge) => StoreRoom::Granted(slot, charge),
            Err(_) => {
                drop(slot);
                match self.cache.store().charge(tenant, draft.cost(), self.now) {
                    Ok(_given_back) => StoreRoom::Made,
                    Err(_) => StoreRoom::None,
                }
            }
        }
    }
}

/// The outcome of asking for room under a lock.
pub(super) enum StoreRoom<'s, 'g> {
    Granted(Slot<'s, 'g>, Charge),
    Made,
    None,
}

/// Returns a draft that replaces the value of `item` and keeps everything else.
fn inherit<'a>(item: &'a Item, value: [&'a [u8]; 2], marks: u8) -> Draft<'a> {
    Draft {
        key: item.key(),
        value,
        client_flags: item.client_flags,
        expires_ms: item.expires_ms(),
        marks,
    }
}

fn answer(line: &str, quiet: bool, out: &mut Output) {
    if !quiet {
        out.line(line);
    }
}

/// Writes the answer of one hit.
fn value(found: RcuBorrow<'_, Item>, cas: u64, with_cas: bool, out: &mut Output) {
    let item = found.value();
    out.bytes(b"VALUE ");
    out.bytes(item.key());
    out.bytes(b" ");
    out.number(u64::from(item.client_flags));
    out.bytes(b" ");
    out.number(item.value().len() as u64);
    if with_cas {
        out.bytes(b" ");
        out.number(cas);
    }
    out.bytes(b"\r\n");
    data(found, out);
}

/// Writes a value and its line end.
pub(super) fn data(found: RcuBorrow<'_, Item>, out: &mut Output) {
    let line = found.value_line();
    if line.len() > COPY_MAX {
        // The item may have left since it was found, and its last reference may be gone: then it
        // can still be read, but not kept.
        if let Some(kept) = found.try_get() {
            return out.value(kept);
        }
    }
    out.bytes(line);
}
