//! Which server `submeter top` and `submeter stat` ask.

use std::path::PathBuf;

use clap::Args;
use submeter_address::Address;
use submeter_terminal::shell_word;

/// What a server asks of those that look at its page.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AccessArgs {
    /// Send the token in this file to a server with --token-file
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this PEM file for an https:// address
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl AccessArgs {
    /// Writes the given flags again, for a line to paste into a shell.
    pub(crate) fn flags(&self) -> String {
        let files = [("--token-file", &self.token_file), ("--ca-file", &self.ca_file)];
        let given = files.iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
        given
            .map(|(flag, file)| format!("{flag} {} ", shell_word(&file.to_string_lossy())))
            .collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_to_paste_has_the_files_that_were_named() {
        assert_eq!(AccessArgs::default().flags(), "");
        let token_file = Some(PathBuf::from("/etc/it's a token"));
        let access = AccessArgs { token_file, ca_file: Some(PathBuf::from("ca.pem")) };
        let flags = r"--token-file '/etc/it'\''s a token' --ca-file 'ca.pem' ";
        assert_eq!(access.flags(), flags);
    }
}
