//! The limits of a tenant, as flags and files have them:
//! `/acme=64m,low=32m,min=16m,high=48m,rate=20000/s,burst=500,cpu=500m`.

use std::str::FromStr;
use std::time::Duration;

use submeter::{LimitMode, Rate, WEIGHTS};
use submeter_cache::TenantLimits;
use submeter_terminal::short;

use super::size::Size;

/// The limits of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TenantLimit {
    /// The group's path.
    pub(crate) path: String,
    pub(crate) limits: TenantLimits,
}

/// The longest path of a tenant, in bytes: four times what a key of memcached has room for.
const PATH_MAX: usize = 1000;

impl FromStr for TenantLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<TenantLimit, String> {
        // At the first mark, so that a misspelt limit is no part of a tenant's name.
        let (path, limits) = text.split_once('=').ok_or_else(|| {
            format!("{:?} is not /PATH=LIMITS, such as /acme=64m,rate=20000/s", short(text))
        })?;
        TenantLimit::new(path, limits)
    }
}

impl TenantLimit {
    /// Makes one from its two halves.
    pub(crate) fn new(path: &str, limits: &str) -> Result<TenantLimit, String> {
        if !path.starts_with('/') {
            return Err(format!("tenant {:?} is not a path: it starts with '/'", short(path)));
        }
        if path.len() > PATH_MAX {
            return Err(format!(
                "tenant {:?} has a path that no key leads to: keep it to {PATH_MAX} bytes",
                short(path)
            ));
        }
        Ok(TenantLimit { path: path.to_owned(), limits: parse(limits)? })
    }
}

/// Returns limits after a change in the same words, where `none` lifts one: what is not named
/// stays. The other text is the change that undoes it.
pub(crate) fn changed(
    before: &TenantLimits,
    change: &str,
) -> Result<(TenantLimits, String), String> {
    let is_lifted = |part: &&str| part.ends_with("=none");
    let parts = || change.split(',').map(str::trim).filter(|part| !part.is_empty());
    let set: Vec<&str> = parts().filter(|part| !is_lifted(part)).collect();
    let lifted: Vec<&str> = parts().filter(is_lifted).map(|part| &part[..part.len() - 5]).collect();
    if set.is_empty() && lifted.is_empty() {
        return Err("nothing to set: write limits such as 64m,rate=500/s, or rate=none".to_owned());
    }
    let set = if set.is_empty() { TenantLimits::default() } else { parse(&set.join(","))? };
    let mut after = *before;
    let mut undo: Vec<String> = Vec::new();
    macro_rules! each {
        ($($name:literal $field:ident),*) => {
            if let Some(unknown) = lifted.iter().find(|name| ![$($name),*].contains(name)) {
                return Err(unknown_limit(unknown));
            }
            $(if set.$field.is_some() || lifted.contains(&$name) {
                if set.$field.is_some() && lifted.contains(&$name) {
                    return Err(format!("{} is set and lifted at once: keep one", $name));
                }
                after.$field = set.$field;
                let only = TenantLimits { $field: before.$field, ..TenantLimits::default() };
                undo.push(match before.$field { Some(_) => text(&only), None => concat!($name, "=none").to_owned() });
            })*
        };
    }
    each!("memory" memory, "high" high, "low" low, "min" min, "rate" requests, "cpu" cpu,
          "weight" weight, "mode" mode);
    Ok((after, undo.join(",")))
}

