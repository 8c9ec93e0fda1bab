//! The service's storage: API keys, documents and their word counts. It blocks, so it is called on
//! threads where that is allowed.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Number of bytes of a document that are read at once.
pub(crate) const PIECE: usize = 64 << 10;

/// Number of bytes of a document that are written at once: the disk has to confirm each write.
pub(crate) const BATCH: usize = 16 * PIECE;

/// Tenants: the digest of the API key, so that the file does not reveal keys, and the tenant's
/// plan.
const TENANTS: TableDefinition<&str, (&[u8], u64, u64, u64, u32)> = TableDefinition::new("tenants");
/// Tenants by the digests of their keys.
const KEYS: TableDefinition<&[u8], &str> = TableDefinition::new("key_digests");
/// The numbers and lengths of documents, by tenant and name.
const DOCUMENTS: TableDefinition<(&str, &str), (u64, u64)> = TableDefinition::new("documents");
/// The pieces of documents, by number and position.
const PIECES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("pieces");
/// The word counts of documents, by number.
const WORDS: TableDefinition<u64, &str> = TableDefinition::new("words");

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The database. Cloning copies a pointer.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    database: Database,
    /// The number of the next document.
    next: AtomicU64,
}

/// What a tenant may use.
#[derive(Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) requests_per_s: u64,
    /// Memory that its requests and jobs may charge beforehand.
    pub(crate) memory_bytes: u64,
    /// Heap memory that they may have allocated in total.
    pub(crate) heap_bytes: u64,
    /// Its share of the CPUs relative to other tenants, while all have words to count.
    pub(crate) weight: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { requests_per_s: 1_000, memory_bytes: 4 << 20, heap_bytes: 32 << 20, weight: 100 }
    }
}

/// One document in a list.
#[derive(Serialize)]
pub(crate) struct Listed {
    name: String,
    bytes: u64,
}

impl Store {
    /// Opens a file, or creates it, and removes what uploads left when a crash interrupted them.
    pub(crate) fn open(path: &Path) -> Result<Store> {
        let database = Database::create(path)?;
        let writing = database.begin_write()?;
        writing.open_table(TENANTS)?;
        writing.open_table(KEYS)?;
        writing.open_table(WORDS)?;
        let mut known = Vec::new();
        for document in writing.open_table(DOCUMENTS)?.iter()? {
            known.push(document?.1.value().0);
        }
        known.sort_unstable();
        let mut pieces = writing.open_table(PIECES)?;
        pieces.retain(|(number, _), _| known.binary_search(&number).is_ok())?;
        drop(pieces);
        writing.commit()?;
        let next = AtomicU64::new(known.last().map_or(0, |last| last + 1));
        Ok(Store(Arc::new(Inner { database, next })))
    }

    /// Makes a key that identifies requests as those of `tenant`, in place of an earlier key.
    pub(crate) fn admit(&self, tenant: &str, plan: Plan) -> Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        let key = bytes.map(|byte| format!("{byte:02x}")).concat();
        let writing = self.0.database.begin_write()?;
        revoke(&writing, tenant)?;
        let Plan { requests_per_s, memory_bytes, heap_bytes, weight } = plan;
        let known = (&digest(&key)[..], requests_per_s, memory_bytes, heap_bytes, weight);
        writing.open_table(TENANTS)?.insert(tenant, known)?;
        writing.open_table(KEYS)?.insert(&digest(&key)[..], tenant)?;
        writing.commit()?;
        Ok(key)
    }

    /// Returns all tenants and their plans.
    pub(crate) fn tenants(&self) -> Result<Vec<(String, Plan)>> {
        let tenants = self.0.database.begin_read()?.open_table(TENANTS)?;
        let mut found = Vec::new();
        for tenant in tenants.iter()? {
            let (name, known) = tenant?;
            let (_, requests_per_s, memory_bytes, heap_bytes, weight) = known.value();
            let plan = Plan { requests_per_s, memory_bytes, heap_bytes, weight };
            found.push((name.value().to_owned(), plan));
        }
        Ok(found)
    }

    /// Returns the tenant that has this key. Mostly from memory, so it does not count as blocking.
    pub(crate) fn tenant(&self, key: &str) -> Result<Option<String>> {
        let known = self.0.database.begin_read()?.open_table(KEYS)?;
        Ok(known.get(&digest(key)[..])?.map(|tenant| tenant.value().to_owned()))
    }

    /// Forgets a tenant, its key and everything it stored: from then on no request is the tenant's.
    /// Returns whether there was one.
    pub(crate) fn delete(&self, tenant: &str) -> Result<bool> {
        let writing = self.0.database.begin_write()?;
        let found = revoke(&writing, tenant)?;
        for listed in self.list(tenant)? {
            remove(&writing, tenant, &listed.name)?;
        }
        writing.commit()?;
        Ok(found)
    }

    pub(crate) fn list(&self, tenant: &str) -> Result<Vec<Listed>> {
        let documents = self.0.database.begin_read()?.open_table(DOCUMENTS)?;
        let mut listed = Vec::new();
        for document in documents.range((tenant, "")..)? {
            let (key, value) = document?;
            let (of, name) = key.value();
            if of != tenant {
                break;
            }
            listed.push(Listed { name: name.to_owned(), bytes: value.value().1 });
        }
        Ok(listed)
    }

    /// Removes a document; returns whether there was one.
    pub(crate) fn remove(&self, tenant: &str, name: &str) -> Result<bool> {
        let writing = self.0.database.begin_write()?;
        let found = remove(&writing, tenant, name)?;
        writing.commit()?;
        Ok(found)
    }

    /// Opens a document as it is now: later changes are not seen through it.
    pub(crate) fn document(&self, tenant: &str, name: &str) -> Result<Option<Document>> {
        let reading = self.0.database.begin_read()?;
        let found = reading.open_table(DOCUMENTS)?.get((tenant, name))?.map(|found| found.value());
        Ok(found.map(|(number, bytes)| Document { reading, number, bytes }))
    }

    /// Begins a document, which is not visible until it is finished.
    pub(crate) fn upload(&self) -> Upload {
        // Relaxed: all that matters is that the number is unique.
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        Upload { store: self.clone(), number, pieces: 0, bytes: 0, finished: false }
    }

    fn remove_upload(&self, number: u64) -> Result<()> {
        let writing = self.0.database.begin_write()?;
        remove_pieces(&writing, number)?;
        Ok(writing.commit()?)
    }

    /// Stores the word counts of a document, unless it is gone.
    pub(crate) fn keep_words(&self, tenant: &str, name: &str, of: u64, words: &str) -> Result<()> {
        let writing = self.0.database.begin_write()?;
        let now = writing.open_table(DOCUMENTS)?.get((tenant, name))?.map(|found| found.value().0);
        if now == Some(of) {
            writing.open_table(WORDS)?.insert(of, words)?;
        }
        Ok(writing.commit()?)
    }
}

