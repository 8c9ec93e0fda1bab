//! The names of budgets.

use std::error::Error;
use std::fmt;

/// Maximum length of a path and of a name, in bytes: bounds what strangers send.
const LEN_MAX: usize = 1024;

/// Returns why strangers may not send this as a name: names are kept, listed and printed.
pub(crate) fn check_name(what: &str, given: &str) -> Result<(), String> {
    if given.is_empty() || given.len() > LEN_MAX {
        return Err(unfit(what, given, "must be 1 to 1024 bytes long"));
    }
    if given.chars().any(char::is_control) {
        return Err(unfit(what, given, "remove the control characters"));
    }
    Ok(())
}

fn unfit(what: &str, given: &str, remedy: &str) -> String {
    let shown: String = given.chars().take(64).collect();
    format!("{what} {shown:?}: {remedy}")
}

/// A limited resource of a group, such as `memory` of `/acme`.
///
/// Budgets are ordered by path, ancestors before descendants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    path: Box<str>,
    resource: Box<str>,
}

impl Budget {
    /// Names a budget by the path of a group, as from [`Group::path`], and the resource.
    ///
    /// [`Group::path`]: https://docs.rs/submeter/latest/submeter/struct.Group.html#method.path
    ///
    /// # Examples
    /// ```
    /// use submeter_bank::Budget;
    ///
    /// let memory = Budget::new("/acme/web", "memory")?;
    /// assert_eq!(memory.to_string(), "memory of /acme/web");
    /// assert!(Budget::new("acme", "memory").is_err());
    /// # Ok::<(), submeter_bank::BudgetError>(())
    /// ```
    ///
    /// # Errors
    /// When the path does not start with `/`, has an empty name in it, or either is empty, longer
    /// than 1,024 bytes, or has control characters.
    pub fn new(path: &str, resource: &str) -> Result<Self, BudgetError> {
        for (what, given) in [("path", path), ("resource", resource)] {
            check_name(what, given).map_err(BudgetError)?;
        }
        match path.strip_prefix('/') {
            Some(names) if names.is_empty() || names.split('/').all(|name| !name.is_empty()) => {
                Ok(Self { path: path.into(), resource: resource.into() })
            }
            _ => Err(BudgetError(unfit("path", path, "write it as /acme/web, or / for the root"))),
        }
    }

    /// Returns the group's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the resource's name.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the same resource of the parent group, or `None` for the root's.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, name) = self.path.rsplit_once('/')?;
        let path = match (parent, name) {
            ("", "") => return None,
            ("", _) => "/",
            (parent, _) => parent,
        };
        Some(Self { path: path.into(), resource: self.resource.clone() })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.resource, self.path)
    }
}

/// The error for a path or a resource that cannot name a [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetError(String);

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BudgetError {}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn parents_lead_to_the_root_and_end_there() {
        let web = Budget::new("/acme/web", "memory").expect("a name");
        let acme = web.parent().expect("a parent");
        let root = acme.parent().expect("a parent");
        assert_eq!((acme.path(), root.path(), root.parent()), ("/acme", "/", None));
        assert!(root < acme && acme < web, "ancestors come first");
    }

    #[test]
    fn names_that_could_be_mistaken_are_refused() {
        for path in ["", "acme", "//", "/a//b", "/a/", "/a\n", &"/a".repeat(600)] {
            assert!(Budget::new(path, "memory").is_err(), "{path:?}");
        }
        assert!(Budget::new("/a", "").is_err());
        assert!(Budget::new("/a", "mem\u{1b}[2J").is_err());
    }
}
