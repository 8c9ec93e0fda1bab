//! How a program describes itself to its page.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use submeter::export::Export;
use submeter::{Killed, Schema, Tree};

use super::deletion::{self, Delete};
use super::panel::Panel;
use super::token::Token;
use super::views::Views;
use super::wire::{Figure, FirstStepsDoc, LimitDoc, ServerDoc, VerdictKind};

/// Applies limits from a text, and answers the client.
pub(super) type SetLimits = Arc<dyn Fn(String) -> BoxFuture<'static, Response> + Send + Sync>;

/// Sets the limits of the group of a path from a text, and answers the client.
pub(super) type SetLimit =
    Arc<dyn Fn(String, String) -> BoxFuture<'static, Response> + Send + Sync>;

/// Returns the limit that would end a verdict.
pub(super) type Remedy = Arc<dyn Fn(&Offence<'_>) -> Option<String> + Send + Sync>;

/// Returns what everybody must know now, if there is anything.
type Notice = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Chooses what `/metrics` exports.
pub(super) type Choose = Arc<dyn Fn(Export) -> Export + Send + Sync>;

/// What clients may change, if the program asked for it.
#[derive(Clone, Default)]
pub(super) struct Changes {
    pub(super) delete: Option<Delete>,
    pub(super) limits: Option<SetLimits>,
    pub(super) limit: Option<SetLimit>,
}

/// A program as its page shows it. Everything has a default.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
/// use submeter_http::{Dashboard, View, Views};
///
/// let mut schema = Schema::builder();
/// let jobs = schema.counter::<Count>("jobs", "Jobs done");
/// let tree = Tree::new(schema.build()?)?;
///
/// let dashboard = Dashboard::new("worker", &tree)
///     .version(env!("CARGO_PKG_VERSION"))
///     .views(Views::new(vec![View::rate("jobs_per_s", "Jobs/s", [jobs])]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Dashboard {
    pub(super) tree: Tree,
    /// `None` for the views that the tree's schema suggests, also after it has grown.
    views: Option<Views>,
    pub(super) name: String,
    /// The name, made valid as the beginning of metric names.
    pub(super) prefix: String,
    pub(super) chosen: Option<Choose>,
    pub(super) server: ServerDoc,
    pub(super) member: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) token: Option<Token>,
    pub(super) changes: Changes,
    pub(super) remedy: Option<Remedy>,
    notices: Vec<Notice>,
    pub(super) panels: Vec<Panel>,
    pub(super) answers_max: usize,
}

impl Dashboard {
    /// Shows a tree with the views of [`Views::of`]. `name` is the program's name. The page shows
    /// it as it is, and every metric in `/metrics` begins with it, with an underscore for each
    /// character that metric names may not have: `mini-redis` begins `mini_redis_commands_total`.
    #[must_use]
    pub fn new(name: &str, tree: &Tree) -> Dashboard {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Dashboard {
            tree: tree.clone(),
            views: None,
            name: name.to_owned(),
            prefix: prefix(name),
            chosen: None,
            server: ServerDoc {
                version: String::new(),
                listen: name.to_owned(),
                started_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
                notice: None,
                first_steps: None,
                limit_example: None,
                sets_limits: false,
                asks_token: false,
            },
            member: None,
            hosts: Vec::new(),
            token: None,
            changes: Changes::default(),
            remedy: None,
            notices: Vec::new(),
            panels: Vec::new(),
            answers_max: usize::MAX,
        }
    }

