//! The whole cluster as one state machine: every broker, partition, group, transaction and fetch session.
//!
//! It has no clock, no socket and no randomness of its own: the time comes with each call, ids come from a seed. All
//! maps are ordered, so the same calls give the same bytes. A request that has to wait (a Fetch for data, a JoinGroup for
//! the others) is kept as a wait; whatever ends it puts its id on the list that [`ClusterState::take_woken`] hands out, and the
//! caller comes back with [`ClusterState::resume`].
//!
//! Replicas of a partition share one log: replication is instantaneous, and the high watermark is the log's end.

mod acl_admin;
mod commands;
mod config_admin;
mod configs;
mod fetch;
mod fetch_reply;
mod fetch_session;
mod group;
mod group_admin;
mod group_api;
mod group_offsets;
mod list_offsets;
mod metadata;
mod produce;
mod random;
mod topic_admin;
mod topics;
mod transaction;
mod transaction_admin;
mod transaction_api;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;

use super::fault::{Effect, FaultRule, Faults};
use super::sasl;
use super::settings::Settings;
use super::versions;
use super::wire::{BrokerId, Malformed, Outcome, Request, WaitId};
use fetch_session::Sessions;
use group_api::Groups;
use random::Random;
use topics::Topics;
use transaction_api::Transactions;
use waits::Waits;

/// Violations that are kept.
const VIOLATIONS_MAX: usize = 1_000;

/// What a handler gives: a reply, a wait, or a body that cannot be read.
type Handled = Result<Outcome, Malformed>;

/// A broker as clients see it.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rack: Option<String>,
    pub(super) is_up: bool,
}

/// Something that real brokers let pass and that a careful client never does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// What happened.
    pub what: String,
}

/// The state of a cluster. See the module's description.
#[derive(Debug)]
pub struct ClusterState {
    settings: Settings,
    cluster_id: String,
    random: Random,
    brokers: BTreeMap<i32, Broker>,
    broker_configs: BTreeMap<String, String>,
    acls: BTreeSet<acl_admin::Acl>,
    /// What brokers with stale metadata answer.
    frozen: BTreeMap<i32, Vec<MetadataResponseTopic>>,
    topics: Topics,
    sessions: Sessions,
    groups: Groups,
    transactions: Transactions,
    waits: Waits,
    faults: Faults,
    violations: Vec<Violation>,
    /// Since the last look at [`next_timer_ms`](ClusterState::next_timer_ms) something may have changed it.
    timers_touched: bool,
}

impl ClusterState {
    /// A cluster whose brokers listen on `ports`, the first one's id being 1.
    pub fn new(settings: Settings, ports: &[u16]) -> ClusterState {
        let mut random = Random::new(settings.seed);
        let host = match settings.advertised_host.as_str() {
            "" => settings.address.to_string(),
            host => host.to_owned(),
        };
        let mut racks = settings.racks.iter().cloned();
        let brokers = (1..)
            .zip(ports)
            .map(|(id, &port)| (id, Broker { host: host.clone(), port, rack: racks.next(), is_up: true }));
        let brokers = brokers.collect();
        let cluster_id = match settings.cluster_id.as_str() {
            "" => random.base64_id(),
            id => id.to_owned(),
        };
        ClusterState {
            cluster_id,
            random,
            brokers,
            broker_configs: BTreeMap::new(),
            acls: BTreeSet::new(),
            frozen: BTreeMap::new(),
            topics: Topics::default(),
            sessions: Sessions::default(),
            groups: Groups::default(),
            transactions: Transactions::default(),
            waits: Waits::default(),
            faults: Faults::default(),
            violations: Vec::new(),
            timers_touched: false,
            settings,
        }
    }

    /// The fault that hits this request, if any. To be asked once per request, before [`handle`](ClusterState::handle).
    pub fn fault(&mut self, request: &Request) -> Option<Effect> {
        let random = &mut self.random;
        self.faults.decide(request, || random.next())
    }

    /// Carries out a request.
    pub fn handle(&mut self, request: &Request, now_ms: i64) -> Outcome {
        if !self.brokers.get(&request.broker.0).is_some_and(|broker| broker.is_up) {
            return Outcome::Close;
        }
        let range = versions::range(request.key, self.settings.version);
        if !range.is_some_and(|range| (range.min..=range.max).contains(&request.version)) {
            return self.refuse_version(request);
        }
        self.dispatch(request, now_ms).unwrap_or_else(|malformed| {
            tracing::debug!(%malformed, "embedded broker closes a connection");
            Outcome::Close
        })
    }

    /// Looks again at a request that waited: woken, or past its deadline.
    pub fn resume(&mut self, id: WaitId, now_ms: i64) -> Outcome {
        self.resume_wait(id, now_ms)
    }

    /// Forgets a wait whose connection is gone.
    pub fn abandon(&mut self, id: WaitId) {
        self.waits.remove(id);
    }

    /// The waits to resume because of what happened since the last call.
    pub fn take_woken(&mut self) -> Vec<WaitId> {
        self.waits.take_woken()
    }

    /// When [`tick`](ClusterState::tick) has something to do next.
    pub fn next_timer_ms(&self) -> Option<i64> {
        [self.groups.next_timer_ms(), self.transactions.next_timer_ms()].into_iter().flatten().min()
    }

    /// Whether [`next_timer_ms`](ClusterState::next_timer_ms) may have changed since the last call: it is dear to compute
    /// when there are many groups.
    pub fn take_timers_touched(&mut self) -> bool {
        std::mem::take(&mut self.timers_touched)
    }

