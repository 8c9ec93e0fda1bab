//! Puts findings into sentences.

use super::super::dashboard::Offence;
use super::super::views::Views;
use super::super::wire::{Shape, VerdictDoc, VerdictKind};
use super::judge::{Case, Finding};
use super::track::{Tense, Track};

/// A space at which a line never breaks.
const NBSP: char = '\u{a0}';

/// How many groups the reason names.
const NAMED: usize = 3;

/// The sentence on findings of one kind.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) doc: VerdictDoc,
    /// Its text and its short text in the past tense.
    pub(super) past: [String; 2],
}

/// Makes one sentence for each kind that is found. Tracks are in the order of kinds, the worst of
/// each kind first.
pub(super) fn sentences(tracks: &[&Track], case: Case<'_>) -> Vec<Said> {
    let views = case.views;
    let of = |kind| tracks.iter().copied().filter(move |track| track.finding.kind == kind);
    let why = why(tracks, views);
    // Where one tenant takes most of a level's limit, it needs one of its own.
    let is_crowded = |refused: &Track| {
        !refused.finding.kind.is_about_two()
            && tracks.iter().any(|track| track.level.as_ref() == Some(&refused.path))
    };
    let said = VerdictKind::ALL.iter().filter_map(|&kind| {
        let first = of(kind).next()?;
        let tenants = of(kind).count();
        // The figures are those of the first tenant alone.
        let rest = || of(kind).skip(1);
        let tense_of_rest = rest().map(Track::tense).min();
        let say = |tense: Tense, of_rest: Option<Tense>| {
            let [verb, figures] = spoken(first, tense, views);
            let more = of_rest.map_or(String::new(), |tense| {
                let verb = rest().next().map(|of| verb_of(&of.finding, tenants > 2, tense));
                format!("; {} more {}", tenants - 1, verb.unwrap_or_default())
            });
            [format!(" {verb}{figures}{more}."), format!(" {verb}{more}.")]
        };
        let always = |tense: Tense| say(tense, tense_of_rest.map(|_| tense));
        let [text, _] = say(first.tense(), tense_of_rest);
        let ([_, short], past) = (always(Tense::Present), always(Tense::Past));
        let why = if kind.is_about_two() { why.clone() } else { String::new() };
        let since_ms = of(kind).map(|track| track.since_ms).min().unwrap_or(first.since_ms);
        let group = first.path.to_string();
        let doc = VerdictDoc {
            kind,
            group,
            tenants,
            text,
            short,
            why,
            remedy: remedy(first, case).filter(|_| !is_crowded(first)),
            since_ms,
            ended_ms: None,
        };
        Some(Said { doc, past })
    });
    said.collect()
}

/// Asks the program for the limit that would have ended the finding at its greatest.
fn remedy(track: &Track, case: Case<'_>) -> Option<String> {
    let Finding { kind, view, usual, than, level, .. } = track.peak.finding;
    let (views, figures) = (case.views, &track.peak.figures);
    let shared = level.and(Some(than)).filter(|limit| !limit.is_nan());
    let view = views.docs().nth(view)?;
    case.remedy?(&Offence { kind, view: &view.key, usual, shared, views, figures })
}

/// Names the harmed and those to blame with all known figures: the text of a tooltip.
fn why(tracks: &[&Track], views: &Views) -> String {
    let few = |is: fn(VerdictKind) -> bool| {
        let tracks = tracks.iter().filter(move |track| is(track.finding.kind)).take(NAMED);
        tracks.map(|track| {
            let [verb, figures] = spoken(track, track.tense(), views);
            format!("{} {verb}{figures}", track.path)
        })
    };
    few(VerdictKind::is_harm).chain(few(VerdictKind::is_blame)).collect::<Vec<_>>().join("; ")
}

/// Returns the verb and the figures behind it: in the past, those of the greatest moment.
fn spoken(track: &Track, tense: Tense, views: &Views) -> [String; 2] {
    let (finding, level) = match tense {
        Tense::Present => (&track.finding, &track.level),
        Tense::Past => (&track.peak.finding, &track.peak.level),
    };
    let figures = match level {
        Some(level) => of_level(finding, level, views),
        None => figures(finding, views),
    };
    [verb_of(finding, false, tense).to_owned(), figures]
}

