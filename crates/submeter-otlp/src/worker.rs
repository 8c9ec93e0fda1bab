//! The exporter's thread: what is sent when, and what is kept until it has arrived.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use prost::Message;
use submeter::Schema;

use crate::builder::{Builder, Report};
use crate::client::{Client, Outcome, client};
use crate::encode::Encoder;
use crate::error::ExportError;
use crate::series::{Base, Layout, SeriesRow};
use crate::stats::Stats;

/// Minimum delay that a receiver may ask for: one that asks for 0 must not be retried in a loop.
const AFTER_MIN: Duration = Duration::from_secs(1);

/// Maximum delay between two attempts, and the maximum that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const AFTER_MAX: Duration = Duration::from_secs(300);

/// An order to the thread, with the channel for its result.
pub(crate) enum Order {
    Export(SyncSender<Result<(), ExportError>>),
    Stop(SyncSender<Result<(), ExportError>>),
}

/// An export that the receiver may not have.
struct Pending {
    /// The requests that it may not have, in the order of sending.
    parts: VecDeque<Part>,
    /// The base once all have arrived.
    then: Base,
    /// Whether the receiver has one of the requests.
    begun: bool,
}

/// One request of an export.
struct Part {
    body: Vec<u8>,
    points: usize,
    groups: Vec<u64>,
}

pub(crate) struct Worker {
    settings: Builder,
    client: Box<dyn Client>,
    base: Base,
    pending: Option<Pending>,
    /// How often the pending export was sent in vain.
    attempts: u32,
    stats: Arc<Mutex<Stats>>,
}

impl Worker {
    pub(crate) fn new(
        settings: Builder,
        client: Box<dyn Client>,
        stats: Arc<Mutex<Stats>>,
    ) -> Worker {
        let base = Base::new(nanoseconds(SystemTime::now()));
        Worker { settings, client, base, pending: None, attempts: 0, stats }
    }

