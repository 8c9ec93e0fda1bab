//! Limits as text: what is read, what is written, and what remedy an error names.

use std::time::Duration;

use super::lines::{parse_lines, unquote};
use super::values::{CPU_PERIOD, MILLI_CPU_NS, SIZE_MAX, rate, size};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits(memory: impl Into<Option<u64>>, rate: impl Into<Option<Rate>>) -> Limits {
    let (memory, rate) = (memory.into(), rate.into());
    Limits { memory, rate, ..Limits::default() }
}

#[test]
fn a_flag_has_a_path_and_limits() {
    let rate = Rate::new(20_000, SECOND);
    for (text, path, expected) in [
        ("/a=1k", "/a", limits(1024, None)),
        ("/a,b c=1k", "/a,b c", limits(1024, None)),
        ("/a,b=1k,rate=20000/s", "/a,b", limits(1024, rate)),
        ("/a=1k,rate=20000/s", "/a", limits(1024, rate)),
        ("/a=memory=1k,rate=20k/s", "/a", limits(1024, rate)),
        ("/a=rate=1m/s", "/a", limits(None, Rate::new(1_000_000, SECOND))),
        ("/a=rate=20000/s", "/a", limits(None, rate)),
        ("/a=rate=20000/s,burst=7", "/a", limits(None, Rate { burst: 7, ..rate })),
        ("/a=1k,weight=300", "/a", Limits { weight: Some(300), ..limits(1024, None) }),
        ("/a=weight=1,rate=20000/s", "/a", Limits { weight: Some(1), ..limits(None, rate) }),
    ] {
        let expected = GroupLimits { path: path.to_owned(), limits: expected };
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
}

#[test]
fn claims_are_sizes() {
    let of = |high: u64, low: u64, min: u64| {
        let [high, low, min] = [high, low, min].map(|size| Some(size).filter(|&n| n > 0));
        Limits { high, low, min, ..Limits::default() }
    };
    let all = Limits {
        rate: Some(Rate::new(5, SECOND)),
        memory: Some(64 << 10),
        ..of(48 << 10, 32 << 10, 16 << 10)
    };
    for (text, path, expected) in [
        ("/a=64k,low=32k,min=16k,high=48k,rate=5/s", "/a", all),
        ("/a=64k,rate=5/s,high=48k,min=16k,low=32k", "/a", all),
        ("/a=high=1k", "/a", of(1024, 0, 0)),
        ("/a=low=1k,min=1", "/a", of(0, 1024, 1)),
        ("/a=min=1k", "/a", of(0, 0, 1024)),
    ] {
        let expected = GroupLimits { path: path.to_owned(), limits: expected };
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
}

#[test]
fn a_change_leaves_the_rest_and_can_be_undone() {
    let before = "/a=64m,low=1500,rate=20k/s,burst=7".parse::<GroupLimits>().expect("legal").limits;
    assert_eq!(before.to_string(), "memory=64m,low=1500,rate=20000/s,burst=7");
    for (change, now) in [
        ("rate=500/s", "memory=64m,low=1500,rate=500/s"),
        ("rate=5/10s, weight=3", "memory=64m,low=1500,rate=5/10s,weight=3"),
        ("1k,low=none", "memory=1k,rate=20000/s,burst=7"),
        ("memory=none,low=none,rate=none", ""),
        ("cpu=0.5,mode=soft", "memory=64m,low=1500,rate=20000/s,burst=7,cpu=500m,mode=soft"),
    ] {
        let (after, undo) = before.changed(change).expect(change);
        assert_eq!(after.to_string(), now, "{change}");
        assert_eq!(after.changed(&undo).expect("legal").0, before, "{change}: {undo}");
    }
    for (change, named) in [
        ("", "sets nothing"),
        ("rat=none", "\"rat\" is not a limit"),
        ("burst=none", "\"burst\" is not a limit"),
        ("rate=5/s,rate=none", "set and lifted"),
        ("rate=5", "not a rate"),
    ] {
        let error = before.changed(change).expect_err(change).to_string();
        assert!(error.contains(named), "{change}: {error}");
    }
}

#[test]
fn cpus_are_written_as_for_kubernetes() {
    for (written, millis, again) in [
        ("500m", 500, "500m"),
        ("0.5", 500, "500m"),
        ("2", 2000, "2"),
        ("2.0", 2000, "2"),
        ("1500m", 1500, "1500m"),
        ("0.001", 1, "1m"),
        ("0.0010", 1, "1m"),
        ("1000000", 1_000_000_000, "1000000"),
    ] {
        let rate = cpus(written).expect(written);
        assert_eq!((rate.amount, rate.per), (millis * MILLI_CPU_NS, CPU_PERIOD), "{written}");
        rate.check().expect(written);
        let limits = Limits { cpu: Some(rate), ..Limits::default() };
        assert_eq!(limits.to_string(), format!("cpu={again}"), "{written}");
    }
    for (written, named) in [
        ("", "not a number of CPUs: use thousandths or CPUs, as in 500m, 0.5 or 2"),
        ("m", "not a number of CPUs"),
        ("0.5m", "not a number of CPUs"),
        ("-1", "not a number of CPUs"),
        ("+1", "not a number of CPUs"),
        (".5", "not a number of CPUs"),
        ("1.", "not a number of CPUs"),
        ("1.2.3", "not a number of CPUs"),
        ("1e3", "not a number of CPUs"),
        ("50%", "not a number of CPUs"),
        ("0", "0 would admit nothing; the minimum is 1m"),
        ("0m", "0 would admit nothing"),
        ("0.0005", "finer than a thousandth"),
        ("1000001", "too many CPUs: the maximum is 1000000"),
        ("99999999999999999999", "too many CPUs"),
    ] {
        let error = cpus(written).expect_err(written).to_string();
        assert!(error.starts_with(&format!("{written:?} ")), "{error}");
        assert!(error.contains(named), "{written}: {error}");
    }
}

#[test]
fn rates_are_of_the_usual_units() {
    for (text, per) in [
        ("5/s", SECOND),
        ("5/min", SECOND * 60),
        ("5/h", SECOND * 3600),
        ("5/ms", SECOND / 1000),
        ("5/10s", SECOND * 10),
    ] {
        assert_eq!(rate(text), Ok(Rate::new(5, per)), "{text}");
    }
    for text in [
        "",
        "5",
        "5/",
        "/s",
        "5/d",
        "-5/s",
        "+5/s",
        "5.5/s",
        "5/1.5s",
        "5/s/s",
        "5/99999999999999999999s",
        "k/s",
        "5g/s",
        "99999999999999999999k/s",
    ] {
        assert!(rate(text).is_err(), "{text}");
    }
}

#[test]
fn an_error_names_input_and_remedy() {
    for (text, named) in [
        ("/a", "/PATH=LIMITS"),
        ("a=1k", "starts with '/'"),
        ("/a=", "not a size"),
        ("/a=x", "\"x\" is not a size"),
        ("/a=low=x", "\"x\" is not a size"),
        ("/a=1k,max=1k", "\"max\" is not a limit: use SIZE, high=SIZE"),
        ("/a=1k,high=1k,high=2k,rate=1/s", "is a duplicate"),
        ("/a=1k,min=", "not a size"),
        ("/a=1k,rate=20000", "\"20000\" is not a rate: use N/s"),
        ("/a=1k,rate=0/s", "the amount is 0, which would grant nothing; the minimum is 1/h"),
        ("/a=1k,rate=5/0s", "the period is 0"),
        ("/a=1k,rate=5/s,burst=0", "the burst is 0"),
        ("/a=1k,rate=5/s,burst=x", "\"x\" is not a burst"),
        (
            "/a=rate=5/s,burst=99999999999999999999",
            "is too large: the maximum burst is 18446744073709551615",
        ),
        ("/a=rate=99999999999999999999/s", "is too large: lower the amount or the time"),
        ("/a=rate=9999999999999999999m/s", "is too large: lower the amount or the time"),
        ("/a=rate=5/99999999999999999999s", "is too large: lower the amount or the time"),
        ("/a=low=99999999999999999999g", "is too large: the maximum size is 16777215t"),
        ("/a=1k,burst=5", "add rate=N/s"),
        ("/a=weight=0", "\"0\" is not a weight: use 1 to 10000"),
        ("/a=weight=10001", "not a weight: use 1 to 10000"),
        ("/a=weight=high", "not a weight: use 1 to 10000"),
        ("/a=cpu=half", "\"half\" is not a number of CPUs: use"),
        ("/a=cpu=1,cpu=2", "is a duplicate"),
        ("/a=mode=dry", "\"dry\" is not a mode: use soft or enforced"),
        ("/a=hihg=4k", "\"hihg\" is not a limit: use SIZE, high=SIZE"),
        ("/a=rat=5k", "\"rat\" is not a limit"),
        ("/a=b=rate=5/s", "\"b\" is not a limit"),
        ("/a,hihg", "/PATH=LIMITS"),
        ("/a=1k,rate=5/s,rate=6/s", "is a duplicate"),
        ("/a=1k,memory=2k", "is a duplicate"),
        ("/a=rate=0k/s", "the amount is 0"),
        ("/acme memory=5m", "within its path"),
        ("/acme,cpu=2,rate=5/s", "within its path"),
    ] {
        let error = text.parse::<GroupLimits>().expect_err(text).to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn lines_are_path_and_limits() {
    let text = "# limits\n\n/acme 64m\n  \"/acme/web team\"\t1k  \n/a,b=c rate=5/s # few\n\
                /d high=3k,low=2k,min=1k\n";
    let limits = parse_lines(text).expect("well-formed");
    let rate = Rate::new(5, Duration::from_secs(1));
    let rate = Limits { rate: Some(rate), ..Limits::default() };
    let [high, low, min] = [3072, 2048, 1024].map(Some);
    let expected = [
        (3, "/acme", (64 << 20).into()),
        (4, "/acme/web team", 1024.into()),
        (5, "/a,b=c", rate),
        (6, "/d", Limits { high, low, min, ..Limits::default() }),
    ];
    let limit = |path: &str, limits| GroupLimits { path: path.to_owned(), limits };
    let expected = expected.map(|(line, path, limits)| (line, limit(path, limits)));
    assert_eq!(limits, expected);
}

#[test]
fn a_mark_within_a_name_is_no_comment() {
    let limits = parse_lines("/a#b 1k#\n").expect_err("no size").to_string();
    assert!(limits.contains("1k#"), "{limits}");
    assert_eq!(parse_lines("/a#b 1k\t# c # d\n").expect("well-formed")[0].1.path, "/a#b");
    let quoted = r##"  "/a\n #\u202e\"b " 1k # "c""##;
    let limits = parse_lines(quoted).expect("well-formed");
    assert_eq!(limits[0].1.path, "/a\n #\u{202e}\"b ");
}

#[test]
fn an_error_of_a_line_has_its_number() {
    for (line, named) in [
        ("/acme", "no limit"),
        ("acme 1k", "acme"),
        ("/acme 1x", "1x"),
        ("/acme rate=5", "N/s"),
        (r#""/acme 1k"#, "invalid quoted path"),
        (r#""/acme" # 1k"#, "no limit"),
        (r#""acme" 1k"#, "starts with '/'"),
        (r#""" 1k"#, "starts with '/'"),
        (r#""""#, "no limit"),
        ("/acme 1m rate=5/s", "limits by commas alone"),
        ("/acme 1m, rate=5/s", "limits by commas alone"),
        ("/acme 1m ,rate=5/s", "limits by commas alone"),
        ("/web team 1m", "quote a path that contains a blank"),
        (r#""/web team" 1m rate=5/s"#, "limits by commas alone"),
    ] {
        let error = parse_lines(&format!("/ok 1k\n{line}\n")).expect_err(line);
        assert_eq!(error.line(), Some(2));
        let error = error.to_string();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(error.contains(named) && error.contains("/PATH SIZE,rate=N/s"), "{error}");
    }
}

#[test]
fn sizes_take_the_usual_suffixes() {
    for (text, bytes) in
        [("1", 1), ("64m", 64 << 20), ("1.5K", 1536), ("2GiB", 2 << 30), ("512b", 512)]
    {
        assert_eq!(size(text), Ok(bytes));
    }
    for text in ["", "m", "-1", "1x", "0", "1..2m", "64 m", "99999999999999999999", "nan"] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn a_size_that_is_too_large_is_said_to_be() {
    for text in ["99999999999999999999g", "99999999999999999999", "16777216t", "1e9.5g"] {
        let error = size(text).expect_err(text).to_string();
        assert_eq!(error.contains("too large"), !text.contains('e'), "{error}");
    }
    let error = size(&format!("{}.5g", "9".repeat(400))).expect_err("large").to_string();
    assert!(error.contains("too large"), "{error}");
    assert_eq!(size(SIZE_MAX), Ok(((1 << 24) - 1) << 40));
}

/// A quoted path is read as serde_json reads it, wherever the text is cut or changed.
#[test]
fn quotes_are_those_of_json() {
    const PIECES: [&str; 16] = [
        "\"", "\\", "u", "00e9", "d83d", "\\ude00", "\\u0041", "n", "/", "b", " #", "\u{1}", "é",
        "x", "\\t", "\\\"",
    ];
    let mut random = fastrand::Rng::with_seed(35);
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        let text: String =
            (0..random.usize(..8)).map(|_| PIECES[random.usize(..PIECES.len())]).collect();
        let line = format!("\"{text}");
        let mut json = serde_json::Deserializer::from_str(&line).into_iter::<String>();
        let expected = json.next().and_then(Result::ok);
        let expected = expected.map(|path| (path, &line[json.byte_offset()..]));
        assert_eq!(unquote(&text), expected, "{line}");
    }
}
