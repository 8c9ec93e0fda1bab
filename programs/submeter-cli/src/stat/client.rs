//! Receives counts from a server.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use tokio::sync::mpsc;
use ureq::Agent;

use super::plan::Wanted;
use crate::cli::PageArgs;
use crate::top::client::{Page, sentence, unreachable};
use submeter_http::wire::stat::{NDJSON, StatDoc};
use submeter_terminal::Failure;

type Sender = mpsc::Sender<Result<StatDoc, Failure>>;

/// Time limit for the server's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that does not count yet.
pub(super) struct Client {
    page: Page,
    query: Vec<(&'static str, String)>,
    agent: Agent,
}

impl Client {
    pub(super) fn new(
        page: &PageArgs,
        wanted: &[Wanted],
        every: Duration,
    ) -> Result<Client, Failure> {
        let (page, config) = Page::of(page)?;
        let config =
            config.timeout_connect(Some(PATIENCE)).timeout_recv_response(Some(PATIENCE)).build();
        let mut query = vec![("interval", every.as_millis().to_string())];
        for Wanted { group, events } in wanted {
            query.extend([("e", events.to_string()), ("g", group.clone().unwrap_or_default())]);
        }
        Ok(Client { page, query, agent: config.into() })
    }

    pub(super) fn url(&self) -> &str {
        &self.page.url
    }

    /// Starts to count. The channel closes when the server ends the count.
    pub(super) fn connect(&self) -> mpsc::Receiver<Result<StatDoc, Failure>> {
        let (sender, receiver) = mpsc::channel(16);
        let (page, query, agent) = (self.page.clone(), self.query.clone(), self.agent.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(failure) = listen(&page, query, &agent, &sender) {
                // If this fails, the receiver was dropped and does not need the reason.
                let _ = sender.blocking_send(Err(failure));
            }
        });
        receiver
    }
}

fn listen(
    page: &Page,
    query: Vec<(&str, String)>,
    agent: &Agent,
    sender: &Sender,
) -> Result<(), Failure> {
    let url = &page.url;
    let request = agent.post(format!("{url}/api/stat")).header("X-Submeter", "1");
    let request = page.authorize(request).query_pairs(query);
    let mut answer = request.send_empty().map_err(|error| unreachable(url, &error))?;
    let status = answer.status().as_u16();
    if (300..400).contains(&status) {
        return Err(unreachable(url, &ureq::Error::StatusCode(status)));
    }
    let plain = !answer.body().mime_type().is_some_and(|kind| kind.eq_ignore_ascii_case(NDJSON));
    if matches!(status, 404 | 405) && plain {
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let why = match text.starts_with("no group ") {
            true => text.trim().to_owned(),
            false => "it cannot count events: is it the same version of submeter?".to_owned(),
        };
        return Err(Failure::new(format_args!("{url}: {why}")));
    }
    if status != 200 || plain {
        let why = sentence(&mut answer);
        return Err(Failure::new(format_args!("{url} refused to count: {why}")));
    }
    for line in BufReader::new(answer.body_mut().as_reader()).lines() {
        // The server has exited.
        let Ok(line) = line else { return Ok(()) };
        if line.is_empty() {
            continue;
        }
        let totals = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format_args!(
                "{url} is not the same version of submeter: its counts cannot be read ({error})"
            ))
        });
        if sender.blocking_send(totals).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
