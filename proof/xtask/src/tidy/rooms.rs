//! The layers: which crates may contain `unsafe`, assembly and libc, and which may depend on which.

use toml::Table;

use super::Finding;
use crate::repo::{File, Repo};
use crate::rust::Rust;

/// One crate and the crates of this workspace that it may depend on.
struct Room {
    name: &'static str,
    depends_on: &'static [&'static str],
    /// Whether it is published; other crates may depend on anything.
    shipped: bool,
}

/// ARCHITECTURE.md's table. Only listed crates may exist, so that a new crate is a deliberate
/// decision.
const ROOMS: &[Room] = &[
    Room { name: "submeter-sys", depends_on: &[], shipped: true },
    Room { name: "submeter-percpu", depends_on: &["submeter-sys"], shipped: true },
    Room { name: "submeter-derive", depends_on: &[], shipped: true },
    Room {
        name: "submeter-events",
        depends_on: &["submeter-sys", "submeter-percpu"],
        shipped: true,
    },
    Room {
        name: "submeter",
        depends_on: &["submeter-sys", "submeter-percpu", "submeter-events", "submeter-derive"],
        shipped: true,
    },
    Room { name: "submeter-address", depends_on: &[], shipped: true },
    Room {
        name: "submeter-alloc",
        // submeter-sys for the addresses of samples.
        depends_on: &["submeter", "submeter-percpu", "submeter-sys"],
        shipped: true,
    },
    Room { name: "submeter-documents", depends_on: &[], shipped: true },
    Room { name: "submeter-metrics", depends_on: &["submeter"], shipped: true },
    Room {
        name: "submeter-http",
        depends_on: &["submeter", "submeter-address", "submeter-documents"],
        shipped: true,
    },
    Room { name: "submeter-tracing", depends_on: &["submeter"], shipped: true },
    Room { name: "submeter-prometheus-client", depends_on: &["submeter"], shipped: true },
    // These three have threads: submeter-sys for what a forked child must leave alone.
    Room {
        name: "submeter-otlp",
        depends_on: &["submeter", "submeter-address", "submeter-sys"],
        shipped: true,
    },
    Room {
        name: "submeter-bank",
        depends_on: &["submeter-address", "submeter-sys"],
        shipped: true,
    },
    Room {
        name: "submeter-fleet",
        depends_on: &["submeter", "submeter-bank", "submeter-sys"],
        shipped: true,
    },
    Room { name: "submeter-datafusion", depends_on: &["submeter"], shipped: true },
    Room {
        name: "submeter-cache",
        // submeter-sys for pinning threads to CPUs.
        depends_on: &["submeter", "submeter-documents", "submeter-sys"],
        shipped: true,
    },
    Room {
        name: "submeter-cli",
        // submeter-sys for `doctor`, which reports what the kernel offers. It uses only safe
        // functions, because the command has no unsafe code.
        depends_on: &[
            "submeter",
            "submeter-address",
            "submeter-alloc",
            "submeter-bank",
            "submeter-cache",
            "submeter-fleet",
            "submeter-http",
            "submeter-load",
            "submeter-otlp",
            "submeter-sys",
            "submeter-terminal",
        ],
        shipped: true,
    },
    Room { name: "submeter-load", depends_on: &["submeter-terminal"], shipped: true },
    Room { name: "submeter-terminal", depends_on: &["submeter"], shipped: true },
    Room { name: "submeter-bench", depends_on: &[], shipped: false },
    Room { name: "submeter-fuzz", depends_on: &["submeter", "submeter-cache"], shipped: false },
    Room { name: "submeter-goldens", depends_on: &[], shipped: false },
    Room { name: "submeter-peer-datafusion", depends_on: &[], shipped: false },
    Room { name: "submeter-peers", depends_on: &[], shipped: false },
    Room { name: "submeter-foreign", depends_on: &["submeter", "submeter-alloc"], shipped: false },
    Room { name: "submeter-heaps", depends_on: &[], shipped: false },
    Room { name: "submeter-program", depends_on: &[], shipped: false },
    Room { name: "submeter-browser", depends_on: &["submeter", "submeter-http"], shipped: false },
    Room { name: "line-protocol", depends_on: &["submeter", "submeter-http"], shipped: false },
    Room {
        name: "tenant-service",
        depends_on: &["submeter", "submeter-alloc", "submeter-http"],
        shipped: false,
    },
    Room { name: "submeter-testkit", depends_on: &["submeter"], shipped: false },
    Room { name: "xtask", depends_on: &[], shipped: false },
];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in repo.rust_files() {
        code(file, rust, &mut findings);
    }
    let root = repo.files().iter().find(|file| file.path == "Cargo.toml");
    let root = root.and_then(|file| file.text.parse::<Table>().ok());
    for file in repo.files().iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        match file.text.parse::<Table>() {
            Ok(table) => {
                manifest(file, &table, &mut findings);
                apart(file, &table, root.as_ref(), &mut findings);
            }
            Err(error) => {
                findings.push(Finding::new(
                    &file.path,
                    1,
                    format!("not TOML: {}", error.message()),
                ));
            }
        }
    }
    findings
}

