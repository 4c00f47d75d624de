//! When a run is over by itself: everything is copied that was there at the start, or no flow can go on.

use crate::mirror::status::{FlowState, FlowStatus, ReplicatorStatus};

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It goes on.
    Running,
    /// Everything is on the target that was at the source at the start.
    CaughtUp,
    /// All that can be copied is; these lines tell what is missing and why.
    Missing(Vec<String>),
    /// No flow can go on, for these reasons.
    Failed(Vec<String>),
}

/// Judges a run that goes on until it is stopped: it ends only when every flow has failed.
pub(crate) fn endless(status: &ReplicatorStatus) -> Outcome {
    let reasons: Vec<String> = status.flows.iter().filter_map(failure).collect();
    let failed = !reasons.is_empty() && reasons.len() == status.flows.len();
    if failed { Outcome::Failed(reasons) } else { Outcome::Running }
}

/// Judges a run that ends when it has caught up. A partition that is stopped until a person helps is not waited for; one
/// that is tried again is, and so is a topic that failed, until `patience` is exhausted. (No partition is stopped for
/// a broker that is away: that is waited for without end, once the flow runs.)
pub(crate) fn until_caught_up(status: &ReplicatorStatus, patience: Patience) -> Outcome {
    if let Outcome::Failed(reasons) = endless(status) {
        return Outcome::Failed(reasons);
    }
    let mut missing = Vec::new();
    for flow in &status.flows {
        match judge(flow, patience) {
            Some(lines) => missing.extend(lines),
            None => return Outcome::Running,
        }
    }
    // One of two directions may well have nothing to copy; a load that has nothing at all is a mistyped one.
    if missing.is_empty() && status.flows.iter().all(|flow| flow.partitions.is_empty()) {
        missing = status.flows.iter().map(nothing_selected).collect();
    }
    if missing.is_empty() { Outcome::CaughtUp } else { Outcome::Missing(missing) }
}

fn nothing_selected(flow: &FlowStatus) -> String {
    format!(
        "{}->{}: no topic of {} is selected: see topics, topics.exclude, and what kmirror check says of them",
        flow.source, flow.target, flow.source
    )
}

/// Whether partitions and topics that may heal are still waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// They may heal.
    Waiting,
    /// They had their time.
    Exhausted,
}

/// What is missing of a flow that has come to its end; `None` while it goes on.
fn judge(flow: &FlowStatus, patience: Patience) -> Option<Vec<String>> {
    let name = format!("{}->{}", flow.source, flow.target);
    if let Some(reason) = failure(flow) {
        return Some(vec![reason]);
    }
    let exhausted = patience == Patience::Exhausted;
    if exhausted && matches!(flow.state, FlowState::Starting | FlowState::Standby | FlowState::Paused { .. })
    {
        return Some(vec![never_began(flow, &name)]);
    }
    let looked_at = if flow.failed_topics.is_empty() { flow.discovered } else { exhausted };
    if flow.state != FlowState::Running || !looked_at {
        return None;
    }
    let failed = flow.failed_topics.iter().map(|(topic, reason)| format!("{name}: topic {topic}: {reason}"));
    let mut missing: Vec<String> = failed.collect();
    for ((topic, partition), state) in &flow.partitions {
        if state.has_reached_end() {
            continue;
        }
        let stopped = state.stopped.as_ref().filter(|stopped| exhausted || stopped.retry_ms.is_none())?;
        let position =
            state.position.map_or_else(|| "nothing copied".to_owned(), |at| format!("copied up to {at}"));
        let end = state.end_at_start.map_or_else(String::new, |end| format!(" of {end}"));
        missing.push(format!("{name}: {topic}-{partition}: {position}{end}: {}", stopped.message));
    }
    Some(missing)
}

fn never_began(flow: &FlowStatus, name: &str) -> String {
    if let Some(waiting) = &flow.waiting_for {
        return format!("{name}: nothing could be copied: it still waits for {}", waiting.what);
    }
    match (&flow.last_error, &flow.state) {
        (_, FlowState::Paused { connector, target_state, .. }) => format!(
            "{name}: MirrorMaker's {connector} is {target_state}: resume it, or set kmirror.on.paused = ignore"
        ),
        (Some(error), _) => format!("{name}: nothing could be copied: {error}"),
        (None, FlowState::Standby) => format!("{name}: another kmirror writes this flow"),
        (None, _) => format!("{name}: nothing could be copied: a cluster does not answer"),
    }
}

