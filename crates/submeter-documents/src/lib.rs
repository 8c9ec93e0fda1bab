//! Large answers that many clients read at their own pace, in a bounded number of versions.
//!
//! An answer about every tenant has megabytes. Made for each client, it would cost that much for
//! each client that does not read. Here clients that ask at the same time share one version, and
//! versions are counted, not clients: a version that must go is withdrawn from those who still read
//! it. A client therefore copies a small part at a time, and never holds the whole.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// One version of a large answer. It lives as long as somebody reads it, and may be withdrawn.
pub struct Document {
    len: usize,
    bytes: Mutex<Option<Vec<u8>>>,
}

/// The error for reading a [`Document`] that was withdrawn, because newer versions took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithdrawnError;

impl Document {
    /// Returns its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length to announce, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Hands `take` up to `most` bytes from `at` on, and returns how many; none at the end. Takes a
    /// lock that all readers of this version share: `take` should copy and return.
    ///
    /// # Errors
    /// When the document was withdrawn.
    pub fn read(
        &self,
        at: usize,
        most: usize,
        take: impl FnOnce(&[u8]),
    ) -> Result<usize, WithdrawnError> {
        let bytes = self.bytes.lock();
        let bytes = bytes.as_ref().ok_or(WithdrawnError)?;
        let part = &bytes[at.min(bytes.len())..];
        let part = &part[..part.len().min(most)];
        take(part);
        Ok(part.len())
    }

    fn withdraw(&self) {
        // Freed outside of the lock.
        let bytes = self.bytes.lock().take();
        drop(bytes);
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.len)
    }
}

/// The versions of one answer that are still read: a bounded number.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_documents::{Document, Versions};
///
/// let mut versions = Versions::new(2, Duration::ZERO);
/// let read = |document: &Document| {
///     document.read(0, 100, |_| {}).is_ok()
/// };
/// let first = versions.add(b"1".to_vec());
/// let second = versions.add(b"2".to_vec());
/// assert!(read(&first) && read(&second));
/// let third = versions.add(b"3".to_vec());
/// assert!(!read(&first) && read(&second) && read(&third));
/// ```
#[derive(Debug)]
pub struct Versions {
    most: usize,
    bytes: usize,
    patience: Duration,
    /// How long the newest was, as long as which the next is taken to be.
    len: usize,
    alive: VecDeque<Version>,
}

#[derive(Debug)]
struct Version {
    number: u64,
    born: Instant,
    document: Weak<Document>,
}

impl Versions {
    /// Keeps at most `most` versions, one at least. While that many are read and the oldest is
    /// younger than `patience`, its readers are given time: see [`Versions::newest_if_full`].
    #[must_use]
    pub fn new(most: usize, patience: Duration) -> Versions {
        let (most, alive) = (most.max(1), VecDeque::new());
        Versions { most, bytes: usize::MAX, patience, len: 0, alive }
    }

    /// Keeps no second version where both together would be longer than `bytes`.
    #[must_use]
    pub fn within(self, bytes: usize) -> Versions {
        Versions { bytes, ..self }
    }

    /// Returns the newest version if there should be no further one yet.
    pub fn newest_if_full(&mut self) -> Option<Arc<Document>> {
        self.forget_unread();
        let oldest = self.alive.front()?;
        let is_young = oldest.born.elapsed() < self.patience;
        if self.is_full() && is_young { self.newest() } else { None }
    }

    /// Adds a version, and withdraws the oldest if there would be too many.
    pub fn add(&mut self, bytes: Vec<u8>) -> Arc<Document> {
        self.add_numbered(0, bytes)
    }

    fn add_numbered(&mut self, number: u64, mut bytes: Vec<u8>) -> Arc<Document> {
        bytes.shrink_to_fit();
        self.len = bytes.len();
        self.make_place();
        let document = Arc::new(Document { len: bytes.len(), bytes: Mutex::new(Some(bytes)) });
        let version = Version { number, born: Instant::now(), document: Arc::downgrade(&document) };
        self.alive.push_back(version);
        document
    }

