//! `submeter serve`: the cache, its page, and a load on request, until a signal or a time.

mod checkpoint;
mod conservation;
mod deletion;
mod demo;
mod doors;
mod files;
mod fleet;
mod keys;
mod limits;
mod otlp;
mod places;
mod reload;
mod service;
mod shown;
mod summary;

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};
use submeter_cache::{Address, Cache, Config, Server};
use submeter_http::Dashboard;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::checkpoint::Saver;
use self::deletion::Deleted;
use self::keys::Keys;
use crate::cli::{self, ServeArgs};
use crate::logger;
use crate::shortage;
use submeter_load::drive::{self, Outcome, Plan};
use submeter_load::tenants_file;
use submeter_terminal::Failure;
use submeter_terminal::signals;
use submeter_terminal::{self as show, BOLD, DIM};

/// Connections of `--load`, and requests under way on each: enough to keep the server busy.
const LOAD_CONNECTIONS: usize = 8;
const LOAD_PIPELINE: usize = 8;

/// Threads for all that is no request: clients that connect, the page, signals.
const OTHER_THREADS: usize = 2;

/// Runs the command. A sum that is not exact, a corrupt value or totals that could not be saved at
/// the end make the exit code 1.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    logger::start(args.log);
    for line in cli::misspelt() {
        log::warn!("{line}");
    }
    run_until_end(args).or_else(|failure| logger::report(args.log, failure))
}

