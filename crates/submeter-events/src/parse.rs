//! perf's syntax for events: `cycles,instructions:u,{cycles,branches}:D,r1a8`.

use std::fmt;

use crate::event::{Event, EventGroup, EventKind, NAMES};

/// Maximum number of events in one list: more than any CPU counts, few enough for a thread to read
/// at a switch.
///
/// # Examples
/// ```
/// use submeter_events::{EVENTS_MAX, parse};
///
/// let many = vec!["task-clock"; EVENTS_MAX + 1].join(",");
/// assert!(parse(&many).is_err());
/// ```
pub const EVENTS_MAX: usize = 64;

/// Parses a list of events in the syntax of `perf stat -e`.
///
/// Events are separated by commas; those in braces count together or not at all. Modifiers follow a
/// colon: `u` counts only in user mode, `k` only in the kernel, `D` pins the event or the group in
/// braces. Other modifiers of perf are refused, and so are events that perf looks up in `/sys`.
///
/// # Examples
/// ```
/// use submeter_events::parse;
///
/// let groups = parse("task-clock:D,{cycles,instructions}:u,page-faults")?;
/// assert_eq!(groups.len(), 3);
/// assert!(groups[0].is_pinned());
/// assert_eq!(groups[1].to_string(), "{cycles:u,instructions:u}");
/// assert!(parse("cylces").unwrap_err().to_string().contains("\"cylces\""));
/// # Ok::<(), submeter_events::ParseError>(())
/// ```
///
/// # Errors
/// One line that names the invalid part and the remedy.
pub fn parse(list: &str) -> Result<Vec<EventGroup>, ParseError> {
    let mut groups = Vec::new();
    let mut rest = list.trim();
    loop {
        let (group, after) = item(rest)?;
        groups.push(group);
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.is_empty() => break,
            None => return Err(wrong(after, "appears where a comma is expected".to_owned())),
        };
    }
    let events: usize = groups.iter().map(|group| group.events.len()).sum();
    if events > EVENTS_MAX {
        return Err(wrong(list, format!("has {events} events: use at most {EVENTS_MAX}")));
    }
    Ok(groups)
}

/// Parses one event or one group in braces, and returns the rest of the text.
fn item(text: &str) -> Result<(EventGroup, &str), ParseError> {
    let Some(inside) = text.strip_prefix('{') else {
        let (one, after) = split(text, &[',', '{', '}']);
        let (event, pinned) = event(one)?;
        return Ok((EventGroup { events: vec![event], pinned }, after));
    };
    let Some((inside, after)) = inside.split_once('}') else {
        return Err(wrong(text, "opens a group of events: close it with }".to_owned()));
    };
    if inside.contains('{') {
        return Err(wrong(text, "nests groups of events: close each before the next".to_owned()));
    }
    let (mut modifiers, mut after) = ("", after);
    if let Some(of_group) = after.strip_prefix(':') {
        (modifiers, after) = split(of_group, &[',', '{', '}']);
        if modifiers.is_empty() {
            return Err(wrong(text, "ends in a colon: add modifiers (u, k, D)".to_owned()));
        }
    }
    let mut group = EventGroup { events: Vec::new(), pinned: false };
    for (index, one) in inside.split(',').enumerate() {
        let (event, pinned) = event(one.trim())?;
        if pinned && index > 0 {
            let what = "is pinned within its group: pin the group, {…}:D".to_owned();
            return Err(wrong(one.trim(), what));
        }
        group.pinned |= pinned;
        group.events.push(event);
    }
    for event in &mut group.events {
        group.pinned |= modify(event, text, modifiers)?;
    }
    Ok((group, after))
}

/// Parses `name[:modifiers]`; returns the event, and whether it is pinned.
fn event(text: &str) -> Result<(Event, bool), ParseError> {
    let text = text.trim();
    let (name, modifiers) = match text.split_once(':') {
        Some((_, "")) => {
            return Err(wrong(text, "ends in a colon: add modifiers (u, k, D)".to_owned()));
        }
        Some(parts) => parts,
        None => (text, ""),
    };
    if name.is_empty() {
        let what = format!("has no name: use one of {}", names());
        return Err(wrong(text, what));
    }
    let Some(kind) = EventKind::by_name(name) else {
        return Err(wrong(name, format!("is not a known event: use one of {}", names())));
    };
    let mut event = Event::new(kind);
    let pinned = modify(&mut event, text, modifiers)?;
    Ok((event, pinned))
}