    /// Withdraws the oldest versions until one more may be made.
    fn make_place(&mut self) {
        self.forget_unread();
        while self.is_full() {
            let oldest = self.alive.pop_front();
            if let Some(document) = oldest.and_then(|oldest| oldest.document.upgrade()) {
                document.withdraw();
            }
        }
    }

    fn is_full(&self) -> bool {
        let lens = self.alive.iter().filter_map(|version| version.document.upgrade());
        let bytes = lens.map(|document| document.len).fold(self.len, usize::saturating_add);
        let is_first = self.alive.is_empty();
        self.alive.len() >= self.most || !is_first && bytes > self.bytes
    }

    fn forget_unread(&mut self) {
        self.alive.retain(|version| version.document.strong_count() > 0);
    }

    fn newest(&self) -> Option<Arc<Document>> {
        self.alive.back()?.document.upgrade()
    }
}

/// Makes versions of one answer, one at a time, for all who ask.
///
/// A client gets a version whose making began after it asked, so that it finds in it whatever it
/// knew before. Clients that ask while one is being made share the next one. Only while as many
/// versions as allowed are still read and none of them is old, which takes clients that are slow or
/// hostile, a client gets the newest one there is.
#[derive(Clone, Debug)]
pub struct Documents {
    state: Arc<Mutex<State>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct State {
    /// How many versions were begun.
    begun: u64,
    versions: Versions,
}

impl Documents {
    /// Keeps versions as [`Versions::new`] describes.
    #[must_use]
    pub fn new(most: usize, patience: Duration) -> Documents {
        Documents::from(Versions::new(most, patience))
    }

    /// Returns a version, made by `make` on a thread that may block, or shared.
    ///
    /// # Errors
    /// What `make` returns.
    ///
    /// # Panics
    /// When `make` does.
    pub async fn get<E: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<Vec<u8>, E> + Send + 'static,
    ) -> Result<Arc<Document>, E> {
        let asked = self.state.lock().begun;
        // Held by the work, not by its client, who may hang up and ask again.
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let state = Arc::clone(&self.state);
        if let Some(shared) = state.lock().shared(asked) {
            return Ok(shared);
        }
        let work = move || {
            let _turn = turn;
            let number = state.lock().begin();
            let bytes = make()?;
            Ok(state.lock().versions.add_numbered(number, bytes))
        };
        match spawn_blocking(work).await {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

impl From<Versions> for Documents {
    fn from(versions: Versions) -> Documents {
        let state = State { begun: 0, versions };
        Documents { state: Arc::new(Mutex::new(state)), turn: Arc::default() }
    }
}

impl State {
    fn shared(&mut self, asked: u64) -> Option<Arc<Document>> {
        let covers = self.versions.alive.back().is_some_and(|newest| newest.number > asked);
        if covers && let Some(newest) = self.versions.newest() {
            return Some(newest);
        }
        self.versions.newest_if_full()
    }

    /// Makes place before memory is taken for one more.
    fn begin(&mut self) -> u64 {
        self.versions.make_place();
        self.begun += 1;
        self.begun
    }
}

impl fmt::Display for WithdrawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was withdrawn, as newer ones took its place: ask again")
    }
}

impl std::error::Error for WithdrawnError {}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;

    use tokio::time::timeout;

    use super::*;

    fn text(document: &Document) -> Result<String, WithdrawnError> {
        let mut text = Vec::new();
        while document.read(text.len(), 3, |part| text.extend_from_slice(part))? > 0 {}
        Ok(String::from_utf8(text).expect("text"))
    }

    async fn get(documents: &Documents, content: &str) -> Arc<Document> {
        let content = content.as_bytes().to_vec();
        let Ok(made) = documents.get(move || Ok::<_, Infallible>(content)).await;
        made
    }

