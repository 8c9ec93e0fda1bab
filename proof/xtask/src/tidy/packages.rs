//! The number of packages that the README's first command compiles: each adds to the time that a
//! reader waits for it.
//!
//! Cargo counts, since only it knows which features a build has; it resolves and compiles nothing.

use std::path::Path;

use super::Finding;
use crate::repo::Repo;

const PACKAGES_MAX: usize = 120;
const MANIFEST: &str = "programs/submeter-cli/Cargo.toml";

/// What is counted: the command without features, for one system, so that the count is the same on
/// all.
const TREE: [&str; 9] = [
    "tree",
    "--locked",
    "--package=submeter-cli",
    "--target=x86_64-unknown-linux-gnu",
    "--edges=normal,build",
    "--prefix=none",
    "--format={p}",
    "--color=never",
    "--quiet",
];

/// Checks the repository at `root`. The error says why nothing could be counted.
pub(crate) fn check(root: &Path, repo: &Repo) -> Result<Vec<Finding>, String> {
    if !repo.exists(MANIFEST) {
        return Ok(Vec::new());
    }
    Ok(over(count(&tree(root)?), PACKAGES_MAX).into_iter().collect())
}

/// Asks Cargo, first without a network, which it needs only if packages have not been fetched yet.
fn tree(root: &Path) -> Result<String, String> {
    let mut error = String::new();
    for network in [&["--offline"][..], &[]] {
        let output = crate::cargo().args(TREE).args(network).current_dir(root).output();
        let output = output.map_err(|e| format!("cannot run cargo: {e}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    }
    Err(error)
}

/// Counts packages. Each may appear in many lines, as a proc macro or not.
fn count(tree: &str) -> usize {
    let packages = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    packages.collect::<std::collections::BTreeSet<_>>().len()
}

fn over(packages: usize, most: usize) -> Option<Finding> {
    (packages > most).then(|| {
        let what = format!(
            "the command's default build compiles {packages} packages of {most} at most – make what \
             `submeter serve --load 6` does not need a feature, and one of the feature `release`; \
             `cargo tree -p submeter-cli -e normal,build` shows who needs what"
        );
        Finding::new(MANIFEST, 1, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each version of a package counts once.
    #[test]
    fn a_package_and_its_versions_count_once() {
        let tree = "submeter-cli v0.1.0 (/repo/programs/submeter-cli)\nserde v1.0.2\n\
                    serde_derive v1.0.2 (proc-macro)\nserde v1.0.2\nserde v2.0.0\n\n\
                    serde_derive v1.0.2 (proc-macro) (*)\n";
        assert_eq!(count(tree), 4);
    }

    /// One package too many is a finding, with the number and the remedy.
    #[test]
    fn one_package_too_many_is_a_finding() {
        assert_eq!(over(PACKAGES_MAX, PACKAGES_MAX), None);
        let found = over(PACKAGES_MAX + 1, PACKAGES_MAX).expect("a finding").to_string();
        assert!(found.starts_with("programs/submeter-cli/Cargo.toml:1: "), "{found}");
        for part in ["121 packages of 120", "feature `release`", "cargo tree"] {
            assert!(found.contains(part), "{found} names {part}");
        }
    }

    #[test]
    fn the_packages_of_this_repository_are_counted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a root");
        match tree(root) {
            Ok(tree) => {
                let packages = count(&tree);
                assert!(tree.contains("submeter-cli v") && tree.contains("tokio v"), "{tree}");
                assert!(over(packages, packages - 1).is_some() && packages > 50, "{packages}");
            }
            Err(error) => println!("skipped: the count of packages: cargo fetch ({error})"),
        }
    }

    #[test]
    fn what_is_not_this_repository_is_not_counted() {
        let empty = Repo::of(&[("a.md", "text\n")]);
        assert_eq!(check(Path::new("/nonexistent"), &empty), Ok(Vec::new()));
    }
}
