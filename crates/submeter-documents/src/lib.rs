//! Large answers that many clients read at their own pace, in a bounded number of versions.
//!
//! An answer about every tenant has megabytes. Made for each client, it would cost that much for
//! each client that does not read. Here clients that ask at the same time share one version, and
//! versions are counted, not clients: a version that must go is withdrawn from its remaining
//! readers. A version consists of parts, which clients also share: a client that is being sent a
//! part holds only that part, never the whole.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// Size of each part of a document except the last: a client that reads nothing keeps only a few
/// parts from being freed.
pub const PART_BYTES: usize = 32 << 10;

/// The text of a [`Document`], written piece by piece. A text in one piece would be copied to ever
/// larger buffers as it grows.
///
/// # Examples
/// ```
/// use std::io::Write;
/// use submeter_documents::Parts;
///
/// let mut parts = Parts::from(b"[1".to_vec());
/// parts.write_all(b", 2]").expect("it takes all");
/// assert_eq!(parts.len(), 6);
/// ```
#[derive(Debug, Default)]
pub struct Parts {
    /// All are full except the last.
    parts: Vec<Vec<u8>>,
}

impl Parts {
    /// Returns the number of bytes written.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length to announce, not a collection")]
    pub fn len(&self) -> usize {
        let before = self.parts.len().saturating_sub(1) * PART_BYTES;
        before + self.parts.last().map_or(0, Vec::len)
    }
}

impl From<Vec<u8>> for Parts {
    fn from(bytes: Vec<u8>) -> Parts {
        let parts = match bytes.len() <= PART_BYTES {
            true => vec![bytes],
            false => bytes.chunks(PART_BYTES).map(<[u8]>::to_vec).collect(),
        };
        Parts { parts }
    }
}

impl From<Parts> for Vec<u8> {
    fn from(text: Parts) -> Vec<u8> {
        text.parts.concat()
    }
}

/// Accepts everything that is written.
impl io::Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.parts.last().is_none_or(|last| last.len() == PART_BYTES) {
            self.parts.push(Vec::with_capacity(PART_BYTES));
        }
        let last = self.parts.last_mut().expect("there is one");
        let taken = &bytes[..bytes.len().min(PART_BYTES - last.len())];
        last.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The number of bytes of answers in memory: those of versions that clients may read, and the parts
/// of withdrawn versions that are still being sent. Clones count together.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_documents::{Held, Versions};
///
/// let held = Held::default();
/// let mut versions = Versions::new(2, Duration::ZERO).counted(&held);
/// let version = versions.add(b"text".to_vec());
/// assert_eq!(held.bytes(), 4);
/// drop(version);
/// assert_eq!(held.bytes(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<AtomicUsize>);

impl Held {
    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Relaxed: a sum that publishes nothing else.
        self.0.load(Ordering::Relaxed)
    }
}

/// A part that is counted as long as it has an owner.
struct Part {
    bytes: Vec<u8>,
    held: Held,
}

impl Part {
    fn shared(mut bytes: Vec<u8>, held: &Held) -> Bytes {
        bytes.shrink_to_fit();
        // Relaxed, here and in `drop`: see `Held::bytes`. The owner's last clone subtracts what it
        // added, and the addition comes first in the modification order of this one word.
        held.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Part { bytes, held: held.clone() })
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Relaxed: see `shared`.
        self.held.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// One version of a large answer. It lives as long as it is read, and may be withdrawn.
pub struct Document {
    len: usize,
    parts: Mutex<Option<Vec<Bytes>>>,
}

/// The error for reading a [`Document`] that was withdrawn, because newer versions took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithdrawnError;

impl Document {
    fn new(text: Parts, held: &Held) -> Document {
        let len = text.len();
        let parts = text.parts.into_iter().map(|part| Part::shared(part, held)).collect();
        Document { len, parts: Mutex::new(Some(parts)) }
    }

    /// Returns the length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length to announce, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes from `at` on, at most [`PART_BYTES`]; nothing at the end. Costs no copy:
    /// all readers of this version share it.
    ///
    /// # Errors
    /// When the document was withdrawn.
    pub fn part(&self, at: usize) -> Result<Bytes, WithdrawnError> {
        let parts = self.parts.lock();
        let parts = parts.as_ref().ok_or(WithdrawnError)?;
        let Some(part) = parts.get(at / PART_BYTES) else { return Ok(Bytes::new()) };
        Ok(part.slice((at % PART_BYTES).min(part.len())..))
    }

    fn withdraw(&self) {
        // Freed after the lock is released.
        let parts = self.parts.lock().take();
        drop(parts);
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.len)
    }
}

