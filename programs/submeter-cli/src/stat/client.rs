//! Receives counts from a server.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use tokio::sync::mpsc;
use ureq::Agent;

use super::plan::Wanted;
use crate::cli::PageArgs;
use crate::top::client::{address, config, token, unreachable};
use submeter_http::Token;
use submeter_http::wire::stat::{NDJSON, TotalsDoc};
use submeter_terminal::Failure;

type Sender = mpsc::Sender<Result<TotalsDoc, Failure>>;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that has not started to count yet.
pub(super) struct Client {
    url: String,
    query: String,
    token: Option<Token>,
    agent: Agent,
}

impl Client {
    pub(super) fn new(
        page: &PageArgs,
        wanted: &[Wanted],
        every: Duration,
    ) -> Result<Client, Failure> {
        let url = address(&page.url)?;
        let token = token(page)?;
        let config = config(page)?
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .build();
        let mut query = format!("{url}/api/stat?interval={}", every.as_millis());
        for Wanted { group, events } in wanted {
            let group = group.as_deref().unwrap_or("");
            // Writing to a `String` cannot fail.
            let _ = write!(query, "&e={}&g={}", encode(&events.to_string()), encode(group));
        }
        Ok(Client { url, query, token, agent: config.into() })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Starts to count; the channel closes when the server ends the count.
    pub(super) fn connect(&self) -> mpsc::Receiver<Result<TotalsDoc, Failure>> {
        let (sender, receiver) = mpsc::channel(16);
        let (url, query, token) = (self.url.clone(), self.query.clone(), self.token.clone());
        let agent = self.agent.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(failure) = listen(&url, &query, token.as_ref(), &agent, &sender) {
                // If this fails, the receiver was dropped and does not need the reason.
                let _ = sender.blocking_send(Err(failure));
            }
        });
        receiver
    }
}

fn listen(
    url: &str,
    query: &str,
    token: Option<&Token>,
    agent: &Agent,
    sender: &Sender,
) -> Result<(), Failure> {
    let mut request = agent.post(query).header("X-Submeter", "1");
    if let Some(token) = token {
        request = request.header("Authorization", token.header());
    }
    let mut answer = request.send_empty().map_err(|error| unreachable(url, &error))?;
    let status = answer.status().as_u16();
    let plain = answer.headers().get("content-type").is_none_or(|kind| kind != NDJSON);
    if matches!(status, 404 | 405) && plain {
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let why = match text.starts_with("no group ") {
            true => text.trim().to_owned(),
            false => "it cannot count events: is it submeter of this version?".to_owned(),
        };
        return Err(Failure::new(format_args!("{url}: {why}")));
    }
    if status != 200 || plain {
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        return Err(Failure::new(format_args!("{url} refuses to count: {}", text.trim())));
    }
    for line in BufReader::new(answer.body_mut().as_reader()).lines() {
        // The server has exited.
        let Ok(line) = line else { return Ok(()) };
        if line.is_empty() {
            continue;
        }
        let totals = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format_args!(
                "{url} is not submeter of this version: its counts cannot be read ({error})"
            ))
        });
        if sender.blocking_send(totals).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Escapes the characters that a query cannot contain.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/:,{}".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // As above.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_names_of_any_bytes() {
        assert_eq!(encode("/acme/web"), "/acme/web");
        assert_eq!(encode("a&b=c d%ü"), "a%26b%3Dc%20d%25%C3%BC");
    }
}
