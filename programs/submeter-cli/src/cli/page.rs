//! Which server `submeter top` and `submeter stat` ask.

use std::path::PathBuf;

use clap::Args;

/// The page of a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageArgs {
    /// Send the token of this file, if the server asks for one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the authorities of this file, in PEM, with an address of https://
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Address of the server's page
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9411")]
    pub(crate) url: String,
}