/// Returns whether a file may contain `unsafe`.
fn may_be_unsafe(path: &str) -> bool {
    path.starts_with("crates/submeter-sys/")
        // Tests fork, handle signals and set limits.
        || path.starts_with("proof/submeter-testkit/tests/")
        // `no_mangle` is an unsafe attribute.
        || path.starts_with("proof/submeter-goldens/src/")
        || (path.starts_with("crates/submeter-alloc/src/") && path.ends_with("/raw.rs"))
        || (path.starts_with("crates/submeter-percpu/")
            && (path.ends_with("/raw.rs") || path.contains("/backend/")))
}

fn code(file: &File, rust: &Rust, findings: &mut Vec<Finding>) {
    let mut find = |line, what: &str| findings.push(Finding::new(&file.path, line, what));
    let state = file.path.starts_with("programs/submeter-cli/src/top/state");
    for (i, token) in rust.tokens.iter().enumerate() {
        let next = rust.tokens.get(i + 1).map_or("", |next| next.text.as_str());
        match token.text.as_str() {
            "unsafe" if !may_be_unsafe(&file.path) => find(
                token.line,
                "`unsafe` outside submeter-sys and submeter-percpu's `raw.rs` and `backend/` – use \
                 their safe API (a test that forks belongs in submeter-testkit)",
            ),
            "asm" | "global_asm" | "naked_asm"
                if next == "!" && !file.path.starts_with("crates/submeter-sys/") =>
            {
                find(token.line, "assembly outside submeter-sys – move it there");
            }
            "crossterm" if state => {
                find(token.line, "terminal crate in the state of `top` – keep it in the view");
            }
            _ => {}
        }
    }
}

fn manifest(file: &File, table: &Table, findings: &mut Vec<Finding>) {
    let mut find = |line: usize, what: String| findings.push(Finding::new(&file.path, line, what));
    let Some(package) = table.get("package").and_then(|package| package.as_table()) else { return };
    let name = package.get("name").and_then(|name| name.as_str()).unwrap_or("");
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        find(
            1,
            format!(
                "`{name}` is not in the table of layers – add it to ROOMS in xtask and to ARCHITECTURE.md"
            ),
        );
        return;
    };
    // A package that is a workspace of its own has none to inherit from, and is never shipped.
    let alone = table.contains_key("workspace") && !room.shipped;
    for key in ["version", "edition", "rust-version", "license", "repository"] {
        if !alone && !is_inherited(package.get(key)) {
            find(
                1,
                format!(
                    "`{key}` is not inherited from the workspace – write `{key}.workspace = true`"
                ),
            );
        }
    }
    if !alone && !is_inherited(table.get("lints")) {
        find(
            1,
            "lints are not inherited from the workspace – write `[lints] workspace = true`"
                .to_owned(),
        );
    }
    let unpublished = package.get("publish").and_then(toml::Value::as_bool) == Some(false);
    if unpublished == room.shipped {
        find(1, format!("`publish` – it must be {} here", room.shipped));
    }
    for dependency in dependencies(table) {
        let line = line_of(&file.text, &dependency);
        let internal = ROOMS.iter().any(|room| room.name == dependency);
        if room.shipped && internal && !room.depends_on.contains(&dependency.as_str()) {
            find(line, format!("`{name}` may not depend on `{dependency}` – see ARCHITECTURE.md"));
        }
        if dependency == "libc" && name != "submeter-sys" {
            find(line, "libc outside submeter-sys – use its safe API".to_owned());
        }
    }
}

