//! Standard output, and how foreign text is made safe for a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use submeter::is_hidden;

/// Prints to standard output. Unlike with `print!`, a closed pipe (`| head`) is not an error.
///
/// All output of a command goes through here or [`stream`], so that lost output is never taken for
/// written output.
///
/// # Errors
/// One line that says why it cannot be written, for example because the disk is full.
pub fn print(text: &str) -> Result<(), String> {
    stream(text).map(drop)
}

/// Prints a part of an endless output, and returns whether anyone still reads: false if the pipe
/// was closed.
///
/// # Errors
/// The same as [`print`](print()).
pub fn stream(text: &str) -> Result<bool, String> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

/// Writes to standard error. Unlike with `eprint!`, a failure is no panic: without standard error
/// there is no one to tell.
pub fn tell(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Returns a line in which every character is visible, so that nothing in it controls the terminal,
/// ends the line or reverses it. Such characters are escaped as in Rust, `\u{202e}`.
///
/// This is for lines that contain names; a name itself is shown by [`submeter::visible`], which
/// distinguishes an escape from text spelled like one. Applying it twice changes nothing.
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

/// Returns a text as a word of a command for any POSIX shell: in single quotes, or, if it contains
/// a character that [`plain`] would escape, as what printf(1) writes. `$'…'` would be shorter, and
/// another text in dash; it remains for a text whose last line ends, as `$(…)` drops that end.
#[must_use]
pub fn shell_word(text: &str) -> String {
    if !text.contains(is_hidden) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let is_lines = text.ends_with('\n');
    let (begin, end) = if is_lines { ("$'", "'") } else { ("\"$(printf '", "')\"") };
    let mut word = String::from(begin);
    for c in text.chars() {
        match c {
            '%' if !is_lines => word.push_str("%%"),
            '\\' => word.push_str("\\\\"),
            // By bytes, with three digits each, so that what follows cannot extend an escape.
            c if c == '\'' || is_hidden(c) => {
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).bytes();
                word.extend(bytes.map(|byte| format!("\\{byte:03o}")));
            }
            c => word.push(c),
        }
    }
    word + end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line controls no terminal, and plain text stays unchanged.
    #[test]
    fn a_line_controls_no_terminal() {
        let shown = plain("\u{1b}[2J /a\u{202e}b\n");
        assert_eq!(shown, r"\u{1b}[2J /a\u{202e}b\u{a}");
        assert_eq!(plain(&shown), shown);
        let name = submeter::visible(r"/a\u{202e}").to_string();
        assert_eq!(plain(&name), name);
    }

    /// A word means the same text to every shell.
    #[test]
    fn a_word_is_one_text_in_every_shell() {
        let texts = ["/a\u{202e}b", "/50%\u{202e}\\101'\"$x`", "/a\t", "/ü\u{a0}ä7", "/plain 'x'"];
        for shell in ["sh", "dash", "bash"] {
            for text in texts {
                let script = format!("printf %s {}", shell_word(text));
                let output = std::process::Command::new(shell).args(["-c", &script]).output();
                // Not every machine has each.
                let Ok(output) = output else { continue };
                assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{shell}: {script}");
            }
        }
        assert_eq!(shell_word("/a\n"), r"$'/a\012'");
    }
}