/// Writes limits as they are read.
pub(crate) fn text(limits: &TenantLimits) -> String {
    let TenantLimits { memory, high, low, min, requests, cpu, weight, mode } = limits;
    let sizes = [("memory", memory), ("high", high), ("low", low), ("min", min)];
    let sizes =
        sizes.iter().filter_map(|(name, size)| Some(format!("{name}={}", size_text((**size)?))));
    let rate = requests.map(|rate| {
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
    let cpu = cpu.map(|rate| match cpu_millis(rate) {
        millis if millis % 1000 == 0 => format!("cpu={}", millis / 1000),
        millis => format!("cpu={millis}m"),
    });
    let weight = weight.map(|weight| format!("weight={weight}"));
    let mode = mode.map(|mode| match mode {
        LimitMode::Soft => "mode=soft".to_owned(),
        _ => "mode=enforced".to_owned(),
    });
    let others = [rate, cpu, weight, mode].into_iter().flatten();
    sizes.chain(others).collect::<Vec<_>>().join(",")
}

fn size_text(bytes: u64) -> String {
    let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    let whole = units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit) && bytes > 0);
    whole.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

fn unknown_limit(name: &str) -> String {
    format!(
        "{:?} is no limit of tenants: there are SIZE, high=SIZE, low=SIZE, min=SIZE, rate=N/s, \
         burst=N, cpu=CPUS, weight=N and mode=soft",
        short(name)
    )
}

/// Parses `SIZE` or `memory=SIZE`, `high=SIZE`, `low=SIZE`, `min=SIZE`, `rate=N/s`, `burst=N`,
/// `cpu=CPUS`, `weight=N`, `mode=soft`, separated by commas.
fn parse(text: &str) -> Result<TenantLimits, String> {
    let mut limits = TenantLimits::default();
    let mut burst = None;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or(("", part));
        let twice = match name {
            "" | "memory" => limits.memory.replace(value.parse::<Size>()?.0).is_some(),
            "high" => limits.high.replace(value.parse::<Size>()?.0).is_some(),
            "low" => limits.low.replace(value.parse::<Size>()?.0).is_some(),
            "min" => limits.min.replace(value.parse::<Size>()?.0).is_some(),
            "rate" => limits.requests.replace(rate(value)?).is_some(),
            "burst" => burst.replace(count(value)?).is_some(),
            "cpu" => limits.cpu.replace(cpu(value)?).is_some(),
            "weight" => limits.weight.replace(weight(value)?).is_some(),
            "mode" => limits.mode.replace(mode(value)?).is_some(),
            _ => return Err(unknown_limit(name)),
        };
        if twice {
            let (part, text) = (short(part), short(text));
            return Err(format!("{part:?} is the second of its kind in {text:?}: keep one"));
        }
    }
    match (burst, &mut limits.requests) {
        (Some(burst), Some(rate)) => rate.burst = burst,
        (Some(_), None) => {
            return Err(format!("{:?} has a burst of no rate: add rate=N/s", short(text)));
        }
        (None, _) => {}
    }
    if let Some(rate) = limits.requests {
        rate.check().map_err(|error| error.to_string())?;
    }
    Ok(limits)
}