/// Checks a package published from a workspace of its own. It inherits from that workspace, which
/// must agree with the root: a release has one version. Only its compiler may be newer.
fn apart(file: &File, table: &Table, root: Option<&Table>, findings: &mut Vec<Finding>) {
    let own = table.get("workspace").and_then(toml::Value::as_table);
    let all = root.and_then(|root| root.get("workspace")).and_then(toml::Value::as_table);
    let (Some(own), Some(all)) = (own, all) else { return };
    let of = |workspace: &Table, key: &str| workspace.get("package")?.get(key).cloned();
    let package = ["version", "edition", "license", "repository"];
    let differs = package.into_iter().filter(|key| {
        // A package that is never published need not inherit.
        of(own, key).is_some_and(|said| Some(said) != of(all, key))
    });
    let lints = own.get("lints").filter(|lints| Some(*lints) != all.get("lints")).map(|_| "lints");
    for key in differs.chain(lints) {
        let what = format!("`{key}` differs from the root's – copy it from there");
        findings.push(Finding::new(&file.path, line_of(&file.text, key), what));
    }
}

fn is_inherited(value: Option<&toml::Value>) -> bool {
    let inherited = value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool);
    inherited == Some(true)
}

/// Returns the crate's dependencies; development dependencies are not restricted.
fn dependencies(table: &Table) -> Vec<String> {
    let of = |table: &Table| {
        let named = ["dependencies", "build-dependencies"].map(|key| table.get(key));
        let tables = named.into_iter().flatten().filter_map(toml::Value::as_table);
        tables.flat_map(|table| table.keys().cloned()).collect::<Vec<_>>()
    };
    let targets = table.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flatten().filter_map(|(_, target)| target.as_table());
    of(table).into_iter().chain(targets.flat_map(of)).collect()
}

