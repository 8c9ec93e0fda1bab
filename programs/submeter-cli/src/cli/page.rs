//! Which server `submeter top` and `submeter stat` ask.

use std::path::PathBuf;

use clap::Args;
use submeter_address::Address;

/// What a server asks of those that look at its page.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AccessArgs {
    /// Send the token in this file, for a server with --token-file
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file, in PEM, for an https:// address
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl AccessArgs {
    /// Names the page of one of several servers.
    pub(crate) fn page(&self, url: &Address) -> PageArgs {
        PageArgs { access: self.clone(), url: url.clone() }
    }
}

/// The page of a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Address of the server's page
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9411")]
    pub(crate) url: Address,
}
