//! The syntax of limits.

mod error;
pub(super) mod lines;
#[cfg(test)]
mod tests;
pub(super) mod values;

use std::fmt;
use std::str::FromStr;

use submeter_percpu::{LimitMode, Rate};

pub use error::ParseError;
pub use values::cpus;

use crate::path::{DEPTH_MAX, NAME_MAX};

/// The limits of one group, as [`parse`] reads them and `Display` writes them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Rate, limits::Limits};
///
/// let limits: Limits = "64m,rate=20k/s".parse()?;
/// assert_eq!(limits.memory, Some(64 << 20));
/// assert_eq!(limits.rate, Some(Rate::new(20_000, Duration::from_secs(1))));
/// assert_eq!(limits.to_string(), "memory=64m,rate=20000/s");
/// assert_eq!(Limits { rate: None, ..limits }, Limits::from(64 << 20));
/// # Ok::<(), submeter::limits::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum memory that it may hold, in bytes: for [`set_limit`](crate::Group::set_limit).
    pub memory: Option<u64>,
    /// The usage above which it should slow down or free something of its own: for
    /// [`set_high`](crate::Group::set_high).
    pub high: Option<u64>,
    /// The usage that is reclaimed only when nothing is left elsewhere: for
    /// [`set_low`](crate::Group::set_low).
    pub low: Option<u64>,
    /// The usage that is never reclaimed for others: for [`set_min`](crate::Group::set_min).
    pub min: Option<u64>,
    /// How much it may do per time, such as requests: for [`set_rate`](crate::Group::set_rate).
    pub rate: Option<Rate>,
    /// How much CPU time it may use per time, in nanoseconds: for the rate of a
    /// [`cpu_budget`](crate::SchemaBuilder::cpu_budget).
    pub cpu: Option<Rate>,
    /// Weight with which it contends for what its parent may have, 1 to 10,000: for
    /// [`set_weight`](crate::Group::set_weight).
    pub weight: Option<u32>,
    /// What happens to anything that exceeds `memory`, `rate` or `cpu`: it is refused unless this
    /// is [`LimitMode::Soft`], which grants it and counts it.
    pub mode: Option<LimitMode>,
}

/// Limits memory alone.
impl From<u64> for Limits {
    fn from(memory: u64) -> Limits {
        Limits { memory: Some(memory), ..Limits::default() }
    }
}

/// Parses `SIZE` or `memory=SIZE`, `high=SIZE`, `low=SIZE`, `min=SIZE`, `rate=N/s`, `burst=N`,
/// `cpu=CPUS`, `weight=N` and `mode=soft`, separated by commas: at least one, and each at most
/// once.
///
/// # Examples
/// ```
/// use submeter::limits;
///
/// let limits = limits::parse("64m,high=48m,rate=20000/s,burst=500,cpu=500m")?;
/// assert_eq!(limits.high, Some(48 << 20));
/// # Ok::<(), limits::ParseError>(())
/// ```
///
/// # Errors
/// When the text contains something else, something twice, or nonsense. The error names it and the
/// remedy.
pub fn parse(text: &str) -> Result<Limits, ParseError> {
    let mut limits = Limits::default();
    let mut burst = None;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or(("", part));
        let twice = match name {
            "" | "memory" => limits.memory.replace(values::size(value)?).is_some(),
            "high" => limits.high.replace(values::size(value)?).is_some(),
            "low" => limits.low.replace(values::size(value)?).is_some(),
            "min" => limits.min.replace(values::size(value)?).is_some(),
            "rate" => limits.rate.replace(values::rate(value)?).is_some(),
            "burst" => burst.replace(values::burst(value)?).is_some(),
            "cpu" => limits.cpu.replace(cpus(value)?).is_some(),
            "weight" => limits.weight.replace(values::weight(value)?).is_some(),
            "mode" => limits.mode.replace(values::mode(value)?).is_some(),
            _ => return Err(unknown(name)),
        };
        if twice {
            return Err(ParseError::new(part, "is a duplicate: keep one"));
        }
    }
    match (burst, &mut limits.rate) {
        (Some(burst), Some(rate)) => rate.burst = burst,
        (Some(_), None) => {
            return Err(ParseError::new(text, "has a burst but no rate: add rate=N/s"));
        }
        (None, _) => {}
    }
    if let Some(rate) = limits.rate {
        let what = |error| format!("is not a valid limit: {error}");
        rate.check().map_err(|error| ParseError::new(text, what(error)))?;
    }
    Ok(limits)
}

fn unknown(name: &str) -> ParseError {
    ParseError::new(
        name,
        "is not a limit: use SIZE, high=SIZE, low=SIZE, min=SIZE, rate=N/s, burst=N, \
         cpu=CPUS, weight=N or mode=soft",
    )
}

impl FromStr for Limits {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Limits, ParseError> {
        parse(text)
    }
}