/// The versions of one answer that are still being read: a bounded number.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_documents::{Document, Versions};
///
/// let mut versions = Versions::new(2, Duration::ZERO);
/// let read = |document: &Document| document.part(0).is_ok();
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
    held: Held,
    patience: Duration,
    /// The length of the newest version, which the next is assumed to have too.
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
    /// Keeps at most `most` versions, but at least one. While that many are being read and the
    /// oldest is younger than `patience`, its readers are given time: see
    /// [`Versions::newest_if_full`].
    #[must_use]
    pub fn new(most: usize, patience: Duration) -> Versions {
        let (most, alive) = (most.max(1), VecDeque::new());
        Versions { most, bytes: usize::MAX, held: Held::default(), patience, len: 0, alive }
    }

    /// Counts the bytes in memory in `held`, together with anything else that is counted there.
    #[must_use]
    pub fn counted(self, held: &Held) -> Versions {
        Versions { held: held.clone(), ..self }
    }

    /// Makes no second version if more than `bytes` would then be held, over everything that is
    /// [`counted`](Versions::counted) together. One version is always allowed.
    #[must_use]
    pub fn within(self, bytes: usize) -> Versions {
        Versions { bytes, ..self }
    }

    /// Returns the newest version if no further one should be made yet.
    pub fn newest_if_full(&mut self) -> Option<Arc<Document>> {
        self.forget_unread();
        let oldest = self.alive.front()?;
        let is_young = oldest.born.elapsed() < self.patience;
        if self.is_full() && is_young { self.newest() } else { None }
    }

    /// Adds a version, and withdraws the oldest if there would be too many.
    pub fn add(&mut self, text: impl Into<Parts>) -> Arc<Document> {
        self.add_numbered(0, text.into())
    }

    fn add_numbered(&mut self, number: u64, text: Parts) -> Arc<Document> {
        self.len = text.len();
        self.make_place();
        let document = Arc::new(Document::new(text, &self.held));
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
        let is_first = self.alive.is_empty();
        let bytes = self.held.bytes().saturating_add(self.len);
        self.alive.len() >= self.most || !is_first && bytes > self.bytes
    }

    fn forget_unread(&mut self) {
        self.alive.retain(|version| version.document.strong_count() > 0);
    }

    fn newest(&self) -> Option<Arc<Document>> {
        self.alive.back()?.document.upgrade()
    }
}

/// Makes versions of one answer, one at a time, for all clients.
///
/// A client gets a version that was begun after it asked, so that the version includes whatever the
/// client knew before. Clients that ask while one is being made share the next one. If as many
/// versions as allowed are still being read and none of them is old, which takes slow or hostile
/// clients, a client gets the newest existing one.
#[derive(Clone, Debug)]
pub struct Documents {
    state: Arc<Mutex<State>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct State {
    /// The number of versions begun.
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
    /// When `make` panics.
    pub async fn get<T: Into<Parts>, E: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, E> + Send + 'static,
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
            let text = make()?.into();
            Ok(state.lock().versions.add_numbered(number, text))
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

    /// Makes room before memory is taken for one more.
    fn begin(&mut self) -> u64 {
        self.versions.make_place();
        self.begun += 1;
        self.begun
    }
}

impl fmt::Display for WithdrawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was superseded by newer ones: ask again")
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
        loop {
            let part = document.part(text.len())?;
            if part.is_empty() {
                break;
            }
            text.extend_from_slice(&part);
        }
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
        // Both ask after the first has begun, which may lack what they know.
        let second = get(&documents, "second");
        let third = get(&documents, "third");
        // In this order, so that both have asked by the time the first is finished.
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

    /// Clients hold no more than the bound of all answers, or one version of each.
    #[tokio::test]
    async fn clients_hold_no_more_than_the_bound() {
        const LEN: usize = 3 * PART_BYTES + 1;
        let held = Held::default();
        let answer =
            || Documents::from(Versions::new(2, Duration::ZERO).counted(&held).within(3 * LEN));
        let answers = [answer(), answer()];
        let mut clients = Vec::new();
        for _ in 0..100 {
            for answer in &answers {
                let Ok(document) = answer.get(|| Ok::<_, Infallible>(vec![0; LEN])).await;
                clients.push(document);
                assert!(held.bytes() <= 3 * LEN, "{} bytes", held.bytes());
            }
        }
        let readable = clients.iter().filter(|document| document.part(0).is_ok()).count();
        assert!(readable >= 2, "{readable} versions: there is one of each");
        // A client that reads nothing keeps the part that it is being sent, and not the rest.
        let sent = clients.last().expect("many").part(0).expect("the newest");
        let Ok(newest) = answers[1].get(|| Ok::<_, Infallible>(Parts::default())).await;
        drop((clients, newest));
        assert_eq!((held.bytes(), sent.len()), (PART_BYTES, PART_BYTES));
        drop(sent);
        assert_eq!(held.bytes(), 0);
    }

    /// A text reads as it was written, wherever its parts end.
    #[test]
    fn a_text_in_parts_is_read_as_it_was_written() {
        let whole: Vec<u8> = (0..3 * PART_BYTES + 7).map(|at| (at % 251) as u8).collect();
        for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, whole.len()] {
            for piece in [1, 1000, PART_BYTES, whole.len()] {
                let mut written = Parts::default();
                for piece in whole[..len].chunks(piece) {
                    io::Write::write_all(&mut written, piece).expect("it takes all");
                }
                for parts in [written, Parts::from(whole[..len].to_vec())] {
                    assert_eq!(parts.len(), len);
                    let document = Document::new(parts, &Held::default());
                    for at in [0, len / 2, len.saturating_sub(1)] {
                        let part = document.part(at).expect("not withdrawn");
                        assert!(
                            whole[at..len].starts_with(&part) && part.is_empty() == (at >= len)
                        );
                    }
                    assert_eq!(document.part(len), Ok(Bytes::new()));
                }
            }
        }
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
        let hasty = documents.get(|| Ok::<_, Infallible>(Parts::default()));
        assert!(timeout(Duration::ZERO, hasty).await.is_err() || documents.turn.try_lock().is_ok());
        let broken = documents.clone();
        let broken = tokio::spawn(async move {
            let _ =
                broken.get::<Parts, ()>(|| std::panic::resume_unwind(Box::new("made wrong"))).await;
        });
        assert!(broken.await.expect_err("it panicked").is_panic());
        let made = timeout(Duration::from_secs(30), get(&documents, "after")).await;
        assert_eq!(text(&made.expect("in time")).as_deref(), Ok("after"));
    }
}
