//! The meta commands.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use submeter::refs::{Guard, pin};

use super::classic::{
    CountOutcome, CountRequest, RETRIES_MAX, StoreOutcome, StoreRequest, StoreRoom, data,
};
use super::{Batch, Effect, Kind, Session};
use crate::clock::Tick;
use crate::item::{BINARY_KEY, Draft, FETCHED, STALE, WON};
use crate::output::Output;
use crate::protocol::{Meta, Mode, Verb, reply, token};
use crate::statistics::Total;
use crate::store::Slot;
use crate::tenant::{Account, Item, Tenant};

impl Session<'_> {
    pub(super) fn meta(
        &mut self,
        meta: &Meta<'_>,
        batch: &mut Batch<'_>,
        out: &mut Output,
    ) -> (Account, Effect) {
        let account = batch.enter(&meta.key);
        let tenant = batch.resolver.tenant(account);
        let effect = match meta.verb {
            Verb::Get => self.meta_get(tenant, meta, out),
            Verb::Set(mode) => self.meta_set(tenant, mode, meta, out),
            Verb::Delete => self.meta_delete(tenant, meta, out),
            Verb::Arithmetic(up) => self.meta_arithmetic(tenant, up, meta, out),
            Verb::Debug => self.meta_debug(meta, out),
        };
        (account, effect)
    }

    /// Drafts an empty item under the request's key.
    fn blank<'a>(&self, meta: &'a Meta<'_>, exptime: i64) -> Draft<'a> {
        Draft {
            key: &meta.key,
            value: [b"", b""],
            client_flags: 0,
            expires_ms: self.now.deadline_ms(exptime),
            marks: if meta.binary { BINARY_KEY } else { 0 },
        }
    }

    fn meta_get(&self, tenant: &Arc<Tenant>, meta: &Meta<'_>, out: &mut Output) -> Effect {
        let guard = pin();
        let Some((mut slot, created)) = self.find_or_create(tenant, meta, &guard) else {
            return miss(meta, out);
        };
        let Some(found) = slot.find() else {
            self.totals().count_if(slot.found_expired(), Total::GetExpired);
            return miss(meta, out);
        };
        let item = found.value();
        let now = slot.now();
        let flags = &meta.flags;
        let same = flags.cas.is_some_and(|cas| cas == item.cas());
        let with_value = flags.value && !same;
        if with_value {
            out.bytes(b"VA ");
            out.number(item.value().len() as u64);
        } else {
            out.bytes(b"HD");
        }
        let mut won = created;
        for word in token::words(meta.tokens) {
            match word[0] {
                b'T' => slot.expire_at(item, now.deadline_ms(flags.exptime.unwrap_or(0))),
                b'R' => {
                    let soon_ms = now.deadline_ms(flags.recache.unwrap_or(0));
                    let expires_ms = item.expires_ms();
                    won |= item.marks() & WON == 0 && expires_ms != 0 && expires_ms < soon_ms;
                }
                b's' => flag(b's', item.value().len() as u64, out),
                b't' => time_left(item.expires_ms(), now, out),
                b'c' => flag(b'c', item.cas(), out),
                b'f' => flag(b'f', u64::from(item.client_flags), out),
                b'l' => flag(b'l', idle_s(item, now), out),
                b'h' => flag(b'h', u64::from(item.marks() & FETCHED != 0), out),
                b'O' => opaque(word, out),
                b'k' => key(item.key(), item.marks() & BINARY_KEY != 0, out),
                _ => {}
            }
        }
        self.recache_flags(item, won, out);
        out.bytes(b"\r\n");
        if !flags.no_update {
            item.bump(now);
        }
        drop(slot);
        if with_value {
            data(found, out);
        }
        Effect::fetch(Kind::Get, !created)
    }

    /// Reports whether the item is stale, and whether this client renews it.
    fn recache_flags(&self, item: &Item, mut won: bool, out: &mut Output) {
        let marks = item.marks();
        if marks & WON != 0 {
            out.bytes(b" Z");
        }
        if marks & STALE != 0 {
            out.bytes(b" X");
            // The first to see it stale renews it.
            won |= marks & WON == 0;
        }
        if won {
            out.bytes(b" W");
            item.set_marks(marks | WON);
        }
    }

    /// Locks the slot of the key. If there is no item and the request asks for one, creates an
    /// empty item; the second value says whether it did. Returns nothing if there is no item and
    /// none could be created.
    fn find_or_create<'s, 'g>(
        &'s self,
        tenant: &Arc<Tenant>,
        meta: &'s Meta<'_>,
        guard: &'g Guard,
    ) -> Option<(Slot<'s, 'g>, bool)> {
        for _ in 0..RETRIES_MAX {
            let mut slot = self.cache.store().slot(&meta.key, self.now, guard);
            let exptime = match (slot.item(), meta.flags.vivify) {
                (None, Some(exptime)) => exptime,
                _ => return Some((slot, false)),
            };
            let draft = self.blank(meta, exptime);
            match self.room(slot, tenant, draft) {
                StoreRoom::Granted(mut slot, charge) => {
                    slot.put(draft, tenant, charge, meta.flags.new_cas);
                    return Some((slot, true));
                }
                StoreRoom::Made => {}
                StoreRoom::None => return None,
            }
        }
        None
    }

    fn meta_set(
        &self,
        tenant: &Arc<Tenant>,
        mode: Mode,
        meta: &Meta<'_>,
        out: &mut Output,
    ) -> Effect {
        let flags = &meta.flags;
        let draft = Draft {
            value: [meta.value, b""],
            client_flags: flags.client_flags,
            ..self.blank(meta, flags.exptime.unwrap_or(0))
        };
        let stored = self.store(
            tenant,
            &StoreRequest {
                mode,
                draft,
                cas: flags.cas.unwrap_or(0),
                new_cas: flags.new_cas,
                invalidate: flags.invalidate,
                vivify_ms: flags.vivify.map(|exptime| self.now.deadline_ms(exptime)),
            },
        );
        let (code, cas, len) = match stored {
            StoreOutcome::Yes { .. } if flags.quiet => return Effect::new(Kind::Set),
            StoreOutcome::Yes { cas, len } => (&b"HD"[..], cas, Some(len)),
            StoreOutcome::No => (&b"NS"[..], 0, None),
            StoreOutcome::Exists => (&b"EX"[..], 0, None),
            StoreOutcome::Missing => (&b"NF"[..], 0, None),
            StoreOutcome::NoMemory => {
                out.line(self.no_memory(tenant));
                return Effect::no_memory(Kind::Set);
            }
        };
        out.bytes(code);
        for word in token::words(meta.tokens) {
            match (word[0], len) {
                (b'O', _) => opaque(word, out),
                (b'k', _) => key(&meta.key, meta.binary, out),
                (b'c', _) => flag(b'c', cas, out),
                (b's', Some(len)) => flag(b's', len as u64, out),
                _ => {}
            }
        }
        out.bytes(b"\r\n");
        Effect::new(Kind::Set)
    }

    fn meta_delete(&self, tenant: &Arc<Tenant>, meta: &Meta<'_>, out: &mut Output) -> Effect {
        let code = self.delete_or_mark(tenant, meta);
        self.totals().hit_or_miss(code == "HD", Total::DeleteHits, Total::DeleteMisses);
        if code != "HD" || !meta.flags.quiet {
            out.bytes(code.as_bytes());
            echo(meta, out);
            out.bytes(b"\r\n");
        }
        Effect::new(Kind::Delete)
    }

    fn delete_or_mark(&self, tenant: &Arc<Tenant>, meta: &Meta<'_>) -> &'static str {
        let flags = &meta.flags;
        let guard = pin();
        for _ in 0..RETRIES_MAX {
            let mut slot = self.cache.store().slot(&meta.key, self.now, &guard);
            let Some(item) = slot.item() else { return "NF" };
            if flags.cas.is_some_and(|cas| cas != item.cas()) {
                return "EX";
            }
            if !flags.drop_value && !flags.invalidate {
                slot.remove();
                return "HD";
            }
            let expires_ms = match flags.exptime {
                Some(exptime) if flags.invalidate => self.now.deadline_ms(exptime),
                _ => item.expires_ms(),
            };
            // Stale, and up for renewal again.
            let marks = if flags.invalidate { (item.marks() | STALE) & !WON } else { item.marks() };
            if !flags.drop_value {
                slot.expire_at(item, expires_ms);
                item.set_marks(marks);
                let cas = flags.new_cas.unwrap_or_else(|| slot.next_cas());
                item.set_cas(cas);
                return "HD";
            }
            let draft =
                Draft { key: item.key(), value: [b"", b""], client_flags: 0, expires_ms, marks };
            match self.room(slot, tenant, draft) {
                StoreRoom::Granted(mut slot, charge) => {
                    slot.put(draft, tenant, charge, flags.new_cas);
                    return "HD";
                }
                StoreRoom::Made => {}
                // There is no room even for an empty item, so there is none.
                StoreRoom::None => self.cache.store().slot(&meta.key, self.now, &guard).remove(),
            }
        }
        "NF"
    }

    fn meta_arithmetic(
        &self,
        tenant: &Arc<Tenant>,
        up: bool,
        meta: &Meta<'_>,
        out: &mut Output,
    ) -> Effect {
        let flags = &meta.flags;
        let count = CountRequest {
            up,
            delta: flags.delta.unwrap_or(1),
            cas: flags.cas,
            new_cas: flags.new_cas,
            expires_ms: flags.exptime.map(|exptime| self.now.deadline_ms(exptime)),
        };
        let effect = Effect::new(Kind::Arithmetic);
        let counted = match self.count(tenant, &meta.key, &count) {
            CountOutcome::NotFound if flags.vivify.is_some() => self.seed(tenant, meta),
            counted => counted,
        };
        let (value, cas, expires_ms) = match counted {
            CountOutcome::Yes(_) if flags.quiet => return effect,
            CountOutcome::Yes(sum) => (sum.value, sum.cas, sum.expires_ms),
            CountOutcome::NotNumeric => {
                out.line(reply::NOT_NUMERIC);
                return effect;
            }
            CountOutcome::NoMemory => {
                out.line("SERVER_ERROR out of memory");
                return Effect::no_memory(Kind::Arithmetic);
            }
            CountOutcome::NotFound | CountOutcome::Exists => {
                out.bytes(if matches!(counted, CountOutcome::Exists) { b"EX" } else { b"NF" });
                echo(meta, out);
                out.bytes(b"\r\n");
                return effect;
            }
        };
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value);
        if flags.value {
            out.bytes(b"VA ");
            out.number(digits.len() as u64);
        } else {
            out.bytes(b"HD");
        }
        for word in token::words(meta.tokens) {
            match word[0] {
                b'c' => flag(b'c', cas, out),
                b't' => time_left(expires_ms, self.now, out),
                b'O' => opaque(word, out),
                b'k' => key(&meta.key, meta.binary, out),
                _ => {}
            }
        }
        out.bytes(b"\r\n");
        if flags.value {
            out.line(digits);
        }
        effect
    }

    /// Creates the number that `ma` did not find.
    fn seed(&self, tenant: &Arc<Tenant>, meta: &Meta<'_>) -> CountOutcome {
        let flags = &meta.flags;
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(flags.initial).as_bytes();
        // `T` follows `N` only when it is also sent, as in memcached.
        let exptime = flags.exptime.or(flags.vivify).unwrap_or(0);
        let draft = Draft { value: [digits, b""], ..self.blank(meta, exptime) };
        let (mode, new_cas) = (Mode::Add, flags.new_cas);
        let store =
            StoreRequest { mode, draft, cas: 0, new_cas, invalidate: false, vivify_ms: None };
        match self.store(tenant, &store) {
            StoreOutcome::Yes { cas, .. } => CountOutcome::Yes(super::classic::Sum {
                value: flags.initial,
                cas,
                expires_ms: draft.expires_ms,
            }),
            StoreOutcome::NoMemory => CountOutcome::NoMemory,
            // Another client created it first: count from there.
            _ => {
                let delta = flags.delta.unwrap_or(1);
                let up = meta.verb == Verb::Arithmetic(true);
                let count = CountRequest { up, delta, cas: flags.cas, new_cas, expires_ms: None };
                self.count(tenant, &meta.key, &count)
            }
        }
    }

    fn meta_debug(&self, meta: &Meta<'_>, out: &mut Output) -> Effect {
        let effect = Effect::new(Kind::Debug);
        let guard = pin();
        let mut slot = self.cache.store().slot(&meta.key, self.now, &guard);
        let Some(item) = slot.item() else {
            out.line("EN");
            return effect;
        };
        drop(slot);
        out.bytes(b"ME ");
        if item.marks() & BINARY_KEY != 0 {
            out.bytes(BASE64.encode(item.key()).as_bytes());
        } else {
            out.bytes(item.key());
        }
        let expires = match item.expires_ms() {
            0 => -1,
            at_ms => i64::try_from(self.now.left_s(at_ms)).unwrap_or(i64::MAX),
        };
        let idle_s = idle_s(item, self.now);
        let fetched = if item.marks() & FETCHED != 0 { "yes" } else { "no" };
        out.line(&format!(
            " exp={expires} la={idle_s} cas={} fetch={fetched} cls=1 size={}",
            item.cas(),
            item.cost()
        ));
        effect
    }
}