    #[tokio::test]
    async fn who_asks_while_one_is_made_shares_the_next() {
        let documents = Documents::new(9, Duration::ZERO);
        let (go, gone) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let first = tokio::spawn({
            let documents = documents.clone();
            let make = move || {
                begin.send(()).expect("heard");
                gone.recv().expect("told");
                Ok::<_, Infallible>(b"first".to_vec())
            };
            async move { documents.get(make).await }
        });
        tokio::task::yield_now().await;
        begun.recv().expect("it has begun");
        // Both ask after the first has begun, which may miss what they know.
        let second = get(&documents, "second");
        let third = get(&documents, "third");
        // In this order, so that both have asked by the time the first is made.
        let (second, third, ()) = tokio::join!(biased; second, third, async {
            go.send(()).expect("it waits");
        });
        let Ok(first) = first.await.expect("made");
        assert_eq!(text(&first).as_deref(), Ok("first"));
        assert_eq!(text(&second).as_deref(), Ok("second"));
        assert!(Arc::ptr_eq(&second, &third));
        // No other client asked at the same time.
        let fourth = get(&documents, "fourth").await;
        assert_eq!(text(&fourth).as_deref(), Ok("fourth"));
    }

    #[tokio::test]
    async fn versions_that_are_read_are_few() {
        let documents = Documents::new(2, Duration::ZERO);
        let first = get(&documents, "first").await;
        let second = get(&documents, "second").await;
        let third = get(&documents, "third").await;
        assert_eq!(text(&first), Err(WithdrawnError));
        assert_eq!(text(&second).as_deref(), Ok("second"));
        drop(second);
        // A version without readers takes no place.
        let fourth = get(&documents, "fourth").await;
        assert_eq!(text(&third).as_deref(), Ok("third"));
        assert_eq!(text(&fourth).as_deref(), Ok("fourth"));
    }

    #[tokio::test]
    async fn a_second_version_is_kept_only_where_both_fit() {
        for (bytes, both) in [(11, true), (10, false), (0, false)] {
            let documents = Documents::from(Versions::new(2, Duration::ZERO).within(bytes));
            let first = get(&documents, "first").await;
            let second = get(&documents, "second").await;
            assert_eq!((text(&first).is_ok(), text(&second).is_ok()), (both, true), "{bytes}");
        }
        let documents = Versions::new(2, Duration::from_secs(3600)).within(10);
        let documents = Documents::from(documents);
        let first = get(&documents, "first.").await;
        let second = get(&documents, "second").await;
        assert!(Arc::ptr_eq(&first, &second), "its readers are given time");
    }

    #[tokio::test]
    async fn readers_of_a_young_version_are_given_time() {
        let documents = Documents::new(2, Duration::from_secs(3600));
        let first = get(&documents, "first").await;
        let second = get(&documents, "second").await;
        let third = get(&documents, "third").await;
        assert!(Arc::ptr_eq(&second, &third), "there is no place for another");
        assert_eq!(text(&first).as_deref(), Ok("first"));
    }

    #[tokio::test]
    async fn who_hangs_up_or_panics_keeps_nobody_waiting() {
        let documents = Documents::new(2, Duration::ZERO);
        let hasty = documents.get(|| Ok::<_, Infallible>(Vec::new()));
        assert!(timeout(Duration::ZERO, hasty).await.is_err() || documents.turn.try_lock().is_ok());
        let broken = documents.clone();
        let broken = tokio::spawn(async move {
            let _ = broken.get::<()>(|| std::panic::resume_unwind(Box::new("made wrong"))).await;
        });
        assert!(broken.await.expect_err("it panicked").is_panic());
        let made = timeout(Duration::from_secs(30), get(&documents, "after")).await;
        assert_eq!(text(&made.expect("in time")).as_deref(), Ok("after"));
    }
}
