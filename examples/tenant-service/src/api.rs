//! The API: documents of the tenant whose key a request has, and the tenants themselves.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response, Result};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use futures_util::future::OptionFuture;
use futures_util::{StreamExt, stream};
use rayon::prelude::*;
use submeter::admission::{Admission, Admitted};
use submeter::switch::{self, InGroup};
use submeter::{Bytes, Charge, Count, Counter, Metrics, Nanoseconds, Quota, Rate, RateLimit, Tree};
use submeter_alloc::exact::{self, Heap, OrOverHeap, OverLimit};
use submeter_http::{Dashboard, HttpMetrics, MeterLayer, RateLayer, refused};
use tokio::sync::Mutex;

use super::store::{self, BATCH, Document, Listed, PIECE, Plan, Store};

/// The maximum length of a document: its words are counted in memory.
const DOCUMENT_MAX: u64 = 64 << 20;

const SECOND: Duration = Duration::from_secs(1);

/// Number of a piece's bytes after which the work on a long document checks the tenant's limit and
/// lets another thread run that waits for its CPU. The kernel would let that wait for milliseconds.
const PART: usize = 1 << 10;

/// Number of words that are counted or freed without a pause.
const FEW: usize = 1 << 10;

/// Number of a document's most frequent words that are kept.
const WORDS_KEPT: usize = 10;

/// What is counted and limited for each tenant.
#[derive(Clone, Copy, Metrics)]
pub(crate) struct Keys {
    #[metric(all)]
    http: HttpMetrics,
    /// Bytes that requests and jobs hold
    pub(crate) memory: Quota<Bytes>,
    /// Heap memory that requests and jobs have allocated
    #[metric(all)]
    pub(crate) live: submeter_alloc::Live,
    /// Requests let in
    requests: RateLimit<Count>,
    /// Time that jobs waited for their tenant's turn
    turn_wait: Counter<Nanoseconds>,
    /// Time on a CPU: charged when threads switch groups, without further code
    #[metric(cpu_time)]
    _cpu: Counter<Nanoseconds>,
}

/// The state that handlers share. Cloning copies pointers.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) tree: Tree,
    pub(crate) keys: Keys,
    /// What tenants hold, charged or not.
    pub(crate) heap: Arc<Heap>,
    /// The queue in which jobs wait for their tenant's turn.
    pub(crate) turns: Admission,
    /// Held while a tenant is created or deleted, so that the database and the groups have the same
    /// tenants.
    pub(crate) operating: Arc<Mutex<()>>,
}

/// The tenant of a request.
#[derive(Clone)]
pub(crate) struct Tenant(Arc<str>);

impl Tenant {
    pub(crate) fn new(name: String) -> Tenant {
        Tenant(name.into())
    }

    /// Returns the path of its group.
    fn path(&self) -> String {
        format!("/{}", self.0)
    }
}

impl Api {
    /// Makes a tenant's group, or changes its limits.
    pub(crate) fn limit(&self, tenant: &Tenant, plan: Plan) -> store::Result<()> {
        let group = self.tree.get_or_create(&tenant.path())?;
        group.set_rate(self.keys.requests, Some(Rate::new(plan.requests_per_s, SECOND)))?;
        group.set_limit(self.keys.memory, Some(plan.memory_bytes));
        self.heap.set_limit(&group, Some(plan.heap_bytes))?;
        self.turns.set_weight(&group, Some(plan.weight))?;
        Ok(())
    }

    /// Charges memory to the tenant for as long as the returned charge lives.
    #[expect(clippy::result_large_err, reason = "an answer, which is moved once")]
    fn hold(&self, bytes: u64) -> std::result::Result<Option<Charge>, Response> {
        let held = switch::current().map(|tenant| tenant.try_charge(self.keys.memory, bytes));
        held.transpose().map_err(|full| refused(full).into_response())
    }