/// Parses a rate: `20000/s`, `20k/s`, `5/min`, `100/10ms`.
fn rate(text: &str) -> Result<Rate, String> {
    let wrong =
        || format!("{:?} is no rate: write N/s, N/min, N/h or N/ms, as in 20000/s", short(text));
    let (amount, per) = text.split_once('/').ok_or_else(wrong)?;
    let digits = per.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (times, unit) = per.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "min" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(wrong()),
    };
    let large =
        || format!("{:?} is too large a rate: an amount or a time is too much", short(text));
    let times = if times.is_empty() { Some(1) } else { times.parse::<u64>().ok() };
    // Only digits: what does not fit is large.
    let per_ms = times.and_then(|times| times.checked_mul(unit_ms)).ok_or_else(large)?;
    let (digits, factor) = match amount.as_bytes() {
        [.., b'k'] => (&amount[..amount.len() - 1], 1_000),
        [.., b'm'] => (&amount[..amount.len() - 1], 1_000_000),
        _ => (amount, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let amount = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    let amount = amount.ok_or_else(large)?;
    if amount == 0 {
        return Err(format!(
            "{text:?} is no rate: the amount is 0, which would grant nothing; the least is 1/h, and \
             1/s for a fleet"
        ));
    }
    Ok(Rate::new(amount, Duration::from_millis(per_ms)))
}

/// Of what CPU time is limited to: as long as a period of Kubernetes' limits. A tenant that was
/// idle may use as much at once as it may in this time.
const CPU_PERIOD: Duration = Duration::from_millis(100);
/// What a thousandth of a CPU has in that time, in nanoseconds.
const MILLI_CPU_NS: u64 = 100_000;
/// More than any machine has: a million CPUs.
const CPU_MILLIS_MAX: u64 = 1_000_000_000;

/// Parses CPUs as Kubernetes writes them: `500m`, `0.5`, `2`.
fn cpu(text: &str) -> Result<Rate, String> {
    let wrong = || {
        format!("{:?} are no CPUs: write thousandths or CPUs, as in 500m, 0.5 or 2", short(text))
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, part, unit) = match (text.strip_suffix('m'), text.split_once('.')) {
        (Some(millis), _) => (millis, "0", 1),
        (None, Some((whole, part))) => (whole, part, 1000),
        (None, None) => (text, "0", 1000),
    };
    if !is_number(whole) || !is_number(part) {
        return Err(wrong());
    }
    let part = part.trim_end_matches('0');
    if part.len() > 3 {
        return Err(format!("{:?} is finer than a thousandth of a CPU: round it", short(text)));
    }
    // At most three digits.
    let part = format!("{part:0<3}").parse().unwrap_or(0);
    let millis =
        whole.parse().ok().and_then(|whole: u64| whole.checked_mul(unit)?.checked_add(part));
    match millis {
        Some(0) => Err(format!("{text:?} are no CPUs: 0 would admit nothing; the least is 1m")),
        Some(millis) if millis <= CPU_MILLIS_MAX => {
            Ok(Rate::new(millis * MILLI_CPU_NS, CPU_PERIOD))
        }
        _ => {
            let most = CPU_MILLIS_MAX / 1000;
            Err(format!("{:?} are too many CPUs: {most} are the most", short(text)))
        }
    }
}

fn cpu_millis(rate: Rate) -> u128 {
    u128::from(rate.amount) * 1000 / rate.per.as_nanos().max(1)
}

fn mode(text: &str) -> Result<LimitMode, String> {
    match text {
        "soft" => Ok(LimitMode::Soft),
        "enforced" => Ok(LimitMode::Enforced),
        _ => Err(format!("{:?} is no mode: write soft or enforced", short(text))),
    }
}

fn weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| WEIGHTS.contains(weight));
    let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
    weight.ok_or_else(|| format!("{:?} is no weight: give one from {least} to {most}", short(text)))
}

