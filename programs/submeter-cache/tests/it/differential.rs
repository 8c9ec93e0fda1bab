//! memcached and this server must give the same answers to the same bytes.
//!
//! `{k}` in a script stands for the `cas` number that the server in question gave key `k`; in
//! answers it stands for any `cas`, since two servers need not agree on it. The module `protocol`
//! lists the intentional differences of this server. Malformed stores, whose values older releases
//! parse as commands, are tested in `bad_input`.

use crate::common::memcached::Memcached;
use crate::common::{Client, start_default};

/// Sends one script and returns the answers with comparable `cas` numbers.
fn transcript(client: &mut Client, script: &str) -> String {
    let mut answers = String::new();
    for step in script.split_inclusive('\n') {
        let mut step = step.to_owned();
        while let Some(open) = step.find('{') {
            let close = step.find('}').expect("placeholders are closed");
            answers.push_str(&client.talk(""));
            let head = client.ask(format!("mg {} c\r\n", &step[open + 1..close]));
            let cas = head.split(' ').find_map(|word| word.strip_prefix('c')).unwrap_or("99");
            step.replace_range(open..=close, cas);
        }
        client.send(step);
    }
    answers.push_str(&client.talk(""));
    comparable(&answers)
}

/// Removes from answers what two servers need not agree on.
fn comparable(answers: &str) -> String {
    answers.split("\r\n").map(comparable_line).collect::<Vec<_>>().join("\r\n")
}

fn comparable_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let comparable = |(index, word): (usize, &&str)| {
        let (letter, number) = word.split_at_checked(1).unwrap_or(("", ""));
        match (words[0], letter, number.parse::<u64>()) {
            ("VALUE", ..) if index == 4 => "{}".to_owned(),
            ("HD" | "VA", "c", Ok(_)) => "c{}".to_owned(),
            // memcached's seconds follow its clock's ticks: allow for four ticks.
            ("HD" | "VA", "t", Ok(left)) => format!("t{}", left.next_multiple_of(5)),
            ("HD" | "VA", "l", Ok(_)) => "l{}".to_owned(),
            _ => (*word).to_owned(),
        }
    };
    words.iter().enumerate().map(comparable).collect::<Vec<_>>().join(" ")
}

/// Returns memcached's answers in the wording of release 1.6.40 and later, and of this server:
/// older releases answer a line with too few words by `ERROR`.
fn in_new_words(expected: &str, got: &str) -> String {
    let format = "CLIENT_ERROR bad command line format";
    let mut got = got.split("\r\n");
    let words = expected.split("\r\n").map(|line| match got.next() {
        Some(ours) if line == "ERROR" && ours == format => ours,
        _ => line,
    });
    words.collect::<Vec<_>>().join("\r\n")
}

/// Checks that both servers give the same answers to a script.
fn compare(real: &mut Client, ours: &mut Client, script: &str) {
    let expected = transcript(real, script);
    let got = transcript(ours, script);
    let expected = in_new_words(&expected, &got);
    assert_eq!(got, expected, "left: this server, right: memcached, for {script:?}");
}

/// Runs scripts on fresh keys: each script gets its own keys for every `k` that stands alone.
fn scripts(test: &str, scripts: &[&str]) {
    let Some(memcached) = Memcached::start(test) else { return };
    let server = start_default();
    for script in scripts {
        let mut real = Client::connect(memcached.addr);
        let mut ours = server.connect();
        assert_eq!(real.ask("flush_all\r\n"), "OK");
        assert_eq!(ours.ask("flush_all\r\n"), "OK");
        compare(&mut real, &mut ours, script);
    }
}