fn failure(flow: &FlowStatus) -> Option<String> {
    let reason = match &flow.state {
        FlowState::Failed(reason) => reason.clone(),
        FlowState::Stopped => flow.last_error.clone().unwrap_or_else(|| "stopped".to_owned()),
        _ => return None,
    };
    Some(format!("{}->{}: {reason}", flow.source, flow.target))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::mirror::status::{PartitionStatus, Readiness, Stopped};

    fn partition(position: i64, end: i64, stopped: Option<Option<i64>>) -> PartitionStatus {
        let stopped = stopped.map(|retry_ms| Stopped {
            reason: "oversize",
            message: "too large".to_owned(),
            since_ms: 0,
            retry_ms,
        });
        let (position, end_at_start) = (Some(position), Some(end));
        PartitionStatus { position, end_at_start, stopped, ..PartitionStatus::default() }
    }

    fn status(state: FlowState, partitions: Vec<PartitionStatus>, failed: &[&str]) -> ReplicatorStatus {
        let numbered = (0..).zip(partitions).map(|(number, partition)| ((Arc::from("t"), number), partition));
        let failed_topics = failed.iter().map(|&topic| (Arc::from(topic), "denied".to_owned())).collect();
        let flow = FlowStatus {
            source: Arc::from("A"),
            target: Arc::from("B"),
            state,
            readiness: Readiness::Ready,
            waiting_for: None,
            discovered: true,
            partitions: numbered.collect(),
            failed_topics,
            topic_configs: None,
            topic_acls: None,
            events: Vec::new(),
            brokers: [].into(),
            last_error: None,
            membership: None,
            translation: Default::default(),
        };
        ReplicatorStatus { flows: vec![flow], ..ReplicatorStatus::default() }
    }

    fn paused() -> FlowState {
        FlowState::Paused { connector: "c".to_owned(), target_state: "PAUSED", topic: "t".to_owned() }
    }

    #[test]
    fn a_load_ends_when_all_that_can_be_copied_is() {
        use Patience::{Exhausted, Waiting};
        let missing = |line: &str| Outcome::Missing(vec![line.to_owned()]);
        let running = || FlowState::Running;
        for (status, patience, outcome) in [
            (
                status(running(), vec![partition(5, 5, None), partition(9, 7, None)], &[]),
                Waiting,
                Outcome::CaughtUp,
            ),
            (
                status(running(), vec![], &[]),
                Waiting,
                missing(
                    "A->B: no topic of A is selected: see topics, topics.exclude, and what kmirror check says of them",
                ),
            ),
            (status(running(), vec![partition(4, 5, None)], &[]), Waiting, Outcome::Running),
            (status(running(), vec![partition(4, 5, Some(Some(1)))], &[]), Waiting, Outcome::Running),
            (status(running(), vec![partition(4, 5, None)], &[]), Exhausted, Outcome::Running),
            (
                status(running(), vec![partition(4, 5, Some(Some(1)))], &[]),
                Exhausted,
                missing("A->B: t-0: copied up to 4 of 5: too large"),
            ),
            (
                status(running(), vec![partition(4, 5, Some(Some(1))), partition(4, 5, None)], &[]),
                Exhausted,
                Outcome::Running,
            ),
            (
                status(running(), vec![partition(4, 5, Some(None)), partition(5, 5, None)], &[]),
                Waiting,
                missing("A->B: t-0: copied up to 4 of 5: too large"),
            ),
            (
                status(running(), vec![partition(4, 5, Some(None)), partition(1, 5, None)], &[]),
                Waiting,
                Outcome::Running,
            ),
            (status(running(), vec![], &["x"]), Waiting, Outcome::Running),
            (status(running(), vec![], &["x"]), Exhausted, missing("A->B: topic x: denied")),
            (status(FlowState::Standby, vec![], &[]), Waiting, Outcome::Running),
            (
                status(FlowState::Standby, vec![], &[]),
                Exhausted,
                missing("A->B: another kmirror writes this flow"),
            ),
            (status(paused(), vec![], &[]), Waiting, Outcome::Running),
            (
                status(paused(), vec![], &[]),
                Exhausted,
                missing("A->B: MirrorMaker's c is PAUSED: resume it, or set kmirror.on.paused = ignore"),
            ),
            (
                status(FlowState::Starting, vec![], &[]),
                Exhausted,
                missing("A->B: nothing could be copied: a cluster does not answer"),
            ),
            (
                status(FlowState::Failed("no".to_owned()), vec![], &[]),
                Waiting,
                Outcome::Failed(vec!["A->B: no".to_owned()]),
            ),
        ] {
            assert_eq!(until_caught_up(&status, patience), outcome, "{status:?}");
        }
    }

    #[test]
    fn a_direction_without_topics_is_no_failure() {
        let mut status = status(FlowState::Running, vec![partition(5, 5, None)], &[]);
        let empty = FlowStatus { partitions: BTreeMap::new(), ..status.flows[0].clone() };
        status.flows.push(empty);
        assert_eq!(until_caught_up(&status, Patience::Waiting), Outcome::CaughtUp);
    }

    #[test]
    fn one_failed_flow_does_not_end_the_others() {
        let mut status = status(FlowState::Failed("no".to_owned()), vec![], &[]);
        assert_eq!(endless(&status), Outcome::Failed(vec!["A->B: no".to_owned()]));
        let mut other = status.flows[0].clone();
        other.state = FlowState::Running;
        status.flows.push(other);
        assert_eq!(endless(&status), Outcome::Running);
        let caught_up = until_caught_up(&status, Patience::Waiting);
        assert_eq!(caught_up, Outcome::Missing(vec!["A->B: no".to_owned()]));
    }
}