fn count(text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{:?} is no number of requests: write digits, as in 500", short(text)));
    }
    text.parse()
        .map_err(|_| format!("{:?} are too many requests: {} are the most", short(text), u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(memory: impl Into<Option<u64>>, requests: impl Into<Option<Rate>>) -> TenantLimits {
        let (memory, requests) = (memory.into(), requests.into());
        TenantLimits { memory, requests, ..TenantLimits::default() }
    }

    #[test]
    fn a_flag_has_a_path_a_size_and_options() {
        let rate = Rate::new(20_000, SECOND);
        for (text, path, expected) in [
            ("/a=1k", "/a", limits(1024, None)),
            ("/a,b c=1k", "/a,b c", limits(1024, None)),
            ("/a,b=1k,rate=20000/s", "/a,b", limits(1024, rate)),
            ("/a=1k,rate=20000/s", "/a", limits(1024, rate)),
            ("/a=memory=1k,rate=20k/s", "/a", limits(1024, rate)),
            ("/a=rate=1m/s", "/a", limits(None, Rate::new(1_000_000, SECOND))),
            ("/a=rate=20000/s", "/a", limits(None, rate)),
            ("/a=rate=20000/s,burst=7", "/a", limits(None, Rate { burst: 7, ..rate })),
            ("/a=1k,weight=300", "/a", TenantLimits { weight: Some(300), ..limits(1024, None) }),
            (
                "/a=weight=1,rate=20000/s",
                "/a",
                TenantLimits { weight: Some(1), ..limits(None, rate) },
            ),
        ] {
            let expected = TenantLimit { path: path.to_owned(), limits: expected };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_protected_and_where_a_tenant_shrinks_are_sizes() {
        let of = |high: u64, low: u64, min: u64| {
            let [high, low, min] = [high, low, min].map(|size| Some(size).filter(|&n| n > 0));
            TenantLimits { high, low, min, ..TenantLimits::default() }
        };
        let all = TenantLimits {
            requests: Some(Rate::new(5, SECOND)),
            memory: Some(64 << 10),
            ..of(48 << 10, 32 << 10, 16 << 10)
        };
        for (text, path, expected) in [
            ("/a=64k,low=32k,min=16k,high=48k,rate=5/s", "/a", all),
            ("/a=64k,rate=5/s,high=48k,min=16k,low=32k", "/a", all),
            ("/a=high=1k", "/a", of(1024, 0, 0)),
            ("/a=low=1k,min=1", "/a", of(0, 1024, 1)),
            ("/a=min=1k", "/a", of(0, 0, 1024)),
        ] {
            let expected = TenantLimit { path: path.to_owned(), limits: expected };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name_and_its_undoing_restores_all() {
        let before =
            "/a=64m,low=1500,rate=20k/s,burst=7".parse::<TenantLimit>().expect("legal").limits;
        assert_eq!(text(&before), "memory=64m,low=1500,rate=20000/s,burst=7");
        for (change, now) in [
            ("rate=500/s", "memory=64m,low=1500,rate=500/s"),
            ("rate=5/10s, weight=3", "memory=64m,low=1500,rate=5/10s,weight=3"),
            ("1k,low=none", "memory=1k,rate=20000/s,burst=7"),
            ("memory=none,low=none,rate=none", ""),
            ("cpu=0.5,mode=soft", "memory=64m,low=1500,rate=20000/s,burst=7,cpu=500m,mode=soft"),
        ] {
            let (after, undo) = changed(&before, change).expect(change);
            assert_eq!(text(&after), now, "{change}");
            assert_eq!(changed(&after, &undo).expect("legal").0, before, "{change}: {undo}");
        }
        for (change, named) in [
            ("", "nothing to set"),
            ("rat=none", "\"rat\" is no limit"),
            ("burst=none", "\"burst\" is no limit"),
            ("rate=5/s,rate=none", "set and lifted"),
            ("rate=5", "no rate"),
        ] {
            let error = changed(&before, change).expect_err(change);
            assert!(error.contains(named), "{change}: {error}");
        }
    }

    #[test]
    fn cpus_are_written_as_for_kubernetes() {
        for (written, millis, again) in [
            ("500m", 500, "500m"),
            ("0.5", 500, "500m"),
            ("2", 2000, "2"),
            ("2.0", 2000, "2"),
            ("1500m", 1500, "1500m"),
            ("0.001", 1, "1m"),
            ("0.0010", 1, "1m"),
            ("1000000", 1_000_000_000, "1000000"),
        ] {
            let rate = cpu(written).expect(written);
            assert_eq!((rate.amount, rate.per), (millis * MILLI_CPU_NS, CPU_PERIOD), "{written}");
            rate.check().expect(written);
            let limits = TenantLimits { cpu: Some(rate), ..TenantLimits::default() };
            assert_eq!(text(&limits), format!("cpu={again}"), "{written}");
        }
        for (written, named) in [
            ("", "no CPUs: write thousandths or CPUs, as in 500m, 0.5 or 2"),
            ("m", "no CPUs"),
            ("0.5m", "no CPUs"),
            ("-1", "no CPUs"),
            ("+1", "no CPUs"),
            (".5", "no CPUs"),
            ("1.", "no CPUs"),
            ("1.2.3", "no CPUs"),
            ("1e3", "no CPUs"),
            ("50%", "no CPUs"),
            ("0", "0 would admit nothing; the least is 1m"),
            ("0m", "0 would admit nothing"),
            ("0.0005", "finer than a thousandth"),
            ("1000001", "too many CPUs: 1000000 are the most"),
            ("99999999999999999999", "too many CPUs"),
        ] {
            let error = cpu(written).expect_err(written);
            assert!(error.starts_with(&format!("{written:?} ")), "{error}");
            assert!(error.contains(named), "{written}: {error}");
        }
    }

    #[test]
    fn rates_are_of_the_usual_units() {
        for (text, per) in [
            ("5/s", SECOND),
            ("5/min", SECOND * 60),
            ("5/h", SECOND * 3600),
            ("5/ms", SECOND / 1000),
            ("5/10s", SECOND * 10),
        ] {
            assert_eq!(rate(text), Ok(Rate::new(5, per)), "{text}");
        }
        for text in [
            "",
            "5",
            "5/",
            "/s",
            "5/d",
            "-5/s",
            "+5/s",
            "5.5/s",
            "5/1.5s",
            "5/s/s",
            "5/99999999999999999999s",
            "k/s",
            "5g/s",
            "99999999999999999999k/s",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_named_with_the_remedy() {
        for (text, named) in [
            ("/a", "/PATH=LIMITS"),
            ("a=1k", "starts with '/'"),
            ("/a=", "not a size"),
            ("/a=x", "\"x\" is not a size"),
            ("/a=low=x", "\"x\" is not a size"),
            ("/a=1k,max=1k", "\"max\" is no limit of tenants: there are SIZE, high=SIZE"),
            ("/a=1k,high=1k,high=2k,rate=1/s", "second of its kind"),
            ("/a=1k,min=", "not a size"),
            ("/a=1k,rate=20000", "\"20000\" is no rate: write N/s"),
            ("/a=1k,rate=0/s", "the amount is 0, which would grant nothing; the least is 1/h"),
            ("/a=1k,rate=5/0s", "the period is 0"),
            ("/a=1k,rate=5/s,burst=0", "the burst is 0"),
            ("/a=1k,rate=5/s,burst=x", "\"x\" is no number"),
            (
                "/a=rate=5/s,burst=99999999999999999999",
                "are too many requests: 18446744073709551615",
            ),
            ("/a=rate=99999999999999999999/s", "is too large a rate"),
            ("/a=rate=9999999999999999999m/s", "is too large a rate"),
            ("/a=rate=5/99999999999999999999s", "is too large a rate"),
            ("/a=low=99999999999999999999g", "is too large a size: 16777215t is the most"),
            ("/a=1k,burst=5", "add rate=N/s"),
            ("/a=weight=0", "\"0\" is no weight: give one from 1 to 10000"),
            ("/a=weight=10001", "no weight"),
            ("/a=weight=high", "no weight"),
            ("/a=cpu=half", "\"half\" are no CPUs: write"),
            ("/a=cpu=1,cpu=2", "second of its kind"),
            ("/a=mode=dry", "\"dry\" is no mode: write soft or enforced"),
            ("/a=hihg=4k", "\"hihg\" is no limit of tenants: there are SIZE, high=SIZE"),
            ("/a=rat=5k", "\"rat\" is no limit"),
            ("/a=b=rate=5/s", "\"b\" is no limit"),
            ("/a,hihg", "/PATH=LIMITS"),
            ("/a=1k,rate=5/s,rate=6/s", "second of its kind"),
            ("/a=1k,memory=2k", "second of its kind"),
            ("/a=rate=0k/s", "the amount is 0"),
        ] {
            let error = text.parse::<TenantLimit>().expect_err(text);
            assert!(error.contains(named) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