fn line_of(text: &str, dependency: &str) -> usize {
    let mut lines = text.lines();
    lines
        .position(|line| {
            line.strip_prefix(dependency)
                .is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric() && c != '-'))
        })
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Repo::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    fn manifest_text(name: &str, rest: &str) -> String {
        format!(
            "[package]\nname = \"{name}\"\nversion.workspace = true\nedition.workspace = true\n\
             rust-version.workspace = true\nlicense.workspace = true\n\
             repository.workspace = true\n[lints]\nworkspace = true\n{rest}"
        )
    }

    #[test]
    fn unsafe_is_found_outside_its_layers() {
        let text = "fn f() { unsafe { g() } }\n";
        for path in [
            "crates/submeter/src/lib.rs",
            "crates/submeter-percpu/src/lib.rs",
            "crates/submeter-percpu/src/draw.rs",
            "programs/submeter-cli/src/raw.rs",
            "proof/submeter-testkit/src/lib.rs",
        ] {
            assert_eq!(found(path, text).len(), 1, "{path}");
        }
        for path in [
            "crates/submeter-sys/src/lib.rs",
            "crates/submeter-alloc/src/raw.rs",
            "crates/submeter-percpu/src/storage/raw.rs",
            "crates/submeter-percpu/src/backend/rseq.rs",
            "proof/submeter-testkit/tests/group_fork.rs",
        ] {
            assert!(found(path, text).is_empty(), "{path}");
        }
        assert!(
            found("crates/submeter/src/lib.rs", "#![forbid(unsafe_code)] // unsafe\n").is_empty()
        );
    }

    #[test]
    fn assembly_is_found_outside_sys() {
        let text = "fn f() { asm!(\"nop\") }\n";
        assert_eq!(found("crates/submeter-percpu/src/backend/rseq.rs", text).len(), 1);
        assert!(found("crates/submeter-sys/src/x86_64.rs", text).is_empty());
    }

    #[test]
    fn a_terminal_crate_in_the_state_of_top_is_found() {
        let text = "use crossterm::event::Event;\n";
        assert_eq!(found("programs/submeter-cli/src/top/state.rs", text).len(), 1);
        assert!(found("programs/submeter-cli/src/top/view.rs", text).is_empty());
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let text = manifest_text("submeter", "[dependencies]\nsubmeter-cache.workspace = true\n");
        let found_in = found("crates/submeter/Cargo.toml", &text);
        assert_eq!(found_in.len(), 1, "{found_in:?}");
        assert!(
            found_in[0].starts_with("crates/submeter/Cargo.toml:11: `submeter` may not depend")
        );
        let text =
            manifest_text("submeter", "[dev-dependencies]\nsubmeter-testkit.workspace = true\n");
        assert!(found("crates/submeter/Cargo.toml", &text).is_empty());
        let text = manifest_text("submeter", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n");
        assert_eq!(found("crates/submeter/Cargo.toml", &text).len(), 1);
    }

    #[test]
    fn a_manifest_that_does_not_inherit_is_found() {
        let text = manifest_text("submeter", "").replace("license.workspace = true\n", "");
        assert_eq!(found("crates/submeter/Cargo.toml", &text).len(), 1);
        let text = manifest_text("submeter", "").replace("[lints]\nworkspace = true\n", "");
        assert_eq!(found("crates/submeter/Cargo.toml", &text).len(), 1);
        let alone = |name: &str, publish: &str| {
            let text = format!("[package]\nname = \"{name}\"\n{publish}\n[workspace]\n");
            found("x/Cargo.toml", &text).len()
        };
        assert_eq!(alone("submeter-peer-datafusion", "publish = false"), 0);
        assert!(alone("submeter", "") > 5, "what is shipped is of the workspace");
    }

    /// A published workspace of its own agrees with the root.
    #[test]
    fn an_own_workspace_says_what_the_root_says() {
        let found_beside = |own: &str| {
            let root = "[workspace.package]\nversion = \"0.1.0\"\nlicense = \"MIT\"\n\
                        rust-version = \"1.88\"\n[workspace.lints.rust]\nmissing_docs = \"deny\"\n";
            let text = manifest_text("submeter-datafusion", own);
            let path = "crates/submeter-datafusion/Cargo.toml";
            let findings = check(&Repo::of(&[("Cargo.toml", root), (path, &text)]));
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let own = "[workspace.package]\nversion = \"0.1.0\"\nlicense = \"MIT\"\n\
                   rust-version = \"1.94\"\n[workspace.lints.rust]\nmissing_docs = \"deny\"\n";
        assert!(found_beside(own).is_empty(), "the compiler may be newer");
        for (now, wrong) in [("0.1.0", "0.2.0"), ("\"MIT\"", "\"ISC\""), ("deny", "allow")] {
            let findings = found_beside(&own.replace(now, wrong));
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].contains("differs from the root's"));
        }
    }

    /// An unknown or wrongly published crate is found.
    #[test]
    fn an_unknown_or_misplaced_crate_is_found() {
        assert_eq!(found("crates/x/Cargo.toml", &manifest_text("x", "")).len(), 1);
        assert_eq!(found("xtask/Cargo.toml", &manifest_text("xtask", "")).len(), 1);
        assert_eq!(found("crates/submeter/Cargo.toml", "[package\n").len(), 1);
    }
}
