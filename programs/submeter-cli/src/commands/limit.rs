//! `submeter limit set`.

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use submeter_terminal::{self as show, Failure};

use crate::cli::LimitCommand;
use crate::top::client::Client;

/// Runs the command.
pub(crate) fn run(command: &LimitCommand) -> Result<ExitCode, Failure> {
    let LimitCommand::Set(args) = command;
    let client = Client::new(&args.access.page(&args.url))?;
    let is_known = client.has_group(&args.path)?;
    let now = client.set_limits(&args.path, &args.limits.join(","))?;
    let (path, limits) =
        (show::displayed(&now.path, stdout().is_terminal()), show::plain(&now.limits));
    let limits = if now.limits.is_empty() { "no limits of its own" } else { &*limits };
    // The server's answer, quoted for a shell.
    let [undo, path_word] = [&now.undo, &now.path].map(|text| show::shell_word(text));
    let url = client.url();
    let access = args.access.flags();
    let undo = format!("submeter limit set {access}{url} {path_word} {undo}");
    let text = format!("{path}: {limits}\nundo: {undo}\n");
    // The undo is all that is left of the previous limits.
    show::print(&text).map_err(|error| {
        Failure::new(format_args!("{error}; the limits are set all the same: {undo} undoes it"))
    })?;
    if !is_known {
        show::tell(&format!(
            "warning: {path} is not among the tenants: these limits are for one to come. If the \
             name is wrong, undo it\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
