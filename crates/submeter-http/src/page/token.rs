//! The token that clients of the page must show.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

/// Minimum length of a token: 16 characters of base64 are 96 bits, too many to guess.
const TOKEN_MIN: usize = 16;

/// A secret that clients must show to be answered. The time of a comparison reveals nothing about
/// it, and it is never printed.
///
/// # Examples
/// ```
/// use submeter_http::Token;
///
/// let token = Token::new("d0ZvdXJ0eS1zaXggYml0cyE=")?;
/// assert_eq!(token.header(), "Bearer d0ZvdXJ0eS1zaXggYml0cyE=");
/// assert!(Token::new("secret").is_err());
/// # Ok::<(), submeter_http::TokenError>(())
/// ```
///
/// Cloning copies a handle, by which it can be [replaced](Token::replace).
#[derive(Clone)]
pub struct Token(Arc<Mutex<Arc<str>>>);

/// The error for a text that is not a valid [`Token`]: too short to be secret, or impossible to
/// send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenError;

impl Token {
    /// Takes a token, ignoring white space around it.
    ///
    /// # Errors
    /// When it has fewer than 16 characters, or characters other than visible ASCII.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let token = text.trim();
        if token.len() < TOKEN_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        Ok(Token(Arc::new(Mutex::new(token.into()))))
    }

    /// Gives this token and its clones, which a server may have, the secret of `other`. Clients
    /// with the previous secret get no further answer. Answers in progress continue.
    pub fn replace(&self, other: &Token) {
        let other = other.secret();
        *self.0.lock() = other;
    }

    fn secret(&self) -> Arc<str> {
        Arc::clone(&self.0.lock())
    }

    /// Returns what a client sends as `Authorization`.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.secret())
    }

    /// Returns whether a client's `Authorization` has the token: as a bearer, or as the password of
    /// whichever user a browser asked for.
    pub(crate) fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, shown)) = authorization.split_once(' ') else { return false };
        let secret = self.secret();
        let same = |shown: &[u8]| bool::from(secret.as_bytes().ct_eq(shown));
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

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no valid token: use {TOKEN_MIN} or more ASCII characters without spaces, such as the \
             output of `openssl rand -base64 24`"
        )
    }
}

impl std::error::Error for TokenError {}

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
        let token = Token::new(" correct-horse-battery\n").expect("long enough");
        let basic = |login: &str| format!("Basic {}", BASE64.encode(login));
        for shown in [
            token.header(),
            "bearer correct-horse-battery".to_owned(),
            "BEARER  correct-horse-battery ".to_owned(),
            basic("any:correct-horse-battery").replace("Basic", "bASIC"),
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

    #[test]
    fn what_is_short_or_cannot_be_sent_is_no_token() {
        for text in ["", "fifteen-letters", "sixteen or more letters", "sixteen-oder-m\u{e4}hr"] {
            assert_eq!(Token::new(text).err(), Some(TokenError), "{text}");
        }
        assert!(Token::new("sixteen--letters").is_ok());
    }
}