    /// Waits until, of the waiting tenants, this one has used least for its weight.
    async fn turn(&self) -> Result<Option<Admitted>> {
        let Some(tenant) = switch::current() else { return Ok(None) };
        let since = Instant::now();
        let place = self.turns.acquire(&tenant).await.map_err(refused);
        tenant.add(self.keys.turn_wait, since.elapsed().as_nanos() as u64);
        Ok(Some(place?))
    }
}

/// Returns the API for tenants. It uses one layer of the router, because each further layer boxes
/// the service, the answer and its body again, which costs several times as much as metering.
pub(crate) fn tenants_api(api: Api) -> Router {
    let tree = api.tree.clone();
    let group = move |request: &Request| {
        let Tenant(name) = request.extensions().get()?;
        tree.root().child(name)
    };
    routes(api.clone()).layer((
        middleware::from_fn_with_state(api.store, authenticate),
        MeterLayer::new(api.keys.http, group),
        RateLayer::new(api.keys.requests),
    ))
}

/// Returns the routes for tenants, once they are authenticated.
pub(crate) fn routes(api: Api) -> Router {
    Router::new()
        .route("/documents", get(list))
        .route("/documents/{name}", put(upload).get(download).delete(remove))
        .route("/documents/{name}/words", post(count_words).get(words))
        .route("/documents/{name}/vocabulary", get(vocabulary))
        .with_state(api)
}

/// Returns the API for the operator, with the page that shows the tenants.
pub(crate) fn operators_api(api: Api) -> Router {
    let page = submeter_http::router(Dashboard::new("documents", &api.tree));
    Router::new()
        .route("/tenants/{name}", put(create_tenant).delete(delete_tenant))
        .with_state(api)
        .fallback_service(page)
}

/// Finds the tenant of a request before everything else, because the request is handled in that
/// tenant's group.
pub(crate) async fn authenticate(
    State(store): State<Store>,
    mut request: Request,
    next: Next,
) -> Result<Response> {
    let header = request.headers().get(header::AUTHORIZATION);
    let key = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let tenant = key.map(|key| store.tenant(key).map_err(Broken::new)).transpose()?.flatten();
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let tenant = tenant.ok_or((StatusCode::UNAUTHORIZED, challenge, "no tenant has this key\n"))?;
    request.extensions_mut().insert(Tenant(tenant.into()));
    Ok(next.run(request).await)
}

async fn list(
    State(api): State<Api>,
    Extension(Tenant(tenant)): Extension<Tenant>,
) -> Result<Json<Vec<Listed>>> {
    Ok(Json(blocking(move || api.store.list(&tenant)).await?))
}

async fn upload(
    State(api): State<Api>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    Path(name): Path<String>,
    body: Body,
) -> Result<StatusCode> {
    let _held = api.hold(BATCH as u64)?;
    let mut upload = api.store.upload();
    let mut batch = Vec::new();
    let mut frames = body.into_data_stream();
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
        let mut rest = &frame[..];
        while batch.len() + rest.len() > BATCH {
            let (now, later) = rest.split_at(BATCH - batch.len());
            batch.extend_from_slice(now);
            rest = later;
            if upload.bytes() + BATCH as u64 > DOCUMENT_MAX {
                return Err(
                    (StatusCode::PAYLOAD_TOO_LARGE, "a document has at most 64 MiB\n").into()
                );
            }
            (upload, batch) = blocking(move || {
                upload.write(&batch)?;
                batch.clear();
                Ok((upload, batch))
            })
            .await?;
        }
        batch.extend_from_slice(rest);
    }
    let finish = move || {
        upload.write(&batch)?;
        upload.finish(&tenant, &name)
    };
    match blocking(finish).await? {
        true => Ok(StatusCode::CREATED),
        // The tenant was deleted meanwhile.
        false => Err(StatusCode::UNAUTHORIZED.into()),
    }
}

