//! The repository as text: every file that is, or would be, under version control.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::rust::Rust;

/// The files of a checkout, or of an unpacked source archive.
#[derive(Default)]
pub(crate) struct Repo {
    files: Vec<File>,
    /// The size in bytes of every file, and of the content of every directory, by its path:
    /// relative, with `/`. Includes binary files.
    paths: BTreeMap<String, usize>,
}

/// One text file.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
    /// The content parsed, when the file is Rust.
    pub(crate) rust: Option<Result<Rust, String>>,
}

/// Directories without files of the repository, and the end of the names of other files that
/// `.gitignore` has.
const NOT_OURS: [&str; 2] = [".git", "target"];
const PROFILES: &str = ".profraw";

impl Repo {
    /// Reads all files below `root` but those that builds leave there.
    ///
    /// It asks neither git nor `.gitignore`: an unpacked source has no git, and a library for the
    /// other takes as long to compile as everything else here.
    pub(crate) fn open(root: &Path) -> io::Result<Repo> {
        if !root.join("Cargo.toml").is_file() {
            return Err(io::Error::other("no Cargo.toml here: name the root of the repository"));
        }
        let mut repo = Repo::default();
        repo.read(root, "")?;
        repo.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(repo)
    }

    /// Reads the files of one directory, and of those in it.
    fn read(&mut self, root: &Path, directory: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(root.join(directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                self.read(root, &path)?;
            } else if kind.is_file() && !name.ends_with(PROFILES) {
                // A file that is not UTF-8 (a picture) counts as a path, but is not read as text.
                let content = std::fs::read(entry.path())?;
                self.insert(path, content.len(), String::from_utf8(content).ok());
            }
        }
        Ok(())
    }

    /// Builds a repository from synthetic files.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repo {
        let mut repo = Repo::default();
        for (path, text) in files {
            repo.insert((*path).to_owned(), text.len(), Some((*text).to_owned()));
        }
        repo
    }

    fn insert(&mut self, path: String, bytes: usize, text: Option<String>) {
        for (at, _) in path.match_indices('/') {
            *self.paths.entry(path[..at].to_owned()).or_default() += bytes;
        }
        self.paths.insert(path.clone(), bytes);
        if let Some(text) = text {
            let rust = path.ends_with(".rs").then(|| Rust::parse(&text));
            self.files.push(File { path, text, rust });
        }
    }

    /// Returns the text files in the order of their paths.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns whether a file or directory with that path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains_key(path)
    }

    /// Returns every file and directory.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.keys().map(String::as_str)
    }

    /// Returns every file and directory with its size in bytes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.paths.iter().map(|(path, bytes)| (path.as_str(), *bytes))
    }

    /// Returns the directory of the nearest manifest at or above `path`.
    pub(crate) fn package_of<'p>(&self, path: &'p str) -> &'p str {
        let mut dir = path;
        while let Some(at) = dir.rfind('/') {
            dir = &dir[..at];
            if self.exists(&format!("{dir}/Cargo.toml")) {
                return dir;
            }
        }
        ""
    }

    /// Returns whether a file contains only tests: it is in `tests/`, `benches/` or `examples/`, or
    /// its module is declared under `cfg(test)`.
    pub(crate) fn is_test(&self, path: &str) -> bool {
        let in_test_dir =
            path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples" | "fuzz"));
        in_test_dir || self.test_modules().any(|module| is_of_module(path, &module))
    }

    /// Returns the modules declared as `#[cfg(test)] mod name;`, as paths without `.rs`.
    fn test_modules(&self) -> impl Iterator<Item = String> + '_ {
        self.rust_files().flat_map(|(file, rust)| {
            let (dir, stem) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
            let base = match stem {
                "mod.rs" | "lib.rs" | "main.rs" => dir.to_owned(),
                _ => file.path.trim_end_matches(".rs").to_owned(),
            };
            rust.test_modules.iter().map(move |name| format!("{base}/{name}"))
        })
    }

    /// Returns the Rust files that parse.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?.as_ref().ok()?)))
    }
}

fn is_of_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module declared under `cfg(test)` is a test file, in both layouts.
    #[test]
    fn a_module_under_cfg_test_is_a_test_file() {
        let repo = Repo::of(&[
            ("a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod real;\n"),
            ("a/src/model.rs", ""),
            ("a/src/model/deep.rs", ""),
            ("a/src/real.rs", "#[cfg(all(test, loom))]\nmod inner;\n"),
            ("a/src/real/inner.rs", ""),
            ("a/src/models.rs", ""),
            ("a/tests/x.rs", ""),
        ]);
        for path in ["a/src/model.rs", "a/src/model/deep.rs", "a/src/real/inner.rs", "a/tests/x.rs"]
        {
            assert!(repo.is_test(path), "{path}");
        }
        for path in ["a/src/lib.rs", "a/src/real.rs", "a/src/models.rs"] {
            assert!(!repo.is_test(path), "{path}");
        }
    }

    /// Directories exist and the nearest manifest is found.
    #[test]
    fn the_nearest_manifest_is_found() {
        let repo = Repo::of(&[("Cargo.toml", ""), ("a/Cargo.toml", ""), ("a/src/x.rs", "")]);
        assert!(repo.exists("a/src") && repo.exists("a") && !repo.exists("b"));
        assert_eq!(repo.package_of("a/src/x.rs"), "a");
        assert_eq!(repo.package_of("b/x.rs"), "");
    }
}
