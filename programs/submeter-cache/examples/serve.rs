//! The smallest server, for any client of memcached:
//! `cargo run -p submeter-cache --example serve -- 127.0.0.1:11311`.

use std::net::SocketAddr;

use submeter_cache::{Cache, Config, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let addr: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let metering = args.next().as_deref() != Some("--no-metering");
    let cache = Cache::new(Config { metering, ..Config::default() })?;
    let server = Server::bind(addr, cache.clone()).await?;
    println!("listening on {}", server.address());
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    server.run(interrupted).await?;
    for group in cache.tree().snapshot().groups() {
        let memory = group.usage(cache.metrics().memory).current;
        let requests = group.histogram(cache.metrics().latency).count();
        println!("{}: {requests} requests, {memory} bytes held", group.path());
    }
    Ok(())
}
