//! A client of one tenant that waits for each answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A value, as it is sent.
const VALUE: [u8; 1000] = [b'v'; 1000];

/// Time limit for an answer; after it the server counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Client {
    tenant: &'static str,
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    random: Xoshiro256PlusPlus,
    request: Vec<u8>,
}

impl Client {
    pub(super) fn connect(
        address: SocketAddr,
        tenant: &'static str,
        seed: u64,
    ) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let answers = BufReader::new(stream.try_clone()?);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Client { tenant, stream, answers, random, request: Vec::new() })
    }

    /// Draws one of `items`.
    pub(super) fn draw(&mut self, items: u64) -> u64 {
        self.random.random_range(..items)
    }

    /// Stores items, in one request.
    pub(super) fn store<const N: usize>(&mut self, items: [u64; N]) -> io::Result<()> {
        self.request.clear();
        for item in items {
            let Client { tenant, request, .. } = self;
            write!(request, "set {tenant}:{item} 0 0 {}\r\n", VALUE.len())?;
            request.extend(VALUE);
            request.extend(b"\r\n");
        }
        self.stream.write_all(&self.request)?;
        (0..N).try_for_each(|_| self.expect("STORED"))
    }

    /// Requests an item. Returns whether it was there.
    pub(super) fn is_there(&mut self, item: u64) -> io::Result<bool> {
        self.request.clear();
        let Client { tenant, request, .. } = self;
        write!(request, "get {tenant}:{item}\r\n")?;
        self.stream.write_all(&self.request)?;
        let first = self.line()?;
        if first == "END" {
            return Ok(false);
        }
        if !first.starts_with("VALUE ") {
            return Err(io::Error::other(format!("the server answered a get with {first:?}")));
        }
        let mut value = [0; VALUE.len() + 2];
        self.answers.read_exact(&mut value)?;
        if value[..VALUE.len()] != VALUE {
            return Err(io::Error::other(format!("item {item} has another value")));
        }
        self.expect("END")?;
        Ok(true)
    }

    fn expect(&mut self, expected: &str) -> io::Result<()> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("the server answered {line:?}, not {expected:?}")))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
