//! Why a charge was refused.

use std::fmt;

use submeter_percpu::Cause;

use crate::metric::schema::{Key, Metric};
use crate::tree::group::Group;
use crate::visible::visible;

/// The error of a charge that would exceed a limit, or that waited in vain: because another waited
/// before it ([`is_behind`](Self::is_behind)), or because its group was killed
/// ([`is_killed`](Self::is_killed)).
///
/// Its text (`Display`) may be shown to the tenant. It contains the requested amount and, if the
/// limit is the charged group's own, the usage: `600 more of memory would exceed the limit: 600 of
/// 1000 held`. A limit above is only called `shared with others`: its group, its amount and its
/// holders are not the tenant's business. [`detail`](Self::detail), `Debug` and the methods are for
/// the program and its logs.
///
/// # Examples
/// ```
/// # use submeter::{Bytes, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let memory = schema.quota::<Bytes>("memory", "Memory held");
/// # let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(memory, Some(100));
/// let web = tree.create("/web")?;
/// let held = web.try_charge(memory, 60)?;
/// let refused = web.try_charge(memory, 50).expect_err("60 of 100 are held");
/// assert_eq!(refused.to_string(), "50 more of memory would exceed a limit shared with others");
/// let detail = refused.detail().to_string();
/// assert!(detail.starts_with("/web: 50 more of memory would exceed the limit of /: 60 of 100"));
/// assert_eq!((refused.group(), refused.limiting()), (&web, tree.root()));
/// assert_eq!((refused.requested(), refused.limit(), refused.current()), (50, 100, 60));
/// # drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Boxed: a result that is larger than a charge is stored in parts and copied as a whole, which made
// granted charges take three times as long.
#[derive(Debug)]
pub struct LimitError(Box<Refused>);

/// Laid out as written: the two numbers of a refusal arrive one by one. If they were neighbours
/// they would be copied as a whole, for which the processor waits until both are in its cache.
#[derive(Debug)]
#[repr(C)]
struct Refused {
    group: Group,
    current: u64,
    key: Key,
    limit: u64,
    requested: u64,
    /// How many levels above the group the limit is.
    levels: u32,
    cause: Cause,
}

/// Maximum number of holders that an error names.
const HOLDERS_MAX: usize = 3;

impl LimitError {
    /// Makes the error and counts the refusal.
    #[inline]
    pub(super) fn new(
        group: &Group,
        key: Key,
        requested: u64,
        refused: &submeter_percpu::Refused,
    ) -> Self {
        let submeter_percpu::Refused { levels, held: current, limit, cause, .. } = *refused;
        if cause != Cause::Ended {
            above(group, levels).add_refused(key);
        }
        // Fewer than 2^32: each is a group in memory.
        let levels = levels as u32;
        let group = group.clone();
        LimitError(Box::new(Refused { group, key, levels, cause, requested, current, limit }))
    }

    /// Returns the group of the refused charge.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Returns the group whose limit refused the charge: the group itself, or an ancestor. If the
    /// group was [killed](Self::is_killed), returns the group itself.
    #[must_use]
    pub fn limiting(&self) -> &Group {
        above(&self.0.group, self.0.levels as usize)
    }

    /// Returns the quota of the refused charge, with its name and unit.
    #[must_use]
    pub fn metric(&self) -> &Metric {
        // The charge has checked that the key is of this schema.
        &self.0.group.schema().metrics()[usize::from(self.0.key.metric)]
    }