fn run_until_end(args: &ServeArgs) -> Result<ExitCode, Failure> {
    // Before anything else: Ctrl-C during the start ends with a summary too.
    let early = signals::Early::new().map_err(|e| deaf(&e))?;
    // Connections take a descriptor each, and the usual soft limit of 1,024 is there only for
    // programs that use select(2). Where the hard limit is no higher this many must do.
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let _ =
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    let runtime = runtime(Some(OTHER_THREADS))?;
    let code = runtime.block_on(async {
        let signals = early.listen().map_err(|e| deaf(&e))?;
        serve(args, signals).await
    });
    // Connections that outlived the grace period must not hold the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

fn deaf(error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot listen to signals: {error}"))
}

async fn serve(args: &ServeArgs, signals: watch::Receiver<bool>) -> Result<ExitCode, Failure> {
    let hangups = reload::hangups().map_err(|e| deaf(&e))?;
    doors::check_limits_api(args)?;
    let Some(read) = files::read(args, signals.clone()).await? else {
        log::info!("stopped before it served");
        return Ok(ExitCode::SUCCESS);
    };
    let files::Read { cache, totals, keys, plan } = read;
    let plan = plan?;
    let Keys { users, token, tls, .. } = keys.clone();
    let server = listening(args, &cache).await?;
    let http =
        TcpListener::bind(args.http).await.map_err(|e| cannot_listen("--http", args.http, &e))?;
    let listen = server.address().clone();
    let name = fleet::name(args, &listen);
    let exporter = otlp::start(args, &cache, &name)?;
    let page_at = http.local_addr().map_err(|e| cannot_listen("--http", args.http, &e))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let cache_port = doors::Port { addr: listen.tcp(), is_guarded: users.is_some() };
    let page_port = doors::Port { addr: Some(page_at), is_guarded: token.is_some() };
    if let Some(warning) = doors::warning(cache_port, page_port, tls.is_some()) {
        log::warn!("{warning}");
    }
    let member = fleet::join(args, &cache, &listen)?;
    let limiter = reload::start(hangups, args, &cache, keys.with_bank(args, member.as_ref()));
    // Only now: what cannot serve leaves the file as it was.
    let saver = checkpoint::start(totals, args.checkpoint_seconds, &cache).await?;
    let also = (member.as_ref(), saver.as_ref());
    let greeting = greeting(args, &cache, &listen, page_at, scheme, also);
    show::print(&greeting).map_err(Failure::new)?;
    let server = shortage::told(doors::guard(server, users, tls.as_ref()));

    let (end, ended) = watch::channel(false);
    let driven_at = listen.tcp().map(reachable);
    let started = Instant::now();
    let mut serving = tokio::spawn(server.run(signals::arrived(ended.clone())));
    let watched = plan.as_ref().map(conservation::compared).unwrap_or_default();
    let deleted = Deleted::watching(watched);
    let shown = shown::shown(&cache, &listen, &deleted).member(&name);
    let shown = places::show(asked_for(shown, args, limiter, also), &cache);
    let shown = token.into_iter().fold(shown, Dashboard::token);
    let door = doors::page(http, tls, cache.config().drain).on_shortage(shortage::tell);
    let page = submeter_http::serve(door, shown, signals::arrived(ended));
    let mut paging = tokio::spawn(page);
    service::ready(&listen, &format!("{scheme}://{page_at}/"));
    let signals = or_shutdown(signals, cache.clone(), args.end_with_stdin);
    let plan = plan.zip(driven_at).map(|(plan, server)| Plan { server, ..plan });
    let driven = tokio::select! {
        driven = work(plan.as_ref(), args.seconds, signals) => driven,
        ended = &mut serving => Err(stopped("the cache", ended)),
        ended = &mut paging => Err(stopped("the page", ended)),
    };
    service::stopping();
    end.send_replace(true);
    let (outcome, took) = match both_ended(driven, serving, paging, started).await {
        Ok(ended) => ended,
        Err(failure) => {
            checkpoint::give_up(saver, &cache).await;
            return Err(failure);
        }
    };
    let saved = checkpoint::finish(saver, &cache).await;
    if let Some(member) = member {
        member.leave().await;
    }
    // The summary first: a receiver may let the last export wait.
    let code = conclude(&cache, plan.as_ref().zip(outcome.as_ref()), &deleted, took, saved);
    otlp::finish(exporter).await;
    code
}

/// Waits until neither port is served. Returns what the load came to, and how long it took.
async fn both_ended(
    driven: Result<Option<Outcome>, Failure>,
    serving: JoinHandle<std::io::Result<()>>,
    paging: JoinHandle<std::io::Result<()>>,
    started: Instant,
) -> Result<(Option<Outcome>, Duration), Failure> {
    let outcome = driven?;
    // Only when the last answer has been counted do the server's counts stand still.
    finished("the cache", serving).await?;
    let took = outcome.as_ref().map_or_else(|| started.elapsed(), |outcome| outcome.took);
    finished("the page", paging).await?;
    Ok((outcome, took))
}

/// Adds what flags ask for to what the page shows and lets clients do.
fn asked_for(
    shown: Dashboard,
    args: &ServeArgs,
    limiter: Arc<reload::Limiter>,
    (member, saver): (Option<&fleet::Member>, Option<&Saver>),
) -> Dashboard {
    let shown = args.http_host.iter().fold(shown, |shown, name| shown.host(name));
    let shown = match member {
        Some(member) => member.show(shown),
        None => shown,
    };
    let shown = saver.into_iter().fold(shown, |shown, saver| saver.show(shown));
    // Last: what else is shown is more likely to be news.
    if !args.limits_api {
        return shown;
    }
    let one = Arc::clone(&limiter);
    shown
        .on_limits(move |text| reload::post(Arc::clone(&limiter), text))
        .on_limit(move |path, text| reload::post_one(Arc::clone(&one), path, text))
}

/// Opens the cache's port, and starts the threads that serve it.
async fn listening(args: &ServeArgs, cache: &Cache) -> Result<Server, Failure> {
    let address = doors::address(args);
    let server = Server::listen(&address, cache.clone()).await;
    let server = server.map_err(|e| doors::cannot_listen(&address, &e))?;
    server.threads(threads(args)).map_err(|e| no_threads(&e))
}

/// Drives the load, or waits, until it is time or a signal arrives.
async fn work(
    plan: Option<&Plan>,
    seconds: Option<Duration>,
    signals: watch::Receiver<bool>,
) -> Result<Option<Outcome>, Failure> {
    if let Some(plan) = plan {
        // Clients on threads of their own: the server's are for the server, as in real life.
        let clients = runtime(None)?;
        let plan = plan.clone();
        let driven = clients.spawn(async move { drive::drive(&plan, signals).await }).await;
        clients.shutdown_background();
        let outcome = driven.map_err(|e| Failure::new(format_args!("the load ended: {e}")))?;
        return outcome.map(Some).map_err(Failure::new);
    }
    match seconds {
        Some(seconds) => {
            // Either way it is time.
            let _ = tokio::time::timeout(seconds, signals::arrived(signals)).await;
        }
        None => signals::arrived(signals).await,
    }
    Ok(None)
}

/// Returns what becomes true when a signal arrives, a client asks for the end, or, if that is asked
/// for, standard input ends.
fn or_shutdown(
    signals: watch::Receiver<bool>,
    cache: Cache,
    with_stdin: bool,
) -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    if with_stdin {
        let tell = tell.clone();
        // A thread of its own, which the end of the process need not wait for.
        std::thread::spawn(move || {
            // What it says is of no interest, only that it ends.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            tell.send_replace(true);
        });
    }
    tokio::spawn(async move {
        tokio::select! {
            () = signals::arrived(signals) => {}
            () = cache.shutdown_asked() => {}
        }
        tell.send_replace(true);
    });
    told
}

