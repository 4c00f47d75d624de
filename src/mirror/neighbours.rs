//! Flows of other files that copy from our target to our source now: what they take may come back ([`super::onward`]).
//!
//! Members of a lease's group tell what they take and how they name it, and the group is on the cluster that they write to,
//! which is our source: so whoever begins to rule looks there. It leaves alone what a flow that is there already would bring
//! back; one that comes later looks likewise, and leaves it to us. So of two that would send records round, the later one
//! refuses, and where both begin at the same moment, both may. What was refused stays so until the process begins anew: who
//! restarts for a moment finds the field as it was.
//!
//! What may not be read tells nothing, and names alone count.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::time::{sleep, timeout};

use super::lease::protocol::{Claim, GROUP_PREFIX, PROTOCOL_TYPE, group_id};
use super::onward::Onward;
use super::{FlowSettings, NameFormat, PatternList, PolicyKind, ReplicationPolicy, Share};
use crate::client::{Cluster, Error};

/// A group that is about to decide shows its members' words afterwards.
const SETTLES_WITHIN: u32 = 10;
const SETTLES_AFTER: Duration = Duration::from_millis(300);
/// A broker that is silent holds up no start for longer.
const LOOKS_FOR: Duration = Duration::from_secs(5);
const TEXT_BYTES_MAX: usize = 1024;

/// What a flow tells of its source and of how it names topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The source's cluster id.
    source_id: Arc<str>,
    kind: NamingKind,
    /// The separator, or the format.
    text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamingKind {
    Default,
    Identity,
    Format,
}

impl Naming {
    /// What a flow tells; nothing when its source has no id, or when its names are made in a way that has no words here.
    pub fn of(settings: &FlowSettings, source_id: &str) -> Option<Naming> {
        let policy = &settings.policy;
        let (kind, text) = match (policy.kind, &policy.format) {
            (PolicyKind::Default, _) => (NamingKind::Default, policy.separator.as_str()),
            (PolicyKind::Identity, _) => (NamingKind::Identity, policy.separator.as_str()),
            (PolicyKind::Format, Some(format)) => (NamingKind::Format, format.text()),
            _ => return None,
        };
        let is_told = policy.renames.is_empty() && !source_id.is_empty();
        let fits = source_id.len() <= TEXT_BYTES_MAX && text.len() <= TEXT_BYTES_MAX;
        (is_told && fits).then(|| Naming { source_id: source_id.into(), kind, text: text.into() })
    }

    /// Appends it to a member's metadata.
    pub(super) fn put(naming: Option<&Naming>, out: &mut BytesMut) {
        let Some(Naming { source_id, kind, text }) = naming else { return };
        out.put_i16(match kind {
            NamingKind::Default => 0,
            NamingKind::Identity => 1,
            NamingKind::Format => 2,
        });
        for text in [source_id, text] {
            out.put_i16(text.len() as i16);
            out.put_slice(text.as_bytes());
        }
    }