fn verb_of(finding: &Finding, is_plural: bool, tense: Tense) -> &'static str {
    let [one, many, past, past_many] = match finding.kind {
        VerdictKind::Bursts => ["bursts", "burst", "burst", "burst"],
        VerdictKind::Takes => ["takes most", "take most", "took most", "took most"],
        VerdictKind::Waits => ["waits", "wait", "waited", "waited"],
        VerdictKind::Slower => ["is slow", "are slow", "was slow", "were slow"],
        VerdictKind::FindsLess => ["finds less", "find less", "found less", "found less"],
        VerdictKind::GetsLess => ["gets less", "get less", "got less", "got less"],
        VerdictKind::Refused => ["is refused", "are refused", "was refused", "were refused"],
        VerdictKind::Throttled => {
            ["is throttled", "are throttled", "was throttled", "were throttled"]
        }
        VerdictKind::Stalls => {
            ["waits for room", "wait for room", "waited for room", "waited for room"]
        }
        VerdictKind::Unknown => [""; 4],
    };
    match (tense, is_plural) {
        (Tense::Present, false) => one,
        (Tense::Present, true) => many,
        (Tense::Past, false) => past,
        (Tense::Past, true) => past_many,
    }
}

/// Writes the figures behind a finding.
fn figures(finding: &Finding, views: &Views) -> String {
    let Finding { amount, than, view, .. } = *finding;
    let noun = views.noun(view);
    match finding.kind {
        VerdictKind::Bursts | VerdictKind::Takes => {
            let of = |(view, part): &(usize, f64)| {
                format!("{} of {}", percent(*part), views.noun(*view))
            };
            let first = format!("{} of all {noun}", percent(amount));
            let mut parts: Vec<String> =
                [first].into_iter().chain(finding.also.iter().map(of)).collect();
            let last = parts.pop().unwrap_or_default();
            let and = if parts.is_empty() { "" } else { " and " };
            let times = match finding.kind {
                VerdictKind::Bursts if than > 0.0 => format!(", {than:.1} times its usual"),
                _ => String::new(),
            };
            format!(": {}{and}{last}{times}", parts.join(", "))
        }
        VerdictKind::Waits => {
            format!(" {} a request, {} times as long as its work", time(amount), than.round())
        }
        VerdictKind::Slower => format!(": {noun} {}, usually {}", time(amount), time(than)),
        VerdictKind::FindsLess => {
            format!(": {} {noun}, usually {}", percent(amount), percent(than))
        }
        VerdictKind::GetsLess => format!(": {} below its usual", percent(amount)),
        VerdictKind::Refused => {
            format!(" {} times a second: {noun}{}", count(amount), of_limit(finding, views))
        }
        VerdictKind::Throttled => format!(": {noun}{}", of_limit(finding, views)),
        VerdictKind::Stalls => format!(": {} of the last 10{NBSP}s", percent(amount)),
        VerdictKind::Unknown => String::new(),
    }
}

/// Writes which part of what a level may have a tenant has.
fn of_level(finding: &Finding, level: &str, views: &Views) -> String {
    let (part, noun) = (percent(finding.amount), views.noun(finding.view));
    match level {
        "" => format!(": {part} of all {noun}"),
        level => format!(": {part} of the {noun} of {level}"),
    }
}

/// Writes the limit that refuses, if the program declares which it is.
fn of_limit(finding: &Finding, views: &Views) -> String {
    let than = finding.than;
    match views.refusing(finding.view).map(|limit| views.shape(limit)) {
        _ if than.is_nan() => String::new(),
        Some(Shape::Cores) => format!(" of {} CPUs", (than * 1e3).round() / 1e3),
        Some(Shape::Bytes) => format!(" of {}", bytes(than)),
        Some(Shape::Count) => format!(" of {}", count(than)),
        Some(Shape::ByteRate) => format!(" of {}/s", bytes(than)),
        _ => format!(" of {}/s", count(than)),
    }
}

/// Writes a part of a whole; anything less than all is never written as 100.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    let shown = match percent {
        99.0..100.0 => ((percent * 10.0).round() / 10.0).min(99.9),
        _ => percent.round(),
    };
    format!("{shown}{NBSP}%")
}

fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "µs"),
        n => (n, "ns"),
    };
    format!("{}{NBSP}{unit}", three_digits(value))
}

fn bytes(n: f64) -> String {
    let (mut n, mut units) = (n, ["B", "KiB", "MiB", "GiB"].iter());
    // A value that would be written as 1024 of a unit is 1 of the next.
    while n >= 1023.5 && units.len() > 1 {
        (n, _) = (n / 1024.0, units.next());
    }
    format!("{}{NBSP}{}", three_digits(n), units.next().unwrap_or(&""))
}

fn count(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{} million", three_digits(n / 1e6)),
        n if n >= 1e4 => format!("{}{NBSP}thousand", three_digits(n / 1e3)),
        n if n >= 10.0 => format!("{}", n.round()),
        n => three_digits(n),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 100.0 || v == 0.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
