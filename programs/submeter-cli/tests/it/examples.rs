//! The examples of `--help` do what they say: each is run against a server of the test's own.

use submeter_program::{TempFile, text};

use crate::fleet::Directory;
use crate::support::{SUBMETER, Server, secret};

/// Returns the command lines that a command's help shows.
fn examples(command: &str) -> Vec<Vec<String>> {
    let help = text(&SUBMETER.run(&[command, "--help"]).stdout);
    let (_, shown) = help.split_once("\nExamples:\n").expect(&help);
    let mut examples = Vec::new();
    for pair in shown.lines().map(str::trim).collect::<Vec<_>>().chunks(2) {
        let [comment, line] = pair else { panic!("no command below {pair:?}") };
        assert!(comment.starts_with("# "), "{comment}");
        let words = line.strip_prefix("submeter ").expect(line).split(' ');
        examples.push(words.map(str::to_owned).collect());
    }
    assert!(examples.len() >= 3, "{help}");
    examples
}

/// Puts `new` in place of each word that is `old`.
fn replace(words: &mut [String], old: &str, new: &str) {
    for word in words.iter_mut().filter(|word| *word == old) {
        new.clone_into(word);
    }
}

fn runs(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = SUBMETER.run(&words);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {out}{}", text(&output.stderr));
    out
}

#[test]
fn of_serve() {
    let limits = TempFile::new("examples.limits", "/acme 64m\n");
    let config =
        TempFile::new("examples.toml", "http-host = \"cache.lan\"\n[limits]\n\"/a\" = \"1m\"\n");
    let token = secret("examples.token", "a-token-of-the-examples\n");
    let socket = std::env::temp_dir().join(format!("submeter-{}-ex.sock", std::process::id()));
    let socket = format!("unix:{}", socket.display());
    let folder = Directory::new("examples-totals");
    let totals = folder.0.join("totals").display().to_string();
    for mut words in examples("serve") {
        replace(&mut words, "/var/lib/submeter.totals", &totals);
        replace(&mut words, "/etc/submeter.limits", limits.path());
        replace(&mut words, "/etc/submeter.toml", config.path());
        replace(&mut words, "/etc/submeter.token", token.path());
        replace(&mut words, "unix:/run/cache.sock", &socket);
        for (flag, value) in [("--listen", "127.0.0.1:0"), ("--http", "127.0.0.1:0")] {
            if !words.iter().any(|word| word == flag) {
                words.extend([flag, value].map(str::to_owned));
            }
        }
        words.extend(["--seconds", "0.3"].map(str::to_owned));
        assert!(runs(&words).contains("sums    exact: "), "{words:?}");
    }
}

#[test]
fn of_top_and_stat() {
    let token = secret("examples-page.token", "a-token-of-the-page\n");
    let guard = ["--token-file", token.path()];
    let server = Server::start(&guard);
    let page = server.url();
    ["acme:web", "acme:api"].iter().for_each(|tenant| server.store(tenant, 1));
    let both = examples("top").into_iter().chain(examples("stat"));
    for mut words in both {
        // The test adds only where the server is, and that it is to end.
        replace(&mut words, "/etc/submeter.token", token.path());
        replace(&mut words, "http://127.0.0.1:9411", &page);
        replace(&mut words, "10000", "30");
        for word in guard.into_iter().chain([page.as_str()]) {
            if !words.iter().any(|known| known == word) {
                words.push(word.to_owned());
            }
        }
        let ends = if words[0] == "top" { &["--once"][..] } else { &["--timeout", "30"] };
        if !words.iter().any(|word| word == ends[0]) {
            words.extend(ends.iter().map(|&word| word.to_owned()));
        }
        let (out, shown) = (runs(&words), if words[0] == "top" { "acme" } else { "task-clock" });
        assert!(out.contains(shown), "{words:?}: {out}");
    }
}
