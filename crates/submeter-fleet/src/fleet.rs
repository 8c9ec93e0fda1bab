//! A driver with threads.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;
use submeter_bank::{Answer, Bank, Request};
use submeter_sys::process_local::ProcessLocal;

use crate::driver::{Driver, Status};

/// A process's part in a fleet, until it is dropped or [stopped](Self::stop).
///
/// A forked child is not in the fleet: its copy has no limits and no exchanges, and dropping it
/// does nothing.
pub struct Fleet(ProcessLocal<Threads>);

struct Threads {
    shared: Arc<Shared>,
    events: Sender<Event>,
    keeper: JoinHandle<()>,
}

/// Counts of exchanges with the bank, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanges {
    /// How often the bank answered.
    pub answered: u64,
    /// How many of these answers came too late to be of use.
    pub late: u64,
    /// How often the bank did not answer, or refused the request.
    pub failed: u64,
    /// Why the latest exchange failed, if the bank has not answered since.
    pub last_error: Option<String>,
}

struct Shared {
    driver: Mutex<Driver>,
    exchanges: Mutex<Exchanges>,
}

enum Event {
    Answered(Result<Answer, String>),
    Refused,
    Stop,
}

impl Driver {
    /// Starts two threads that keep the leases, one of which only waits for the bank. `bank` must
    /// time out by itself: stopping the process waits for it.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start<B: Bank + Send + 'static>(self, bank: B) -> io::Result<Fleet> {
        let shared = Arc::new(Shared { driver: Mutex::new(self), exchanges: Mutex::default() });
        let (events, received) = channel();
        let (requests, asked) = channel::<Request>();
        let answers = events.clone();
        let asker = Builder::new().name("fleet-bank".to_owned()).spawn(move || {
            for request in asked {
                // Without any answer, nothing would ever be requested again.
                let answer = catch_unwind(AssertUnwindSafe(|| bank.exchange(&request)));
                let answer = answer.map_or_else(
                    |_| Err("the bank's client panicked".to_owned()),
                    |answer| answer.map_err(|error| explain(&error)),
                );
                // It fails only if the keeper has ended.
                let _ = answers.send(Event::Answered(answer));
            }
        })?;
        let kept = Arc::clone(&shared);
        let keeper = Builder::new().name("fleet".to_owned()).spawn(move || {
            kept.keep(&received, &requests);
            // By now the return is in flight, or has failed.
            drop(requests);
            asker.join().expect("it catches panics");
        })?;
        Ok(Fleet(ProcessLocal::new(Threads { shared, events, keeper })))
    }
}

/// Returns an error and its causes in one line.
fn explain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.map(ToString::to_string).fold(error.to_string(), |line, cause| {
        // Some errors repeat their cause.
        if line.contains(&cause) { line } else { format!("{line}: {cause}") }
    })
}

impl Shared {
    fn keep(&self, received: &Receiver<Event>, requests: &Sender<Request>) {
        loop {
            let wait = {
                let mut driver = self.driver.lock();
                if let Some(request) = driver.look() {
                    requests.send(request).expect("the thread lives until this ends");
                }
                driver.next_look()
            };
            match received.recv_timeout(wait) {
                Ok(Event::Answered(answer)) => self.answered(answer),
                // The next iteration looks.
                Ok(Event::Refused) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    let last = self.driver.lock().release();
                    requests.send(last).expect("the thread lives until this ends");
                    return;
                }
            }
        }
    }

    fn answered(&self, answer: Result<Answer, String>) {
        let mut driver = self.driver.lock();
        let mut exchanges = self.exchanges.lock();
        match answer {
            Ok(answer) => {
                exchanges.answered += 1;
                exchanges.last_error = None;
                exchanges.late += u64::from(!driver.accept(&answer));
            }
            Err(error) => {
                exchanges.failed += 1;
                exchanges.last_error = Some(error);
                driver.failed();
            }
        }
    }
}

impl Fleet {
    /// Reports a refusal, so that the driver looks now instead of a moment later. Costs an
    /// allocation and wakes a thread; it is never necessary.
    pub fn refused(&self) {
        if let Some(threads) = self.0.get() {
            // It fails only after the thread has panicked, which leaves the limits as they are.
            let _ = threads.events.send(Event::Refused);
        }
    }

    /// Lists the state of the limits, in the order in which they were added.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.shared().map_or_else(Vec::new, |shared| shared.driver.lock().status())
    }

    /// Returns whether the bank was restarted and lends nothing new for the moment.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.shared().is_some_and(|shared| shared.driver.lock().learns())
    }

    /// Returns the outcomes of the exchanges so far.
    #[must_use]
    pub fn exchanges(&self) -> Exchanges {
        self.shared().map_or_else(Exchanges::default, |shared| shared.exchanges.lock().clone())
    }

    fn shared(&self) -> Option<&Shared> {
        self.0.get().map(|threads| &*threads.shared)
    }

    /// Returns all leases and ends the threads, as dropping does. Limits fall to what
    /// [`Outage`](submeter_bank::Outage) declares. Waits for the bank's answer.
    pub fn stop(self) {}
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let Some(threads) = self.0.take() else { return };
        // Neither fails unless the thread has panicked, which it has reported.
        let _ = threads.events.send(Event::Stop);
        let _ = threads.keeper.join();
    }
}
