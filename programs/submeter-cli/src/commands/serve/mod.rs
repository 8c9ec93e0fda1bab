//! `submeter serve`: the cache, its page, and optionally a load, until a signal or a time.

mod checkpoint;
mod conservation;
mod deletion;
mod demo;
mod descriptors;
mod files;
mod fleet;
mod heap;
mod keys;
mod limits;
mod load;
mod otlp;
mod places;
mod plan;
mod ports;
mod reading;
mod reload;
mod service;
mod shown;
mod summary;
mod threads;

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use submeter_cache::{Address, Cache};
use submeter_http::Dashboard;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::checkpoint::Saver;
use self::deletion::Deleted;
use self::keys::Keys;
use self::plan::Plan;
use self::threads::runtime;
use crate::cli::{self, ServeArgs};
use crate::logger;
use crate::unserved;
use submeter_load::drive::{self, Outcome};
use submeter_terminal::Failure;
use submeter_terminal::signals;
use submeter_terminal::{self as show, BOLD, DIM};

/// Threads for everything that is not a request: accepting clients, the page, signals.
const OTHER_THREADS: usize = 2;

/// Runs the command. A sum that is not exact, a corrupt value or totals that could not be saved at
/// the end set the exit code to 1.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    logger::start(args.log);
    for line in cli::misspelt() {
        log::warn!("{line}");
    }
    run_until_end(args).or_else(|failure| logger::report(args.log, failure))
}