#[test]
fn classic_commands() {
    scripts(
        "classic_commands",
        &[
            "set k 7 0 3\r\nabc\r\nget k\r\nget k k nothing k\r\ndelete k\r\ndelete k\r\nget k\r\n",
            "add k 0 0 1\r\na\r\nadd k 0 0 1\r\nb\r\nget k\r\nreplace k 1 0 1\r\nc\r\nget k\r\n",
            "replace k 0 0 1\r\na\r\nappend k 0 0 1\r\na\r\nprepend k 0 0 1\r\na\r\nget k\r\n",
            "set k 4294967295 0 2\r\nbc\r\nappend k 1 0 2\r\nde\r\nprepend k 2 0 1\r\na\r\nget k\r\n",
            "set k 0 0 1\r\n5\r\nincr k 5\r\ndecr k 3\r\nget k\r\nincr k 18446744073709551615\r\n",
            "set k 0 0 2\r\n10\r\ndecr k 1\r\nget k\r\ndecr k 100\r\nget k\r\nincr k 100\r\nget k\r\n",
            "set k 0 0 1\r\na\r\nincr k 1\r\nset k 0 0 0\r\n\r\nincr k 1\r\nincr no 1\r\ndecr no 1\r\n",
            "set k 0 0 5\r\n12 ab\r\nincr k 1\r\nget k\r\nset k 0 0 2\r\n-1\r\nincr k 1\r\n",
            "set k 0 0 20\r\n18446744073709551615\r\nincr k 1\r\nget k\r\n",
            "set k 0 0 21\r\n184467440737095516151\r\nincr k 1\r\nget k\r\n",
            "incr k\r\nincr\r\nincr k 1 2 3\r\nincr k -1\r\nincr k x\r\nincr k 1 noreply\r\n",
            "set k 0 0 1\r\na\r\ntouch k 100\r\ntouch no 100\r\ntouch k\r\ntouch k x\r\ntouch k -1\r\nget k\r\n",
            "set k 3 0 1\r\na\r\ngat 100 k no k\r\ngat 0 k\r\ngat x k\r\ngat\r\ngats\r\ngat -1 k\r\nget k\r\n",
            "set k 0 -1 1\r\na\r\nget k\r\nset k 0 1 1\r\nb\r\nset k 0 100 1\r\nc\r\nget k\r\n",
            "set k 0 2592001 1\r\na\r\nget k\r\nset k 0 0 1\r\nb\r\nadd k 0 -1 1\r\nc\r\nget k\r\n",
            "set k 0 0 1\r\na\r\nset j 0 0 1\r\nb\r\nflush_all\r\nget k j\r\nflush_all 0\r\nflush_all x\r\n",
            "flush_all noreply\r\nflush_all 0 noreply\r\nflush_all 0 1 2\r\nflush_all -1\r\n",
            "verbosity\r\nverbosity 1\r\nverbosity 1 noreply\r\nverbosity x\r\nverbosity 1 2 3\r\n",
            "set k 0 0 1\r\na\r\ncas k 0 0 1 {k}\r\nb\r\nget k\r\ncas k 0 0 1 {j}\r\nc\r\nget k\r\n",
            "cas no 0 0 1 5\r\na\r\n",
            "set k 0 0 1\r\na\r\ngets k {k}\r\ngets k\r\ngats 0 k\r\n",
            "mn\r\nmn x y\r\n",
        ],
    );
}

#[test]
fn noreply() {
    scripts(
        "noreply",
        &[
            "set k 0 0 1 noreply\r\na\r\nget k\r\nadd k 0 0 1 noreply\r\nb\r\nget k\r\n",
            "set k 0 0 1 noreply\r\nabc\r\nget k\r\n",
            "set k 0 0 1 norepl\r\na\r\nget k\r\n",
            "set k 0 0 1\r\n1\r\nincr k 2 noreply\r\ndecr k 1 noreply\r\nincr k x noreply\r\nget k\r\n",
            "set k 0 0 1\r\n1\r\ntouch k 0 noreply\r\ndelete k noreply\r\nget k\r\ndelete k noreply\r\n",
            "cas k 0 0 1 5 noreply\r\na\r\nset k 0 0 1\r\nb\r\ncas k 0 0 1 {k} noreply\r\nc\r\nget k\r\n",
        ],
    );
}

