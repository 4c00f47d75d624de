//! A state with something of everything, for this room's tests.

use std::sync::Arc;

use crate::mirror::measure::{Latency, Recent, Spread, TrafficStatus};
use crate::mirror::state::TopicPartition;
use crate::mirror::status::{
    BrokerStatus, CertificateStatus, Counters, Event, EventKind, FlowState, FlowStatus, GroupStatus,
    GroupSync, GroupSyncStatus, GroupsStatus, HeartbeatStatus, LinkStatus, MembershipStatus, PartitionStatus,
    Readiness, ReplicatorStatus, Stopped, SyncStatus, SyncsStatus, TlsStatus, TranslationStatus, Waiting,
};

pub(super) fn status() -> ReplicatorStatus {
    let orders = PartitionStatus {
        remote_topic: Arc::from("A.orders"),
        position: Some(90),
        downstream: Some(80),
        end_at_start: Some(95),
        high_watermark: Some(120),
        last_stable_offset: Some(100),
        log_start_offset: Some(5),
        blocked_by_transaction_since_ms: Some(7_500),
        replicated_timestamp_ms: Some(9_250),
        lag_ms: Some(750),
        backlog_offsets: 7,
        backlog_bytes: 4_096,
        traffic: traffic(),
        counters: Counters {
            records: 70,
            bytes: 7_000,
            batches_verbatim: 6,
            batches_merged: 2,
            batches_rewritten: [1, 0, 0, 0, 3, 0, 0],
            batches_skipped: 4,
            records_skipped: 1,
            resends: 9,
        },
        ..PartitionStatus::default()
    };
    let stopped = Stopped {
        reason: "oversize",
        message: "a record of 9 MB does not fit".to_owned(),
        since_ms: 6_000,
        retry_ms: None,
    };
    let payments = PartitionStatus {
        remote_topic: Arc::from("A.payments"),
        stopped: Some(stopped),
        ..PartitionStatus::default()
    };
    let gap = EventKind::Gap { from: 0, to: 5, reason: "deleted by retention".to_owned() };
    let skipped = EventKind::Skipped { offset: 41, reason: "oversize".to_owned() };
    let event = |kind| Event { at_ms: 5_000, topic: Arc::from("orders"), partition: 0, kind };
    let broker = BrokerStatus {
        connected: true,
        disconnects: 2,
        last_error: Some("connection reset".to_owned()),
        throttle_ms: 1_500,
    };
    let first = FlowStatus {
        source: Arc::from("A"),
        target: Arc::from("B"),
        state: FlowState::Running,
        readiness: Readiness::Ready,
        waiting_for: None,
        discovered: true,
        partitions: [((Arc::from("orders"), 0), orders), ((Arc::from("payments"), 3), payments)].into(),
        failed_topics: [(Arc::from("x\"y"), "not authorised".to_owned())].into(),
        topic_configs: Some(SyncStatus {
            at_ms: 9_000,
            changed: 2,
            refused: [("A.orders retention.ms".to_owned(), "not allowed".to_owned())].into(),
            error: None,
        }),
        topic_acls: None,
        events: vec![event(gap), event(skipped)],
        brokers: [((Arc::from("A"), 1), broker)].into(),
        last_error: None,
        translation: translation(),
        membership: Some(MembershipStatus {
            group: Arc::from("mirror"),
            protocol: "classic",
            instance: Some(Arc::from("one")),
            state: "stable",
            member_id: Some(Arc::from("one-7f3a")),
            generation: Some(12),
            assigned: [(Arc::from("orders"), [0].into()), (Arc::from("payments"), [3].into())].into(),
            losses: 1,
            last_error: Some("the session was over".to_owned()),
            partitioning: [
                (Arc::from("orders"), "preserve".to_owned()),
                (Arc::from("payments"), "key/6".to_owned()),
            ]
            .into(),
        }),
    };
    let second = FlowStatus {
        source: Arc::from("B"),
        target: Arc::from("A"),
        state: FlowState::WaitingForMirrorMaker { group: "B-mm2".to_owned(), members: 2 },
        readiness: Readiness::NotReady(None),
        waiting_for: Some(Waiting { what: "MirrorMaker to leave".to_owned(), since_ms: 8_000 }),
        discovered: false,
        partitions: [].into(),
        failed_topics: [].into(),
        topic_configs: None,
        topic_acls: None,
        events: Vec::new(),
        brokers: [].into(),
        last_error: Some("cluster A: no broker answers".to_owned()),
        translation: TranslationStatus::default(),
        membership: None,
    };
    let heartbeats = HeartbeatStatus {
        source: Arc::from("B"),
        target: Arc::from("A"),
        emitted: 11,
        emitted_ms: Some(9_000),
        last_error: None,
    };
    ReplicatorStatus {
        now_ms: 10_000,
        budget_bytes: 134_217_728,
        budget_used_bytes: 4_096,
        tls: vec![TlsStatus {
            cluster: "A".into(),
            certificates: vec![CertificateStatus {
                store: "keystore",
                subject: "CN=kmirror".to_owned(),
                not_after_s: 1_800_000_000,
            }],
            trouble: None,
        }],
        flows: vec![first, second],
        heartbeats: vec![heartbeats],
    }
}

fn traffic() -> TrafficStatus {
    let recent = Recent { min: 40, max: 900, avg: 120.5 };
    TrafficStatus {
        record_rate: 2.5,
        byte_rate: 250.0,
        record_age_ms: Spread { last: 60, recent: Some(recent) },
        replication_latency_ms: Spread { last: 75, recent: None },
    }
}

fn translation() -> TranslationStatus {
    let sync = GroupSyncStatus {
        result: GroupSync::Active,
        detail: Some("it is Stable on the target".to_owned()),
        committed: 3,
        at_ms: 8_500,
    };
    let mut latency = Latency::default();
    latency.took(8_000, 12);
    let app = GroupStatus {
        translated: 4,
        untranslated: 1,
        checkpoint_ms: Some(8_000),
        checkpoint_latency: latency,
        checkpointed: Arc::new([TopicPartition::new("A.orders", 0)].into()),
        error: None,
        sync: Some(sync),
    };
    let lost = GroupStatus { error: Some("no coordinator".to_owned()), ..GroupStatus::default() };
    let groups = GroupsStatus {
        groups: [(Arc::from("app"), app), (Arc::from("lost"), lost)].into(),
        checkpoints: 12,
        round_ms: Some(8_250),
        last_error: Some("cannot list all groups of the source".to_owned()),
    };
    let link = |hops, newest_ms| LinkStatus { hops, newest_ms, latency_ms: Some(250) };
    TranslationStatus {
        offset_syncs: SyncsStatus {
            topic: Some(Arc::from("mm2-offset-syncs.B.internal")),
            emitted: 70,
            last_error: None,
        },
        groups: Some(Arc::new(groups)),
        are_groups_off: false,
        heartbeats: [
            (Arc::from("heartbeats"), link(1, Some(9_500))),
            (Arc::from("C.heartbeats"), link(2, None)),
        ]
        .into(),
    }
}
