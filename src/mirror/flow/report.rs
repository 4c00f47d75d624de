//! What a flow says of itself, and what it answers its groups' task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::control::TopicReady;
use super::super::engine::{Engine, Newest};
use super::super::groups::{Groups, TranslateRequest};
use super::super::member::GroupProtocol;
use super::super::policy::ReplicationPolicy;
use super::super::state::TopicPartition;
use super::super::status::{FlowStatus, LinkStatus, MembershipStatus, TranslationStatus};
use super::super::syncs::spans_of;
use super::super::topics::sync::Followed;
use super::Owner;
use crate::client::PartitionKey;

impl Owner {
    pub(super) fn status(&self) -> FlowStatus {
        FlowStatus {
            source: self.settings.source.clone(),
            target: self.settings.target.clone(),
            state: self.state.clone(),
            readiness: self.readiness.now(&self.state),
            waiting_for: self.waiting_for.clone(),
            discovered: self.discovered,
            partitions: self.engine.partitions(),
            failed_topics: self.failed_topics.clone(),
            topic_configs: self.followed.get(&Followed::Configs).cloned(),
            topic_acls: self.followed.get(&Followed::Acls).cloned(),
            events: self.engine.events(),
            brokers: self.engine.brokers(),
            last_error: self.trouble().or_else(|| self.unsaved.clone()).or_else(|| self.last_error.clone()),
            translation: TranslationStatus {
                offset_syncs: self.syncs.status(),
                groups: self.groups.as_ref().map(Groups::status),
                are_groups_off: self.settings.translation.emit_checkpoints_interval.is_none(),
                heartbeats: links(&self.settings.policy, &self.engine),
            },
            membership: self.membership(),
        }
    }

    fn membership(&self) -> Option<MembershipStatus> {
        let (settings, watch) = (self.settings.group.as_ref()?, self.member.as_ref()?);
        let state = watch.state();
        let mut assigned: BTreeMap<Arc<str>, BTreeSet<i32>> = BTreeMap::new();
        for at in state.owned.keys() {
            assigned.entry(at.topic.clone()).or_default().insert(at.partition);
        }
        let word = match &state.identity {
            _ if state.refused.is_some() => "refused",
            None => "joining",
            Some(_) if state.may_commit.len() > state.owned.len() => "revoking",
            Some(_) => "stable",
        };
        Some(MembershipStatus {
            group: settings.group_id.clone(),
            protocol: match settings.protocol {
                GroupProtocol::Classic => "classic",
                GroupProtocol::Consumer { .. } => "consumer",
            },
            instance: settings.group_instance_id.clone(),
            state: word,
            member_id: state.identity.as_ref().map(|identity| identity.member_id.clone()),
            generation: state.identity.as_ref().map(|identity| identity.generation),
            assigned,
            losses: state.losses,
            last_error: state.refused.or(state.trouble).or(state.lost),
            partitioning: self
                .topics
                .iter()
                .map(|(topic, ready)| (topic.clone(), ready.partitioning.to_string()))
                .collect(),
        })
    }

    /// What keeps a cluster from answering now.
    fn trouble(&self) -> Option<String> {
        let trouble = self.source.trouble().or_else(|| self.target.trouble());
        trouble.map(|error| error.chain())
    }

    /// Nothing is written from now on.
    pub(super) fn cease(&mut self) {
        self.writes.send_replace(false);
        self.groups = None;
        self.syncs.suspend();
        self.store = None;
    }

    /// Brings back what an earlier process remembered of a partition's offsets.
    pub(super) fn recall_map(&mut self, key: PartitionKey, ready: &TopicReady, partition: i32) {
        let Some(store) = &self.store else { return };
        let stored = store.segments(&TopicPartition::new(ready.source.name.clone(), partition));
        self.engine.restore_map(key, spans_of(stored.iter(), ready.source.id, ready.remote.id));
    }

    pub(super) fn translate(&self, request: TranslateRequest) {
        let one = |(partition, upstream): &(TopicPartition, i64)| {
            let key = self.keys.get(&(partition.topic.clone(), partition.partition))?;
            self.engine.translate(*key, *upstream)
        };
        // Whoever gave up waiting has no use for the answer.
        let _ = request.reply.send(request.wanted.iter().map(one).collect());
    }
}

/// The heartbeats that come over the flow: a hop for each cluster in the name of their topic, and the flow itself.
fn links(policy: &ReplicationPolicy, engine: &Engine) -> BTreeMap<Arc<str>, LinkStatus> {
    let newest = engine.newest(|topic| policy.is_heartbeats_topic(topic));
    let link = |(topic, newest): (Arc<str>, Newest)| {
        let mut hops = 1;
        let mut name: &str = &topic;
        while let Some(upstream) = policy.upstream_topic(name).filter(|&upstream| upstream != name) {
            (name, hops) = (upstream, hops + 1);
        }
        let status = LinkStatus { hops, newest_ms: newest.timestamp_ms, latency_ms: newest.latency_ms };
        (topic, status)
    };
    newest.into_iter().map(link).collect()
}
