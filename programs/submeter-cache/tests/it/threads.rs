//! Tests of both ways to serve connections: threads of the server's own, or the caller's runtime.

use std::num::NonZero;

use submeter_cache::{Cache, Config, Server};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::common::{Client, start_with};

/// Checks what `stats` reports about the serving threads.
fn assert_threads(client: &mut Client, threads: usize) {
    let answer = client.talk("stats\r\nstats settings\r\n");
    for name in ["threads", "num_threads"] {
        let line = format!("STAT {name} {threads}\r\n");
        assert!(answer.contains(&line), "{line:?} in {answer}");
    }
}

#[test]
fn connections_are_on_threads_of_the_servers_own() {
    let threads = NonZero::new(3).expect("not 0");
    let server = start_with(Config::default(), move |server| {
        server.threads(threads).expect("the system has threads")
    });
    let mut clients: Vec<Client> = (0..7).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.set(&format!("k{number}"), b"v"), "STORED");
    }
    assert_threads(&mut clients[0], threads.get());
}

#[test]
fn without_them_the_callers_runtime_serves() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let cache = Cache::new(Config::default()).expect("the configuration is sound");
        let server = Server::bind(([127, 0, 0, 1], 0).into(), cache).await.expect("a port");
        let addr = server.address().tcp().expect("a port");
        let (stop, stopped) = oneshot::channel::<()>();
        let talking = spawn_blocking(move || {
            let mut client = Client::connect(addr);
            assert_eq!(client.set("k", b"v"), "STORED");
            assert_threads(&mut client, 2);
            drop(stop);
        });
        let shutdown = async { drop(stopped.await) };
        server.run(shutdown).await.expect("serving does not fail");
        talking.await.expect("no panic");
    });
}