    /// Chooses what `/metrics` exports: which groups, how deep, for how many scrapers. The default
    /// is that of [`Export::new`]: a hundred groups that have limits or are busy, and the others as
    /// `//other`, to which a new group belongs, too, in its first scrapes.
    ///
    /// Not for other names or labels: the program's name and version are already set.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # use submeter_http::Dashboard;
    /// # let mut schema = Schema::builder();
    /// # let jobs = schema.counter::<Count>("jobs", "Jobs done");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let dashboard = Dashboard::new("worker", &tree);
    /// let dashboard = dashboard.export(move |e| e.top(5_000, jobs).scrapers(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn export(
        mut self,
        choose: impl Fn(Export) -> Export + Send + Sync + 'static,
    ) -> Dashboard {
        self.chosen = Some(Arc::new(choose));
        self
    }

    /// Shows these figures, instead of one or more for each metric. Metrics that libraries
    /// [declare](Tree::declare) in the tree later are then shown in the detail of a group.
    #[must_use]
    pub fn views(self, views: Views) -> Dashboard {
        Dashboard { views: Some(views), ..self }
    }

    /// Returns the views for a tree with this schema.
    pub(super) fn views_of(&self, schema: &Schema) -> Views {
        self.views.clone().unwrap_or_else(|| Views::of(schema))
    }

    /// Shows a table below the groups, after those added before.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Dashboard {
        self.panels.push(panel);
        self
    }

    /// Bounds the total bytes of all large answers (`/api/tree`, `/api/totals`, `/metrics`) that
    /// clients are reading. Without it, there are at most two versions of each. Each may have one
    /// version, however large the tree is: clients then share it, for at most half a minute while
    /// one of them is slow. The bound leaves out one version of each that is being made, two of
    /// `/metrics`, and 96 KiB for each connection that was being sent a version that was withdrawn.
    #[must_use]
    pub fn answers_max(self, bytes: usize) -> Dashboard {
        Dashboard { answers_max: bytes, ..self }
    }

    /// Sets the version of the program.
    #[must_use]
    pub fn version(mut self, version: &str) -> Dashboard {
        version.clone_into(&mut self.server.version);
        self
    }

    /// Sets the address at which the program serves its own clients. The page then shows it instead
    /// of the name.
    #[must_use]
    pub fn listen(mut self, listen: &str) -> Dashboard {
        listen.clone_into(&mut self.server.listen);
        self
    }

    /// Names the program among those that are billed together, in `/api/totals`. The default is
    /// where it [listens](Dashboard::listen). Names are for people: counts are told apart without
    /// them.
    #[must_use]
    pub fn member(self, name: &str) -> Dashboard {
        Dashboard { member: Some(name.to_owned()), ..self }
    }

    /// Shows a sentence above the page and in `submeter top`, for as long as `notice` returns one,
    /// after those added before. `notice` is called each time the tree is looked at, as the rows of
    /// a [`Panel`] are, and must not wait for anything.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # use submeter::{Schema, Tree};
    /// # use submeter_http::Dashboard;
    /// static IS_FULL: AtomicBool = AtomicBool::new(false);
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let shown = Dashboard::new("worker", &tree).notice(|| {
    ///     // Relaxed: a flag, and no more.
    ///     IS_FULL.load(Ordering::Relaxed).then(|| "The disk is full: no job begins.".to_owned())
    /// });
    /// # let _ = shown;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn notice(
        mut self,
        notice: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Dashboard {
        self.notices.push(Arc::new(notice));
        self
    }

    /// Returns the notices of this moment.
    pub(super) fn notices(&self) -> Option<String> {
        let notices: Vec<String> = self.notices.iter().filter_map(|notice| notice()).collect();
        (!notices.is_empty()).then(|| notices.join(" "))
    }

    /// Describes the program as it is now.
    pub(super) fn server(&self) -> ServerDoc {
        ServerDoc { notice: self.notices(), ..self.server.clone() }
    }

    /// Tells how to create the first group, with a line to paste into a shell. It is shown while
    /// there is only the root.
    #[must_use]
    pub fn first_steps(mut self, text: &str, command: &str) -> Dashboard {
        let (text, command) = (text.to_owned(), command.to_owned());
        self.server.first_steps = Some(FirstStepsDoc { text, command });
        self
    }

    /// Also answers requests to this name. Without it a request's `Host` must be `localhost` or an
    /// address: another site's page that points its own name here gets no answer.
    #[must_use]
    pub fn host(mut self, name: &str) -> Dashboard {
        self.hosts.push(name.to_owned());
        self
    }

    /// Answers only clients that show the token, except at `/healthz`.
    #[must_use]
    pub fn token(mut self, token: Token) -> Dashboard {
        self.server.asks_token = true;
        Dashboard { token: Some(token), ..self }
    }

    /// Lets clients delete tenants: `DELETE /api/group?path=`, with the header `X-Submeter: 1`,
    /// [kills](submeter::Group::kill_subtree) the group and everything below it, calls `purge` for
    /// each, the group itself last, and waits up to ten seconds for requests in flight. The answer
    /// is 200 if all are released, 202 with what still holds them, 404, 409 for the root, or 500
    /// with the groups whose `purge` panicked: the others are purged all the same.
    ///
    /// What the program keeps in the groups ([`data_or_init`](submeter::Group::data_or_init)) is
    /// dropped by itself: then `purge` may be `|_| ()`. It drops what the program keeps elsewhere,
    /// with its charges, under the lock that requests hold when they store: see
    /// [Kill, purge, wait](submeter::guide::lifetimes). Key that data by
    /// [`Group::id`](submeter::Group::id), not by path: a successor may be at the path already. For
    /// answers of your own, use [`on_delete`](Dashboard::on_delete).
    ///
    /// # Examples
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, Mutex};
    /// use submeter::{Charge, Schema, Tree};
    /// use submeter_http::Dashboard;
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let items = Arc::new(Mutex::new(HashMap::<u64, Charge>::new())); // by `Group::id`
    /// let dashboard = Dashboard::new("service", &tree)
    ///     .deletes(move |killed| drop(items.lock().unwrap().remove(&killed.id())));
    /// # let _ = dashboard;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deletes(self, purge: impl Fn(&Killed) + Send + Sync + 'static) -> Dashboard {
        let (tree, purge) = (self.tree.clone(), Arc::new(purge));
        self.on_delete(move |path| {
            let purge = Arc::clone(&purge);
            deletion::kill_purge_wait(tree.clone(), path, move |killed| purge(killed))
        })
    }

    /// Lets clients delete groups: `DELETE /api/group?path=`, with the header `X-Submeter: 1`, gets
    /// the answer of `delete` for the path. It runs to its end even if the client hangs up. Without
    /// it nothing here changes the tree.
    ///
    /// The path is as the client sent it. [`deletes`](Dashboard::deletes) has the usual answers.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    /// use submeter_http::{Dashboard, StatusCode};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let tenants = tree.clone();
    /// let dashboard = Dashboard::new("service", &tree).on_delete(move |path| {
    ///     let group = tenants.get(&path);
    ///     async move {
    ///         match group.map(|group| group.kill()) {
    ///             Some(Ok(_)) => (StatusCode::OK, "deleted\n".to_owned()),
    ///             Some(Err(why)) => (StatusCode::CONFLICT, format!("{why}\n")),
    ///             None => (StatusCode::NOT_FOUND, "no such tenant\n".to_owned()),
    ///         }
    ///     }
    /// });
    /// # let _ = dashboard;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_delete<F, Answer>(
        mut self,
        delete: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Dashboard
    where
        F: Future<Output = Answer> + Send + 'static,
        Answer: IntoResponse + 'static,
    {
        let delete = move |path| delete(path).map(IntoResponse::into_response).boxed();
        self.changes.delete = Some(Arc::new(delete));
        self
    }

    /// Lets clients set limits: `POST /api/limits`, with the header `X-Submeter: 1`, gets the
    /// answer of `set` for its body, such as a [`StatusCode`](crate::StatusCode) with a text. It
    /// runs to its end even if the client hangs up.
    ///
    /// The body is as the client sent it, up to 2 MiB of text: only the program knows what a limit
    /// is and how it is written. Where other machines reach the page, also require a [`Token`], or
    /// leave this out.
    #[must_use]
    pub fn on_limits<F, Answer>(
        mut self,
        set: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Dashboard
    where
        F: Future<Output = Answer> + Send + 'static,
        Answer: IntoResponse + 'static,
    {
        let set = move |text| set(text).map(IntoResponse::into_response).boxed();
        self.changes.limits = Some(Arc::new(set));
        self
    }
}