/// Prints what was served, whether the sums are exact, and where totals were `saved`.
fn conclude(
    cache: &Cache,
    load: Option<(&Plan, &Outcome)>,
    deleted: &Deleted,
    took: Duration,
    (line, is_saved): (String, bool),
) -> Result<ExitCode, Failure> {
    // The time is that of this process, and so are the clients' counts.
    let snapshot = cache.tree().snapshot_without_restored();
    let mut text = summary::table(&snapshot, cache.metrics(), took);
    let mut corrupt = 0;
    if let Some((_, outcome)) = load {
        let total = outcome.tallies.total().map_err(Failure::new)?;
        corrupt = total.corrupt;
        text.push_str(&summary::clients(outcome, &total));
        text.push_str(&summary::others(&snapshot, cache.metrics(), &total));
    }
    let metering = cache.config().metering;
    let verdict =
        conservation::check(&snapshot, cache.metrics(), metering, load, &deleted.deletions())
            .map_err(Failure::new)?;
    text.push_str(&verdict.text());
    text.push_str(&line);
    show::print(&text).map_err(Failure::new)?;
    let good = verdict.is_exact() && corrupt == 0 && is_saved;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cache(args: &ServeArgs, limits: &reload::Limits) -> Result<Cache, Failure> {
    let cache = Cache::new(config(args, limits));
    cache.map_err(|error| Failure::new(limits.explain(&error)))
}

fn config(args: &ServeArgs, limits: &reload::Limits) -> Config {
    let default = Config::default();
    let buffers = default.buffers_max.max(args.value_max.0.saturating_mul(3));
    Config {
        delimiter: args.delimiter,
        memory_max: args.memory.0,
        tenants_max: usize::try_from(args.tenants_max).unwrap_or(usize::MAX),
        tenants_kept: fleet::tenants(args),
        tenant_limits: limits.settings(),
        rates: fleet::has_rates(args),
        over_rate: args.over_rate.into(),
        metering: !args.no_metering,
        value_max: usize::try_from(args.value_max.0).unwrap_or(usize::MAX),
        evictions: !args.no_evictions,
        flush_all: !args.no_flush_all,
        shutdown: args.enable_shutdown,
        connections_max: usize::try_from(args.connections).unwrap_or(usize::MAX),
        buffers_max: args.buffers.map_or(buffers, |size| size.0),
        login_timeout: args.login_timeout,
        request_timeout: args.request_timeout,
        idle_timeout: args.idle_timeout,
        drain: args.drain_seconds,
        ..default
    }
}

fn plan(args: &ServeArgs, tenants: usize) -> Result<Plan, Failure> {
    let Some(server) = args.listen.tcp() else {
        return Err(Failure::new(format_args!(
            "--load drives a port, not {}: leave one of them out",
            args.listen
        )));
    };
    let profiles = match &args.tenants_file {
        Some(file) => tenants_file::read(file),
        None => tenants_file::built_in(),
    };
    let file = args.tenants_file.as_deref();
    let burst = demo::burst(args, tenants);
    let tenants = profiles.and_then(|p| drive::name_tenants(p, Some(tenants), file));
    let plan = Plan {
        server,
        tenants: tenants.map_err(Failure::new)?,
        delimiter: args.delimiter,
        seconds: args.seconds,
        requests: None,
        rate: None,
        connections: LOAD_CONNECTIONS,
        pipeline: LOAD_PIPELINE,
        seed: args.seed,
        warm_up: Duration::ZERO,
        ramp: Duration::ZERO,
        burst,
    };
    let opens = plan.all_connections();
    if (args.connections as usize) < opens {
        return Err(Failure::new(format_args!(
            "--connections {} leaves too few for --load, which opens {opens}: allow more",
            args.connections
        )));
    }
    Ok(plan)
}

fn greeting(
    args: &ServeArgs,
    cache: &Cache,
    listen: &Address,
    page: SocketAddr,
    scheme: &str,
    (member, saver): (Option<&fleet::Member>, Option<&Saver>),
) -> String {
    let page = format!("{scheme}://{}/", reachable(page));
    let mut text = format!(
        "{BOLD}submeter{BOLD:#} {}\n  {DIM}page{DIM:#}   {BOLD}{page}{BOLD:#}\n  \
         {DIM}cache{DIM:#}  {listen}, {} for items\n  {DIM}adds{DIM:#}   {}\n",
        env!("CARGO_PKG_VERSION"),
        show::bytes(args.memory.0),
        submeter::backend(),
    );
    if let Some(tenants) = args.load {
        let source = args.tenants_file.as_ref().map_or_else(
            || "production statistics of Twitter's caches (OSDI 2020)".to_owned(),
            |file| file.display().to_string(),
        );
        let s = if tenants == 1 { "" } else { "s" };
        text.push_str(&format!(
            "  {DIM}load{DIM:#}   {tenants} tenant{s} under /load, from {source}\n"
        ));
        if let Some(staged) = demo::line(args, &cache.config().tenant_limits) {
            text.push_str(&format!("         {staged}\n"));
        }
    }
    if let Some(member) = member {
        text.push_str(&format!("  {DIM}fleet{DIM:#}  {}\n", member.line()));
    }
    if let Some(saver) = saver {
        text.push_str(&format!("  {DIM}totals{DIM:#} {}\n", saver.line()));
    }
    text.push_str(&format!("  {DIM}ends{DIM:#}   {}\n\n", show::end(args.seconds)));
    text
}

/// An address that a client on this machine can use where the server listens on all.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn runtime(threads: Option<usize>) -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(|e| no_threads(&e))
}

/// Returns how many threads serve requests.
fn threads(args: &ServeArgs) -> NonZero<usize> {
    let cpus = || std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    args.threads.and_then(|threads| NonZero::new(threads.into())).unwrap_or_else(cpus)
}

fn no_threads(error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot start threads: {error}"))
}

fn cannot_listen(flag: &str, addr: SocketAddr, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
        _ => error.to_string(),
    };
    let free = SocketAddr::new(addr.ip(), 0);
    Failure::new(format_args!(
        "cannot listen on {addr}: {why}; choose another ({flag} {free} picks a free one)"
    ))
}

type Ended = Result<std::io::Result<()>, tokio::task::JoinError>;

/// A part that ended before it was told to.
fn stopped(what: &str, ended: Ended) -> Failure {
    let why: Box<dyn Display> = match ended {
        Ok(Ok(())) => Box::new("it stopped by itself"),
        Ok(Err(e)) => Box::new(e),
        Err(e) => Box::new(e),
    };
    Failure::new(format_args!("{what} failed: {why}"))
}

async fn finished(what: &str, task: JoinHandle<std::io::Result<()>>) -> Result<(), Failure> {
    match task.await {
        Ok(Ok(())) => Ok(()),
        failed => Err(stopped(what, failed)),
    }
}