/// Applies modifiers; returns whether they pin.
fn modify(event: &mut Event, text: &str, modifiers: &str) -> Result<bool, ParseError> {
    let (mut user, mut kernel, mut pinned) = (false, false, false);
    for modifier in modifiers.chars() {
        match modifier {
            'u' => user = true,
            'k' => kernel = true,
            'D' => pinned = true,
            _ => {
                let what = format!("has the modifier {modifier:?}: only u, k and D are supported");
                return Err(wrong(text, what));
            }
        }
    }
    if user || kernel {
        (event.user, event.kernel) = (user, kernel);
    }
    Ok(pinned)
}

fn split<'t>(text: &'t str, at: &[char]) -> (&'t str, &'t str) {
    text.split_at(text.find(at).unwrap_or(text.len()))
}

fn names() -> String {
    let mut names = String::new();
    for (name, kind) in NAMES {
        // Aliases would only make the line longer.
        if NAMES.iter().find(|(_, other)| other == kind).is_some_and(|(first, _)| first == name) {
            names.push_str(name);
            names.push_str(", ");
        }
    }
    names + "or rNNN for a raw code of this CPU"
}

fn wrong(part: &str, what: String) -> ParseError {
    /// Enough to recognise the text in a terminal.
    const SHOWN: usize = 40;
    let mut shown: String = part.chars().take(SHOWN).collect();
    if shown.len() < part.len() {
        shown.push('…');
    }
    ParseError { text: format!("event {shown:?} {what}") }
}

/// The error of an invalid list of events, with a remedy.
///
/// # Examples
/// ```
/// let error = submeter_events::parse("cycels").expect_err("no such event");
/// println!("{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str) -> Vec<String> {
        parse(list).expect("valid").iter().map(ToString::to_string).collect()
    }

    /// Parsing and displaying follow perf.
    #[test]
    fn syntax_is_that_of_perf() {
        let list = "cycles,instructions:u,{cycles,instructions},task-clock:D,page-faults,cs";
        let expected = [
            "cycles",
            "instructions:u",
            "{cycles,instructions}",
            "task-clock:D",
            "page-faults",
            "context-switches",
        ];
        assert_eq!(shown(list), expected);
        assert_eq!(shown("{cycles:k,r1A8}:D, {branches}:uD"), ["{cycles:k,r1a8}:D", "branches:uD"]);
        assert_eq!(shown("cycles:uk"), ["cycles"]);
        assert_eq!(shown("{cycles:D,faults}"), ["{cycles,page-faults}:D"]);
    }

    #[test]
    fn a_displayed_list_parses_to_the_same_events() {
        for list in ["cycles:uD,{cpu-cycles,faults:k}:D", "r0", "{cs,cs}", "task-clock"] {
            let once = parse(list).expect("valid");
            let again: Vec<_> = once.iter().map(ToString::to_string).collect();
            assert_eq!(parse(&again.join(",")).expect("valid"), once);
        }
    }

    #[test]
    fn each_error_names_the_part_and_the_remedy() {
        let cases = [
            ("", "has no name"),
            ("cycles,", "has no name"),
            ("cylces", "\"cylces\" is not a known event: use one of cycles, instructions"),
            ("cycles:", "ends in a colon"),
            ("cycles:x", "modifier 'x': only u, k and D"),
            ("{cycles", "close it with }"),
            ("{cycles,{faults}}", "nests groups"),
            ("cycles}", "\"}\" appears where a comma is expected"),
            ("{cycles}{faults}", "appears where a comma is expected"),
            ("{}", "has no name"),
            ("{cycles}:", "ends in a colon"),
            ("{cycles,faults:D}", "\"faults:D\" is pinned within its group"),
            ("r", "\"r\" is not a known event"),
            ("r+1", "\"r+1\" is not a known event"),
            ("r11112222333344445", "is not a known event"),
            ("cycles,\u{1f980}", "is not a known event"),
        ];
        for (list, expected) in cases {
            let text = parse(list).expect_err(list).to_string();
            assert!(text.contains(expected), "{list:?}: {text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let many = |events| vec!["cycles"; events].join(",");
        assert_eq!(parse(&many(EVENTS_MAX)).expect("as many as may be").len(), 64);
        let text = parse(&many(EVENTS_MAX + 1)).expect_err("too many").to_string();
        assert!(text.contains("has 65 events: use at most 64") && text.len() < 150, "{text}");
    }

    #[test]
    fn any_text_is_parsed_or_refused() {
        let parts = ["cycles", "{", "}", ",", ":", "u", "D", "x", " ", "r9", "é"];
        // All sequences of up to four parts.
        for number in 0..parts.len().pow(4) {
            let text: String =
                (0..4).map(|place| parts[number / parts.len().pow(place) % 11]).collect();
            if let Err(error) = parse(&text) {
                assert!(error.to_string().starts_with("event "), "{text:?}: {error}");
            }
        }
    }
}