    pub(crate) fn run(mut self, orders: &Receiver<Order>) {
        let mut due = Instant::now() + self.settings.interval;
        loop {
            match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    let before = self.stats.lock().last_error.clone();
                    let failed = self.export().err();
                    self.tell(before.as_ref());
                    due =
                        Instant::now() + failed.map_or(self.settings.interval, |(_, pause)| pause);
                }
                Ok(Order::Export(answer)) => {
                    // It fails only if the caller did not wait for the answer.
                    let _ = answer.send(self.export_all());
                }
                Ok(Order::Stop(answer)) => {
                    let _ = answer.send(self.export_all());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reports the state if it has changed.
    fn tell(&self, before: Option<&ExportError>) {
        let now = self.stats.lock().last_error.clone();
        if let Some(Report(tell)) = &self.settings.report
            && now.as_ref() != before
        {
            tell(now.as_ref());
        }
    }

    /// Sends the pending export, and then what is new.
    fn export_all(&mut self) -> Result<(), ExportError> {
        let mut result = Ok(());
        if self.pending.is_some() {
            result = self.export();
        }
        result.and_then(|()| self.export()).map_err(|(error, _)| error)
    }

    /// Sends the pending export, or else what is new; on failure, returns when to try again.
    fn export(&mut self) -> Result<(), (ExportError, Duration)> {
        let Some(mut pending) = self.pending.take().or_else(|| self.collect()) else {
            return Ok(());
        };
        if self.attempts > 0 {
            self.renew();
        }
        let (mut rejected_some, mut refused_one) = (None, None);
        while let Some(part) = pending.parts.pop_front() {
            let outcome = self.client.send(&part.body);
            let mut stats = self.stats.lock();
            match outcome {
                Outcome::Accepted { rejected, why } => {
                    stats.exports += 1;
                    stats.points += part.points as u64;
                    stats.points_rejected += rejected;
                    if rejected > 0 {
                        let why = if why.is_empty() { why } else { format!(": {why}") };
                        let why = format!("the receiver rejected {rejected} points{why}");
                        rejected_some = Some(ExportError::refused(why));
                    } else if stats.warning != why {
                        stats.warning.clone_from(&why);
                        // The logger is the program's, and may ask for these statistics.
                        drop(stats);
                        if !why.is_empty() {
                            log::warn!("the receiver accepts the metrics, and warns: {why}");
                        }
                    }
                    (pending.begun, self.attempts) = (true, 0);
                }
                Outcome::Refused(why) => {
                    stats.refused += 1;
                    self.attempts = 0;
                    let error = ExportError::refused(why);
                    if !pending.begun {
                        // The base stays, so that everything that was new is in the next export.
                        // The other parts are not tried: few reasons affect one part alone.
                        stats.last_error = Some(error.clone());
                        return Err((error, self.settings.interval));
                    }
                    pending.then.refuse(&part.groups, &self.base);
                    refused_one = Some(error);
                }
                Outcome::Again { why, after } => {
                    stats.retries += 1;
                    let error = ExportError::kept(why);
                    stats.last_error = Some(error.clone());
                    pending.parts.push_front(part);
                    self.pending = Some(pending);
                    let pause = pause(self.attempts, after, self.settings.interval);
                    self.attempts = self.attempts.saturating_add(1);
                    return Err((error, pause));
                }
            }
        }
        self.base = pending.then;
        let mut stats = self.stats.lock();
        stats.last_error = refused_one.clone().or(rejected_some);
        // Points that the receiver rejected are not sent again: no later export lacks them.
        if refused_one.is_none() {
            stats.sent_until = Some(UNIX_EPOCH + Duration::from_nanos(self.base.at));
        }
        drop(stats);
        refused_one.map_or(Ok(()), |error| Err((error, self.settings.interval)))
    }

    /// Reads the certificate files again after a failed attempt, as they may have been renewed. Bad
    /// files change nothing.
    fn renew(&mut self) {
        let has_files =
            self.settings.certificate.is_some() || self.settings.client_certificate.is_some();
        if has_files && let Ok(renewed) = client(&self.settings) {
            self.client = renewed;
        }
    }

    /// Returns what is new, if anything is.
    fn collect(&self) -> Option<Pending> {
        // Restored values were sent by the process that counted them.
        let snapshot = self.settings.tree.snapshot_without_restored();
        // Made each time: metrics may have been added to the tree, after the earlier ones.
        let layout = Layout::new(snapshot.schema());
        // If the clock was set back, points would end before they begin.
        let at = nanoseconds(snapshot.system_time()).max(self.base.at + 1);
        let (rows, then) = self.base.news(&layout, &snapshot, self.settings.depth, at);
        let encoder =
            Encoder { settings: &self.settings, epoch: snapshot.epoch(), from: self.base.at, at };
        let mut parts = VecDeque::new();
        self.divide(&encoder, snapshot.schema(), &layout, &rows, &mut parts);
        (!parts.is_empty()).then_some(Pending { parts, then, begun: false })
    }

    /// Adds the requests for some rows: as few as stay within the size that receivers accept.
    fn divide(
        &self,
        encoder: &Encoder<'_>,
        schema: &Schema,
        layout: &Layout,
        rows: &[SeriesRow<'_>],
        parts: &mut VecDeque<Part>,
    ) {
        let (request, points) = encoder.request(schema, layout, rows);
        // Shares have equal numbers of rows, but seldom of bytes: those still too large are divided
        // again.
        let shares = request.encoded_len().div_ceil(self.settings.request_max.max(1));
        if shares > 1 && rows.len() > 1 {
            drop(request);
            for share in rows.chunks(rows.len().div_ceil(shares)) {
                self.divide(encoder, schema, layout, share, parts);
            }
        } else if points > 0 {
            let groups = rows.iter().map(|row| row.group.id()).collect();
            parts.push_back(Part { body: self.client.body(&request), points, groups });
        }
    }
}

/// Returns how long to wait after another failed attempt, following `attempts` earlier ones.
fn pause(attempts: u32, after: Option<Duration>, interval: Duration) -> Duration {
    if let Some(after) = after {
        return after.clamp(AFTER_MIN, AFTER_MAX);
    }
    let pause = Duration::from_secs(1 << attempts.min(6)).min(PAUSE_MAX);
    // A fleet must not retry all at once; nor may a retry come later than the next export would.
    pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(interval)
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait between retries doubles each time, up to a minute, or is what the receiver asks
    /// for.
    #[test]
    fn retries_back_off_up_to_a_minute() {
        let day = Duration::from_secs(86400);
        for (attempts, most) in [(0, 1), (1, 2), (5, 32), (6, 60), (u32::MAX, 60)] {
            let range = Duration::from_millis(most * 500)..=Duration::from_secs(most);
            for _ in 0..100 {
                let pause = pause(attempts, None, day);
                assert!(range.contains(&pause), "{attempts}: {pause:?}");
            }
        }
        let soon = Duration::from_millis(5);
        assert_eq!(pause(9, None, soon), soon);
        for (told, waits) in [(0, 1), (90, 90), (u64::MAX, 300)] {
            let told = Some(Duration::from_secs(told));
            assert_eq!(pause(9, told, soon), Duration::from_secs(waits));
        }
    }
}