/// A document as it was when it was opened.
pub(crate) struct Document {
    reading: ReadTransaction,
    number: u64,
    bytes: u64,
}

impl Document {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns one piece, or none after the last.
    pub(crate) fn piece(&self, position: u64) -> Result<Option<Vec<u8>>> {
        let pieces = self.reading.open_table(PIECES)?;
        Ok(pieces.get((self.number, position))?.map(|piece| piece.value().to_vec()))
    }

    /// Returns its word counts, if they are done.
    pub(crate) fn words(&self) -> Result<Option<String>> {
        Ok(self.reading.open_table(WORDS)?.get(self.number)?.map(|words| words.value().to_owned()))
    }
}

/// A document that is being written. Removes what it wrote unless it is finished.
pub(crate) struct Upload {
    store: Store,
    number: u64,
    pieces: u64,
    bytes: u64,
    finished: bool,
}

impl Upload {
    /// Writes the next part, in whole pieces except at the end. Transactions run one after another,
    /// so none may last as long as an upload: a slow client would keep others waiting.
    pub(crate) fn write(&mut self, batch: &[u8]) -> Result<()> {
        let writing = self.store.0.database.begin_write()?;
        let mut table = writing.open_table(PIECES)?;
        let mut pieces = self.pieces;
        for piece in batch.chunks(PIECE) {
            table.insert((self.number, pieces), piece)?;
            pieces += 1;
        }
        drop(table);
        writing.commit()?;
        (self.pieces, self.bytes) = (pieces, self.bytes + batch.len() as u64);
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stores it as the tenant's document of this name, replacing an earlier one. Returns `false`
    /// if the tenant was deleted meanwhile.
    pub(crate) fn finish(mut self, tenant: &str, name: &str) -> Result<bool> {
        let writing = self.store.0.database.begin_write()?;
        let exists = writing.open_table(TENANTS)?.get(tenant)?.is_some();
        if exists {
            remove(&writing, tenant, name)?;
            let document = (self.number, self.bytes);
            writing.open_table(DOCUMENTS)?.insert((tenant, name), document)?;
        }
        writing.commit()?;
        self.finished = exists;
        Ok(exists)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.finished || self.pieces == 0 {
            return;
        }
        let (store, number) = (self.store.clone(), self.number);
        // It may be dropped where blocking is not allowed, as when a client disconnects.
        tokio::task::spawn_blocking(submeter::switch::inherit(move || {
            if let Err(error) = store.remove_upload(number) {
                eprintln!(
                    "tenant-service: pieces of an upload remain until the next start: {error}"
                );
            }
        }));
    }
}

fn revoke(writing: &WriteTransaction, tenant: &str) -> Result<bool> {
    let known = writing.open_table(TENANTS)?.remove(tenant)?.map(|was| was.value().0.to_vec());
    if let Some(digest) = &known {
        writing.open_table(KEYS)?.remove(&digest[..])?;
    }
    Ok(known.is_some())
}

fn remove(writing: &WriteTransaction, tenant: &str, name: &str) -> Result<bool> {
    let removed = writing.open_table(DOCUMENTS)?.remove((tenant, name))?.map(|was| was.value().0);
    if let Some(number) = removed {
        writing.open_table(WORDS)?.remove(number)?;
        remove_pieces(writing, number)?;
    }
    Ok(removed.is_some())
}

fn remove_pieces(writing: &WriteTransaction, number: u64) -> Result<()> {
    let mut pieces = writing.open_table(PIECES)?;
    Ok(pieces.retain_in((number, 0)..=(number, u64::MAX), |_, _| false)?)
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}
