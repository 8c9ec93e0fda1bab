//! A site of the documents, beside the API: `target/site/book`.
//!
//! The documents stay where they are; `docs/SUMMARY.md` lists them. mdBook takes one folder, so
//! each document is written to `target/site/src` at its path, with three differences: a page
//! without a heading gets its title, a link to a file that is not a page leads to the repository,
//! and the guide's names of items lead to the API. At the end every link of the pages is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

mod links;

const SUMMARY: &str = "docs/SUMMARY.md";
/// The meaning of the guide's names of items, and the location of its chapters.
const NAMES: &str = "crates/submeter/src/guide/links.txt";
const GUIDE: &str = "crates/submeter/src/guide/";
const REPOSITORY: &str = "https://github.com/submeter/submeter/blob/main/";

/// Makes the site and checks its links; returns its first page, and a line for each broken link.
///
/// # Errors
/// One line: what is missing, or the error of mdBook or Cargo.
pub(crate) fn make(root: &Path) -> Result<(PathBuf, Vec<String>), String> {
    let site = root.join("target/site");
    let (source, book) = (site.join("src"), site.join("book"));
    for old in [&source, &book] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(say(old, &error)),
            _ => {}
        }
    }
    document(root)?;
    let summary = read(&root.join(SUMMARY))?;
    let pages = pages(&summary);
    let names = read(&root.join(NAMES))?;
    let api = root.join("target/doc");
    for (page, title) in &pages {
        let text = read(&root.join(page))?;
        let mut images = BTreeSet::new();
        let mut text = rewritten(page, &text, &pages, &mut images);
        if !text.starts_with('#') {
            text = format!("# {title}\n\n{text}");
        }
        if page.starts_with(GUIDE) {
            text += "\n";
            text += &links::definitions(page, &names, &api)?;
        }
        write(&source.join(index(page)), &text)?;
        for image in images {
            let to = source.join(&image);
            to.parent().map(fs::create_dir_all).transpose().map_err(|e| say(&to, &e))?;
            fs::copy(root.join(&image), &to).map_err(|error| say(&to, &error))?;
        }
    }
    let crates: Vec<String> = libraries(root)?.iter().map(|name| name.replace('-', "_")).collect();
    let item = |name: &String| format!("- [{name}](api/{name}/index.html)\n");
    let list: String = crates.iter().map(item).collect();
    write(&source.join("api.md"), &format!("# The API\n\n{list}"))?;
    let summary = format!("{}\n# The API\n\n- [Crates](api.md)\n", summary.replace("](../", "]("));
    write(&source.join("SUMMARY.md"), &index(&summary))?;
    write(&site.join("book.toml"), &read(&root.join("docs/book.toml"))?)?;
    let mut mdbook = Command::new("mdbook");
    run(mdbook.arg("build").arg(&site), "cargo install mdbook --locked")?;
    copy(&api, &book.join("api"))?;
    let broken = links::broken(&book)?;
    Ok((book.join("index.html"), broken))
}

/// Documents every library of the workspace.
fn document(root: &Path) -> Result<(), String> {
    let mut cargo = crate::cargo();
    cargo.current_dir(root).args(["doc", "--quiet", "--no-deps", "--target-dir", "target"]);
    libraries(root)?.iter().for_each(|name| _ = cargo.args(["-p", name]));
    run(&mut cargo, "install Rust")
}

/// Returns the libraries, except those that are workspaces of their own.
fn libraries(root: &Path) -> Result<BTreeSet<String>, String> {
    let crates = fs::read_dir(root.join("crates")).map_err(|error| error.to_string())?;
    let is_ours = |folder: &Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml"));
        manifest.is_ok_and(|manifest| !manifest.contains("[workspace]"))
    };
    let ours = crates.flatten().filter(|entry| is_ours(&entry.path()));
    Ok(ours.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn run(command: &mut Command, remedy: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}: {remedy}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns the pages of a summary with their titles, by their paths from the root.
fn pages(summary: &str) -> BTreeMap<String, String> {
    let links = summary.lines().filter_map(|line| {
        let (before, path) = line.split_once("](../")?;
        Some((path.strip_suffix(')')?.to_owned(), before.split_once('[')?.1.to_owned()))
    });
    links.collect()
}

/// Returns paths as mdBook wants them. It treats a README as the index of its folder, but then
/// leaves links to it unchanged; an index with its own name works for links too.
fn index(paths: &str) -> String {
    paths.replace("README.md", "index.md")
}

/// Returns a page whose links to other files lead to the repository; records its images.
fn rewritten(
    page: &str,
    text: &str,
    pages: &BTreeMap<String, String>,
    images: &mut BTreeSet<String>,
) -> String {
    let mut fenced = false;
    let mut written = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let definition = (!fenced && line.starts_with('['))
            .then(|| line.split_once("]: "))
            .flatten()
            .filter(|(_, target)| !target.contains(' '));
        if fenced || fence {
            written += line;
        } else if let Some((name, target)) = definition {
            written += &format!("{name}]: {}", followed(page, target, pages, images));
        } else {
            let mut parts = line.split("](");
            written += parts.next().unwrap_or_default();
            for part in parts {
                let (target, rest) = part.split_once(')').unwrap_or((part, ""));
                written += &format!("]({}){rest}", followed(page, target, pages, images));
            }
        }
        written.push('\n');
    }
    written
}

fn followed(
    page: &str,
    target: &str,
    pages: &BTreeMap<String, String>,
    images: &mut BTreeSet<String>,
) -> String {
    if target.contains("://") || target.starts_with(['#', '<']) || target.starts_with("mailto:") {
        return target.to_owned();
    }
    let (path, fragment) = target.split_once('#').map_or((target, None), |(p, f)| (p, Some(f)));
    let Some(path) = joined(page, path) else { return target.to_owned() };
    if pages.contains_key(&path) {
        return index(target);
    }
    if path.ends_with(".svg") || path.ends_with(".png") {
        images.insert(path);
        return target.to_owned();
    }
    let fragment = fragment.map_or(String::new(), |fragment| format!("#{fragment}"));
    format!("{REPOSITORY}{path}{fragment}")
}

/// Returns the path that a link of a page leads to, from the root.
fn joined(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<_> = Path::new(page).parent()?.components().collect();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = parts.pop()?,
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    Some(parts.iter().collect::<PathBuf>().to_string_lossy().replace('\\', "/"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| say(to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| say(from, &error))?.flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(|error| say(&from, &error))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| say(path, &error))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    path.parent().map(fs::create_dir_all).transpose().map_err(|error| say(path, &error))?;
    fs::write(path, text).map_err(|error| say(path, &error))
}

fn say(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_images_or_the_repository() {
        let summary = "[A](../A.md)\n- [B b](../c/B.md)\n[E](../e/README.md)\n";
        let pages = pages(summary);
        assert_eq!(pages["c/B.md"], "B b");
        let mut images = BTreeSet::new();
        let text = "[a](../A.md#x) [r](../e/README.md) ![i](../d/i.svg) [s](src/s.rs) [w](https://w.x)\n[n]: s.txt\n\
                    ```text\n[r](r.rs)\n```\n";
        let expected = format!(
            "[a](../A.md#x) [r](../e/index.md) ![i](../d/i.svg) [s]({REPOSITORY}c/src/s.rs) [w](https://w.x)\n\
             [n]: {REPOSITORY}c/s.txt\n```text\n[r](r.rs)\n```\n"
        );
        assert_eq!(rewritten("c/B.md", text, &pages, &mut images), expected);
        assert_eq!(images, BTreeSet::from(["d/i.svg".to_owned()]));
    }
}
