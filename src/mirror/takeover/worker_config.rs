//! What the workers of Connect have written of MirrorMaker's connectors into their config topic, `mm2-configs.<S>.internal`.
//!
//! Pure. Two kinds of records matter to whoever takes over (`KafkaConfigBackingStore.java`): `target-state-<connector>`
//! says whether somebody has paused or stopped it, and `tasks-fencing-<connector>` (KIP-618), which only workers with
//! `exactly.once.source.support` write, how many of its tasks have a transactional id. Values are JSON without a schema.

use std::collections::BTreeMap;

use serde_json::Value;

use super::transactions::Connectors;

/// Kafka has no more tasks than an `int`; a number beyond this is no number of tasks.
const TASKS_MAX: u32 = 10_000;

/// What somebody wants of a connector (`TargetState.java`, KIP-875).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetState {
    /// It runs.
    #[default]
    Started,
    /// It keeps its tasks, which do nothing.
    Paused,
    /// It has no tasks.
    Stopped,
}

impl TargetState {
    /// Connect's word.
    pub fn name(self) -> &'static str {
        match self {
            TargetState::Started => "STARTED",
            TargetState::Paused => "PAUSED",
            TargetState::Stopped => "STOPPED",
        }
    }

    fn of(name: &str) -> Option<TargetState> {
        let all = [TargetState::Started, TargetState::Paused, TargetState::Stopped];
        all.into_iter().find(|state| state.name() == name)
    }
}

/// The records of the topic, as far as they matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerConfig {
    target_states: BTreeMap<String, TargetState>,
    fenced_tasks: BTreeMap<String, u32>,
}

impl WorkerConfig {
    /// Takes in a record; they come in the order of their offsets. What cannot be read changes nothing, as in Connect.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Ok(key) = std::str::from_utf8(key) else { return };
        if let Some(connector) = key.strip_prefix("target-state-") {
            match value {
                None => drop(self.target_states.remove(connector)),
                Some(value) => {
                    if let Some(state) = target_state(value) {
                        self.target_states.insert(connector.to_owned(), state);
                    }
                }
            }
        } else if let Some(connector) = key.strip_prefix("tasks-fencing-") {
            let count = value.and_then(|value| serde_json::from_slice::<Value>(value).ok());
            let count = count.and_then(|value| value.get("task-count")?.as_u64());
            if let Some(count) =
                count.and_then(|count| u32::try_from(count).ok()).filter(|count| *count <= TASKS_MAX)
            {
                // An earlier generation may have had more tasks, and one of them may be the zombie.
                let most = self.fenced_tasks.entry(connector.to_owned()).or_default();
                *most = count.max(*most);
            }
        }
    }

    /// What somebody wants of a connector.
    pub fn target_state(&self, connector: &str) -> TargetState {
        self.target_states.get(connector).copied().unwrap_or_default()
    }

    /// The transactional ids that tasks of these connectors may have.
    pub fn task_transactional_ids(&self, group: &str, connectors: &Connectors) -> Vec<String> {
        let of = |connector: &str| {
            let tasks = self.fenced_tasks.get(connector).copied().unwrap_or_default();
            (0..tasks).map(|task| format!("{group}-{connector}-{task}")).collect::<Vec<_>>()
        };
        connectors.names().flat_map(of).collect()
    }
}

/// Workers before 3.5 wrote `state` alone, and STOPPED is PAUSED to them (`processTargetStateRecord`).
fn target_state(value: &[u8]) -> Option<TargetState> {
    let Value::Object(fields) = serde_json::from_slice(value).ok()? else { return None };
    let state = ["state.v2", "state"].into_iter().find_map(|field| fields.get(field)?.as_str())?;
    TargetState::of(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_target_state_counts() {
        let check = |records: &[(&str, Option<&str>)], expected: TargetState| {
            let mut config = WorkerConfig::default();
            for (key, value) in records {
                config.apply(key.as_bytes(), value.map(str::as_bytes));
            }
            assert_eq!(config.target_state("MirrorSourceConnector"), expected, "{records:?}");
        };
        let of = |value: &'static str| ("target-state-MirrorSourceConnector", Some(value));
        let paused = of(r#"{"state":"PAUSED","state.v2":"PAUSED"}"#);
        let stopped = of(r#"{"state":"PAUSED","state.v2":"STOPPED"}"#);
        let started = of(r#"{"state":"STARTED","state.v2":"STARTED"}"#);
        check(&[], TargetState::Started);
        check(&[paused], TargetState::Paused);
        check(&[stopped], TargetState::Stopped);
        check(&[of(r#"{"state":"PAUSED"}"#)], TargetState::Paused);
        check(&[of(r#"{"state":"PAUSED","state.v2":null}"#)], TargetState::Paused);
        check(&[paused, started], TargetState::Started);
        check(&[stopped, ("target-state-MirrorSourceConnector", None)], TargetState::Started);
        check(
            &[("target-state-MirrorCheckpointConnector", Some(r#"{"state":"PAUSED"}"#))],
            TargetState::Started,
        );
        for unreadable in ["{", "null", "[]", r#"{"state":"UNKNOWN"}"#, r#"{"state":7}"#, "{}"] {
            check(&[paused, of(unreadable)], TargetState::Paused);
        }
    }

    #[test]
    fn tasks_with_transactional_ids_are_those_of_the_largest_generation() {
        let mut config = WorkerConfig::default();
        for (key, value) in [
            ("tasks-fencing-MirrorSourceConnector", r#"{"task-count":3}"#),
            ("tasks-fencing-MirrorSourceConnector", r#"{"task-count":2}"#),
            ("tasks-fencing-MirrorCheckpointConnector", r#"{"task-count":1}"#),
            ("tasks-fencing-MirrorHeartbeatConnector", r#"{"task-count":4000000000}"#),
            ("tasks-fencing-other", r#"{"task-count":9}"#),
        ] {
            config.apply(key.as_bytes(), Some(value.as_bytes()));
        }
        assert_eq!(
            config.task_transactional_ids("A-mm2", &Connectors::default()),
            [
                "A-mm2-MirrorSourceConnector-0",
                "A-mm2-MirrorSourceConnector-1",
                "A-mm2-MirrorSourceConnector-2",
                "A-mm2-MirrorCheckpointConnector-0",
            ]
        );
    }
}
