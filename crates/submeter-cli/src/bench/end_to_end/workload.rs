//! What the clients ask for: the tenants that are built in, cut to a size that both servers hold.

use std::io;

use crate::load::profile::Profile;
use crate::load::stream::Tenant;
use crate::load::tenants_file;

pub(super) const DELIMITER: u8 = b':';
/// Memory for items, several times what they take: what an eviction policy does is not measured here.
pub(super) const MEMORY_MIB: u64 = 1024;
/// Keys and values of one tenant, unless its fewest keys take more.
const TENANT_MB: f64 = 16.0;
/// The same where the least will do.
const TENANT_MB_QUICK: f64 = 1.0;

/// Tenants and their items.
pub(super) struct Workload {
    /// Names and traffic.
    profiles: Vec<(String, Profile)>,
}

impl Workload {
    /// Takes the tenants that are built in.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn new(quick: bool) -> io::Result<Workload> {
        let most = if quick { TENANT_MB_QUICK } else { TENANT_MB };
        let profiles = tenants_file::built_in().map_err(io::Error::other)?;
        let cut = |(place, profile): (usize, Profile)| {
            let name = format!("tenant{}", place + 1);
            let working_set_mb = profile.working_set_mb.min(most);
            // What expires would be missed by the server that is asked later.
            (name, Profile { working_set_mb, ttls_s: Vec::new(), ..profile })
        };
        Ok(Workload { profiles: profiles.into_iter().enumerate().map(cut).collect() })
    }

    /// Returns the tenants' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(|(name, _)| name.as_str())
    }

    /// Makes the tenants. They are children of the root, as memcached's prefixes have one level.
    ///
    /// # Errors
    /// When their figures are no distribution.
    pub(super) fn tenants(&self) -> io::Result<Vec<Tenant>> {
        let tenant = |(name, profile): &(String, Profile)| {
            Tenant::at_top(name, profile.clone(), DELIMITER).map_err(io::Error::other)
        };
        self.profiles.iter().map(tenant).collect()
    }

    /// Says whose traffic it is.
    pub(super) fn note(&self) -> String {
        let items: u32 = self.profiles.iter().map(|(_, profile)| profile.keys()).sum();
        let sources: Vec<&str> =
            self.profiles.iter().map(|(_, profile)| profile.source.as_str()).collect();
        format!(
            "requests are drawn from the tenants that are built in ({}), {items} items in all, none of \
             which expires",
            sources.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_fit_several_times() {
        for quick in [false, true] {
            let workload = Workload::new(quick).expect("built in");
            let bytes = |profile: &Profile| {
                u64::from(profile.keys()) * u64::from(profile.key_bytes + profile.value_bytes)
            };
            let all: u64 = workload.profiles.iter().map(|(_, profile)| bytes(profile)).sum();
            assert!(all * 4 < MEMORY_MIB << 20, "{all}");
            assert_eq!(workload.names().count(), workload.tenants().expect("tenants").len());
        }
    }
}
