//! Tests of the reader of tenants' statistics.

use super::*;

const HEADER: &str = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,wss_mb,operations,ttls\n";

fn one(line: &str) -> Result<Vec<Profile>, String> {
    parse(format!("# a comment\n{HEADER}{line}\n").as_bytes(), "t.csv")
}

#[test]
fn there_are_six_different_built_in_tenants() {
    let profiles = built_in().expect("well-formed");
    assert_eq!(profiles.len(), 6);
    for verb in ["get", "gets", "set", "add", "cas", "delete", "incr", "prepend"] {
        let verb = Verb::parse(verb).expect("known");
        assert!(profiles.iter().any(|p| p.uses(&[verb])), "{verb:?} occurs");
    }
}

#[test]
fn every_field_is_read() {
    let profiles = one("c4,67,2439,5.26,1.1004,100,0,get=0.93;set=0.07,60s:0.4;1.5h:0.35;40d:0.25");
    let expected = Profile {
        source: "c4".to_owned(),
        key_bytes: 67,
        value_bytes: 2439,
        rate_kqps: 5.26,
        zipf_alpha: 1.1004,
        working_set_mb: 100.0,
        operations: vec![(Verb::Get, 0.93), (Verb::Set, 0.07)],
        ttls_s: vec![(60, 0.4), (5400, 0.35), (40 * 86_400, 0.25)],
    };
    assert_eq!(profiles, Ok(vec![expected]));
}

/// Fields may have quotes and blanks, and lines may end as on Windows.
#[test]
fn fields_may_be_quoted_and_lines_end_in_crlf() {
    let plain = one("c,1,2,3,1,4,1,get=1,1d:1").expect("well-formed");
    assert_eq!(one(" \"c\" ,\"1\", 2,3,1,4,1,\"get=1\",1d:1\r\n\n# the end"), Ok(plain.clone()));
    let marked = format!("\u{feff}{HEADER}c,1,2,3,1,4,1,get=1,1d:1");
    assert_eq!(parse(marked.as_bytes(), "t.csv"), Ok(plain));
}

#[test]
fn unknown_figures_get_typical_values() {
    let profiles = one("c,NA,,NA,NA,,NA,NA,").expect("taken");
    assert_eq!(profiles, [Profile::typical("c")]);
}

#[test]
fn an_error_names_file_line_field_and_remedy() {
    for (line, named) in [
        ("c,x,1,1,1,1,1,get=1,1d:1", ["key_bytes", "\"x\""]),
        ("c,251,1,1,1,1,1,get=1,1d:1", ["key_bytes", "250"]),
        ("c,1,2000000,1,1,1,1,get=1,1d:1", ["value_bytes", "2000000"]),
        ("c,1,1,0,1,1,1,get=1,1d:1", ["request_rate_kqps", "\"0\""]),
        ("c,1,1,1,nan,1,1,get=1,1d:1", ["zipf_alpha", "nan"]),
        ("c,1,1,1,1,1,1,git=1,1d:1", ["operations", "git=1"]),
        ("c,1,1,1,1,1,1,get=0,1d:1", ["operations", "get=0.9"]),
        ("c,1,1,1,1,1,1,get=1,1w:1", ["ttls", "1w:1"]),
        ("c,1,1,1,1,1,1,get=1,0s:1", ["ttls", "0s:1"]),
        (",1,1,1,1,1,1,get=1,1d:1", ["tenant", "not a tenant name"]),
        ("a/b,1,1,1,1,1,1,get=1,1d:1", ["tenant", "a/b"]),
        ("c,1,1", ["3 fields", "9"]),
    ] {
        let error = one(line).expect_err(line);
        assert!(error.starts_with("t.csv line 3"), "{error}");
        for part in named {
            assert!(error.contains(part), "{error} names {part}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Repeated tenants, missing columns and empty files are refused.
#[test]
fn bad_tenants_files_are_refused() {
    let line = "c,1,1,1,1,1,1,get=1,1d:1";
    let twice = one(&format!("{line}\n{line}")).expect_err("twice");
    assert!(twice.contains("line 4") && twice.contains("is a duplicate"), "{twice}");
    let missing = parse(b"tenant,key_bytes\na,1\n", "t.csv").expect_err("columns");
    assert!(missing.contains("value_bytes"), "{missing}");
    assert!(parse(HEADER.as_bytes(), "t.csv").expect_err("no rows").contains("no tenants"));
    assert!(parse(b"", "t.csv").is_err());
    assert!(parse(&[HEADER.as_bytes(), b"\xff,1,1,1,1,1,1,get=1,1d:1"].concat(), "t.csv").is_err());
}