fn miss(meta: &Meta<'_>, out: &mut Output) -> Effect {
    if !meta.flags.quiet {
        out.bytes(b"EN");
        echo(meta, out);
        out.bytes(b"\r\n");
    }
    Effect::fetch(Kind::Get, false)
}

/// Repeats what identifies the request to its client.
fn echo(meta: &Meta<'_>, out: &mut Output) {
    for word in token::words(meta.tokens) {
        match word[0] {
            b'O' => opaque(word, out),
            b'k' => key(&meta.key, meta.binary, out),
            _ => {}
        }
    }
}

fn flag(letter: u8, value: u64, out: &mut Output) {
    out.bytes(&[b' ', letter]);
    out.number(value);
}

/// Seconds since the item was last used.
fn idle_s(item: &Item, now: Tick) -> u64 {
    now.us.saturating_sub(item.accessed_us()) / 1_000_000
}

fn time_left(expires_ms: u64, now: Tick, out: &mut Output) {
    if expires_ms == 0 {
        out.bytes(b" t-1");
    } else {
        flag(b't', now.left_s(expires_ms), out);
    }
}

fn opaque(word: &[u8], out: &mut Output) {
    out.bytes(b" ");
    out.bytes(word);
}

fn key(key: &[u8], binary: bool, out: &mut Output) {
    out.bytes(b" k");
    if binary {
        out.bytes(BASE64.encode(key).as_bytes());
        out.bytes(b" b");
    } else {
        out.bytes(key);
    }
}
