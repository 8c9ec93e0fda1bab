//! Room in the tree beside a tenant's own group, which the configuration counts with.

/// Returns the name of the child that is charged for keys without a tenant of their own. It begins
/// with the delimiter, which is in no name of a key: what strays use up is no tenant's.
pub(crate) fn other(delimiter: u8) -> String {
    format!("{}other", char::from(delimiter))
}

/// How many groups the tree has for each tenant that there may be. The last of them is for those
/// that are named.
pub(crate) const GROUPS_OF_TENANT: usize = 8;
