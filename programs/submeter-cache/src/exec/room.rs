//! Answers beyond what every connection may have without asking, while others wait for room. An
//! answer already in hand that waited for room would be in no account: its value may have been
//! evicted.

use submeter::refs::Guard;

use super::Session;
use crate::output::Output;
use crate::statistics::Total;

impl Session<'_> {
    /// Returns whether the answers in hand are to be sent before more are made.
    pub(crate) fn is_full(&self, out: &Output) -> bool {
        out.is_full() || self.cache.connections().waits_for_room(out.queued())
    }

    /// Returns whether a key's value must wait for room before it is touched and held, and records
    /// how much room. Once the connection has the room, it asks again, and nothing is lacking.
    ///
    /// With `cas`, an item that has it is not sent, and needs no room.
    pub(super) fn lacks_room(&mut self, key: &[u8], cas: Option<u64>, guard: &Guard) -> bool {
        let connections = self.cache.connections();
        let has_room = std::mem::take(&mut self.room) > 0;
        if has_room || !connections.waits_for_room(usize::MAX) {
            return false;
        }
        // Found, not fetched: the answer may tell whether it was fetched, and when it was used.
        let mut slot = self.cache.store().slot(key, self.now, guard);
        let item = slot.item().filter(|item| cas != Some(item.cas()));
        let bytes = item.map_or(0, |item| item.value_line().len());
        self.totals().count_if(slot.found_expired(), Total::GetExpired);
        if connections.waits_for_room(bytes) {
            self.room = bytes;
        }
        self.room > 0
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use submeter::refs::pin as enter;

    use super::*;
    use crate::exec::Next;
    use crate::protocol::{Access, Outcome, Parser, Step};
    use crate::server::BUFFER_BYTES;
    use crate::{Cache, Config};

    const MAX: u64 = 8 << 20;

    /// Executes a request, and returns the next step and how many bytes wait to be sent.
    fn ask(session: &mut Session<'_>, line: &[u8]) -> (Next, usize) {
        let guard = enter();
        let mut batch = session.batch(&guard);
        let mut out = Output::default();
        let mut parser = Parser::new(1 << 20, Access::Everything);
        let Step { consumed, outcome: Outcome::Request(request) } = parser.step(line) else {
            panic!("no request: {}", line.escape_ascii());
        };
        let next = session.request(request, consumed, &mut batch, &mut out);
        batch.end();
        (next, out.queued())
    }

    /// While others wait, no answer grows beyond what every connection may have.
    #[tokio::test]
    async fn no_answer_grows_while_others_wait() {
        let cache = Cache::new(Config { buffers_max: MAX, ..Config::default() }).expect("sound");
        let mut session = Session::new(&cache);
        let half = BUFFER_BYTES / 2;
        for (key, len) in [("half", half), ("large", 1 << 20)] {
            let store = format!("set {key} 0 0 {len}\r\n{}\r\n", "v".repeat(len));
            assert_eq!(ask(&mut session, store.as_bytes()).0, Next::Go);
        }
        let many = format!("get{}\r\n", " half".repeat(20));
        let touched = format!("gats 0{}\r\n", " half".repeat(20));
        let lines = [&many, &touched, "mg large v\r\n", "get large\r\n"];
        let queued = |session: &mut Session<'_>| {
            lines.map(|line| {
                let (next, queued) = ask(session, line.as_bytes());
                // Each request asks for room again.
                session.room = 0;
                (next != Next::Go, queued)
            })
        };
        let alone = queued(&mut session);
        assert!(alone.iter().all(|&(pauses, queued)| !pauses && queued > 20 * half), "{alone:?}");
        let clock = &cache.store().clock;
        let place =
            || cache.connections().take_place(clock.now().ms, false).expect("there are many");
        let (one, two) = (place(), place());
        let (mut all, mut more) = (one.hold(), two.hold());
        all.set(MAX, clock).await;
        let mut more = pin!(more.set(1, clock));
        let polled = more.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        let beside = queued(&mut session);
        let is_bounded = |&(pauses, queued): &(bool, usize)| pauses && queued < 2 * BUFFER_BYTES;
        assert!(beside.iter().all(is_bounded), "{beside:?}");
        assert_eq!(ask(&mut session, b"mg half v\r\n").0, Next::Go, "a small one never waits");
    }
}
