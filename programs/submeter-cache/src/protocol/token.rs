//! Words and numbers of a command line.

/// Maximum number of words of a line that are split. More are an error in every command except a
/// retrieval.
const WORDS_MAX: usize = 24;

/// The first words of a line.
pub(crate) struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    len: usize,
}

impl<'a> Words<'a> {
    /// Splits at spaces. Other white space is part of a word, as in memcached.
    pub(crate) fn new(line: &'a [u8]) -> Words<'a> {
        let mut split = Words { words: [b""; WORDS_MAX], len: 0 };
        for word in words(line).take(WORDS_MAX) {
            split.words[split.len] = word;
            split.len += 1;
        }
        split
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the word at `index`, empty beyond the last.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or(b"")
    }

    pub(crate) fn from(&self, index: usize) -> &[&'a [u8]] {
        self.words[..self.len].get(index..).unwrap_or(&[])
    }

    /// Returns whether the last word asks for no answer.
    pub(crate) fn quiet(&self) -> bool {
        self.len > 0 && self.words[self.len - 1] == b"noreply"
    }
}

/// Splits at spaces, without empty words.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

/// Returns the first word and the rest of the line.
pub(crate) fn first(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line.iter().position(|&byte| byte != b' ').unwrap_or(line.len());
    let line = &line[start..];
    line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()))
}

/// Reads a whole word as a decimal number.
pub(crate) fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    let (value, rest) = digits_of(digits)?;
    rest.is_empty().then_some(value)
}

/// Reads a whole word as a signed decimal number.
pub(crate) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => {
            let (value, rest) = digits_of(digits)?;
            rest.is_empty().then_some(())?;
            0i64.checked_sub_unsigned(value)
        }
        None => unsigned(word)?.try_into().ok(),
    }
}

/// Reads client flags, which have 32 bits.
pub(crate) fn flags(word: &[u8]) -> Option<u32> {
    unsigned(word)?.try_into().ok()
}

/// Reads a stored value as a number: white space may surround it, and what follows a space is
/// ignored. Decremented numbers can thus keep their length.
pub(crate) fn stored_number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let (number, rest) = digits_of(value.strip_prefix(b"+").unwrap_or(value))?;
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some(number)
}

/// Reads leading digits; returns their value and what follows.
fn digits_of(word: &[u8]) -> Option<(u64, &[u8])> {
    let len = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut value = 0u64;
    for byte in &word[..len] {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    (len > 0).then_some((value, &word[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"+7"), Some(7));
        for bad in [&b""[..], b"-1", b"1x", b"x", b"+", b"0x10", b" 1"] {
            assert_eq!(unsigned(bad), None, "{bad:?}");
        }
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-9223372036854775809"), None);
        assert_eq!(flags(b"4294967295"), Some(u32::MAX));
        assert_eq!(flags(b"4294967296"), None);
    }

    #[test]
    fn a_stored_number_may_have_space_around_it() {
        assert_eq!(stored_number(b"12"), Some(12));
        assert_eq!(stored_number(b"9 "), Some(9));
        assert_eq!(stored_number(b" 9 and more"), Some(9));
        for bad in [&b""[..], b" ", b"9a", b"a9", b"-1"] {
            assert_eq!(stored_number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn words_are_separated_by_spaces_only() {
        let words = Words::new(b"  get  a\tb   c ");
        assert_eq!(words.len(), 3);
        assert_eq!(words.get(1), b"a\tb");
        assert_eq!(words.get(9), b"");
        assert_eq!(first(b"  gat 0 k"), (&b"gat"[..], &b" 0 k"[..]));
        assert_eq!(first(b"   "), (&b""[..], &b""[..]));
    }
}
