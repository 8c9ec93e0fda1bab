//! The cache in a separate process: this program again, started as a server.
//!
//! The `submeter` command is not used, because it may be absent or built from another commit than
//! the program that measures.

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZero;
use std::time::Duration;

use submeter_cache::{Cache, Config, Server, TenantLimits};
use tokio::runtime::Builder;

use super::workload::{DELIMITER, MEMORY_MIB};

/// How often a snapshot of the tree is taken, as the command does for its page.
const COPIED: Duration = Duration::from_secs(1);

/// Serves on a free port, which it prints, until the process is killed. The tenants of `limited`
/// have limits that they never come near.
///
/// # Errors
/// When the cache cannot be created, or the system refuses the port.
pub(crate) fn serve(threads: NonZero<usize>, metering: bool, limited: &[String]) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let memory_max = MEMORY_MIB << 20;
    let limits = |name: &String| (format!("/{name}"), TenantLimits::from(memory_max / 2));
    let tenant_limits = limited.iter().map(limits).collect();
    let config =
        Config { delimiter: DELIMITER, memory_max, metering, tenant_limits, ..Config::default() };
    let cache = Cache::new(config).map_err(io::Error::other)?;
    runtime.block_on(async {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), cache.clone()).await?;
        let server = server.threads(threads)?;
        println!("{}", server.address());
        let copying = async move {
            loop {
                tokio::time::sleep(COPIED).await;
                drop(cache.tree().snapshot());
            }
        };
        tokio::spawn(copying);
        server.run(std::future::pending()).await
    })
}
