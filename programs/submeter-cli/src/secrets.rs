//! Files with secrets: passwords of users, and the token of the page.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use submeter_terminal::Failure;
use subtle::ConstantTimeEq;

/// The shortest token: 16 characters of base64 are 96 bits, too many to guess.
const TOKEN_MIN: usize = 16;

/// Reads a file that only its owner and group may read.
pub(crate) fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let cannot = |e| Failure::new(format_args!("cannot read {name}: {e}; {flag} names the file"));
    let mut file = File::open(path).map_err(cannot)?;
    // Of the file that is open: the name may mean another one by now.
    let mode = file.metadata().map_err(cannot)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Failure::new(format_args!(
            "everybody on this machine may open {name}, which has secrets: chmod o= {name} ({flag})"
        )));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// What clients of the page show to be answered.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Reads a token from a file, white space around it aside.
    pub(crate) fn read(path: &Path) -> Result<Token, Failure> {
        let text = read("--token-file", path)?;
        let token = text.trim();
        if token.len() < TOKEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::new(format_args!(
                "{} has no token: write {TOKEN_MIN} or more ASCII characters without spaces, such \
                 as those of `openssl rand -base64 24` (--token-file)",
                path.display()
            )));
        }
        Ok(Token(token.to_owned()))
    }

    /// Returns what a client sends as `Authorization`.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Returns whether a client's `Authorization` has the token: as a bearer, or as the password of
    /// whatever user a browser asked for.
    pub(crate) fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, shown)) = authorization.split_once(' ') else { return false };
        let same = |shown: &[u8]| bool::from(self.0.as_bytes().ct_eq(shown));
        if scheme.eq_ignore_ascii_case("bearer") {
            return same(shown.trim().as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let Ok(login) = BASE64.decode(shown.trim()) else { return false };
        let colon = login.iter().position(|&byte| byte == b':');
        colon.is_some_and(|colon| same(&login[colon + 1..]))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token("correct-horse-battery".to_owned());
        let basic = |login: &str| format!("Basic {}", BASE64.encode(login));
        for shown in [
            token.header(),
            "bearer correct-horse-battery".to_owned(),
            basic("any:correct-horse-battery"),
            basic(":correct-horse-battery"),
        ] {
            assert!(token.is_in(&shown), "{shown}");
        }
        for shown in [
            "Bearer correct-horse-batter".to_owned(),
            "Bearer correct-horse-battery2".to_owned(),
            "Bearer ".to_owned(),
            "Bearer".to_owned(),
            "correct-horse-battery".to_owned(),
            "Digest correct-horse-battery".to_owned(),
            "Basic correct-horse-battery".to_owned(),
            basic("correct-horse-battery"),
            basic("correct-horse-battery:"),
            basic("a:b:correct-horse-battery"),
            String::new(),
        ] {
            assert!(!token.is_in(&shown), "{shown}");
        }
        assert!(!format!("{token:?}").contains("horse"));
    }
}