impl Limits {
    /// Returns these limits after a change in the same syntax, where `none` lifts a limit. Limits
    /// that the change does not name stay. The returned text is the change that undoes it.
    ///
    /// # Examples
    /// ```
    /// use submeter::limits;
    ///
    /// let before = limits::parse("64m,rate=500/s")?;
    /// let (after, undo) = before.changed("1g,rate=none")?;
    /// assert_eq!(after.to_string(), "memory=1g");
    /// assert_eq!(undo, "memory=64m,rate=500/s");
    /// # Ok::<(), limits::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// When the text is not a change.
    pub fn changed(&self, change: &str) -> Result<(Limits, String), ParseError> {
        let is_lifted = |part: &&str| part.ends_with("=none");
        let parts = || change.split(',').map(str::trim).filter(|part| !part.is_empty());
        let set: Vec<&str> = parts().filter(|part| !is_lifted(part)).collect();
        let lifted: Vec<&str> =
            parts().filter(is_lifted).map(|part| &part[..part.len() - 5]).collect();
        if set.is_empty() && lifted.is_empty() {
            let what = "sets nothing: use limits such as 64m,rate=500/s, or rate=none";
            return Err(ParseError::new(change, what));
        }
        let set = if set.is_empty() { Limits::default() } else { parse(&set.join(","))? };
        let mut after = *self;
        let mut undo: Vec<String> = Vec::new();
        macro_rules! each {
            ($($field:ident),*) => {
                if let Some(name) = lifted.iter().find(|name| ![$(stringify!($field)),*].contains(name)) {
                    return Err(unknown(name));
                }
                $({
                    let name = stringify!($field);
                    let is_lifted = lifted.contains(&name);
                    if set.$field.is_some() && is_lifted {
                        return Err(ParseError::new(name, "is both set and lifted: keep one"));
                    }
                    if set.$field.is_some() || is_lifted {
                        after.$field = set.$field;
                        undo.push(match self.$field {
                            None => format!("{name}=none"),
                            $field => Limits { $field, ..Limits::default() }.to_string(),
                        });
                    }
                })*
            };
        }
        each!(memory, high, low, min, rate, cpu, weight, mode);
        Ok((after, undo.join(",")))
    }
}

/// Writes limits as [`parse`] reads them.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { memory, high, low, min, rate, cpu, weight, mode } = self;
        let sizes = [("memory", memory), ("high", high), ("low", low), ("min", min)];
        let sizes = sizes.iter().filter_map(|(name, size)| {
            let bytes = (**size)?;
            let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
            let whole = units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
            let (unit, unit_name) = whole.copied().unwrap_or((1, ""));
            Some(format!("{name}={}{unit_name}", bytes / unit))
        });
        let rate = rate.map(|rate| {
            let per = match rate.per.as_millis() {
                1000 => "s".to_owned(),
                ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
                ms => format!("{ms}ms"),
            };
            let burst = match Rate::new(rate.amount, rate.per).burst == rate.burst {
                true => String::new(),
                false => format!(",burst={}", rate.burst),
            };
            format!("rate={}/{per}{burst}", rate.amount)
        });
        let millis = |rate: Rate| u128::from(rate.amount) * 1000 / rate.per.as_nanos().max(1);
        let cpu = cpu.map(|rate| match millis(rate) {
            millis if millis % 1000 == 0 => format!("cpu={}", millis / 1000),
            millis => format!("cpu={millis}m"),
        });
        let weight = weight.map(|weight| format!("weight={weight}"));
        let mode = mode.map(|mode| match mode {
            LimitMode::Soft => "mode=soft".to_owned(),
            _ => "mode=enforced".to_owned(),
        });
        let others = [rate, cpu, weight, mode].into_iter().flatten();
        f.write_str(&sizes.chain(others).collect::<Vec<_>>().join(","))
    }
}

/// A group's path with its limits, as in a flag: `/acme=64m,rate=20000/s`.
///
/// # Examples
/// ```
/// use submeter::limits::GroupLimits;
///
/// let flag: GroupLimits = "/acme=64m,rate=20000/s".parse()?;
/// assert_eq!((flag.path.as_str(), flag.limits.memory), ("/acme", Some(64 << 20)));
/// # Ok::<(), submeter::limits::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// The group's path, which begins with `/`. The tree reports what is wrong with a name.
    pub path: String,
    /// At least one limit.
    pub limits: Limits,
}

impl GroupLimits {
    /// Makes one from a group's path and its limits, in the syntax of [`parse`].
    ///
    /// # Errors
    /// When the path does not begin with `/` or is too long, and the same as [`parse`].
    pub fn new(path: &str, limits: &str) -> Result<GroupLimits, ParseError> {
        if !path.starts_with('/') {
            return Err(ParseError::new(path, "is not a path: a path starts with '/'"));
        }
        let most = DEPTH_MAX * (1 + NAME_MAX);
        if path.len() > most {
            let what = format!("is too long: the maximum is {most} bytes");
            return Err(ParseError::new(path, what));
        }
        Ok(GroupLimits { path: path.to_owned(), limits: parse(limits)? })
    }
}

impl FromStr for GroupLimits {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<GroupLimits, ParseError> {
        // At the first `=`, so that a misspelt limit does not become part of a tenant's name.
        let (path, limits) = text.split_once('=').ok_or_else(|| {
            ParseError::new(text, "is not of the form /PATH=LIMITS, such as /acme=64m,rate=20000/s")
        })?;
        // What follows a blank or comma instead of that `=` must not become one either.
        let last = path.rfind(|c: char| c == ',' || c.is_whitespace());
        if last.is_some_and(|at| parse(text[at..].trim_start_matches([',', ' ', '\t'])).is_ok()) {
            let what = "has a limit within its path: write /PATH=LIMITS, such as /acme=rate=5/s";
            return Err(ParseError::new(text, what));
        }
        GroupLimits::new(path, limits)
    }
}
