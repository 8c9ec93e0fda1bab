//! The parser against arbitrary bytes, cut anywhere.

use proptest::prelude::*;

use super::outcomes::{VALUE_MAX, outcomes, parser};
use super::{Access, KEYS_LINE_MAX, LINE_MAX, Outcome, Parser, Request, Step, reply};

/// Generates bytes that are often requests, and often nearly.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        3 => "(get|gets|gat|gats|set|add|replace|append|prepend|cas|incr|decr|delete|touch)",
        3 => "(mg|ms|md|ma|me|mn|version|verbosity|flush_all|stats|quit|shutdown|noreply)",
        3 => "[a-c]{1,3}(:[a-c]{1,2}){0,3}",
        3 => "-?[0-9]{1,3}",
        2 => "[bcfhklqstuvIx]|[CEFNRTDJ][0-9]{1,4}|O[a-z]{1,40}|M[SEAPRID+-]{0,2}",
        1 => "[0-9]{9,21}",
        1 => "\\PC{0,5}|HTTP/1.1|[Hh]ost:",
    ];
    let separator = prop_oneof![8 => Just(" "), 1 => Just("  "), 1 => Just("\t")];
    let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")];
    let line = (prop::collection::vec((word, separator), 0..9), end).prop_map(|(words, end)| {
        let text: String = words.into_iter().flat_map(|(word, gap)| [word, gap.into()]).collect();
        format!("{text}{end}").into_bytes()
    });
    let store = (0usize..80, 0usize..80, any::<bool>()).prop_map(|(said, real, quiet)| {
        let said = if quiet { real } else { said };
        let noreply = if quiet { " noreply" } else { "" };
        let mut bytes = format!("set a:k 1 0 {said}{noreply}\r\n").into_bytes();
        bytes.extend(std::iter::repeat_n(b'v', real));
        bytes.extend_from_slice(b"\r\n");
        bytes
    });
    let garbage = prop::collection::vec(any::<u8>(), 0..40);
    let part = prop_oneof![5 => line, 3 => store, 1 => garbage];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn requests_do_not_depend_on_how_bytes_arrive(
        bytes in traffic(),
        pieces in prop::collection::vec(1usize..20, 0..100),
    ) {
        let whole = outcomes(&bytes, std::iter::empty());
        prop_assert_eq!(&outcomes(&bytes, pieces.into_iter()), &whole);
        prop_assert_eq!(&outcomes(&bytes, std::iter::repeat_n(1, bytes.len())), &whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..5000),
        pieces in prop::collection::vec(1usize..900, 0..50),
    ) {
        let whole = outcomes(&bytes, std::iter::empty());
        prop_assert_eq!(outcomes(&bytes, pieces.into_iter()), whole);
    }

    #[test]
    fn what_is_stored_is_what_was_sent(
        key in "[!-~]{1,250}",
        value in prop::collection::vec(any::<u8>(), 0..VALUE_MAX),
        flags in any::<u32>(),
        exptime in any::<i32>(),
    ) {
        let mut bytes = format!("set {key} {flags} {exptime} {}\r\n", value.len()).into_bytes();
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\n");
        let step = parser().step(&bytes);
        prop_assert_eq!(step.consumed, bytes.len());
        let Outcome::Request(Request::Store { key: k, value: v, flags: f, exptime: e, .. }) =
            step.outcome
        else {
            return Err(TestCaseError::fail("not a store"));
        };
        prop_assert_eq!((k, v, f, e), (key.as_bytes(), &value[..], flags, i64::from(exptime)));
    }
}

#[test]
fn endless_lines_end_the_connection() {
    for (line, bound) in [(&b"set "[..], LINE_MAX), (b"x", LINE_MAX), (b"get ", KEYS_LINE_MAX)] {
        let mut bytes = line.to_vec();
        bytes.resize(bound - 1, b'a');
        let before = parser().step(&bytes).outcome;
        assert_eq!(before, Outcome::More { wanted: bound });
        bytes.push(b'a');
        let after = parser().step(&bytes).outcome;
        assert_eq!(after, Outcome::Foreign(None));
    }
}

#[test]
fn a_value_is_announced_before_it_is_there() {
    let mut parser = Parser::new(1 << 20, Access::Everything);
    let head = b"set k 0 0 1000000\r\n";
    assert_eq!(
        parser.step(head).outcome,
        Outcome::More { wanted: head.len() + 1_000_002 },
        "so that a slow value is not looked at again with every byte"
    );
}

#[test]
fn a_nul_in_a_line_is_refused() {
    let Step { consumed, outcome } = parser().step(b"get a\0b\r\nversion\r\n");
    assert_eq!(consumed, 9);
    let Outcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.reply, reply::BAD_FORMAT);
}

/// A line of HTTP is foreign; a command that contains such a word is not.
#[test]
fn a_line_of_http_is_foreign() {
    for line in [
        "GET / HTTP/1.1",
        "POST /set%20k HTTP/1.0",
        "DELETE HTTP/1.1",
        "PRI * HTTP/2.0",
        "Host: 127.0.0.1:11211",
        "host:x",
        "HOST:",
    ] {
        let bytes = format!("{line}\r\n");
        let outcome = parser().step(bytes.as_bytes()).outcome;
        assert_eq!(outcome, Outcome::Foreign(Some("HTTP")), "{line}");
    }
    for line in ["get / HTTP/1.1", "get Host:", "mg Host:x", "touch Host: 1"] {
        let bytes = format!("{line}\r\n");
        let outcome = parser().step(bytes.as_bytes()).outcome;
        assert!(matches!(outcome, Outcome::Request(_)), "{line}: {outcome:?}");
    }
    let outcome = parser().step(b"Accept: */*\r\n").outcome;
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}
