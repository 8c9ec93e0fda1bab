//! Group paths: `/` for the root, `/acme/web` below it.

use std::cmp::Ordering;

use crate::error::Error;

/// Maximum length of a group's name in bytes: Linux's `NAME_MAX`, which also bounds a cgroup's
/// name.
pub const NAME_MAX: usize = 255;

/// Maximum depth of a group; the root has depth 0. A flush proceeds by level, without recursion, so
/// this only bounds the cost of a path.
pub const DEPTH_MAX: usize = 64;

/// Checks one path component.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_MAX {
        "it is longer than 255 bytes"
    } else if name == "." || name == ".." {
        "it is reserved"
    } else if name.contains('/') {
        "it contains '/'"
    } else if name.chars().any(char::is_control) {
        "it contains a control character"
    } else {
        return Ok(());
    };
    Err(Error::name(name, reason))
}

/// Splits an absolute path into its names; the root has none. A slash at the end is followed by an
/// empty name, which no group has. If it were ignored, `/tenants/` followed by a name that a client
/// left empty would be the group of all tenants.
pub(crate) fn names(path: &str) -> Result<impl Iterator<Item = &str> + Clone, Error> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(Error::name(path, "a path starts with '/'"));
    };
    let mut rest = (!rest.is_empty()).then_some(rest);
    // By bytes: names are short, and `split` prepares a search for long texts, which costs more
    // than a lookup.
    Ok(std::iter::from_fn(move || {
        let now = rest?;
        match now.bytes().position(|byte| byte == b'/') {
            Some(end) => {
                rest = now.get(end + 1..);
                now.get(..end)
            }
            None => rest.take(),
        }
    }))
}

/// Checks the names of groups to be created below one of this path and depth.
pub(crate) fn check_below<'a>(
    above: &str,
    depth: usize,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let mut path = above.to_owned();
    for (levels, name) in names.enumerate() {
        check_name(name)?;
        path = join(&path, name);
        if depth + levels >= DEPTH_MAX {
            return Err(Error::depth(&path));
        }
    }
    Ok(())
}

/// Compares two absolute paths name by name, so that a group comes right before its descendants: as
/// text, `/a-b` sorts between `/a` and `/a/b`.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    a.trim_start_matches('/').split('/').cmp(b.trim_start_matches('/').split('/'))
}

/// Returns the last name of an absolute path, `""` for the root.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or("")
}

/// Joins a parent's path and a name.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}
