//! Whether a MirrorMaker is alive on this flow: two replicators would copy everything twice.
//!
//! Its Connect workers are members of a classic group on the target, `<S>-mm2`. While the group has members kmirror waits
//! and says so; one that was killed stays a member until its session times out. After the takeover timeout the flow is
//! refused. Members that appear later stop the flow. What is here is pure; the control task asks for the members and acts.
//!
//! `worker_config` reads what its workers have noted, `transactions` knows their transactional ids; `fence` asks the target
//! and shuts out what may still be alive of them; `workers` says which members of a group speak for a life.

mod fence;
mod transactions;
mod worker_config;
mod workers;

use std::time::Duration;

use super::status::FlowState;

pub use fence::{describe, read_worker_config};
pub use transactions::Connectors;
pub use worker_config::{TargetState, WorkerConfig};
pub use workers::Workers;

pub(in crate::mirror) use fence::{fence, live_workers, shut_out, transactional_ids};

/// How often the group is looked at while a MirrorMaker is waited for.
pub const WAIT_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked at while the flow runs.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// How often a connector is looked at that is paused.
pub const PAUSED_INTERVAL: Duration = Duration::from_secs(5);

/// What to do about a MirrorMaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// None is there: go on.
    Clear,
    /// It is alive: look again after [`WAIT_INTERVAL`].
    Wait(FlowState),
    /// Do not run this flow.
    Refuse(String),
}

/// Before the first write: what to do after `waited`, when `group` has so many members.
pub fn before_start(group: &str, members: usize, waited: Duration, takeover_timeout: Duration) -> Step {
    if members == 0 {
        Step::Clear
    } else if waited < takeover_timeout {
        Step::Wait(FlowState::WaitingForMirrorMaker { group: group.to_owned(), members })
    } else {
        Step::Refuse(format!(
            "MirrorMaker is alive: group {group} on the target still has {members} member(s) after {} s; stop it first, \
             or give a longer --takeover-timeout",
            takeover_timeout.as_secs()
        ))
    }
}

/// While the flow runs: why it must end, when `group` has so many members.
pub fn while_running(group: &str, members: usize) -> Option<String> {
    (members > 0).then(|| {
        format!(
            "MirrorMaker has started on this flow: group {group} on the target has {members} member(s); both would copy \
             every record"
        )
    })
}

/// Why a flow stands still: somebody has paused or stopped its source connector.
pub fn paused(connector: &str, topic: &str, state: TargetState) -> Option<FlowState> {
    (state != TargetState::Started).then(|| FlowState::Paused {
        connector: connector.to_owned(),
        target_state: state.name(),
        topic: topic.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_mirror_maker_is_waited_for_and_then_refused() {
        let timeout = Duration::from_secs(60);
        let step = |members, seconds| before_start("A-mm2", members, Duration::from_secs(seconds), timeout);
        assert_eq!(step(0, 0), Step::Clear);
        let waiting = FlowState::WaitingForMirrorMaker { group: "A-mm2".to_owned(), members: 2 };
        assert_eq!(step(2, 0), Step::Wait(waiting.clone()));
        assert_eq!(step(2, 59), Step::Wait(waiting));
        assert_eq!(step(0, 59), Step::Clear);
        assert!(matches!(step(1, 60), Step::Refuse(why) if why.contains("A-mm2") && why.contains("60 s")));
        assert_eq!(while_running("A-mm2", 0), None);
        assert!(while_running("A-mm2", 1).is_some_and(|why| why.contains("A-mm2")));
    }
}
