//! Whether what a flow writes comes back to its source by other flows, to be taken again and go round without end.
//!
//! Pure. A name that carries its source's alias is a cycle by itself ([`super::policy`]). Where a policy keeps names, or
//! renames take the alias away, nothing in a name tells; but which flows read the target is known: of the same file, and
//! of other files whose kmirrors run ([`super::neighbours`]). So each topic's way is walked, by the rules of each flow on
//! it, and a topic that would be taken a second time by the flow that took it first is not taken at all. MirrorMaker lets
//! its records go round.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::FlowSettings;
use super::policy::{Selection, selects_alone};

/// Names on one topic's way; a walk that grows longer makes names of its own, which is a circle as well, but not this topic's.
const NAMES_MAX: usize = 256;

/// Another flow, by what the flow that asks calls its clusters.
#[derive(Clone, Debug)]
pub struct Onward {
    /// The cluster that it reads.
    pub from: Arc<str>,
    /// The cluster that it writes to.
    pub to: Arc<str>,
    /// What it takes and how it names it, with its own aliases.
    pub flow: Arc<FlowSettings>,
    /// What it is called in messages.
    pub name: Arc<str>,
}

impl Onward {
    /// A flow of the same file.
    pub fn of_file(flow: &FlowSettings) -> Onward {
        Onward {
            from: flow.source.clone(),
            to: flow.target.clone(),
            name: format!("{}->{}", flow.source, flow.target).into(),
            flow: Arc::new(FlowSettings { onward: Arc::default(), ..flow.clone() }),
        }
    }
}

/// Decides whether a flow takes a topic of its source.
pub fn selects(settings: &FlowSettings, topic: &str) -> Selection {
    let selection = selects_alone(settings, topic);
    match comes_back(settings, topic).filter(|_| selection.is_replicated()) {
        Some(onward) => Selection::ComesBack { by: onward.name.clone() },
        None => selection,
    }
}

fn takes(settings: &FlowSettings, topic: &str) -> bool {
    selects_alone(settings, topic).is_replicated()
}

/// The flow that would bring `topic` back to the source of the flow that takes it; `None` when it does not come back, or
/// as something that is not taken.
pub(super) fn comes_back<'a>(settings: &'a FlowSettings, topic: &str) -> Option<&'a Onward> {
    if settings.onward.is_empty() {
        return None;
    }
    let mut ways = vec![(&settings.target, settings.policy.remote_topic(&settings.source, topic))];
    let mut seen = BTreeSet::new();
    while let Some((at, name)) = ways.pop() {
        if seen.len() >= NAMES_MAX || !seen.insert((at.clone(), name.clone())) {
            continue;
        }
        for next in settings.onward.iter().filter(|next| next.from == *at && takes(&next.flow, &name)) {
            let there = next.flow.policy.remote_topic(&next.flow.source, &name);
            if next.to == settings.source && takes(settings, &there) {
                return Some(next);
            }
            ways.push((&next.to, there));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::{NameFormat, PatternList, PolicyKind, ReplicationPolicy};

    fn flow(source: &str, target: &str, kind: PolicyKind, topics: &str, exclude: &str) -> FlowSettings {
        FlowSettings {
            topics: PatternList::new(&[topics]).unwrap(),
            topics_exclude: PatternList::new(&[exclude]).unwrap(),
            policy: ReplicationPolicy { kind, ..ReplicationPolicy::default() },
            ..FlowSettings::new(source, target)
        }
    }

    fn onward(flows: &[FlowSettings]) -> Arc<[Onward]> {
        flows.iter().map(Onward::of_file).collect()
    }

    /// The first of the flows takes `topic` beside the others, or does not for the sake of one of them.
    fn check(flows: &[FlowSettings], topic: &str, by: Option<&str>) {
        let first = FlowSettings { onward: onward(&flows[1..]), ..flows[0].clone() };
        let selection = selects(&first, topic);
        match by {
            None => assert_eq!(selection, Selection::Replicated, "{topic}"),
            Some(by) => assert_eq!(selection, Selection::ComesBack { by: Arc::from(by) }, "{topic}"),
        }
    }

    #[test]
    fn names_that_are_kept_both_ways_come_back_if_both_flows_take_them() {
        let identity =
            |source, target, topics, exclude| flow(source, target, PolicyKind::Identity, topics, exclude);
        let both = [identity("A", "B", "[ab].*", ""), identity("B", "A", "[bc].*", "")];
        check(&both, "a1", None);
        check(&both, "b1", Some("B->A"));
        let apart = [identity("A", "B", "a.*", ""), identity("B", "A", ".*", "a.*")];
        check(&apart, "a1", None);
        // Heartbeats carry the alias under any policy.
        let all = [identity("A", "B", ".*", ""), identity("B", "A", ".*", "")];
        let first = FlowSettings { onward: onward(&all[1..]), ..all[0].clone() };
        assert!(selects(&first, "heartbeats").is_replicated());
        assert!(!selects(&first, "orders").is_replicated());
    }

    #[test]
    fn a_ring_is_walked_to_its_end() {
        let ring = |last: &str| {
            ["A->B", "B->C", "C->A"].map(|name| {
                let (source, target) = name.split_once("->").unwrap();
                let topics = if source == "C" { last } else { ".*" };
                flow(source, target, PolicyKind::Identity, topics, "")
            })
        };
        check(&ring(".*"), "orders", Some("C->A"));
        check(&ring("payments"), "orders", None);
        // A name with the alias ends the walk.
        let mut mixed = ring(".*");
        mixed[0].policy.kind = PolicyKind::Default;
        check(&[mixed[0].clone(), flow("B", "A", PolicyKind::Default, ".*", "")], "orders", None);
        // Kept on the way back it is taken once more, by a longer name each time.
        check(&mixed, "orders", Some("C->A"));
    }

    #[test]
    fn names_that_grow_are_followed_until_they_are_too_long() {
        let format = |source: &str, target: &str| FlowSettings {
            policy: ReplicationPolicy {
                kind: PolicyKind::Format,
                format: Some(NameFormat::new("{topic}.{target}", "topic", target, &["A", "B", "C"]).unwrap()),
                ..ReplicationPolicy::default()
            },
            ..FlowSettings::new(source, target)
        };
        // The circle of B and C is not that of A, and the walk ends.
        let flows = [format("A", "B"), format("B", "C"), format("C", "B")];
        check(&flows, "orders", None);
        check(&[format("A", "B"), format("B", "A")], "orders", Some("B->A"));
    }

    /// The default policy needs no other rule than the alias.
    #[test]
    fn default_names_never_come_back() {
        let all: Vec<FlowSettings> = ["A->B", "B->A", "B->C", "C->B", "C->A", "A->C"]
            .iter()
            .map(|name| name.split_once("->").unwrap())
            .map(|(source, target)| flow(source, target, PolicyKind::Default, ".*", ""))
            .collect();
        for topic in ["orders", "C.orders", "x.y"] {
            check(&all, topic, None);
        }
    }
}
