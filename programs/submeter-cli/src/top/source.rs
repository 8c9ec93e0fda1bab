//! The source of what is shown: one server, or all servers of a fleet.

use submeter_http::wire::{DetailDoc, TreeDoc};
use submeter_terminal::Failure;

use super::client::Client;
use super::fleet;

pub(super) enum Source {
    Server(Client),
    Fleet(Vec<Client>),
}

impl Source {
    /// Names the source in one word or two.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Server(client) => client.url().to_owned(),
            Source::Fleet(clients) => fleet::servers(clients.len()),
        }
    }

    pub(super) fn tree(&self) -> Result<TreeDoc, Failure> {
        match self {
            Source::Server(client) => client.tree(),
            Source::Fleet(clients) => fleet::tree(clients),
        }
    }

    /// Requests a group with its past. Servers begin their past at different moments, so that a
    /// fleet has no past except what was seen here.
    pub(super) fn group(&self, path: &str) -> Option<DetailDoc> {
        match self {
            Source::Server(client) => client.group(path),
            Source::Fleet(_) => None,
        }
    }
}
