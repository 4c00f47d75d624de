//! Flows that would copy records round and round.
//!
//! `DefaultReplicationPolicy` puts the source's alias into every name, and a flow takes nothing that carries its target's.
//! Where a policy keeps the names, or renames take the alias away, nothing in a name tells where a record came from: such
//! flows must not form a circle of topics. Names and patterns are all that a file tells: where a name is found that goes
//! round, that is an error, and where none is, a warning. What then goes round all the same is refused topic by topic, by
//! the flows themselves (`mirror::onward`).

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Problem;
use super::reader::Problems;
use crate::client::{self, HostPort};
use crate::mirror::{FlowSettings, Onward, Selection, selects};

/// Patterns that are looked at for a topic that goes round.
const CANDIDATES_MAX: usize = 200;

/// Looks for circles among the flows of a file that one of the first `ours` is part of; the others run in other processes.
pub(super) fn check(flows: &[FlowSettings], ours: usize, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, _) in flows.iter().enumerate().filter(|(_, flow)| hides(flow)) {
        let Some(circle) = circle(flows, index) else { continue };
        let mut members = circle.clone();
        members.sort_unstable();
        let is_ours = members.first().is_some_and(|&first| first < ours);
        if is_ours && seen.insert(members) {
            problems.push(judge(&circle.iter().map(|&index| &flows[index]).collect::<Vec<_>>()));
        }
    }
}

/// Tells each of the first `ours` flows by which others what it writes may come back.
pub(super) fn tell_onward(flows: &[FlowSettings], ours: usize) -> Vec<FlowSettings> {
    let of_file: Vec<Onward> = flows.iter().map(Onward::of_file).collect();
    let needs_it = flows.iter().any(hides);
    let tell = |(index, flow): (usize, &FlowSettings)| {
        let others = of_file.iter().enumerate().filter(|(other, _)| needs_it && *other != index);
        FlowSettings { onward: others.map(|(_, other)| other.clone()).collect(), ..flow.clone() }
    };
    flows.iter().enumerate().take(ours).map(tell).collect()
}

/// Two aliases of one cluster: what a flow writes there, it reads again. (What only the cluster's id tells is found when the
/// flow starts.)
pub(super) fn check_aliases(
    flows: &[FlowSettings],
    clusters: &BTreeMap<std::sync::Arc<str>, client::Settings>,
    problems: &mut Problems,
) {
    let servers = |alias: &str| -> Option<BTreeSet<String>> {
        Some(clusters.get(alias)?.bootstrap_servers.iter().map(HostPort::to_string).collect())
    };
    for flow in flows {
        let (source, target) = (servers(&flow.source), servers(&flow.target));
        if let (Some(source), Some(target)) = (source, target)
            && !source.is_disjoint(&target)
        {
            let message = format!("{} and {} have a bootstrap server in common", flow.source, flow.target);
            let help = "a flow between two aliases of one cluster is refused when it starts";
            problems.push(Problem::warning(message).help(help));
        }
    }
}

fn hides(flow: &FlowSettings) -> bool {
    flow.policy.hides_source(&flow.source)
}

/// The shortest way back to the flow's source, as indexes; the flow itself is the first.
fn circle(flows: &[FlowSettings], start: usize) -> Option<Vec<usize>> {
    let mut ways = vec![vec![start]];
    let mut reached = BTreeSet::from([flows[start].target.clone()]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let at = way.last().map(|&last| flows[last].target.clone())?;
            for (index, next) in flows.iter().enumerate().filter(|(_, next)| next.source == at) {
                let mut way = way.clone();
                way.push(index);
                if next.target == flows[start].source {
                    return Some(way);
                }
                if reached.insert(next.target.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

fn judge(circle: &[&FlowSettings]) -> Problem {
    let names: Vec<String> = circle.iter().map(|flow| format!("{}->{}", flow.source, flow.target)).collect();
    let names = match &names[..] {
        [first, second] => format!("{first} and {second}"),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    };
    let all_hide = circle.iter().all(|flow| hides(flow));
    let keep = if all_hide {
        "keep the names of their topics"
    } else {
        "form a circle, and not all of their names tell where a topic came from"
    };
    let help = "give each flow topics of its own, or leave the names to DefaultReplicationPolicy";
    if (all_hide && take_the_same(circle)) || goes_round(circle) {
        Problem::error(format!("{names} {keep} and take the same ones: records would go round without end"))
            .help(help)
    } else {
        let message = format!("{names} {keep}: a topic that all of them take is refused when they run");
        Problem::warning(message).help(help)
    }
}

fn take_the_same(circle: &[&FlowSettings]) -> bool {
    let lists =
        |flow: &FlowSettings| [flow.topics.patterns().to_vec(), flow.topics_exclude.patterns().to_vec()];
    circle.windows(2).all(|pair| lists(pair[0]) == lists(pair[1]))
}

/// Whether a topic is found that goes round. Candidates are any name, and the literals of the patterns.
fn goes_round(circle: &[&FlowSettings]) -> bool {
    const ANY: &str = "topic";
    const NO_LITERALS: [char; 14] = ['.', '*', '+', '?', '[', ']', '(', ')', '|', '\\', '{', '}', '^', '$'];
    let mut candidates = BTreeSet::from([ANY.to_owned()]);
    for pattern in circle.iter().flat_map(|flow| flow.topics.patterns()).take(CANDIDATES_MAX) {
        candidates.insert(pattern.clone());
        for literal in pattern.split(NO_LITERALS).filter(|literal| !literal.is_empty()).take(CANDIDATES_MAX) {
            candidates.extend([literal.to_owned(), format!("{literal}{ANY}")]);
        }
    }
    circle.iter().any(|flow| {
        let others = circle.iter().filter(|other| !std::ptr::eq(**other, *flow));
        let settings =
            FlowSettings { onward: others.map(|other| Onward::of_file(other)).collect(), ..(*flow).clone() };
        candidates.iter().any(|topic| matches!(selects(&settings, topic), Selection::ComesBack { .. }))
    })
}
