//! Requests the tree from the server.

use std::time::Duration;

use ureq::Agent;

use crate::dashboard::wire::TreeDoc;
use submeter_terminal::Failure;

/// How long an answer may take: that of a large tree on a busy machine takes a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer that is read: at about a kilobyte per tenant, a tree of a quarter million.
const ANSWER_MAX: u64 = 256 << 20;

/// A client of one server. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub(super) struct Client {
    agent: Agent,
    /// Without a trailing slash.
    url: String,
}

impl Client {
    /// Takes `http://host:port`, or just `host:port`.
    pub(super) fn new(url: &str) -> Result<Client, Failure> {
        let url = address(url)?;
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // The server is usually local; a proxy for the web does not apply to it.
            .proxy(None)
            .build();
        Ok(Client { agent: config.into(), url })
    }

    /// Returns the server's address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Requests the tree.
    pub(super) fn tree(&self) -> Result<TreeDoc, Failure> {
        self.tree_and_text().map(|(tree, _)| tree)
    }

    /// Asks for the tree, and keeps its JSON as the server wrote it.
    pub(super) fn tree_and_text(&self) -> Result<(TreeDoc, String), Failure> {
        let text = self.fetch().map_err(|error| self.unreachable(&error))?;
        match serde_json::from_str(&text) {
            Ok(tree) => Ok((tree, text)),
            Err(error) => Err(Failure::new(format_args!(
                "{} is not submeter of this version: its tree cannot be read ({error})",
                self.url
            ))),
        }
    }

    fn fetch(&self) -> Result<String, ureq::Error> {
        let mut answer = self.agent.get(format!("{}/api/tree", self.url)).call()?;
        answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string()
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        unreachable(&self.url, error)
    }
}

/// Reads the address of a page: `http://host:port`, or just `host:port`. Returns it without a slash
/// at the end.
pub(crate) fn address(url: &str) -> Result<String, Failure> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some((scheme, _)) => {
            return Err(Failure::new(format_args!(
                "cannot watch {url}: {scheme} is not supported, use http://"
            )));
        }
        None => url,
    };
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() || rest.contains(|c: char| c.is_whitespace() || c == '?' || c == '#') {
        return Err(Failure::new(format_args!(
            "cannot watch {url:?}: give the page's address, as in http://127.0.0.1:9411"
        )));
    }
    Ok(format!("http://{rest}"))
}

/// Returns the error for a server that does not answer properly, with a remedy.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> Failure {
    let why = match error {
        ureq::Error::StatusCode(404) => {
            return Failure::new(format_args!(
                "{url} answers but has no tree: is it a submeter server? Give its --http address"
            ));
        }
        ureq::Error::Io(error) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            _ => error.to_string(),
        },
        ureq::Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        error => error.to_string(),
    };
    Failure::new(format_args!(
        "cannot watch {url}: {why}; start `submeter serve` or give its --http address"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_trailing_slash_are_optional() {
        for url in ["127.0.0.1:9411", "http://127.0.0.1:9411", "http://127.0.0.1:9411/"] {
            let client = Client::new(url).expect("an address");
            assert_eq!(client.url(), "http://127.0.0.1:9411");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_by_name() {
        for url in ["https://localhost:1", "", "http://", "a b", "localhost:1/?x=y"] {
            let failure = Client::new(url).expect_err("refused");
            assert!(format!("{failure:?}").contains(url), "{failure:?} names {url:?}");
        }
    }
}