    /// Reads it; `None` when it is not told, as by a release that knows nothing of it, or damaged.
    pub(super) fn get(bytes: &mut &[u8]) -> Option<Naming> {
        let kind = match bytes.try_get_i16().ok()? {
            0 => NamingKind::Default,
            1 => NamingKind::Identity,
            2 => NamingKind::Format,
            _ => return None,
        };
        let mut text = || -> Option<Arc<str>> {
            let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
            let (text, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            std::str::from_utf8(text).ok().map(Arc::from)
        };
        Some(Naming { source_id: text()?, kind, text: text()? })
    }

    fn policy(&self, source: &str, target: &str) -> Option<ReplicationPolicy> {
        let separator = match self.kind {
            NamingKind::Format => ReplicationPolicy::default().separator,
            _ => self.text.to_string(),
        };
        let (kind, format) = match self.kind {
            NamingKind::Default => (PolicyKind::Default, None),
            NamingKind::Identity => (PolicyKind::Identity, None),
            NamingKind::Format => {
                let format = NameFormat::new(&self.text, "topic", target, &[source, target]).ok()?;
                (PolicyKind::Format, Some(format))
            }
        };
        Some(ReplicationPolicy { kind, separator, format, ..ReplicationPolicy::default() })
    }
}

/// Looks who copies back now. `since_ms`: only those that came at that time or later.
pub(super) async fn look(
    settings: &FlowSettings,
    source: &Cluster,
    target_id: &str,
    since_ms: i64,
) -> Vec<Onward> {
    let looked = timeout(LOOKS_FOR, look_until_settled(settings, source, target_id, since_ms)).await;
    looked.unwrap_or_else(|_| {
        tracing::debug!(target: "kmirror::control", cluster = %source.alias(), "a broker does not tell in time who copies to the source");
        Vec::new()
    })
}

async fn look_until_settled(
    settings: &FlowSettings,
    source: &Cluster,
    target_id: &str,
    since_ms: i64,
) -> Vec<Onward> {
    for _ in 0..SETTLES_WITHIN {
        match look_once(settings, source, target_id, since_ms).await {
            Ok(Some(found)) => return found,
            Ok(None) => sleep(SETTLES_AFTER).await,
            Err(error) => {
                tracing::debug!(target: "kmirror::control", cluster = %source.alias(), error = %error.chain(), "cannot see who copies to the source");
                break;
            }
        }
    }
    Vec::new()
}

/// `None` when a group is about to decide.
async fn look_once(
    settings: &FlowSettings,
    source: &Cluster,
    target_id: &str,
    since_ms: i64,
) -> Result<Option<Vec<Onward>>, Error> {
    let (groups, _) = source.list_groups().await?;
    let leases = groups.into_iter().filter(|group| group.protocol_type == PROTOCOL_TYPE);
    let mut found = Vec::new();
    for group in leases {
        let Some((from, to)) = aliases(&group.id) else { continue };
        let described = source.describe_group(&group.id).await?;
        if described.state != "Stable" && !described.members.is_empty() {
            return Ok(None);
        }
        for member in described.members {
            let claim = Claim::decode(&member.metadata);
            if claim.since_ms >= since_ms {
                found.extend(onward(settings, from, to, &claim, target_id));
            }
        }
    }
    Ok(Some(found))
}

/// The aliases in a lease's name.
fn aliases(group: &str) -> Option<(&str, &str)> {
    let (from, to) = group.strip_prefix(GROUP_PREFIX)?.split_once("->")?;
    (group_id(from, to) == group).then_some((from, to))
}

fn onward(settings: &FlowSettings, from: &str, to: &str, claim: &Claim, target_id: &str) -> Option<Onward> {
    let naming = claim.naming.as_ref().filter(|naming| *naming.source_id == *target_id)?;
    let list =
        |patterns: &[String]| PatternList::new(&patterns.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    // It sees us, too, and takes nothing that carries what we call its target.
    let target_names = Arc::from([settings.source.clone()]);
    let policy = naming.policy(from, to)?;
    let mut flow = FlowSettings { policy, target_names, ..FlowSettings::new(from, to) };
    if let Share::Of { topics, exclude } = &claim.share {
        (flow.topics, flow.topics_exclude) = (list(topics)?, list(exclude)?);
    }
    Some(Onward {
        from: settings.target.clone(),
        to: settings.source.clone(),
        name: format!("{from}->{to}, which {} runs,", claim.name).into(),
        flow: Arc::new(flow),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::onward::comes_back;

    fn flow(source: &str, target: &str, kind: PolicyKind) -> FlowSettings {
        let policy = ReplicationPolicy { kind, ..ReplicationPolicy::default() };
        FlowSettings { policy, ..FlowSettings::new(source, target) }
    }

    fn claim(of: &FlowSettings, source_id: &str) -> Claim {
        let naming = Naming::of(of, source_id);
        let claim = Claim { held_since: 1, since_ms: 1, name: "k-1".into(), share: Share::of(of), naming };
        Claim::decode(&claim.encode())
    }

    #[test]
    fn a_flow_of_another_file_with_other_aliases_brings_back_what_keeps_its_name() {
        let check = |theirs: PolicyKind, ours: PolicyKind, source_id: &str| {
            let (back, flow) = (flow("one", "two", theirs), flow("A", "B", ours));
            let onward = onward(&flow, "one", "two", &claim(&back, source_id), "b").into_iter().collect();
            let flow = FlowSettings { onward, ..flow };
            comes_back(&flow, "orders").map(|onward| onward.name.to_string())
        };
        let by = Some("one->two, which k-1 runs,".to_owned());
        assert_eq!(check(PolicyKind::Identity, PolicyKind::Identity, "b"), by);
        assert_eq!(check(PolicyKind::Identity, PolicyKind::Identity, "c"), None, "of another cluster");
        assert_eq!(check(PolicyKind::Identity, PolicyKind::Default, "b"), by, "it grows");
        assert_eq!(check(PolicyKind::Default, PolicyKind::Default, "b"), None);
    }

    #[test]
    fn what_is_told_is_read_back() {
        let mut format = flow("A", "B", PolicyKind::Format);
        format.policy.format = Some(NameFormat::new("{topic}-{source}", "topic", "B", &["A", "B"]).unwrap());
        for flow in [flow("A", "B", PolicyKind::Default), flow("A", "B", PolicyKind::Identity), format] {
            let naming = claim(&flow, "id").naming.unwrap();
            assert_eq!(Some(&naming), Naming::of(&flow, "id").as_ref());
            let policy = naming.policy("A", "B").unwrap();
            assert_eq!(policy.remote_topic("A", "t"), flow.policy.remote_topic("A", "t"));
        }
        assert_eq!(claim(&flow("A", "B", PolicyKind::Same), "id").naming, None);
        assert_eq!(claim(&flow("A", "B", PolicyKind::Default), "").naming, None);
    }

    #[test]
    fn leases_are_known_by_their_names() {
        assert_eq!(aliases("kmirror-A->B"), Some(("A", "B")));
        assert_eq!(aliases("kmirror-A"), None);
        assert_eq!(aliases("orders"), None);
    }
}
