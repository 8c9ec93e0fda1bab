//! One error for all that may be refused.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::admission::AdmissionError;
use crate::{LimitError, RateError};

/// What refused a piece of work: a limit, a rate or a queue. `?` converts each of the three errors,
/// so that one place makes the answer to the client, whatever refused.
///
/// Its text (`Display`) may be shown to the tenant; [`detail`](Self::detail) is for logs.
///
/// # Examples
/// ```
/// use submeter::admission::{Admission, Admitted};
/// use submeter::{Charge, Count, Group, Quota, RateLimit, Refusal, Schema, Tree};
///
/// async fn begin(
///     tenant: &Group,
///     (requests, in_flight): (RateLimit<Count>, Quota<Count>),
///     turns: &Admission,
/// ) -> Result<(Charge, Admitted), Refusal> {
///     tenant.try_take(requests, 1)?;
///     let charge = tenant.try_charge(in_flight, 1)?;
///     Ok((charge, turns.acquire(tenant).await?))
/// }
///
/// let mut schema = Schema::builder();
/// let requests = schema.rate_limit::<Count>("requests", "Requests let in");
/// let in_flight = schema.quota::<Count>("in_flight", "Requests under way");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// tree.root().set_limit(in_flight, Some(0));
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let refusal = begin(&acme, (requests, in_flight), &Admission::new(4)).await.expect_err("full");
/// assert!(refusal.detail().to_string().contains("the limit of /:")); // for the log
/// let answer = format!("-ERR {refusal}");
/// assert_eq!(answer, "-ERR 1 more of in_flight would exceed a limit shared with others");
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Refusal {
    /// A charge found no room.
    Limit(LimitError),
    /// A rate or a budget granted no more.
    Rate(RateError),
    /// A queue gave it no place.
    Admission(AdmissionError),
}

impl Refusal {
    /// Takes a refusal out of a box, where it is itself or one of the three errors: for programs
    /// whose functions return boxed errors.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Group, Quota, Refusal, Schema, Tree};
    ///
    /// type Boxed = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// fn serve(tenant: &Group, memory: Quota<Bytes>, request: &str) -> Result<String, Boxed> {
    ///     let bytes: u64 = request.parse()?;
    ///     let _held = tenant.try_charge(memory, bytes)?;
    ///     Ok("OK".to_owned())
    /// }
    ///
    /// fn answer(tenant: &Group, memory: Quota<Bytes>, request: &str) -> Result<String, Boxed> {
    ///     serve(tenant, memory, request).or_else(|error| {
    ///         let refusal = Refusal::downcast(error)?; // any other error ends the connection
    ///         Ok(format!("ERR {refusal}"))
    ///     })
    /// }
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// acme.set_limit(memory, Some(10));
    /// assert_eq!(answer(&acme, memory, "10")?, "OK");
    /// assert!(answer(&acme, memory, "11")?.starts_with("ERR 11 more of memory would exceed"));
    /// assert!(answer(&acme, memory, "many").is_err());
    /// # Ok::<(), Boxed>(())
    /// ```
    ///
    /// # Errors
    /// Returns any other error in its box.
    pub fn downcast(
        error: Box<dyn Error + Send + Sync>,
    ) -> Result<Refusal, Box<dyn Error + Send + Sync>> {
        error
            .downcast::<Refusal>()
            .map(|refusal| *refusal)
            .or_else(|error| error.downcast::<LimitError>().map(|error| Refusal::Limit(*error)))
            .or_else(|error| error.downcast::<RateError>().map(|error| Refusal::Rate(*error)))
            .or_else(|error| {
                error.downcast::<AdmissionError>().map(|error| Refusal::Admission(*error))
            })
    }

    /// Returns the whole text, for logs. Not for tenants: it names others.
    pub fn detail(&self) -> impl fmt::Display + '_ {
        Detail(self)
    }

    /// Returns when to try again, as [`RateError::retry_after`] and [`AdmissionError::retry_after`]
    /// do. `None` if that is unknown, as at a limit, or never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::Limit(_) => None,
            Refusal::Rate(error) => error.retry_after(),
            Refusal::Admission(error) => error.retry_after(),
        }
    }

    /// Returns whether the group was [killed](crate::Group::kill): the work should end.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        match self {
            Refusal::Limit(error) => error.is_killed(),
            Refusal::Rate(error) => error.is_killed(),
            Refusal::Admission(error) => error.is_killed(),
        }
    }
}

impl From<LimitError> for Refusal {
    fn from(error: LimitError) -> Refusal {
        Refusal::Limit(error)
    }
}

impl From<RateError> for Refusal {
    fn from(error: RateError) -> Refusal {
        Refusal::Rate(error)
    }
}

impl From<AdmissionError> for Refusal {
    fn from(error: AdmissionError) -> Refusal {
        Refusal::Admission(error)
    }
}

/// For the tenant: it says nothing about other groups.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Limit(error) => error.fmt(f),
            Refusal::Rate(error) => error.fmt(f),
            Refusal::Admission(error) => error.fmt(f),
        }
    }
}

/// The cause is the text itself: a chain of causes would repeat it.
impl Error for Refusal {}

struct Detail<'a>(&'a Refusal);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Refusal::Limit(error) => error.detail().fmt(f),
            Refusal::Rate(error) => error.detail().fmt(f),
            Refusal::Admission(error) => error.detail().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::{Count, Rate, Schema, Tree};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Each of the four errors comes out of its box as itself, and any other stays in it.
    #[test]
    fn each_refusal_comes_out_of_its_box() {
        let mut schema = Schema::builder();
        let requests = schema.rate_limit::<Count>("requests", "Requests let in");
        let in_flight = schema.quota::<Count>("in_flight", "Requests under way");
        let tree = Tree::new(schema.build().expect("valid")).expect("room");
        let acme = tree.create("/acme").expect("new");
        acme.set_limit(in_flight, Some(0));
        acme.set_rate(requests, Some(Rate::new(1, DAY))).expect("it can be kept");
        let limit = || acme.try_charge(in_flight, 1).expect_err("no room");
        let rate = acme.try_take(requests, 2).expect_err("more than one");
        let admission = Admission::new(0).try_acquire(&acme).expect_err("no place");

        let whole = Refusal::downcast(Box::new(Refusal::Limit(limit())));
        assert!(matches!(whole, Ok(Refusal::Limit(_))), "{whole:?}");
        let limit = Refusal::downcast(Box::new(limit()));
        assert!(matches!(limit, Ok(Refusal::Limit(_))), "{limit:?}");
        let rate = Refusal::downcast(Box::new(rate));
        assert!(matches!(rate, Ok(Refusal::Rate(_))), "{rate:?}");
        let admission = Refusal::downcast(Box::new(admission));
        assert!(matches!(admission, Ok(Refusal::Admission(_))), "{admission:?}");
        let other = Refusal::downcast(Box::new(fmt::Error)).expect_err("not a refusal");
        assert!(other.is::<fmt::Error>());
    }
}
