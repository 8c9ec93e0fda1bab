//! A picture must be what its text draws.

use super::Finding;
use crate::pictures;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let text_of = |path: &str| repo.files().iter().find(|file| file.path == path);
    let texts = repo.files().iter().filter_map(|f| Some((f, pictures::target(&f.path)?)));
    let wrong = texts.filter_map(|(file, target)| match pictures::svg(&file.text) {
        Err(error) => Some(Finding::new(&file.path, 1, error)),
        Ok(svg) if text_of(&target).is_none_or(|drawn| drawn.text != svg) => {
            let what = format!("`{target}` is not what this draws – cargo xtask pictures");
            Some(Finding::new(&file.path, 1, what))
        }
        Ok(_) => None,
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing or outdated picture is found, and so is a text that draws none.
    #[test]
    fn missing_and_old_pictures_are_found() {
        let (text, path) = ("picture 1 1 X\n", "docs/pictures/x.txt");
        let svg = pictures::svg(text).expect("a picture");
        for (files, findings) in [
            (vec![(path, text), ("docs/images/x.svg", svg.as_str())], 0),
            (vec![(path, text), ("docs/images/x.svg", "old")], 1),
            (vec![(path, text)], 1),
            (vec![(path, "circle\n")], 1),
        ] {
            assert_eq!(check(&Repo::of(&files)).len(), findings, "{files:?}");
        }
    }
}
