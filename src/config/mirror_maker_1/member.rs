//! How to be a member of the source's group, from the consumer's file.

use std::sync::Arc;

use super::super::reader::{Fallback, Reader};
use super::super::values;
use crate::mirror::member::{GroupProtocol, MemberSettings, Strategy};

/// Reads it; `None` without a group, which is a problem of its own.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<MemberSettings> {
    let group_id = reader.get("group.id", Fallback::Theirs(""))?;
    let mut member = MemberSettings::new(group_id.value.trim());
    if member.group_id.is_empty() {
        reader.error(&group_id, "group.id is empty".to_owned(), None);
    }
    if reader.scope.contains_key("group.instance.id") {
        member.group_instance_id = Some(Arc::from(reader.text("group.instance.id", "").trim()));
    }
    member.session_timeout = reader.millis("session.timeout.ms", member.session_timeout);
    member.rebalance_timeout = reader.millis("max.poll.interval.ms", member.rebalance_timeout);
    member.heartbeat_interval = reader.millis("heartbeat.interval.ms", member.heartbeat_interval);
    if let Some(setting) = reader
        .scope
        .get("heartbeat.interval.ms")
        .filter(|_| member.heartbeat_interval >= member.session_timeout)
    {
        let message = "heartbeat.interval.ms must be less than session.timeout.ms".to_owned();
        reader.error(setting, message, Some("a third of it is usual"));
    }
    if let Some(strategies) = strategies(reader) {
        member.strategies = strategies;
    }
    warn_of_auto_commit(reader);
    member.protocol = protocol(reader);
    if member.protocol != GroupProtocol::Classic {
        // The brokers' default; they do not tell.
        member.session_timeout = MemberSettings::new("").session_timeout;
    }
    Some(member)
}

fn strategies(reader: &mut Reader<'_>) -> Option<Vec<Strategy>> {
    let key = "partition.assignment.strategy";
    let setting = reader.get(key, Fallback::Theirs("range, cooperative-sticky"))?;
    let mut strategies = Vec::new();
    for class in values::list(&setting.value) {
        match Strategy::of_class(class) {
            Some(strategy) if !strategies.contains(&strategy) => strategies.push(strategy),
            Some(_) => {}
            None => {
                let help = "RangeAssignor, RoundRobinAssignor, StickyAssignor and CooperativeStickyAssignor are known";
                reader.error(&setting, format!("{key}: the Java class {class} cannot run here"), Some(help));
            }
        }
    }
    (!strategies.is_empty()).then_some(strategies)
}

/// A commit by the clock would take records for copied that are still on their way.
fn warn_of_auto_commit(reader: &mut Reader<'_>) {
    let key = "enable.auto.commit";
    let Some(setting) = reader.scope.get(key) else { return };
    if values::boolean(&setting.value) == Ok(true) {
        let message = format!(
            "{key}=true: offsets are committed all the same only when the target has acknowledged what is before them"
        );
        reader.warning(setting, message);
    }
}

/// Under the newer protocol the coordinator says how often it wants to hear of us, and deals partitions out.
fn protocol(reader: &mut Reader<'_>) -> GroupProtocol {
    let key = "group.protocol";
    let words = [("classic", false), ("consumer", true)];
    if !reader.choice(key, &words, "classic").unwrap_or_default() {
        return GroupProtocol::Classic;
    }
    for key in ["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"] {
        if let Some(setting) = reader.scope.get(key) {
            reader.warning(
                setting,
                format!("{key} has no effect under group.protocol=consumer: the brokers decide"),
            );
        }
    }
    let assignor = reader.scope.get("group.remote.assignor").map(|setting| Arc::from(setting.value.trim()));
    GroupProtocol::Consumer { remote_assignor: assignor }
}
