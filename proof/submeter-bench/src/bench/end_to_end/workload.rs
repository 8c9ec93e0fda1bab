//! The clients' workload: tenants from production statistics, scaled to a size that both servers
//! hold.

use std::io;
use std::path::Path;

use submeter_load::profile::Profile;
use submeter_load::stream::Tenant;
use submeter_load::tenants_file;

pub(super) const DELIMITER: u8 = b':';
/// Memory for items, several times what they need: eviction is not measured here.
pub(super) const MEMORY_MIB: u64 = 1024;
/// Keys and values of one tenant, unless the minimum of keys takes more.
const TENANT_MB: f64 = 16.0;
/// The same in a quick run.
const TENANT_MB_QUICK: f64 = 1.0;
/// Keys and values of all tenants: the more tenants, the smaller their shares.
const ALL_MB: f64 = 192.0;

/// Tenants and their items.
pub(super) struct Workload {
    /// Names and traffic.
    profiles: Vec<(String, Profile)>,
    /// Where the tenants come from.
    source: String,
}

impl Workload {
    /// Takes the tenants of `file`, or the built-in ones.
    ///
    /// # Errors
    /// When the file cannot be read, or its values are too large for the servers' memory.
    pub(super) fn new(file: Option<&Path>, quick: bool) -> io::Result<Workload> {
        let (found, source) = match file {
            Some(file) => (tenants_file::read(file), file.display().to_string()),
            None => (tenants_file::built_in(), "built in".to_owned()),
        };
        let profiles = found.map_err(io::Error::other)?;
        let of_each = if quick { TENANT_MB_QUICK } else { TENANT_MB };
        let most = of_each.min(ALL_MB / profiles.len().max(1) as f64);
        let cut = |(place, profile): (usize, Profile)| {
            let name = format!("tenant{}", place + 1);
            let working_set_mb = profile.working_set_mb.min(most);
            // Zero means that none is given; a working set of zero would have no keys.
            let working_set_mb = if working_set_mb > 0.0 { working_set_mb } else { most };
            // An expired item would be a miss on the server that is asked later.
            (name, Profile { working_set_mb, ttls_s: Vec::new(), ..profile })
        };
        let profiles: Vec<_> = profiles.into_iter().enumerate().map(cut).collect();
        let workload = Workload { profiles, source };
        if workload.bytes() * 2 > MEMORY_MIB << 20 {
            let (source, mb) = (&workload.source, workload.bytes() >> 20);
            return Err(io::Error::other(format!(
                "the tenants of {source} have {mb} MiB of items, at least a thousand each, and servers have \
                 {MEMORY_MIB} MiB: leave out those with the largest values"
            )));
        }
        Ok(workload)
    }

    /// Returns the size of all keys and values.
    fn bytes(&self) -> u64 {
        let of = |profile: &Profile| {
            u64::from(profile.keys()) * u64::from(profile.key_bytes + profile.value_bytes)
        };
        self.profiles.iter().map(|(_, profile)| of(profile)).sum()
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

    /// Describes the traffic.
    pub(super) fn note(&self) -> String {
        let items: u32 = self.profiles.iter().map(|(_, profile)| profile.keys()).sum();
        format!(
            "requests are drawn from {} tenants ({}), {items} items in all, none of which expires",
            self.profiles.len(),
            self.source
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_fit_several_times() {
        for quick in [false, true] {
            let workload = Workload::new(None, quick).expect("built in");
            assert!(workload.bytes() * 4 < MEMORY_MIB << 20, "{}", workload.bytes());
            assert_eq!(workload.names().count(), workload.tenants().expect("tenants").len());
        }
    }

    #[test]
    fn a_missing_or_too_large_file_is_reported() {
        let none = Path::new("/nonexistent/tenants.csv");
        let error = Workload::new(Some(none), true).err().expect("no file").to_string();
        assert!(error.contains("/nonexistent/tenants.csv"), "{error}");
    }
}
