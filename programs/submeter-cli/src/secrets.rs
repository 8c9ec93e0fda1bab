//! Files with secrets: passwords of users, and the token of the page.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use submeter_http::Token;
use submeter_terminal::{Failure, read_open_file};

/// Reads a file that only its owner and group may read.
pub(crate) fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let cannot = |e| Failure::new(format_args!("cannot read {name}: {e} ({flag})"));
    let file = File::open(path).map_err(cannot)?;
    // The mode of the open file: the name may refer to another file already.
    let mode = file.metadata().map_err(cannot)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Failure::new(format_args!(
            "any user of this machine may open {name}, which contains secrets: chmod o= {name} \
             ({flag})"
        )));
    }
    read_open_file(file).map_err(cannot)
}

/// Reads the token of a page from a file.
pub(crate) fn token(path: &Path) -> Result<Token, Failure> {
    let text = read("--token-file", path)?;
    Token::new(&text).map_err(|error| {
        Failure::new(format_args!("{} has {error} (--token-file)", path.display()))
    })
}
