//! A headless Chromium.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// Time limit for anything that the page does, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Without a sandbox, which root may not have in a container. The other arguments keep a browser's
/// own activity from the network and from the frames.
const ARGUMENTS: [&str; 7] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1280,900",
];

/// A browser with one page. It ends when it is dropped.
pub struct Browser {
    client: Client,
    driver: Driver,
}

/// The process that drives it.
struct Driver {
    process: Child,
    /// The port; `None` until it listens.
    port: Option<u16>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // On request, it ends the browser that it started; a signal would leave that behind. The
        // request uses a socket, because a failing test no longer has a runtime.
        let asked = self.port.is_some_and(|port| {
            let host = Ipv4Addr::LOCALHOST;
            TcpStream::connect((host, port)).is_ok_and(|mut driver| {
                let request = format!("GET /shutdown HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
                driver.write_all(request.as_bytes()).is_ok()
            })
        });
        if !asked {
            _ = self.process.kill();
        }
        _ = self.process.wait();
    }
}

/// A command of Chrome's own protocol, for what WebDriver cannot express.
#[derive(Debug)]
struct Devtools(Value);

impl WebDriverCompatibleCommand for Devtools {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.0.to_string()))
    }
}

impl Browser {
    /// Starts a browser. Returns `None`, and says how to get one, if there is none.
    ///
    /// # Errors
    /// When there is one and it does not start.
    pub async fn start() -> Result<Option<Browser>, Box<dyn Error>> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut driver = match driver {
            Ok(process) => Driver { process, port: None },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!(
                    "skipped: the page in a browser: apt-get install chromium chromium-driver"
                );
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let port = port(&mut driver.process)?;
        driver.port = Some(port);
        let options = json!({ "goog:chromeOptions": { "args": ARGUMENTS } });
        let Value::Object(capabilities) = options else { unreachable!("written above") };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await?;
        Ok(Some(Browser { client, driver }))
    }

    /// Opens an address.
    ///
    /// # Errors
    /// When the browser cannot.
    pub async fn goto(&self, address: &str) -> Result<(), Box<dyn Error>> {
        Ok(self.client.goto(address).await?)
    }

    /// Opens an address, and waits until the page shows live figures.
    ///
    /// # Errors
    /// When the page does not in time.
    pub async fn open(&self, address: &str) -> Result<(), Box<dyn Error>> {
        self.goto(address).await?;
        let live = "document.getElementById('state').dataset.state === 'live'";
        self.until(live).await
    }

    /// Waits until an expression of the page is true.
    ///
    /// # Errors
    /// When it does not become true in time.
    pub async fn until(&self, expression: &str) -> Result<(), Box<dyn Error>> {
        let wait = async {
            while self.value(expression).await? != true {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| Err(format!("not within {PATIENCE:?}: {expression}").into()))
    }

    /// Returns the value of an expression of the page.
    ///
    /// # Errors
    /// When it throws.
    pub async fn value(&self, expression: &str) -> Result<Value, Box<dyn Error>> {
        Ok(self.client.execute(&format!("return ({expression});"), Vec::new()).await?)
    }

    /// Runs statements that call `done` with their result, which is returned.
    ///
    /// # Errors
    /// When they throw.
    pub async fn run(&self, statements: &str) -> Result<Value, Box<dyn Error>> {
        let script = format!("const done = arguments[arguments.length - 1]; {statements}");
        Ok(self.client.execute_async(&script, Vec::new()).await?)
    }

    /// Presses keys, one after another; those without a character are
    /// [`Key`](fantoccini::key::Key)s.
    ///
    /// # Errors
    /// When the browser is gone.
    pub async fn press(
        &self,
        keys: impl IntoIterator<Item = impl Into<char>>,
    ) -> Result<(), Box<dyn Error>> {
        let both = |key: char| [KeyAction::Down { value: key }, KeyAction::Up { value: key }];
        let actions = keys.into_iter().flat_map(|key| both(key.into()));
        let keyboard = KeyActions::new("keyboard".to_owned());
        Ok(self.client.perform_actions(actions.fold(keyboard, KeyActions::then)).await?)
    }

    /// Gives the page that many pixels.
    ///
    /// # Errors
    /// When the browser is gone, or the page does not take the size.
    pub async fn resize(&self, width: u32, height: u32) -> Result<(), Box<dyn Error>> {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await?;
        self.until(&format!("innerWidth === {width}")).await
    }

    /// Calls a method of Chrome's own protocol.
    ///
    /// # Errors
    /// When the browser refuses it.
    pub async fn devtools(&self, method: &str, of: Value) -> Result<Value, Box<dyn Error>> {
        let command = Devtools(json!({ "cmd": method, "params": of }));
        Ok(self.client.issue_cmd(command).await?)
    }

    /// Returns what is seen of the page, as PNG.
    ///
    /// # Errors
    /// When the browser is gone.
    pub async fn picture(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        Ok(self.client.screenshot().await?)
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// When it was gone before.
    pub async fn close(self) -> Result<(), Box<dyn Error>> {
        let Browser { client, driver } = self;
        client.close().await?;
        drop(driver);
        Ok(())
    }
}

/// Returns the port that a driver reports to listen on.
fn port(driver: &mut Child) -> Result<u16, Box<dyn Error>> {
    let said = driver.stdout.take().expect("it is piped");
    for line in BufReader::new(said).lines() {
        let line = line?;
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
    }
    Err("chromedriver ended before it listened".into())
}
