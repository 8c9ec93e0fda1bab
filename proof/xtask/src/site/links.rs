//! The targets of the site's links, and the links that lead nowhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The prefixes of rustdoc's file names for items.
const KINDS: [&str; 7] = ["struct", "enum", "trait", "fn", "constant", "type", "macro"];

/// The prefixes of rustdoc's anchors for parts of an item.
const PLACES: [&str; 4] = ["method", "tymethod", "structfield", "variant"];

/// Returns the definitions of the guide's names for one page: chapters lead to pages, items to the
/// API.
///
/// # Errors
/// One line that names what the API in `doc` does not have.
pub(super) fn definitions(page: &str, names: &str, doc: &Path) -> Result<String, String> {
    let up = "../".repeat(page.matches('/').count());
    let mut text = String::new();
    for line in names.lines() {
        let (name, path) = line.rsplit_once("]: ").ok_or_else(|| format!("`{line}`: no name"))?;
        let target = match path.strip_prefix("crate::") {
            None => path.to_owned(),
            Some(path) => match path.strip_prefix("guide::") {
                Some(chapter) => format!("{chapter}.md"),
                None => {
                    let found = item(path, doc).ok_or_else(|| format!("no item `{path}`"))?;
                    format!("{up}api/{found}")
                }
            },
        };
        text += &format!("{name}]: {target}\n");
    }
    Ok(text)
}

/// Returns rustdoc's file of an item of submeter, and the anchor in it.
fn item(path: &str, doc: &Path) -> Option<String> {
    let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
    let parts: Vec<&str> = path.split("::").collect();
    let (last, above) = parts.split_last()?;
    let file = |modules: &[&str], name: &str| {
        let folder = [&["submeter"], modules].concat().join("/");
        let files = KINDS.iter().map(|kind| format!("{folder}/{kind}.{name}.html"));
        files.into_iter().find(|file| doc.join(file).is_file())
    };
    if let Some(found) = file(above, last) {
        return Some(found);
    }
    if let Some((owner, modules)) = above.split_last()
        && let Some(found) = file(modules, owner)
    {
        let html = fs::read_to_string(doc.join(&found)).ok()?;
        let mut places = PLACES.iter().map(|kind| format!("{kind}.{last}"));
        return places
            .find(|place| html.contains(&format!("id=\"{place}\"")))
            .map(|place| format!("{found}#{place}"));
    }
    let module = format!("submeter/{}/index.html", parts.join("/"));
    let place = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
    doc.join(&module).is_file().then(|| module + &place)
}

/// Returns a line for each link of a page that leads to no file, or to no place in one. The API's
/// own links are checked by rustdoc.
///
/// # Errors
/// One line: what cannot be read.
pub(super) fn broken(book: &Path) -> Result<Vec<String>, String> {
    let mut pages = Vec::new();
    find(book, book, &mut pages)?;
    let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut found = Vec::new();
    for page in pages {
        let text = read(&page)?;
        for link in links(&text) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { joined(&page, path) };
            let target = if target.is_dir() { target.join("index.html") } else { target };
            let shown = page.strip_prefix(book).unwrap_or(&page).display();
            if !target.is_file() {
                found.push(format!("{shown}: {link} leads to no file"));
            } else if !place.is_empty() {
                if !texts.contains_key(&target) {
                    texts.insert(target.clone(), read(&target)?);
                }
                if !texts[&target].contains(&format!("id=\"{place}\"")) {
                    found.push(format!("{shown}: {link} leads to no place of that name"));
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Finds the pages, except mdBook's error page, whose links hold for any path.
fn find(book: &Path, folder: &Path, pages: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path != book.join("api") {
                find(book, &path, pages)?;
            }
        } else if path.extension().is_some_and(|e| e == "html") && !path.ends_with("404.html") {
            pages.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the links of a page that stay on the site.
fn links(html: &str) -> impl Iterator<Item = &str> {
    let attributes = html.split(" href=\"").skip(1).chain(html.split(" src=\"").skip(1));
    let targets = attributes.filter_map(|rest| rest.split('"').next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

fn joined(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files, removed when it is dropped.
    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    /// Links to missing files and places are found; others are not.
    #[test]
    fn missing_files_and_places_are_found() {
        let files = [
            ("a.html", "<a href=\"b/c.html#x\">\n<img src=\"i.png\"> <a href=\"https://x.y\">"),
            (
                "b/c.html",
                "<h1 id=\"x\"> <a href=\"#x\"> <a href=\"../a.html#gone\"> <a href=\"d\">",
            ),
            ("i.png", ""),
            ("api/z.html", "<a href=\"nowhere\">"),
        ];
        let book = folder("links", &files);
        let found = broken(&book).expect("read");
        fs::remove_dir_all(&book).expect("removed");
        let expected = [
            "b/c.html: ../a.html#gone leads to no place of that name",
            "b/c.html: d leads to no file",
        ];
        assert_eq!(found, expected);
    }

    /// Names of the guide lead to items, methods, modules and chapters.
    #[test]
    fn names_of_the_guide_lead_to_items() {
        let files = [
            ("submeter/struct.Group.html", "<a id=\"method.add\">"),
            ("submeter/switch/index.html", ""),
        ];
        let doc = folder("names", &files);
        let names = "[`Group`]: crate::Group\n[`Group::add`]: crate::Group::add\n\
                     [s]: crate::switch#costs\n[Costs]: crate::guide::costs\n[w]: https://w.x\n";
        let made = definitions("g/a.md", names, &doc);
        let wrong = definitions("g/a.md", "[`Gone`]: crate::Gone\n", &doc);
        fs::remove_dir_all(&doc).expect("removed");
        let expected = "[`Group`]: ../api/submeter/struct.Group.html\n\
                        [`Group::add`]: ../api/submeter/struct.Group.html#method.add\n\
                        [s]: ../api/submeter/switch/index.html#costs\n[Costs]: costs.md\n\
                        [w]: https://w.x\n";
        assert_eq!(made.as_deref(), Ok(expected));
        assert_eq!(wrong, Err("no item `Gone`".to_owned()));
    }
}
