//! Flows that would copy records round and round.
//!
//! `DefaultReplicationPolicy` puts the source's alias into every name, and a flow takes nothing that carries its target's.
//! Where a policy keeps the names, or renames take the alias away, nothing in a name tells where a record came from: such
//! flows must not form a circle of topics. Names and patterns are all that a file tells, so what may or may not be a circle
//! is a warning, and what surely is one an error.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Problem;
use super::reader::Problems;
use crate::client::{self, HostPort};
use crate::mirror::FlowSettings;

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
    let everything = |flow: &&&FlowSettings| flow.topics.patterns().iter().any(|pattern| pattern == ".*");
    let all_hide = circle.iter().all(|flow| hides(flow));
    let same = circle.windows(2).all(|pair| pair[0].topics.patterns() == pair[1].topics.patterns());
    let takers = circle.iter().filter(everything).count();
    let certain = if all_hide { same || takers + 1 >= circle.len() } else { takers == circle.len() };
    let keep = if all_hide {
        "keep the names of their topics"
    } else {
        "form a circle, and not all of their names tell where a topic came from"
    };
    let help = "give each flow topics of its own, or leave the names to DefaultReplicationPolicy";
    if certain {
        Problem::error(format!("{names} {keep} and take the same ones: records would go round without end"))
            .help(help)
    } else {
        Problem::warning(format!("{names} {keep}: no topic may be taken by all of them")).help(help)
    }
}
