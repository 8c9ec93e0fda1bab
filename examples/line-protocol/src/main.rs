//! A server with a protocol of its own: a client names its tenant, then stores and fetches items.
//!
//! ```text
//! cargo run -p line-protocol
//! printf 'auth acme\nset a hello\nget a\n' | nc 127.0.0.1 7080
//! curl 127.0.0.1:7081/metrics      # or look at http://127.0.0.1:7081/ in a browser
//! curl -X DELETE -H 'X-Submeter: 1' '127.0.0.1:7081/api/group?path=/acme'
//! ```
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};

use submeter::prelude::*;
use submeter_http::Dashboard;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const TENANTS: &str = "/acme 64m,rate=10000/s\n/trial 1k,rate=10/min";

#[derive(Metrics)]
struct Keys {
    /// Bytes received
    received: Counter<Bytes>,
    /// Bytes sent
    sent: Counter<Bytes>,
    /// Requests let in
    requests: RateLimit<Count>,
    /// Requests whose answer is not yet written
    in_flight: Quota<Count>,
    /// Memory of items
    memory: Quota<Bytes>,
    /// CPU time
    #[metric(cpu_time)]
    _cpu: Counter<Nanoseconds>,
}

type Connection = BufReader<Counted<TcpStream>>;

/// What the server keeps for one tenant; deleted with it.
struct Db {
    tenant: Group,
    items: Mutex<HashMap<String, (String, Charge)>>,
}

struct Server {
    tree: Tree,
    keys: Keys,
    turns: Admission,
}

impl Server {
    async fn connection(&self, socket: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut connection = BufReader::new(Counted::new(socket));
        let login = read_line(&mut connection).await?.unwrap_or_default();
        let name = login.strip_prefix("auth ").unwrap_or_default(); // and, in earnest, a secret
        let Some(tenant) = self.tree.root().child(name) else {
            return Ok(connection.write_all(b"-ERR begin with: auth TENANT\n").await?);
        };
        connection.get_mut().set_group(&tenant, self.keys.received, self.keys.sent);
        let new = || Db { tenant: tenant.clone(), items: Mutex::default() };
        let db = tenant.data_or_init(new)?;
        let served = self.requests(&mut connection, &db).in_group(&tenant);
        Ok(served.until_killed().await.unwrap_or(Ok(()))?) // whether it reads or writes
    }

    async fn requests(&self, connection: &mut Connection, db: &Db) -> io::Result<()> {
        while let Some(line) = read_line(connection).await? {
            match self.answer(db, &line).await {
                // A client that does not read keeps its tenant's charge, but no place.
                Ok((answer, _in_flight)) => connection.write_all(answer.as_bytes()).await?,
                Err(refusal) => {
                    eprintln!("refused: {}", refusal.detail()); // the operator may know it all
                    connection.write_all(format!("-ERR {refusal}\n").as_bytes()).await?;
                }
            }
        }
        Ok(())
    }

    async fn answer(&self, db: &Db, line: &str) -> Result<(String, Charge), Refusal> {
        db.tenant.try_take(self.keys.requests, 1)?; // so many per second
        let in_flight = db.tenant.try_charge(self.keys.in_flight, 1)?; // so many at once
        let place = self.turns.acquire(&db.tenant).await?; // in turns with the other tenants
        let answer = self.work(db, line)?;
        drop(place); // before the answer is written: clients may be slow
        Ok((answer, in_flight))
    }

    fn work(&self, db: &Db, line: &str) -> Result<String, Refusal> {
        let mut items = db.items.lock().expect("no panic");
        Ok(match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["set", key, value] => {
                let bytes = (key.len() + value.len()) as u64;
                let old = items.get_mut(key).map(|(_, charge)| charge);
                let charge = db.tenant.try_charge_replacing(self.keys.memory, bytes, old)?;
                items.insert(key.to_owned(), (value.to_owned(), charge));
                "+OK\n".to_owned()
            }
            ["get", key] => items.get(key).map_or("-\n".into(), |(item, _)| format!("+{item}\n")),
            ["del", key] => items.remove(key).map_or("-\n", |_| "+OK\n").to_owned(),
            _ => "-ERR use: set KEY VALUE, get KEY, del KEY\n".to_owned(),
        })
    }
}

/// Returns `None` at the end, or if a line is too long.
async fn read_line(connection: &mut Connection) -> io::Result<Option<String>> {
    let mut line = String::new();
    connection.take(1 << 20).read_line(&mut line).await?;
    Ok(line.strip_suffix('\n').map(|line| line.trim_end().to_owned()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (tree, keys) = Tree::with_metrics::<Keys>()?;
    for (_, limited) in limits::parse_lines(TENANTS)? {
        let tenant = tree.create(&limited.path)?;
        tenant.set_limit(keys.memory, limited.limits.memory);
        tenant.set_rate(keys.requests, limited.limits.rate)?;
        tenant.set_limit(keys.in_flight, Some(100));
    }
    let turns = Admission::for_cpus();
    let server = Arc::new(Server { tree, keys, turns });
    let at = |n: usize, address: &str| std::env::args().nth(n).unwrap_or(address.to_owned());
    let clients = TcpListener::bind(at(1, "127.0.0.1:7080")).await?;
    let page = Dashboard::new("lines", &server.tree).deletes(|_| ()); // all is in the groups
    let operator = submeter_http::spawn(at(2, "127.0.0.1:7081"), page).await?;
    println!("lines at {}\npage at http://{operator}/", clients.local_addr()?);
    loop {
        let (socket, _) = clients.accept().await?;
        let server = Arc::clone(&server);
        tokio::spawn(async move { _ = server.connection(socket).await });
    }
}
