//! Names with characters that are invisible or reverse a text, wherever people read them.

use serde_json::Value;
use submeter::is_hidden;
use submeter_program::{TempFile, text};

use crate::support::{MEANT, SUBMETER, Server, request};

const NAMES: [&str; 5] =
    ["acme", "ac\u{200b}me", "\u{202e}acme", "ac\u{e0041}\u{fe0f}me", "\u{5d0}\u{5d1}1"];

/// Names that differ look different, wherever people read them.
#[test]
fn names_that_differ_look_different() {
    let server = Server::start(&["--verbose"]);
    NAMES.iter().for_each(|name| server.store(name, 1));
    let url = server.url();
    let file = TempFile::new("names", "");
    std::fs::remove_file(file.path()).expect("only its name is needed");
    let runs = [
        &["top", "--once", &url][..],
        &["fleet", "top", "--once", &url],
        &["fleet", "bill", "--file", file.path(), &url],
        &["fleet", "bill", "--file", file.path(), "--sum"],
        &["stat", "-e", "task-clock", "-G", NAMES[2], "--timeout", "20", "-x", ",", &url],
        &["stat", "-e", "task-clock", "-G", "none\u{2066}", "--timeout", "20", &url],
    ];
    let mut printed = String::new();
    for args in runs {
        let output = SUBMETER.run(args);
        printed.push_str(&text(&output.stdout));
        printed.push_str(&text(&output.stderr));
    }
    for name in NAMES {
        assert!(printed.contains(&format!(" of /{} ", submeter::visible(name))), "{printed}");
    }
    for part in [r"  ac\u{200b}me ", r"of /\u{202e}acme ", r",/\u{202e}acme,", r"none\u{2066}"] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    let json = SUBMETER.run(&["top", "--once", "--json", &url]);
    let tree: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let groups = tree["groups"].as_array().expect("a list");
    assert!(groups.iter().any(|group| group["path"] == "/ac\u{200b}me"), "programs have the name");

    let delete = "DELETE /api/group?path=/%E2%80%AEacme";
    assert_eq!(request(server.page, delete, MEANT, "").0, 200);
    let summary = server.end_by("TERM");
    printed.push_str(&summary);
    assert!(summary.contains(r"/ac\u{200b}me "), "the summary, and the log before it: {summary}");
    let bad: Vec<char> = printed.chars().filter(|&c| is_hidden(c) && c != '\n').collect();
    assert!(bad.is_empty(), "{bad:?} in {printed}");
}
