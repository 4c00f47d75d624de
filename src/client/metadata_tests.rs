//! The rules of the metadata cache, answer by answer.

use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{BrokerId, TopicName};
use proptest::prelude::*;

use super::*;

fn partition(index: i32, leader: i32, epoch: i32) -> MetadataResponsePartition {
    MetadataResponsePartition::default()
        .with_partition_index(index)
        .with_leader_id(BrokerId(leader))
        .with_leader_epoch(epoch)
        .with_replica_nodes(vec![BrokerId(1), BrokerId(2)])
}

fn topic(name: &str, id: u128, partitions: Vec<MetadataResponsePartition>) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(name.to_owned().into())))
        .with_topic_id(Uuid::from_u128(id))
        .with_partitions(partitions)
}

fn failed(name: &str, code: ErrorCode) -> MetadataResponseTopic {
    topic(name, 0, Vec::new()).with_error_code(code.0)
}

fn answer(topics: Vec<MetadataResponseTopic>) -> MetadataResponse {
    let broker = |id: i32| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host("b".into())
            .with_port(9090 + id)
    };
    MetadataResponse::default()
        .with_brokers(vec![broker(1), broker(2)])
        .with_cluster_id(Some("c".into()))
        .with_controller_id(BrokerId(2))
        .with_topics(topics)
}

fn all(view: &ClusterView, topics: Vec<MetadataResponseTopic>) -> ClusterView {
    view.apply(&answer(topics), &Topics::All)
}

fn named(view: &ClusterView, topics: Vec<MetadataResponseTopic>) -> ClusterView {
    view.apply(&answer(topics), &Topics::Named(vec![]))
}

fn first() -> ClusterView {
    let topics = vec![
        topic("a", 1, vec![partition(0, 1, 5), partition(1, 2, 5)]),
        topic("b", 2, vec![partition(0, 2, 0)]),
    ];
    all(&ClusterView::default(), topics)
}

fn names(view: &ClusterView) -> Vec<&str> {
    view.topics().map(|topic| &*topic.name).collect()
}

#[test]
fn an_answer_is_found_by_name_and_by_id() {
    let view = first();
    assert_eq!((view.generation, view.cluster_id.as_deref(), view.controller_id), (1, Some("c"), Some(2)));
    assert_eq!(view.brokers[&2].address, HostPort::new("b", 9092));
    assert_eq!(view.leader("a", 1), Some((2, 5)));
    assert_eq!(view.topic_by_id(Uuid::from_u128(2)).map(|topic| &*topic.name), Some("b"));
    assert_eq!(view.leader("a", 2), None);
    assert_eq!(view.leader("c", 0), None);
}

#[test]
fn a_leader_epoch_never_goes_back() {
    let view = first();
    for (answered, expected) in [
        (partition(0, 2, 4), Some((1, 5))),
        (partition(0, 2, 5), Some((2, 5))),
        (partition(0, 2, 6), Some((2, 6))),
        (partition(0, 2, -1), Some((1, 5))),
        (partition(0, -1, 6), None),
    ] {
        assert_eq!(named(&view, vec![topic("a", 1, vec![answered])]).leader("a", 0), expected);
    }
}

#[test]
fn without_epochs_the_last_answer_counts() {
    let view = named(&ClusterView::default(), vec![topic("a", 0, vec![partition(0, 1, -1)])]);
    let view = named(&view, vec![topic("a", 0, vec![partition(0, 2, -1)])]);
    assert_eq!(view.leader("a", 0), Some((2, -1)));
}

/// Case 23: a stale broker leaves out a partition that was just added.
#[test]
fn an_answer_never_shrinks_a_topic() {
    let view = all(&first(), vec![topic("a", 1, vec![partition(1, 1, 7)]), topic("b", 2, vec![])]);
    assert_eq!(view.leader("a", 0), Some((1, 5)));
    assert_eq!(view.leader("a", 1), Some((1, 7)));
    assert_eq!(view.topic("b").unwrap().partitions.len(), 1);
}

