//! A state with something of everything, for this room's tests.

use std::sync::Arc;

use crate::mirror::status::{
    BrokerStatus, Counters, Event, EventKind, FlowState, FlowStatus, PartitionStatus, ReplicatorStatus,
    Stopped, SyncStatus,
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
        counters: Counters {
            records: 70,
            bytes: 7_000,
            batches_verbatim: 6,
            batches_merged: 2,
            batches_rewritten: [1, 0, 0, 0, 3, 0],
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
    };
    let second = FlowStatus {
        source: Arc::from("B"),
        target: Arc::from("A"),
        state: FlowState::WaitingForMirrorMaker { group: "B-mm2".to_owned(), members: 2 },
        discovered: false,
        partitions: [].into(),
        failed_topics: [].into(),
        topic_configs: None,
        topic_acls: None,
        events: Vec::new(),
        brokers: [].into(),
        last_error: Some("cluster A: no broker answers".to_owned()),
    };
    ReplicatorStatus {
        now_ms: 10_000,
        budget_bytes: 134_217_728,
        budget_used_bytes: 4_096,
        flows: vec![first, second],
    }
}