#[test]
fn malformed_lines() {
    scripts(
        "malformed_lines",
        &[
            "\r\n\n \r\nx\r\nfoo\r\nGET k\r\nget\r\ngets\r\n get \r\nbget\r\nm\r\nmz\r\nmgg k\r\n",
            "set\r\nset k\r\nset k 0\r\nset k 0 0\r\nset k 0 0 x\r\nset k 0 0 -1\r\n",
            "set k 0 0 2147483647\r\n",
            "set k 0 0 4\r\ninsert\r\nget k\r\n",
            "set k 0 0 1\r\nabcdefgh\r\nget k\r\n",
            "set k 0 0 3\r\nabc\n\r\nget k\r\n",
            "set k 0 0 1\na\r\nget k\n",
            "delete\r\ndelete k 0\r\ndelete k 1\r\ndelete k 0 noreply\r\ndelete k 1 noreply\r\ndelete k a b c d\r\n",
            "stats nonsense\r\n",
            "  set   k  0   0 1  \r\na\r\n  get   k  \r\n",
            "set k\t 0 0 1\r\na\r\nget k\t\r\n",
            "set k 0 0 1 \r\r\na\r\nget k\r\n",
        ],
    );
}

#[test]
fn long_keys_and_large_values() {
    let (key, over) = ("k".repeat(250), "k".repeat(251));
    let value = "v".repeat(100_000);
    let large = "v".repeat(2 << 20);
    scripts(
        "long_keys_and_large_values",
        &[
            &format!("set {key} 0 0 1\r\na\r\nget {key}\r\n"),
            // In a script of its own: with this error memcached also drops the answers before it.
            &format!("get k {over} k\r\n"),
            &format!("gat 0 {over}\r\n"),
            &format!(
                "delete {over}\r\nincr {over} 1\r\ntouch {over} 1\r\nmg {over}\r\nmd {over}\r\n"
            ),
            &format!("ma {over}\r\nme {over}\r\nms {over} x\r\n"),
            &format!("set k 0 0 100000\r\n{value}\r\nget k k\r\n"),
            &format!("set k 0 0 1\r\na\r\nset k 0 0 {}\r\n{large}\r\nget k\r\n", large.len()),
            &format!("set k 0 0 1\r\na\r\nadd k 0 0 {}\r\n{large}\r\nget k\r\n", large.len()),
            &format!("set k 0 0 {} noreply\r\n{large}\r\nget k\r\n", large.len()),
            &format!("ms k 1\r\na\r\nms k {}\r\n{large}\r\nmg k v\r\n", large.len()),
        ],
    );
}