    /// Ends sessions of group members, rebalances and transactions whose time is over.
    pub fn tick(&mut self, now_ms: i64) {
        self.tick_groups(now_ms);
        self.tick_transactions(now_ms);
    }

    /// Arms a fault.
    pub fn arm(&mut self, rule: FaultRule) {
        self.faults.arm(rule);
    }

    /// Disarms all faults.
    pub fn disarm(&mut self) {
        self.faults.clear();
    }

    fn refuse_version(&mut self, request: &Request) -> Outcome {
        if request.key != ApiKey::ApiVersions {
            tracing::debug!(api = ?request.key, version = request.version, "embedded broker does not speak this version");
            return Outcome::Close;
        }
        let reply = self.api_versions(ResponseError::UnsupportedVersion.code());
        request.reply_in_version(0, &reply)
    }

    fn dispatch(&mut self, request: &Request, now_ms: i64) -> Handled {
        self.timers_touched |= moves_timers(request.key);
        match request.key {
            ApiKey::ApiVersions => self.handle_api_versions(request),
            ApiKey::Metadata => self.handle_metadata(request, now_ms),
            ApiKey::DescribeCluster => self.handle_describe_cluster(request),
            ApiKey::FindCoordinator => self.handle_find_coordinator(request),
            ApiKey::Produce => self.handle_produce(request, now_ms),
            ApiKey::Fetch => self.handle_fetch(request, now_ms),
            ApiKey::ListOffsets => self.handle_list_offsets(request),
            ApiKey::OffsetForLeaderEpoch => self.handle_offset_for_leader_epoch(request),
            ApiKey::DeleteRecords => self.handle_delete_records(request),
            ApiKey::DescribeProducers => self.handle_describe_producers(request),
            ApiKey::CreateTopics => self.handle_create_topics(request),
            ApiKey::CreatePartitions => self.handle_create_partitions(request),
            ApiKey::DeleteTopics => self.handle_delete_topics(request),
            ApiKey::DescribeConfigs => self.handle_describe_configs(request),
            ApiKey::IncrementalAlterConfigs => self.handle_incremental_alter_configs(request),
            ApiKey::JoinGroup => self.handle_join_group(request, now_ms),
            ApiKey::SyncGroup => self.handle_sync_group(request, now_ms),
            ApiKey::Heartbeat => self.handle_heartbeat(request, now_ms),
            ApiKey::LeaveGroup => self.handle_leave_group(request, now_ms),
            ApiKey::ListGroups => self.handle_list_groups(request),
            ApiKey::DescribeGroups => self.handle_describe_groups(request),
            ApiKey::DeleteGroups => self.handle_delete_groups(request),
            ApiKey::OffsetCommit => self.handle_offset_commit(request, now_ms),
            ApiKey::OffsetFetch => self.handle_offset_fetch(request),
            ApiKey::OffsetDelete => self.handle_offset_delete(request),
            ApiKey::InitProducerId => self.handle_init_producer_id(request, now_ms),
            ApiKey::AddPartitionsToTxn => self.handle_add_partitions_to_txn(request, now_ms),
            ApiKey::AddOffsetsToTxn => self.handle_add_offsets_to_txn(request, now_ms),
            ApiKey::TxnOffsetCommit => self.handle_txn_offset_commit(request, now_ms),
            ApiKey::EndTxn => self.handle_end_txn(request, now_ms),
            ApiKey::WriteTxnMarkers => self.handle_write_txn_markers(request, now_ms),
            ApiKey::ListTransactions => self.handle_list_transactions(request),
            ApiKey::DescribeTransactions => self.handle_describe_transactions(request),
            ApiKey::DescribeAcls => self.handle_describe_acls(request),
            ApiKey::CreateAcls => self.handle_create_acls(request),
            ApiKey::DeleteAcls => self.handle_delete_acls(request),
            // With SASL the door answers these, and they do not come here.
            ApiKey::SaslHandshake | ApiKey::SaslAuthenticate => sasl::not_asked(request),
            // `versions` advertises nothing else.
            _ => Ok(Outcome::Close),
        }
    }

    fn violation(&mut self, topic: &str, partition: i32, what: impl Into<String>) {
        if self.violations.len() >= VIOLATIONS_MAX {
            return;
        }
        self.violations.push(Violation { topic: topic.to_owned(), partition, what: what.into() });
    }

    /// What clients did that real brokers let pass.
    pub fn violations(&self) -> Vec<Violation> {
        let mut all = self.violations.clone();
        for (name, topic) in self.topics.iter() {
            for (index, partition) in (0..).zip(&topic.partitions) {
                all.extend(partition.log.violations().iter().map(|violation| Violation {
                    topic: name.to_owned(),
                    partition: index,
                    what: format!("batch at offset {}: {:?}", violation.base_offset, violation.kind),
                }));
            }
        }
        all
    }

    fn is_up(&self, broker: BrokerId) -> bool {
        self.brokers.get(&broker.0).is_some_and(|broker| broker.is_up)
    }
}

/// The APIs that begin, renew or end something with a time limit.
fn moves_timers(key: ApiKey) -> bool {
    matches!(
        key,
        ApiKey::JoinGroup
            | ApiKey::SyncGroup
            | ApiKey::Heartbeat
            | ApiKey::LeaveGroup
            | ApiKey::OffsetCommit
            | ApiKey::InitProducerId
            | ApiKey::AddPartitionsToTxn
            | ApiKey::AddOffsetsToTxn
            | ApiKey::TxnOffsetCommit
            | ApiKey::EndTxn
    )
}