fn run_until_end(args: &ServeArgs) -> Result<ExitCode, Failure> {
    // A runtime without descriptors panics.
    let mut plan = Plan::of(args)?;
    let warning = descriptors::fit(&mut plan, descriptors::allowed())?;
    // Before anything else: Ctrl-C during the start ends with a summary too.
    let early = signals::Early::new().map_err(|e| cannot_listen(&e))?;
    let runtime = runtime(Some(OTHER_THREADS))?;
    let code = runtime.block_on(async {
        let signals = early.listen().map_err(|e| cannot_listen(&e))?;
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
        serve(Arc::new(plan), signals).await
    });
    // Connections that outlived the grace period must not hold the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

fn cannot_listen(error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot install signal handlers: {error}"))
}

async fn serve(plan: Arc<Plan>, signals: watch::Receiver<bool>) -> Result<ExitCode, Failure> {
    let hangups = reload::hangups().map_err(|e| cannot_listen(&e))?;
    let Some(read) = files::read(Arc::clone(&plan), signals.clone()).await? else {
        log::info!("stopped before serving");
        return Ok(ExitCode::SUCCESS);
    };
    let files::Read { cache, totals, keys, load } = read;
    let load = load?;
    let heap = heap::start(plan.heap, &cache)?;
    let Keys { users, token, tls, .. } = keys.clone();
    let (server, (http, page_at)) = ports::open(&plan.ports, &cache).await?;
    let listen = server.address().clone();
    let name = plan.fleet.name(&listen);
    let exporter = plan.otlp.as_ref().map(|plan| otlp::start(plan, &cache, &name)).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let cache_port = ports::Port { addr: listen.tcp(), is_guarded: users.is_some() };
    let page_port = ports::Port { addr: Some(page_at), is_guarded: token.is_some() };
    if let Some(warning) = ports::warning(cache_port, page_port, tls.is_some()) {
        log::warn!("{warning}");
    }
    let member = fleet::join(&plan.fleet, &cache, &name)?;
    let keys = keys.with_bank(member.as_ref().and_then(fleet::Member::certified));
    let limiter = reload::start(hangups, Arc::clone(&plan.limits), &cache, keys);
    // Only now: a server that cannot serve leaves the file as it was.
    let saver = checkpoint::start(totals, &cache).await?;
    let also = (member.as_ref(), saver.as_ref());
    let greeting = greeting(&plan, &cache, &listen, page_at, scheme, also);
    show::print(&greeting).map_err(Failure::new)?;
    let server = unserved::told(ports::guard(server, users, tls.as_ref()));

    let (end, ended) = watch::channel(false);
    let driven_at = listen.tcp().map(reachable);
    let started = Instant::now();
    let mut serving = tokio::spawn(server.run(signals::arrived(ended.clone())));
    let watched = load.as_ref().map(conservation::compared).unwrap_or_default();
    let deleted = Deleted::watching(watched);
    let shown = shown::shown(&cache, &listen, &deleted, heap.as_ref()).member(&name);
    let endpoint = ports::page(http, tls, cache.config().drain).on_shortage(unserved::tell);
    let endpoint = endpoint.connections_max(plan.page.connections_max);
    let shown = places::show(asked_for(shown, &plan.page, limiter, also), &cache, &endpoint);
    let shown = token.into_iter().fold(shown, Dashboard::token);
    let page = submeter_http::serve(endpoint, shown, signals::arrived(ended));
    let mut paging = tokio::spawn(page);
    service::ready(&listen, &format!("{scheme}://{page_at}/"));
    let signals = or_shutdown(signals, cache.clone(), plan.end.with_stdin);
    let load = load.zip(driven_at).map(|(load, server)| drive::Plan { server, ..load });
    let driven = tokio::select! {
        driven = load::work(load.as_ref(), plan.end.after, signals) => driven,
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
    let checked = [heap.map(|heap| heap.finish()), Some(saved)];
    // The summary comes first: a receiver may delay the last export.
    let code = conclude(&cache, load.as_ref().zip(outcome.as_ref()), &deleted, took, checked);
    otlp::finish(exporter).await;
    code
}

/// Waits until neither port is served. Returns the outcome of the load, and how long it took.
async fn both_ended(
    driven: Result<Option<Outcome>, Failure>,
    serving: JoinHandle<std::io::Result<()>>,
    paging: JoinHandle<std::io::Result<()>>,
    started: Instant,
) -> Result<(Option<Outcome>, Duration), Failure> {
    let outcome = driven?;
    // The server's counts are final only when the last answer has been counted.
    finished("the cache", serving).await?;
    let took = outcome.as_ref().map_or_else(|| started.elapsed(), |outcome| outcome.took);
    finished("the page", paging).await?;
    Ok((outcome, took))
}

/// Adds what flags enable to what the page shows and lets clients do.
fn asked_for(
    shown: Dashboard,
    page: &plan::Page,
    limiter: Arc<reload::Limiter>,
    (member, saver): (Option<&fleet::Member>, Option<&Saver>),
) -> Dashboard {
    let shown = page.hosts.iter().fold(shown, |shown, name| shown.host(name));
    let shown = match member {
        Some(member) => member.show(shown),
        None => shown,
    };
    let shown = saver.into_iter().fold(shown, |shown, saver| saver.show(shown));
    // Last: the other figures are more likely to be news.
    if !page.limits_api {
        return shown;
    }
    let one = Arc::clone(&limiter);
    shown
        .on_limits(move |text| reload::post(Arc::clone(&limiter), text))
        .on_limit(move |path, text| reload::post_one(Arc::clone(&one), path, text))
}

/// Returns a flag that becomes true when a signal arrives, a client asks for the end, or, if
/// requested, standard input ends.
fn or_shutdown(
    signals: watch::Receiver<bool>,
    cache: Cache,
    with_stdin: bool,
) -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    if with_stdin {
        let tell = tell.clone();
        // A thread of its own, which need not be waited for at the end of the process.
        std::thread::spawn(move || {
            // The content does not matter, only that the input ends.
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

/// Prints what was served, whether the sums are exact, and each other check in `checked` with
/// whether it passed.
fn conclude(
    cache: &Cache,
    load: Option<(&drive::Plan, &Outcome)>,
    deleted: &Deleted,
    took: Duration,
    checked: [Option<(String, bool)>; 2],
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
    let mut good = verdict.is_exact() && corrupt == 0;
    for (line, is_good) in checked.into_iter().flatten() {
        text.push_str(&line);
        good &= is_good;
    }
    show::print(&text).map_err(Failure::new)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn greeting(
    plan: &Plan,
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
        show::bytes(cache.config().memory_max),
        submeter::backend(),
    );
    if let Some(load) = &plan.load {
        text.push_str(&format!("  {DIM}load{DIM:#}   {}\n", load.line()));
        if let Some(staged) = load.stage.line(&cache.config().tenant_limits) {
            text.push_str(&format!("         {staged}\n"));
        }
    }
    if let Some(member) = member {
        text.push_str(&format!("  {DIM}fleet{DIM:#}  {}\n", member.line()));
    }
    if let Some(saver) = saver {
        text.push_str(&format!("  {DIM}totals{DIM:#} {}\n", saver.line()));
    }
    text.push_str(&format!("  {DIM}ends{DIM:#}   {}\n\n", show::end(plan.end.after)));
    text
}

/// Returns an address that a client on this machine can use where the server listens on all.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

type Ended = Result<std::io::Result<()>, tokio::task::JoinError>;

/// Returns the failure of a part that ended before it was told to.
fn stopped(what: &str, ended: Ended) -> Failure {
    let why: Box<dyn Display> = match ended {
        Ok(Ok(())) => Box::new("it stopped unexpectedly"),
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
