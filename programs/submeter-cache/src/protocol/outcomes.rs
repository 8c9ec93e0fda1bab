//! The parser's outcomes for a connection's bytes, however they arrive; for its tests and for
//! `proof/submeter-fuzz`.

use super::{Access, Outcome, Parser, Step};

/// The largest value that the parsers here accept: small, so that oversized ones are common.
pub(super) const VALUE_MAX: usize = 64;

pub(super) fn parser() -> Parser {
    Parser::new(VALUE_MAX, Access::Everything)
}

/// Feeds `bytes` in the given pieces, as a connection does, and returns the results as text.
/// Skipped bytes appear as one sum, because they are reported as they arrive.
#[cfg_attr(not(feature = "fuzz"), expect(unreachable_pub, reason = "`fuzz` exports it"))]
pub fn outcomes(bytes: &[u8], pieces: impl Iterator<Item = usize>) -> Vec<String> {
    let mut parser = parser();
    let mut told: Vec<String> = Vec::new();
    let (mut held, mut at, mut wanted, mut swallowed) = (0, 0, 1, 0);
    for piece in pieces.chain([bytes.len()]) {
        held = (held + piece).min(bytes.len());
        while held - at >= wanted {
            let Step { consumed, outcome } = parser.step(&bytes[at..held]);
            assert!(consumed <= held - at);
            match outcome {
                Outcome::More { wanted: more } => {
                    assert_eq!(consumed, 0);
                    assert!(more > held - at, "asks for bytes it already has");
                    wanted = more;
                    continue;
                }
                Outcome::Swallowed => swallowed += consumed,
                Outcome::Foreign(_) => {
                    told.push(format!("{swallowed} foreign"));
                    return told;
                }
                outcome => {
                    assert!(consumed > 0, "no progress");
                    told.push(format!("{swallowed} {consumed} {outcome:?}"));
                    swallowed = 0;
                }
            }
            at += consumed;
            wanted = 1;
        }
    }
    told.push(format!("{swallowed} swallowed at the end"));
    told
}
