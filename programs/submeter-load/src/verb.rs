//! The commands of a load.

use serde::Serialize;

/// A command of the text protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Verb {
    /// `get`.
    Get,
    /// `gets`.
    Gets,
    /// `set`.
    Set,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`.
    Append,
    /// `prepend`.
    Prepend,
    /// `cas`.
    Cas,
    /// `delete`.
    Delete,
    /// `incr`.
    Incr,
    /// `decr`.
    Decr,
    /// `touch`.
    Touch,
    /// `gat`.
    Gat,
    /// `gats`.
    Gats,
}

/// The kind under which a server counts a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A retrieval: `get`, `gets`.
    Get,
    /// A store, conditional or not.
    Set,
    /// A `delete`.
    Delete,
    /// A `touch`, or a retrieval that touches.
    Touch,
    /// An `incr` or `decr`.
    Arithmetic,
}

impl Verb {
    /// Every verb, in the order of its discriminant.
    pub const ALL: [Verb; 14] = [
        Verb::Get,
        Verb::Gets,
        Verb::Set,
        Verb::Add,
        Verb::Replace,
        Verb::Append,
        Verb::Prepend,
        Verb::Cas,
        Verb::Delete,
        Verb::Incr,
        Verb::Decr,
        Verb::Touch,
        Verb::Gat,
        Verb::Gats,
    ];

    /// Returns the command's name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Gets => "gets",
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Cas => "cas",
            Verb::Delete => "delete",
            Verb::Incr => "incr",
            Verb::Decr => "decr",
            Verb::Touch => "touch",
            Verb::Gat => "gat",
            Verb::Gats => "gats",
        }
    }

    /// Finds a verb by its name.
    pub fn parse(name: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Returns the kind under which a server counts it.
    pub fn kind(self) -> Kind {
        match self {
            Verb::Get | Verb::Gets => Kind::Get,
            Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => {
                Kind::Set
            }
            Verb::Delete => Kind::Delete,
            Verb::Touch | Verb::Gat | Verb::Gats => Kind::Touch,
            Verb::Incr | Verb::Decr => Kind::Arithmetic,
        }
    }

    /// Returns whether the answer carries the value.
    pub fn retrieves(self) -> bool {
        matches!(self, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats)
    }

    /// Returns whether the answer carries a token for `cas`.
    pub fn gets_token(self) -> bool {
        matches!(self, Verb::Gets | Verb::Gats)
    }

    /// Returns whether it can fill a miss, as a caching client's store does.
    pub fn fills(self) -> bool {
        matches!(self, Verb::Set | Verb::Add)
    }
}
