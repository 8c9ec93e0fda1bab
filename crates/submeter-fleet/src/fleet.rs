//! A driver with threads.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;
use submeter_bank::{Answer, Bank, Request};

use crate::driver::{Driver, Status};

/// A process's part in a fleet, until it is dropped or [stopped](Self::stop).
pub struct Fleet {
    shared: Arc<Shared>,
    events: Sender<Event>,
    keeper: Option<JoinHandle<()>>,
    /// The process that has the threads. A forked child has a copy of this without them.
    process: u32,
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
        Ok(Fleet { shared, events, keeper: Some(keeper), process: std::process::id() })
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
        // It fails only after the thread has panicked, which leaves the limits as they are. In a
        // forked child nothing receives it.
        if !self.is_copy() {
            let _ = self.events.send(Event::Refused);
        }
    }

    fn is_copy(&self) -> bool {
        self.process != std::process::id()
    }

    /// Lists the state of the limits, in the order in which they were added.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.shared.driver.lock().status()
    }

    /// Returns whether the bank was restarted and lends nothing new for the moment.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.shared.driver.lock().learns()
    }

    /// Returns the outcomes of the exchanges so far.
    #[must_use]
    pub fn exchanges(&self) -> Exchanges {
        self.shared.exchanges.lock().clone()
    }

    /// Returns all leases and ends the threads, as dropping does. Limits fall to what
    /// [`Outage`](submeter_bank::Outage) declares. Waits for the bank's answer.
    pub fn stop(self) {}
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if self.is_copy() {
            // Not dropped: the C library may have given the handle to a thread of this process.
            std::mem::forget(self.keeper.take());
            return;
        }
        // Neither fails unless the thread has panicked, which it has reported.
        let _ = self.events.send(Event::Stop);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use submeter::{Schema, Tree};
    use submeter_bank::MemoryBank;

    use super::*;

    /// A forked child that drops its copy waits for no thread of its parent.
    #[test]
    fn a_child_leaves_its_parents_threads_alone() {
        let tree = Tree::new(Schema::builder().build().expect("a schema")).expect("a tree");
        let bank = MemoryBank::new(std::time::Duration::from_secs(15));
        let mut fleet = Driver::new(&tree, "web-1").start(bank).expect("threads");
        let (shared, _parents) = (Arc::clone(&fleet.shared), fleet.events.clone());
        fleet.process += 1;
        drop(fleet);
        assert_eq!(Arc::strong_count(&shared), 2, "the keeper has the other");
    }
}
