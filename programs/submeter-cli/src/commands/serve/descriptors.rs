//! Open files: every connection needs one, and a server that has none left answers nobody who is
//! new, not even a health check. So the cache gets a part of what the system allows, the page
//! another, and neither can take the other's.

use rustix::process::{Resource, Rlimit};
use submeter_terminal::Failure;

use super::plan::Plan;

/// Files that the server needs besides connections: 16 when idle, and as many for files that it
/// reads and writes, a bank and a receiver of figures.
const OWN: usize = 32;

/// Files of each thread that serves the cache.
const OF_A_THREAD: usize = 4;

/// Files of `--load`: its runtime and its ends of the connections.
const OF_THE_LOAD: usize = 64;

/// Files for connections without which there is nothing to share.
const LEAST: usize = 16;

/// The page's part of the files for connections is a fourth, but no more than this, which is all
/// that it uses: its places, and an eighth as many for clients without one.
const PAGE_MAX: usize = 288;

/// Raises the soft limit of open files to the hard one, and returns it. The usual soft limit of
/// 1,024 exists only for programs that use select(2).
pub(super) fn allowed() -> usize {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    let is_raised = rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
    let now = if is_raised { limits.maximum } else { limits.current };
    now.map_or(usize::MAX, |now| usize::try_from(now).unwrap_or(usize::MAX))
}

/// Lowers the numbers of connections in `plan` to what `allowed` files suffice for. Returns a
/// warning if that makes a difference to the cache's clients.
pub(super) fn fit(plan: &mut Plan, allowed: usize) -> Result<Option<String>, Failure> {
    let threads = plan.ports.threads().get();
    let load = if plan.load.is_some() { OF_THE_LOAD } else { 0 };
    let own = OWN + OF_A_THREAD * threads + load;
    let left = allowed.saturating_sub(own);
    if left < LEAST {
        return Err(Failure::new(format_args!(
            "the system allows {allowed} open files, and {} are needed: allow more (ulimit -n), or \
             use fewer --threads than {threads}",
            own + LEAST
        )));
    }
    let page = PAGE_MAX.min(left / 4);
    plan.page.connections_max = page - page.div_ceil(9);
    let (asked, most) = (plan.cache.connections_max, left - page);
    if asked <= most {
        return Ok(None);
    }
    plan.cache.connections_max = most;
    if let Some(load) = &mut plan.load {
        load.connections_max = most;
    }
    Ok(Some(format!(
        "the system allows {allowed} open files: at most {most} connections are served instead of \
         {asked}. Allow more (ulimit -n), or set --connections"
    )))
}