/// Case 23: only all topics, twice, say that one is gone.
#[test]
fn a_topic_is_gone_after_two_whole_answers_without_it() {
    let a = || topic("a", 1, vec![partition(0, 1, 5)]);
    let once = all(&first(), vec![a()]);
    assert_eq!((names(&once), once.is_doubtful()), (vec!["a", "b"], true));
    let twice = all(&once, vec![a()]);
    assert_eq!((names(&twice), twice.is_doubtful()), (vec!["a"], false));
    assert_eq!(twice.topic_by_id(Uuid::from_u128(2)), None);
    let between = named(&once, vec![topic("b", 2, vec![partition(0, 2, 0)])]);
    assert_eq!(names(&all(&between, vec![a()])), ["a", "b"], "heard of in between");
    let unknown = named(&once, vec![failed("b", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]);
    assert_eq!(unknown.topic("b").unwrap().code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(names(&all(&unknown, vec![a()])), ["a"]);
    let failing = answer(vec![]).with_error_code(ErrorCode::REBOOTSTRAP_REQUIRED.0);
    assert_eq!(names(&once.apply(&failing, &Topics::All)), ["a", "b"], "no answer at all");
}

#[test]
fn named_answers_remove_nothing() {
    let mut view = first();
    for _ in 0..5 {
        view = named(&view, vec![failed("a", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]);
    }
    assert_eq!(names(&view), ["a", "b"]);
    assert_eq!(view.leader("a", 0), Some((1, 5)));
}

/// Case 18: deleted and created anew.
#[test]
fn another_topic_id_replaces_the_topic_and_the_old_one_does_not_come_back() {
    let view = named(&first(), vec![topic("a", 9, vec![partition(0, 2, 0)])]);
    let a = view.topic("a").unwrap();
    assert_eq!((a.id, a.partitions.len()), (Uuid::from_u128(9), 1));
    assert_eq!(view.leader("a", 0), Some((2, 0)), "the epochs begin anew");
    assert_eq!(view.topic_by_id(Uuid::from_u128(1)), None);
    let stale = named(&view, vec![topic("a", 1, vec![partition(0, 1, 5), partition(1, 1, 5)])]);
    assert_eq!(stale.topic("a").unwrap(), a);
}

#[test]
fn errors_without_partitions_keep_what_was_known_and_make_no_topic() {
    let view = named(&first(), vec![failed("a", ErrorCode(29)), failed("z", ErrorCode(29))]);
    assert_eq!(view.topic("a").unwrap().code, ErrorCode(29));
    assert_eq!(view.leader("a", 0), Some((1, 5)));
    assert_eq!(view.topic("z"), None);
}

#[test]
fn an_answer_without_brokers_keeps_them() {
    let mut empty = answer(vec![]);
    empty.brokers.clear();
    let view = first().apply(&empty, &Topics::Named(vec![]));
    assert_eq!((view.brokers.len(), view.controller_id), (2, Some(2)));
}

#[test]
fn another_cluster_id_starts_from_nothing() {
    let other = answer(vec![]).with_cluster_id(Some("other".into()));
    let view = first().apply(&other, &Topics::Named(vec![]));
    assert_eq!((view.generation, names(&view)), (2, vec![]));
}

#[test]
fn an_unchanged_topic_keeps_its_snapshot() {
    let view = first();
    let after = named(&view, vec![topic("b", 2, vec![partition(0, 2, 0)])]);
    assert!(Arc::ptr_eq(view.topic("b").unwrap(), after.topic("b").unwrap()));
}

proptest! {
    /// Whatever comes, in whatever order: while a topic keeps its id, its partitions only grow and epochs only rise.
    #[test]
    fn partitions_grow_and_epochs_rise(
        answers in prop::collection::vec((any::<bool>(), 1_u128..3, prop::collection::vec((0_i32..4, -1_i32..3, -1_i32..9), 0..4)), 1..12),
    ) {
        let mut view = ClusterView::default();
        for (whole, id, partitions) in answers {
            let partitions = partitions.into_iter().map(|(index, leader, epoch)| partition(index, leader, epoch)).collect();
            let asked = if whole { Topics::All } else { Topics::Named(vec![]) };
            let next = view.apply(&answer(vec![topic("a", id, partitions)]), &asked);
            if let (Some(old), Some(new)) = (view.topic("a"), next.topic("a"))
                && old.id == new.id
            {
                for (index, partition) in &old.partitions {
                    prop_assert!(new.partitions[index].leader_epoch >= partition.leader_epoch);
                }
            }
            view = next;
        }
    }
}
