//! Assigns events to groups.

use submeter::perf::{self, EventGroup};

use submeter_terminal::Failure;

/// Events that are counted together, and the path of their group; `None` for the whole process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) group: Option<String>,
    pub(crate) events: EventGroup,
}

/// Pairs events with groups by perf's rules.
pub(super) fn wanted(
    events: &[String],
    groups: &[String],
    for_each: &[String],
) -> Result<Vec<Wanted>, Failure> {
    let mut parsed = Vec::new();
    for list in events {
        let found = perf::parse(list);
        parsed.extend(found.map_err(|e| Failure::new(format_args!("-e {list:?}: {e}")))?);
    }
    if !for_each.is_empty() {
        let each = for_each.iter().flat_map(|group| {
            parsed.iter().map(|events| Wanted { group: path(group), events: events.clone() })
        });
        return Ok(each.collect());
    }
    let total: usize = parsed.iter().map(|events| events.events().len()).sum();
    if groups.len() > total {
        return Err(Failure::new(format_args!(
            "-G {} lists {} groups for {total} events: use one for all, or one per event, or \
             --for-each-group",
            groups.join(","),
            groups.len()
        )));
    }
    let mut at = 0;
    let mut wanted = Vec::new();
    for events in parsed {
        let len = events.events().len();
        let of = |index: usize| match groups {
            [all] => path(all),
            groups => groups.get(index).and_then(|group| path(group)),
        };
        let group = of(at);
        if (at..at + len).any(|index| of(index) != group) {
            return Err(Failure::new(format_args!(
                "the events of {events} are counted together, but have different groups: use the \
                 same group for all of them"
            )));
        }
        at += len;
        wanted.push(Wanted { group, events });
    }
    Ok(wanted)
}

/// Refuses a separator that would split a group's field in two.
pub(super) fn told_apart(wanted: &[Wanted], separator: &str) -> Result<(), Failure> {
    let groups = wanted.iter().filter_map(|wanted| wanted.group.as_deref());
    match groups.into_iter().find(|group| group.contains(separator)) {
        Some(group) => Err(Failure::new(format_args!(
            "{separator:?} occurs in the name {group:?}, which it would split into two fields: use \
             another separator for -x, or --json"
        ))),
        None => Ok(()),
    }
}

/// Returns the path with its leading slash, which may be omitted; `None` for an empty name.
fn path(group: &str) -> Option<String> {
    match group.trim().trim_start_matches('/') {
        "" if group.trim() == "/" => Some("/".to_owned()),
        "" => None,
        names => Some(format!("/{names}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(events: &[&str], groups: &[&str], each: &[&str]) -> Vec<(String, Option<String>)> {
        let owned = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let wanted = wanted(&owned(events), &owned(groups), &owned(each)).expect("valid");
        wanted.into_iter().map(|w| (w.events.to_string(), w.group)).collect()
    }

    fn refused(events: &[&str], groups: &[&str]) -> String {
        let owned = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let failure = wanted(&owned(events), &owned(groups), &[]).expect_err("refused");
        failure.line().to_owned()
    }

    /// Groups are assigned to events in order, and a single group to all of them.
    #[test]
    fn groups_are_assigned_to_events_in_order() {
        let web = || Some("/acme/web".to_owned());
        let of = |name: &str| name.to_owned();
        assert_eq!(
            pairs(&["cycles,instructions", "task-clock"], &["acme/web", "", "/"], &[]),
            [(of("cycles"), web()), (of("instructions"), None), (of("task-clock"), Some(of("/")))]
        );
        assert_eq!(
            pairs(&["cycles,instructions"], &["/acme/web"], &[]),
            [(of("cycles"), web()), (of("instructions"), web())]
        );
        assert_eq!(
            pairs(&["cycles,page-faults"], &["acme/web", ""], &[])[1],
            (of("page-faults"), None)
        );
        assert_eq!(
            pairs(&["{cycles,instructions},page-faults"], &["acme/web", "acme/web"], &[]),
            [(of("{cycles,instructions}"), web()), (of("page-faults"), None)]
        );
        let each = pairs(&["cycles", "page-faults"], &[], &["a", "b"]);
        let each: Vec<_> = each.iter().map(|(e, g)| (&**e, g.as_deref())).collect();
        let both = |group| [("cycles", Some(group)), ("page-faults", Some(group))];
        assert_eq!(each, [both("/a"), both("/b")].concat());
    }

    #[test]
    fn groups_without_their_events_are_named() {
        assert!(refused(&["cylces"], &[]).contains("cylces"));
        let text = refused(&["cycles"], &["a", "b"]);
        assert!(text.contains("a,b") && text.contains("2 groups for 1 events"), "{text}");
        let text = refused(&["{cycles,instructions}"], &["a", "b"]);
        assert!(text.contains("{cycles,instructions}") && text.contains("same group"), "{text}");
    }
}
