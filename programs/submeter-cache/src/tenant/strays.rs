//! Room in the tree beyond a tenant's own group, which the configuration takes into account.

/// Returns the name of the child that is charged for keys without a tenant of their own. It begins
/// with the delimiter, which is in no name of a key: what strays use up belongs to no tenant.
pub(crate) fn other(delimiter: u8) -> String {
    format!("{}other", char::from(delimiter))
}

/// Number of groups in the tree for each possible tenant. The last of them is for named tenants.
pub(crate) const GROUPS_OF_TENANT: usize = 8;
