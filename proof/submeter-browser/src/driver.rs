//! One session with chromedriver: the protocol of the W3C, JSON over HTTP. A library for it would
//! bring thirty packages for six requests.

use std::error::Error;
use std::io::{self, BufRead};
use std::net::{self, Ipv4Addr};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The process that drives the browser, and its one session.
pub(crate) struct Driver {
    process: Child,
    /// The port; `None` until it listens.
    port: Option<u16>,
    /// The path of the session.
    session: String,
}

impl Driver {
    /// Starts it. Returns `None`, and says how to get one, if there is none.
    pub(crate) async fn start(options: Value) -> Result<Option<Driver>, Box<dyn Error>> {
        let process = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!(
                    "skipped: the page in a browser: apt-get install chromium chromium-driver"
                );
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let mut driver = Driver { process, port: None, session: "/session".to_owned() };
        driver.port = Some(port(&mut driver.process)?);
        let wanted = json!({ "capabilities": { "alwaysMatch": options } });
        let begun = driver.post("", &wanted).await?;
        let id = begun["sessionId"].as_str().ok_or("a session without an id")?;
        driver.session = format!("/session/{id}");
        Ok(Some(driver))
    }

    /// Runs a command of the session, and returns its value.
    pub(crate) async fn post(&self, command: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
        self.ask("POST", command, &body.to_string()).await
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        command: &str,
        body: &str,
    ) -> Result<Value, Box<dyn Error>> {
        let port = self.port.ok_or("the driver does not listen")?;
        let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
        let request = format!(
            "{method} {}{command} HTTP/1.1\r\nHost: localhost:{port}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.session,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut status = String::new();
        stream.read_line(&mut status).await?;
        // It closes no connection, whatever the request says: the length ends its answer.
        let (mut line, mut length) = (String::new(), 0);
        while stream.read_line(&mut line).await? > 2 {
            let (name, value) = line.split_once(':').ok_or("a header without a value")?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let mut body: Value = serde_json::from_slice(&body)?;
        let value = body["value"].take();
        if status.contains(" 200 ") { Ok(value) } else { Err(value.to_string().into()) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // On request, it ends the browser that it started; a signal would leave that behind. The
        // request uses a socket, because a failing test no longer has a runtime.
        let asked = self.port.is_some_and(|port| {
            net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok_and(|mut driver| {
                let request = format!("GET /shutdown HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
                io::Write::write_all(&mut driver, request.as_bytes()).is_ok()
            })
        });
        if !asked {
            _ = self.process.kill();
        }
        _ = self.process.wait();
    }
}

/// Returns the port that a driver reports to listen on.
fn port(driver: &mut Child) -> Result<u16, Box<dyn Error>> {
    let said = driver.stdout.take().expect("it is piped");
    for line in io::BufReader::new(said).lines() {
        let line = line?;
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
    }
    Err("chromedriver ended before it listened".into())
}