impl Dashboard {
    /// Lets clients set the limits of one group: `POST /api/limit?path=`, with the header
    /// `X-Submeter: 1`, gets the answer of `set` for the path and its body: the limits that the
    /// group then has with the body that would undo the change, or why it failed. It runs to its
    /// end even if the client hangs up. The page then has a button for it, which asks first, and
    /// one to undo it; `submeter limit set` does the same from a shell.
    ///
    /// As with [`on_limits`](Dashboard::on_limits), only the program knows how a limit is written.
    /// Where other machines reach the page, also require a [`Token`], or leave this out.
    #[must_use]
    pub fn on_limit<F>(
        mut self,
        set: impl Fn(String, String) -> F + Send + Sync + 'static,
    ) -> Dashboard
    where
        F: Future<Output = Result<LimitDoc, (StatusCode, String)>> + Send + 'static,
    {
        let answer = |set: Result<LimitDoc, _>| {
            let json = |doc| serde_json::to_string(&doc).expect("texts");
            set.map(|doc| ([(CONTENT_TYPE, "application/json")], json(doc))).into_response()
        };
        self.changes.limit = Some(Arc::new(move |path, text| set(path, text).map(answer).boxed()));
        self.server.sets_limits = true;
        self
    }

    /// Shows how limits are written, as in `rate=500/s`, and makes verdicts name the limit that
    /// would end them: `remedy` returns `None` if no limit would. The line that the page shows for
    /// a file of limits is the path, a blank and the limit. A path with blanks or invisible
    /// characters is quoted there, as in JSON.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # use submeter_http::Dashboard;
    /// # let mut schema = Schema::builder();
    /// # let jobs = schema.counter::<Count>("jobs", "Jobs done");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let shown = Dashboard::new("worker", &tree).remedies("jobs=500/s", |offence| {
    ///     let jobs = offence.figure("jobs_per_s").filter(|_| offence.kind.is_blame())?;
    ///     Some(format!("jobs={:.0}/s", (jobs / 2.0).max(1.0)))
    /// });
    /// # let _ = shown;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn remedies(
        mut self,
        example: &str,
        remedy: impl Fn(&Offence<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Dashboard {
        self.server.limit_example = Some(example.to_owned());
        self.remedy = Some(Arc::new(remedy));
        self
    }
}

/// A verdict on a group for which a limit may be set.
#[derive(Debug)]
pub struct Offence<'a> {
    /// The kind of the verdict.
    pub kind: VerdictKind,
    /// The key of the view that the verdict is based on.
    pub view: &'a str,
    /// What the group usually has of that view, if the verdict is based on that.
    pub usual: Option<f64>,
    /// The limit of a group above it that refuses, if the verdict is that this one has most of what
    /// that may have.
    pub shared: Option<f64>,
    pub(super) views: &'a Views,
    pub(super) figures: &'a [Figure],
}

impl Offence<'_> {
    /// Returns a figure of the group by the key of its view, as it was in the greatest second of
    /// the verdict lately.
    #[must_use]
    pub fn figure(&self, key: &str) -> Option<f64> {
        self.figures[self.views.place(key)?].0
    }
}

/// Returns the name with an underscore for each character that metric names may not have.
fn prefix(name: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut prefix: String = name.chars().map(part).collect();
    if prefix.is_empty() || prefix.starts_with(|c: char| c.is_ascii_digit()) {
        prefix.insert(0, '_');
    }
    prefix
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dashboard").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