#[test]
fn meta_commands() {
    scripts(
        "meta_commands",
        &[
            "mg k\r\nmg k v\r\nmg k q\r\nmg k k O1\r\nms k 2\r\nab\r\nmg k\r\nmg k v\r\nmg k s v t f\r\n",
            "ms k 2 F5 T100\r\nab\r\nmg k t f s k O123 v\r\nmg k k q v\r\nmg\r\nms\r\nmd\r\nma\r\nme\r\n",
            "ms k 2 c\r\nab\r\nms k S2\r\nab\r\nms k\r\nms k -1\r\nms k x\r\n",
            "ms k 1 ME\r\na\r\nms k 1 ME\r\nb\r\nms k 1 MA\r\nc\r\nms k 1 MP\r\nd\r\nmg k v\r\nms k 1 MR\r\ne\r\nmg k v\r\n",
            "ms k 1 MA\r\na\r\nms k 1 MP\r\na\r\nms k 1 MR\r\na\r\nms k 1 MX\r\na\r\nms k 1 MAB\r\na\r\nms k 1 M\r\na\r\n",
            "ms k 1 k O9 q\r\na\r\nms k 1 k O9\r\na\r\nms k 1 ME k O9 q\r\na\r\nms k 1 q\r\nabc\r\n",
            "ms k 1\r\na\r\nms k 1 C{k} \r\nb\r\nms k 1 C{j}1\r\nc\r\nms no 1 C5\r\na\r\nmg k v\r\n",
            "ms k 1\r\na\r\nms k 1 MA C{k}\r\nb\r\nms k 1 MA C1\r\nc\r\nmg k v\r\n",
            "ms k 1 F1 F2\r\na\r\nms k 1 !\r\na\r\nms k 1 Fx\r\na\r\nms k 1 Tx\r\na\r\nms k 1 Cx\r\na\r\nmg k v\r\n",
            "mg k v v\r\nmg k !\r\nmg k Tx\r\nmg k Nx\r\nmg k Rx\r\nmd k !\r\nma k !\r\nma k Dx\r\nma k Jx\r\n",
            "ms k 1\r\na\r\nmd k\r\nmd k\r\nmd k q\r\nms k 1\r\na\r\nmd k q k O1\r\nmd k k O1\r\n",
            "ms k 1\r\na\r\nmd k C1\r\nmd k C{k}\r\nmg k\r\n",
            "ms k 1\r\na\r\nmd k I T30\r\nmg k t v\r\nmg k t v\r\nms k 1\r\nb\r\nmg k v\r\n",
            "ms k 1 T100\r\na\r\nmd k I\r\nmg k v c {k}\r\nms k 1 I C{k}\r\nc\r\nmg k v\r\n",
            "ms k 1\r\na\r\nms k 1 I C1\r\nb\r\nmg k v\r\nmg k v\r\nms k 1 I C1 T9\r\nc\r\nmg k v t\r\n",
            "mg k N30 v t\r\nmg k N30 v t\r\nmg k v\r\nms k 1 T30\r\na\r\nmg k N30 v\r\n",
            "ms k 1 T10\r\na\r\nmg k R5 v\r\nmg k R30 v t\r\nmg k R30 v t\r\nmg k v\r\n",
            "ms k 1\r\na\r\nmg k R30\r\nmg k T30 t\r\nmg k t T40\r\nmg k t\r\nmg k T0 t\r\nmg k T-1\r\nmg k\r\n",
            "ms k 1\r\na\r\nmg k h\r\nmg k h\r\nmg k h l\r\nms j 1\r\na\r\nmg j u h\r\nmg j u h\r\nmg j h\r\nmg j h\r\n",
            "ma k\r\nma k N0\r\nma k\r\nma k v\r\nma k MD v\r\nma k M- v\r\nma k D10 MI v\r\nma k D5 M+ v t\r\nma k MZ\r\n",
            "ma k N0 J13 v\r\nma k v k O5\r\nma k q\r\nma k v q\r\nma k v\r\nma k MD D100 v\r\nma k N0 T90 v t\r\n",
            "ma k N90 J7 v t\r\nma k v t\r\nma no k O7\r\nma no q\r\nma k C1\r\nma k C{k} v\r\n",
            "ms k 1\r\na\r\nma k\r\nma k q\r\n",
            "ms Zm9v 1 b\r\na\r\nmg Zm9v b k v\r\nmg foo v k\r\nmg Zm9v k v\r\nmd Zm9v b k\r\nmg Zm9v b k\r\n",
            "ms !!! 1 b\r\na\r\nmg !!! b\r\nmd !!! b\r\nma !!! b\r\nma Zm9v b N0 J1 k v\r\nms Zm9v 1 b k O1\r\na\r\n",
            "mg k O12345678901234567890123456789012\r\nms k 1 O12345678901234567890123456789012\r\na\r\n",
            "mg k a\r\nmg k v a b c d e f g h i j k l m n o p q r s t\r\nmd k v a b c d e f g h i j k l m n o p q r s t\r\n",
            "me no\r\nme\r\nme no b\r\n",
            "mg k Pproxy Lhint\r\nms k 1 Pa Lb\r\na\r\nmg k Pproxy Lhint v\r\n",
        ],
    );
}