async fn download(
    State(api): State<Api>,
    Extension(tenant): Extension<Tenant>,
    Path(name): Path<String>,
) -> Result<Response> {
    let held = api.hold(PIECE as u64)?;
    let document = find(&api, &tenant, &name).await?;
    let headers = [
        (header::CONTENT_LENGTH, document.bytes().to_string()),
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
    ];
    let document = Arc::new(document);
    let pieces = stream::try_unfold(0, move |position| {
        let _ = &held;
        let document = Arc::clone(&document);
        async move {
            let piece = blocking(move || document.piece(position)).await?;
            Ok::<_, Broken>(piece.map(|piece| (piece, position + 1)))
        }
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

async fn remove(
    State(api): State<Api>,
    Extension(Tenant(tenant)): Extension<Tenant>,
    Path(name): Path<String>,
) -> Result<StatusCode> {
    match blocking(move || api.store.remove(&tenant, &name)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(StatusCode::NOT_FOUND.into()),
    }
}

/// Counts a document's words in the background, on all CPUs. It waits for the tenant's turn, so
/// that no tenant's jobs keep those of others waiting.
async fn count_words(
    State(api): State<Api>,
    Extension(tenant): Extension<Tenant>,
    Path(name): Path<String>,
) -> Result<StatusCode> {
    let turn = api.turn().await?;
    let document = find(&api, &tenant, &name).await?;
    let held = api.hold(document.bytes())?;
    rayon::spawn(switch::inherit(move || {
        let counted = most_frequent(&document)
            .and_then(|words| api.store.keep_words(&tenant.0, &name, document.number(), &words));
        if let Err(error) = counted {
            eprintln!("tenant-service: words of {name} of {} not counted: {error}", tenant.0);
        }
        drop((held, turn));
    }));
    Ok(StatusCode::ACCEPTED)
}

async fn words(
    State(api): State<Api>,
    Extension(tenant): Extension<Tenant>,
    Path(name): Path<String>,
) -> Result<String> {
    let document = find(&api, &tenant, &name).await?;
    let words = blocking(move || document.words()).await?;
    Ok(words.ok_or((StatusCode::NOT_FOUND, "not counted yet: POST here first\n"))?)
}

/// Answers how many different words a document has. The memory that this takes is known only
/// afterwards, so nothing is charged for it: a tenant that is over its heap limit loses the
/// request.
async fn vocabulary(
    State(api): State<Api>,
    Extension(tenant): Extension<Tenant>,
    Path(name): Path<String>,
) -> Result<String> {
    let document = find(&api, &tenant, &name).await?;
    let Some(group) = switch::current() else { return Err(StatusCode::UNAUTHORIZED.into()) };
    let known = count_known(document).in_group(&group).or_over_heap().await;
    Ok(format!("{}\n", known.map_err(Broken::new)??))
}

/// Counts the different words of a document, a piece at a time. Between two pieces the future may
/// end: because its tenant is over the limit, or because the client has gone.
///
/// Not in the polls themselves: whatever else a worker of the runtime has found to do would wait
/// for as long as a poll takes, and if it slept until a socket was ready, all sockets would.
async fn count_known(document: Document) -> Result<usize, Broken> {
    let (document, mut words) = (Arc::new(document), Words::default());
    for position in 0.. {
        let document = Arc::clone(&document);
        let counted = blocking(move || match document.piece(position)? {
            Some(piece) => Ok(ControlFlow::Continue(words.count(&piece)?)),
            None => Ok(ControlFlow::Break(words.len())),
        });
        words = match counted.await? {
            ControlFlow::Continue(words) => words,
            ControlFlow::Break(known) => return Ok(known),
        };
    }
    unreachable!("a document ends");
}

/// The different words of a text. It holds all of them.
#[derive(Default)]
struct Words {
    /// A tree, because it grows one node at a time and does not double its size.
    known: BTreeSet<Vec<u8>>,
    /// The beginning of the next word.
    word: Vec<u8>,
}

impl Words {
    /// Adds the words of the next piece. Frees all at the first part after which the tenant is over
    /// its limit.
    fn count(mut self, piece: &[u8]) -> store::Result<Words> {
        for part in piece.chunks(PART) {
            for &byte in part {
                if !byte.is_ascii_whitespace() {
                    self.word.push(byte);
                } else if self.known.contains(&self.word) {
                    self.word.clear();
                } else {
                    self.known.insert(std::mem::take(&mut self.word));
                }
            }
            exact::check()?;
            if self.known.len() > FEW {
                thread::yield_now();
            }
        }
        Ok(self)
    }

    fn len(mut self) -> usize {
        self.known.insert(std::mem::take(&mut self.word));
        self.known.remove(&[][..]);
        self.known.len()
    }
}

impl Drop for Words {
    /// Frees them in parts: a hundred thousand take milliseconds.
    fn drop(&mut self) {
        for (number, word) in std::mem::take(&mut self.known).into_iter().enumerate() {
            drop(word);
            if number % FEW == FEW - 1 {
                thread::yield_now();
            }
        }
    }
}

async fn create_tenant(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(plan): Query<Plan>,
) -> Result<(StatusCode, String)> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why + "\n");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(bad("a tenant's name must be 1 to 64 ASCII letters, digits or -".into()).into());
    }
    let _operating = api.operating.lock().await;
    let tenant = Tenant::new(name);
    api.limit(&tenant, plan).map_err(|error| bad(error.to_string()))?;
    let key = blocking(move || api.store.admit(&tenant.0, plan)).await?;
    Ok((StatusCode::CREATED, key + "\n"))
}

