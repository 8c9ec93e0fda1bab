//! What goes to standard output, and how text of others' is made fit for a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use submeter::is_hidden;

/// Prints to standard output. Unlike with `print!`, a closed pipe (`| head`) is not an error.
///
/// All output of a command goes through here or [`stream`], so that none that is lost passes for
/// one that was written.
///
/// # Errors
/// One line that says why it cannot be written, for example because the disk is full.
pub fn print(text: &str) -> Result<(), String> {
    stream(text).map(drop)
}

/// Prints a part of what has no end yet, and returns whether anybody reads on: false if the pipe
/// was closed.
///
/// # Errors
/// As [`print`](print()).
pub fn stream(text: &str) -> Result<bool, String> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

/// Writes to standard error. Unlike with `eprint!`, a failure is no panic: without standard error
/// there is nobody to tell.
pub fn tell(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Returns a line whose every character is seen, so that nothing in it controls the terminal, ends
/// the line or turns it around: what would is written as in Rust, `\u{202e}`.
///
/// For lines, in which names are a part; a name itself is shown by [`submeter::visible`], which
/// tells what is spelled like an escape from one. Doing it twice changes nothing.
#[must_use]
pub fn plain(line: &str) -> Cow<'_, str> {
    if !line.contains(is_hidden) {
        return Cow::Borrowed(line);
    }
    let mut seen = String::new();
    for c in line.chars() {
        match is_hidden(c) {
            true => seen.extend(c.escape_unicode()),
            false => seen.push(c),
        }
    }
    Cow::Owned(seen)
}

/// Returns a text as a word of a shell's command: in single quotes, or as `$'…'`, which bash, zsh
/// and POSIX since 2024 know, where it has a character that [`plain`] would not show as it is.
#[must_use]
pub fn shell_word(text: &str) -> String {
    if !text.contains(is_hidden) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            // By bytes and in three digits, which nothing behind them continues.
            c if is_hidden(c) => {
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).bytes();
                word.extend(bytes.map(|byte| format!("\\{byte:03o}")));
            }
            c => word.push(c),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line controls no terminal and what is shown once stays.
    #[test]
    fn a_line_controls_no_terminal() {
        let shown = plain("\u{1b}[2J /a\u{202e}b\n");
        assert_eq!(shown, r"\u{1b}[2J /a\u{202e}b\u{a}");
        assert_eq!(plain(&shown), shown);
        let name = submeter::visible(r"/a\u{202e}").to_string();
        assert_eq!(plain(&name), name);
    }
}