/// Makes a random request, sometimes malformed, on few keys, so that requests interact.
fn random_request(rng: &mut fastrand::Rng, out: &mut String) {
    use std::fmt::Write;
    // Numbers have keys of their own that only grow, and whose `cas` is not requested: whether
    // memcached changes a number in place depends on when it has sent an earlier answer.
    let key = ["a", "b", "c:d", "c:e", "n", "c:n"][rng.usize(..6)];
    let is_number = key.ends_with('n');
    let value = ["", "0", "7", "99", "abc", "18446744073709551615", "1 2", "x y z"][rng.usize(..8)];
    let value = if is_number { ["0", "7", "99", "abc"][rng.usize(..4)] } else { value };
    let noreply = if rng.u8(..5) == 0 { " noreply" } else { "" };
    let exptime = [0, 0, 0, 1000, -1][rng.usize(..5)];
    let number = ["0", "1", "3", "123456", "x", ""][rng.usize(..6)];
    // Sometimes too short. If it were too long, the value would include what follows.
    let length = if rng.u8(..20) == 0 { value.len().saturating_sub(1) } else { value.len() };
    match rng.u8(..14) {
        0 | 1 => {
            let command = ["set", "add", "replace", "append", "prepend"][rng.usize(..5)];
            let flags = rng.u32(..);
            let _ =
                write!(out, "{command} {key} {flags} {exptime} {length}{noreply}\r\n{value}\r\n");
        }
        2 => {
            let _ = write!(out, "set {key} 0 0 {length}\r\n{value}\r\n");
        }
        3 => {
            let other = ["a", "b", "c:d"][rng.usize(..3)];
            let _ = write!(out, "get {key} {other}\r\n");
        }
        4 => {
            let _ = write!(out, "gat {exptime} {key}\r\n");
        }
        5 => {
            let _ = write!(out, "delete {key}{noreply}\r\n");
        }
        6 | 7 => {
            let key = ["n", "c:n"][rng.usize(..2)];
            let _ = write!(out, "incr {key} {number}{noreply}\r\n");
        }
        8 => {
            let _ = write!(out, "touch {key} {exptime}{noreply}\r\n");
        }
        _ => random_meta_request(rng, key, &format!("{length}"), value, out),
    }
}

fn random_meta_request(
    rng: &mut fastrand::Rng,
    key: &str,
    length: &str,
    value: &str,
    out: &mut String,
) {
    use std::fmt::Write;
    let is_number = key.ends_with('n');
    let mut some = |flags: &[&str], but: &str| {
        let mut some = String::new();
        for flag in flags.iter().filter(|flag| !(is_number && but.contains(**flag))) {
            if rng.u8(..3) == 0 {
                some.push_str(flag);
                some.push(' ');
            }
        }
        some
    };
    let get = some(&["v", "k", "q", "s", "f", "h", "u", "O77", "N0", "R30", "t"], "hN0R30");
    let set = some(&["k", "q", "O5", "F9", "ME", "T1000", "I", "C1"], "");
    let delete = some(&["k", "q", "O5", "I", "T1000", "C1"], "I");
    let count = some(&["k", "v", "O5", "MI", "N0", "J5", "D3"], "");
    let number = ["n", "c:n"][rng.usize(..2)];
    let _ = match rng.u8(..5) {
        0 | 1 => write!(out, "mg {key} {get}\r\n"),
        2 => write!(out, "ms {key} {length} {set}\r\n{value}\r\n"),
        3 => write!(out, "md {key} {delete}\r\n"),
        _ => write!(out, "ma {number} {count}\r\n"),
    };
}

#[test]
fn random_requests() {
    let Some(memcached) = Memcached::start("random_requests") else { return };
    let server = start_default();
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut real = Client::connect(memcached.addr);
        let mut ours = server.connect();
        real.talk("flush_all\r\n");
        ours.talk("flush_all\r\n");
        let mut so_far = String::new();
        for _ in 0..100 {
            let mut request = String::new();
            random_request(&mut rng, &mut request);
            so_far.push_str(&request);
            let got = comparable(&ours.talk(&request));
            let expected = comparable(&real.talk(&request));
            let expected = in_new_words(&expected, &got);
            assert!(
                got == expected,
                "seed {seed}: {so_far}this server answers {got:?}, memcached {expected:?}"
            );
        }
    }
}