    /// Returns the requested amount.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.0.requested
    }

    /// Returns whether the charge would have fitted when it gave up, but another waited for that
    /// limit before it: waiting charges are served in order. In that case
    /// [`current`](Self::current) and the requested amount together are at most the limit.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// # use std::pin::pin;
    /// # use std::task::{Context, Waker};
    /// tree.root().set_limit(memory, Some(100));
    /// let held = tree.root().try_charge(memory, 60)?;
    /// let mut waits = pin!(tree.root().charge(memory, 50));
    /// assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// let late = tree.root().charge_blocking(memory, 10, Duration::ZERO).expect_err("behind it");
    /// assert!(late.is_behind());
    /// let text = "10 more of memory waited too long: others are ahead of it at the limit: \
    ///             60 of 100 held";
    /// assert_eq!(late.to_string(), text);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.0.cause == Cause::Behind
    }

    /// Returns whether the charge waited, or would have had to, and its group was
    /// [killed](Group::kill). It is not counted as refused, because no limit refused it.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.cause == Cause::Ended
    }

    /// Returns the limit that refused the charge.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the usage under that limit when it refused the charge.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.0.current
    }

    /// Returns the whole text, for logs: the charged group, the group of the limit, the amount held
    /// there, and its holders. Not for tenants: it names others. Costs as much as
    /// [`holders`](Self::holders).
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    /// let held = tree.create("/acme")?.try_charge(memory, 60)?;
    /// let refused = tree.create("/web")?.try_charge(memory, 50).expect_err("60 of 100 are held");
    /// let detail = "/web: 50 more of memory would exceed the limit of /: 60 of 100 held; \
    ///               most by /acme (60)";
    /// assert_eq!(refused.detail().to_string(), detail);
    /// assert!(!refused.to_string().contains("acme"));
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detail(&self) -> impl fmt::Display + '_ {
        Detail(self)
    }

    fn write_request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.0.cause {
            Cause::Behind => "waited too long: others are ahead of it at ",
            Cause::Ended => "cannot be waited for: the group was killed",
            _ => "would exceed ",
        };
        write!(f, "{} more of {} {why}", self.0.requested, self.metric().name())
    }

    /// Returns up to three children of the limiting group with the largest usage, largest first,
    /// with their current usage. It visits every child: for messages, not for hot paths.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    /// let web = tree.create("/web")?;
    /// let held = web.try_charge(memory, 60)?;
    /// let refused = web.try_charge(memory, 50).expect_err("60 of 100 are held");
    /// assert_eq!(refused.holders(), [(web, 60)]);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn holders(&self) -> Vec<(Group, u64)> {
        let slot = usize::from(self.0.key.slot);
        let mut holders: Vec<(Group, u64)> = self
            .limiting()
            .children()
            .into_iter()
            .map(|child| {
                let current = child.inner.quotas.usage(slot).current;
                (child, current)
            })
            .filter(|(_, current)| *current > 0)
            .collect();
        holders.sort_by_key(|(_, current)| std::cmp::Reverse(*current));
        holders.truncate(HOLDERS_MAX);
        holders
    }
}

fn above(group: &Group, levels: usize) -> &Group {
    let mut up = std::iter::successors(Some(group), |group| group.parent());
    up.nth(levels).expect("a limit of the group or an ancestor")
}

/// For the tenant: it says nothing about other groups.
impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_request(f)?;
        match self.0.levels {
            _ if self.is_killed() => Ok(()),
            0 => write!(f, "the limit: {} of {} held", self.0.current, self.0.limit),
            _ => f.write_str("a limit shared with others"),
        }
    }
}

/// For the program's logs.
struct Detail<'a>(&'a LimitError);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        write!(f, "{}: ", visible(error.group().path()))?;
        error.write_request(f)?;
        if error.is_killed() {
            return Ok(());
        }
        let (current, limit) = (error.current(), error.limit());
        let limiting = visible(error.limiting().path());
        write!(f, "the limit of {limiting}: {current} of {limit} held")?;
        let holders = error.holders();
        for (index, (group, current)) in holders.iter().enumerate() {
            let lead = if index == 0 { "; most by" } else { "," };
            write!(f, "{lead} {} ({current})", visible(group.path()))?;
        }
        Ok(())
    }
}

impl std::error::Error for LimitError {}
