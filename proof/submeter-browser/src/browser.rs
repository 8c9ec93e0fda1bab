//! A headless Chromium.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};

use crate::driver::Driver;

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
pub struct Browser(Driver);

/// A key without a character, as WebDriver numbers it.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// To the next element.
    Tab,
    /// Carriage return.
    Enter,
    /// Out of what is open.
    Escape,
    /// To the last.
    End,
    /// To the first.
    Home,
    /// An arrow.
    Left,
    /// An arrow.
    Right,
    /// An arrow.
    Down,
}

impl From<Key> for char {
    fn from(key: Key) -> char {
        match key {
            Key::Tab => '\u{e004}',
            Key::Enter => '\u{e007}',
            Key::Escape => '\u{e00c}',
            Key::End => '\u{e010}',
            Key::Home => '\u{e011}',
            Key::Left => '\u{e012}',
            Key::Right => '\u{e014}',
            Key::Down => '\u{e015}',
        }
    }
}

impl Browser {
    /// Starts a browser. Returns `None`, and says how to get one, if there is none.
    ///
    /// # Errors
    /// When there is one and it does not start.
    pub async fn start() -> Result<Option<Browser>, Box<dyn Error>> {
        let options = json!({ "goog:chromeOptions": { "args": ARGUMENTS } });
        Ok(Driver::start(options).await?.map(Browser))
    }

    /// Opens an address.
    ///
    /// # Errors
    /// When the browser cannot.
    pub async fn goto(&self, address: &str) -> Result<(), Box<dyn Error>> {
        self.0.post("/url", &json!({ "url": address })).await?;
        Ok(())
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
        let script = json!({ "script": format!("return ({expression});"), "args": [] });
        self.0.post("/execute/sync", &script).await
    }

    /// Runs statements that call `done` with their result, which is returned.
    ///
    /// # Errors
    /// When they throw.
    pub async fn run(&self, statements: &str) -> Result<Value, Box<dyn Error>> {
        let script = format!("const done = arguments[arguments.length - 1]; {statements}");
        self.0.post("/execute/async", &json!({ "script": script, "args": [] })).await
    }

    /// Presses keys, one after another; those without a character are [`Key`]s.
    ///
    /// # Errors
    /// When the browser is gone.
    pub async fn press(
        &self,
        keys: impl IntoIterator<Item = impl Into<char>>,
    ) -> Result<(), Box<dyn Error>> {
        let both = |key: char| ["keyDown", "keyUp"].map(|act| json!({ "type": act, "value": key }));
        let actions: Vec<Value> = keys.into_iter().flat_map(|key| both(key.into())).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.0.post("/actions", &json!({ "actions": [keyboard] })).await?;
        Ok(())
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
        self.0.post("/goog/cdp/execute", &json!({ "cmd": method, "params": of })).await
    }

    /// Returns what is seen of the page, as PNG.
    ///
    /// # Errors
    /// When the browser is gone.
    #[cfg(feature = "long")]
    pub async fn picture(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        use base64::Engine;
        let shot = self.0.ask("GET", "/screenshot", "").await?;
        Ok(base64::prelude::BASE64_STANDARD.decode(shot.as_str().unwrap_or_default())?)
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// When it was gone before.
    pub async fn close(self) -> Result<(), Box<dyn Error>> {
        self.0.ask("DELETE", "", "").await?;
        Ok(())
    }
}
