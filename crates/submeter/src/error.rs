//! The error of operations on groups.

use std::fmt;

use crate::metric::schema::SchemaError;
use crate::visible::visible;

/// The error of operations on the groups of a tree.
///
/// The type is opaque, so that new causes break no caller: each cause has a predicate. The text
/// names the group and the remedy. Other errors are types of their own:
/// [`SchemaError`](crate::SchemaError) for a schema, [`LimitError`](crate::LimitError) for a
/// charge.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// tree.create("/acme")?;
/// match tree.create("/acme") {
///     Ok(group) => println!("created {group}"),
///     Err(error) if error.is_already_exists() => println!("as it should be"),
///     Err(error) => return Err(error.into()),
/// }
/// assert!(tree.create("web").expect_err("a path begins with a slash").is_invalid_name());
/// assert!(tree.create("/none/web").expect_err("the parent is missing").is_not_found());
/// assert!(tree.root().kill().expect_err("the root ends with its tree").is_root());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Name { name: String, reason: &'static str },
    Depth(String),
    AlreadyExists(String),
    NotFound(String),
    Busy { path: String, children: usize },
    Killed(String),
    OtherType(String),
    Root,
    Full { max: usize },
    Storage(std::io::Error),
    Schema(SchemaError),
}

impl Error {
    /// Returns whether the name or path is invalid: malformed, or deeper than
    /// [`DEPTH_MAX`](crate::DEPTH_MAX) levels.
    #[must_use]
    pub fn is_invalid_name(&self) -> bool {
        matches!(self.kind, Kind::Name { .. } | Kind::Depth(_))
    }

    /// Returns whether the group already exists.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind, Kind::AlreadyExists(_))
    }

    /// Returns whether the group, or its parent, does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound(_))
    }

    /// Returns whether the group still has children.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.kind, Kind::Busy { .. })
    }

    /// Returns whether the group was killed earlier.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        matches!(self.kind, Kind::Killed(_))
    }

    /// Returns whether the group has [data](crate::Group::data_or_init) of another type.
    #[must_use]
    pub fn is_other_type(&self) -> bool {
        matches!(self.kind, Kind::OtherType(_))
    }

    /// Returns whether the call tried to kill the root, which only dropping its tree can do.
    #[must_use]
    pub fn is_root(&self) -> bool {
        matches!(self.kind, Kind::Root)
    }

    /// Returns whether the tree has reached its maximum of groups.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind, Kind::Full { .. })
    }

    /// Returns whether the kernel refused address space or memory for per-CPU words; its own error
    /// is the [source](std::error::Error::source).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.kind, Kind::Storage(_))
    }

    /// Returns whether metrics could not be added to a tree. The [`SchemaError`] is the
    /// [source](std::error::Error::source), and gives the reason.
    #[must_use]
    pub fn is_schema(&self) -> bool {
        matches!(self.kind, Kind::Schema(_))
    }

    /// Returns whether there is no room: killed groups may occupy it until they are forgotten.
    pub(crate) fn is_no_room(&self) -> bool {
        match &self.kind {
            Kind::Full { .. } => true,
            Kind::Storage(cause) => cause.kind() == std::io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    pub(crate) fn name(name: &str, reason: &'static str) -> Error {
        Error { kind: Kind::Name { name: name.to_owned(), reason } }
    }

    pub(crate) fn already_exists(path: String) -> Error {
        Error { kind: Kind::AlreadyExists(path) }
    }

    pub(crate) fn not_found(path: &str) -> Error {
        Error { kind: Kind::NotFound(path.to_owned()) }
    }

    pub(crate) fn busy(path: &str, children: usize) -> Error {
        Error { kind: Kind::Busy { path: path.to_owned(), children } }
    }

    pub(crate) fn killed(path: &str) -> Error {
        Error { kind: Kind::Killed(path.to_owned()) }
    }

    pub(crate) fn other_type(path: &str) -> Error {
        Error { kind: Kind::OtherType(path.to_owned()) }
    }

    pub(crate) fn root() -> Error {
        Error { kind: Kind::Root }
    }

    pub(crate) fn full(max: usize) -> Error {
        Error { kind: Kind::Full { max } }
    }

    pub(crate) fn depth(path: &str) -> Error {
        Error { kind: Kind::Depth(path.to_owned()) }
    }

    pub(crate) fn storage(cause: std::io::Error) -> Error {
        Error { kind: Kind::Storage(cause) }
    }

    pub(crate) fn schema(cause: SchemaError) -> Error {
        Error { kind: Kind::Schema(cause) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Name { name, reason } => write!(f, "invalid group name {name:?}: {reason}"),
            Kind::AlreadyExists(path) => write!(f, "group {} already exists", visible(path)),
            Kind::NotFound(path) => write!(f, "group {} does not exist", visible(path)),
            Kind::Busy { path, children } => {
                write!(f, "group {} has {children} children: kill them first", visible(path))
            }
            Kind::Killed(path) => {
                write!(f, "group {} was already killed", visible(path))
            }
            Kind::OtherType(path) => write!(
                f,
                "group {} has data of another type: keep all of a program's data in one",
                visible(path)
            ),
            Kind::Root => {
                f.write_str("the root group cannot be killed: it lives as long as its tree")
            }
            Kind::Full { max } => write!(
                f,
                "the tree is full: {max} of {max} groups; raise `groups_max`, or drop handles to \
                 killed groups"
            ),
            Kind::Depth(path) => {
                write!(f, "group {} is too deep: at most 64 levels are allowed", visible(path))
            }
            Kind::Storage(cause) => write!(f, "no memory for per-CPU storage: {cause}"),
            Kind::Schema(cause) => write!(f, "no metrics were added: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Storage(cause) => Some(cause),
            Kind::Schema(cause) => Some(cause),
            _ => None,
        }
    }
}