/// Deletes a tenant and everything that it stored. Answers once all work in flight for it has
/// ended.
async fn delete_tenant(State(api): State<Api>, Path(name): Path<String>) -> Result<StatusCode> {
    let tenant = Tenant::new(name);
    let path = tenant.path();
    let operating = api.operating.lock().await;
    if !blocking(move || api.store.delete(&tenant.0)).await? {
        return Err(StatusCode::NOT_FOUND.into());
    }
    let killed = api.tree.get(&path).and_then(|group| group.kill().ok());
    drop(operating);
    OptionFuture::from(killed.map(IntoFuture::into_future)).await;
    Ok(StatusCode::NO_CONTENT)
}

async fn find(api: &Api, Tenant(tenant): &Tenant, name: &str) -> Result<Document> {
    let (store, tenant, name) = (api.store.clone(), Arc::clone(tenant), name.to_owned());
    let document = blocking(move || store.document(&tenant, &name)).await?;
    Ok(document.ok_or((StatusCode::NOT_FOUND, "no document has this name\n"))?)
}

/// Returns the most frequent words, one per line, each after its count.
fn most_frequent(document: &Document) -> store::Result<String> {
    let mut text = Vec::new();
    for position in 0.. {
        let Some(piece) = document.piece(position)? else { break };
        text.extend_from_slice(&piece);
    }
    let words = text.par_split(|byte| byte.is_ascii_whitespace()).in_current_group();
    let counts = words.filter(|word| !word.is_empty()).fold(HashMap::new, |mut counts, word| {
        *counts.entry(word).or_insert(0) += 1;
        counts
    });
    let counts: HashMap<&[u8], u64> = counts.reduce(HashMap::new, |mut all, counts| {
        counts.into_iter().for_each(|(word, n)| *all.entry(word).or_insert(0) += n);
        all
    });
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by(|(a, n), (b, m)| m.cmp(n).then(a.cmp(b)));
    let lines = counts.iter().take(WORDS_KEPT);
    Ok(lines.map(|(word, n)| format!("{n} {}\n", String::from_utf8_lossy(word))).collect())
}

/// Runs work that may wait for a disk on a thread where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> store::Result<T> + Send + 'static,
) -> std::result::Result<T, Broken> {
    let done = tokio::task::spawn_blocking(switch::inherit(work)).await;
    done.map_err(Broken::new)?.map_err(Broken::new)
}

/// The error of a request that failed through no fault of its client, or whose tenant is over its
/// heap limit.
#[derive(Debug)]
struct Broken(Box<dyn Error + Send + Sync>);

impl Broken {
    fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Broken {
        Broken(cause.into())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Broken {}

impl IntoResponse for Broken {
    fn into_response(self) -> Response {
        if self.0.is::<OverLimit>() {
            return (StatusCode::INSUFFICIENT_STORAGE, format!("{self}\n")).into_response();
        }
        eprintln!("tenant-service: {self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
