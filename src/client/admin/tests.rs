//! Admin calls against a cluster of the test: routing, one result for each, retries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_groups_response::ListedGroup as WireGroup;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, BrokerId, CreateTopicsRequest, CreateTopicsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, FetchRequest, FetchResponse, FindCoordinatorResponse, GroupId,
    ListGroupsResponse, ListOffsetsRequest, ListOffsetsResponse, ProduceRequest, ProduceResponse, TopicName,
};

use super::super::test_cluster::{Asked, Reply, TestCluster};
use super::super::{ErrorCode, IsolationLevel, Subject, Topics};
use super::*;

const READ: IsolationLevel = IsolationLevel::ReadUncommitted;

/// ListOffsets answered by (broker, partition, timestamp) → (code, offset).
fn offsets(asked: &Asked, mut answer: impl FnMut(i32, i32, i64) -> Option<(i16, i64)>) -> Reply {
    let request: ListOffsetsRequest = asked.decode();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().filter_map(|partition| {
            let index = partition.partition_index;
            let (code, offset) = answer(asked.broker, index, partition.timestamp)?;
            let part = ListOffsetsPartitionResponse::default().with_partition_index(index);
            Some(part.with_error_code(code).with_offset(offset))
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    asked.reply(&ListOffsetsResponse::default().with_topics(topics.collect()))
}

fn latest(topic: &str, partitions: &[i32]) -> Vec<(TopicPartition, OffsetSpec)> {
    partitions.iter().map(|&index| ((Arc::from(topic), index), OffsetSpec::Latest)).collect()
}

fn found(each: &Each<TopicPartition, ListedOffset>) -> Vec<(i32, Result<i64, String>)> {
    let text = |error: &Error| error.to_string();
    each.iter().map(|((_, index), one)| (*index, one.as_ref().map(|one| one.offset).map_err(text))).collect()
}

/// Case 21: never of a follower.
#[tokio::test(start_paused = true)]
async fn offsets_are_asked_of_each_leader_once() {
    let test = TestCluster::start(2, &[("t", &[(1, 0), (2, 0), (1, 0)])], |asked| {
        offsets(asked, |broker, index, _| Some((0, i64::from(broker * 10 + index))))
    })
    .await;
    let each = test.cluster.list_offsets(latest("t", &[0, 1, 2]), READ).await;
    assert_eq!(found(&each), [(0, Ok(10)), (1, Ok(21)), (2, Ok(12))]);
    let mut asked = test.asked(ApiKey::ListOffsets);
    asked.sort_unstable();
    assert_eq!(asked, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn one_bad_partition_stops_no_other() {
    let test = TestCluster::start(1, &[("t", &[(1, 0), (1, 0), (1, 0), (1, 0)])], |asked| {
        offsets(asked, |_, index, _| match index {
            0 => Some((0, 5)),
            1 => Some((29, -1)),
            2 => None,
            _ => Some((78, -1)),
        })
    })
    .await;
    let each = test.cluster.list_offsets(latest("t", &[0, 1, 2, 3, 4]), READ).await;
    let start = "cluster A, broker 10.0.0.1:9092: ";
    assert_eq!(
        found(&each),
        [
            (0, Ok(5)),
            (
                1,
                Err(format!(
                    "{start}ListOffsets for partition t-1 answered TOPIC_AUTHORIZATION_FAILED (29); DESCRIBE on the topic is needed (kmirror acls prints all)"
                ))
            ),
            (2, Err(format!("{start}the answer to ListOffsets leaves out partition t-2"))),
            (3, Err(format!("{start}ListOffsets for partition t-3 answered OFFSET_NOT_AVAILABLE (78)"))),
            (4, Err("cluster A: partition t-4 does not exist".to_owned())),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn partitions_whose_leader_moved_are_asked_again_alone() {
    let mut moved = false;
    let test = TestCluster::start(2, &[("t", &[(1, 0), (1, 0)])], move |asked| {
        offsets(asked, |broker, index, _| {
            let stale = broker == 1 && index == 1;
            moved |= stale;
            Some(if stale { (6, -1) } else { (0, i64::from(broker)) })
        })
    })
    .await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| {
        world.topics.insert("t".to_owned(), vec![(1, 0), (2, 1)]);
    });
    let each = test.cluster.list_offsets(latest("t", &[0, 1]), READ).await;
    assert_eq!(found(&each), [(0, Ok(1)), (1, Ok(2))]);
    assert_eq!(test.asked(ApiKey::ListOffsets), [1, 2]);
}

/// A broker that is down delays only its own partitions, and those find their new leader.
#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_left_for_the_new_one() {
    let test = TestCluster::start(3, &[("t", &[(1, 0), (2, 0)])], |asked| {
        offsets(asked, |broker, _, _| Some((0, i64::from(broker))))
    })
    .await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| {
        world.dead = vec![2];
        world.topics.insert("t".to_owned(), vec![(1, 0), (3, 1)]);
    });
    let each = test.cluster.list_offsets(latest("t", &[0, 1]), READ).await;
    assert_eq!(found(&each), [(0, Ok(1)), (1, Ok(3))]);
}

#[tokio::test(start_paused = true)]
async fn each_created_topic_has_its_own_result() {
    let test = TestCluster::start(1, &[], |asked| {
        let request: CreateTopicsRequest = asked.decode();
        assert_eq!(request.topics[0].configs[0].name.as_str(), "cleanup.policy");
        let result = |name: &'static str, code| {
            CreatableTopicResult::default().with_name(TopicName(name.into())).with_error_code(code)
        };
        let topics = vec![result("a", 0), result("b", 36), result("unasked", 0)];
        asked.reply(&CreateTopicsResponse::default().with_topics(topics))
    })
    .await;
    let topic = |name: &str| NewTopic {
        name: name.into(),
        partitions: 3,
        replication_factor: 1,
        configs: BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]),
    };
    let each = test.cluster.create_topics(&[topic("a"), topic("b"), topic("c")]).await.unwrap();
    assert_eq!(each.len(), 3);
    assert!(each["a"].is_ok());
    assert_eq!(each["b"].as_ref().unwrap_err().code(), Some(ErrorCode::TOPIC_ALREADY_EXISTS));
    assert!(matches!(each["c"], Err(Error::LeftOut { .. })));
}

#[tokio::test(start_paused = true)]
async fn leaders_of_a_new_topic_are_awaited() {
    let test = TestCluster::start(1, &[], |_| Reply::Silence).await;
    let topics = BTreeMap::from([(Arc::from("t"), 2)]);
    let elect = async {
        tokio::time::sleep(Duration::from_millis(8)).await;
        test.change(|world| {
            world.topics.insert("t".to_owned(), vec![(1, 0), (-1, 0)]);
        });
        tokio::time::sleep(Duration::from_millis(8)).await;
        test.change(|world| {
            world.topics.insert("t".to_owned(), vec![(1, 0), (1, 0)]);
        });
    };
    let (view, ()) = tokio::join!(test.cluster.wait_for_leaders(&topics), elect);
    assert_eq!(view.unwrap().leader("t", 1), Some((1, 0)));
}

#[tokio::test(start_paused = true)]
async fn groups_of_a_broker_that_refuses_hide_no_others() {
    let test = TestCluster::start(3, &[], |asked| {
        let group = WireGroup::default().with_group_id(GroupId(format!("g{}", asked.broker).into()));
        let code = if asked.broker == 2 { 30 } else { 0 };
        asked.reply(&ListGroupsResponse::default().with_error_code(code).with_groups(vec![group]))
    })
    .await;
    let (groups, errors) = test.cluster.list_groups().await.unwrap();
    let ids: Vec<&str> = groups.iter().map(|group| &*group.id).collect();
    assert_eq!(ids, ["g1", "g3"]);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code(), Some(ErrorCode(30)));
}

/// DescribeGroups before and from version 6 (KIP-1043), and a coordinator that is still loading.
#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_exist_is_dead_in_every_version() {
    for cap in [5, 6] {
        let mut loading = true;
        let test = TestCluster::start(2, &[], move |asked| match asked.api {
            ApiKey::FindCoordinator => {
                let one = Coordinator::default().with_key("g".into()).with_node_id(BrokerId(2));
                asked.reply(&FindCoordinatorResponse::default().with_coordinators(vec![one]))
            }
            _ => {
                let request: DescribeGroupsRequest = asked.decode();
                let group = DescribedGroup::default().with_group_id(request.groups[0].clone());
                let group = match (std::mem::take(&mut loading), asked.version) {
                    (true, _) => group.with_error_code(14),
                    (false, 6) => group.with_error_code(69).with_group_state("Dead".into()),
                    (false, _) => group.with_group_state("Dead".into()),
                };
                asked.reply(&DescribeGroupsResponse::default().with_groups(vec![group]))
            }
        })
        .await;
        test.change(|world| {
            world.caps.insert(ApiKey::DescribeGroups as i16, cap);
        });
        let group = test.cluster.describe_group(&"g".into()).await.unwrap();
        assert_eq!((group.state.as_str(), group.members.len()), ("Dead", 0));
        assert_eq!(test.asked(ApiKey::DescribeGroups), [2, 2]);
    }
}

/// An empty v2 batch that covers these offsets.
fn batch(base_offset: i64, last_offset: i64) -> Vec<u8> {
    let mut batch = vec![0; crate::record::HEADER_BYTES];
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[8..12].copy_from_slice(&49_i32.to_be_bytes());
    batch[16] = 2;
    batch[23..27].copy_from_slice(&((last_offset - base_offset) as i32).to_be_bytes());
    batch[57..61].copy_from_slice(&((last_offset - base_offset) as i32 + 1).to_be_bytes());
    batch
}

/// A log from 3 to 20 whose records end at 17, told in pieces; a new leader knows only up to 10 at first.
fn reader(records_of: fn(i64) -> Vec<u8>) -> impl FnMut(&Asked) -> Reply + Send + 'static {
    let mut lagging = true;
    move |asked| match asked.api {
        ApiKey::ListOffsets => {
            offsets(asked, |_, _, timestamp| Some((0, if timestamp == -2 { 3 } else { 20 })))
        }
        _ => {
            let request: FetchRequest = asked.decode();
            let offset = request.topics[0].partitions[0].fetch_offset;
            let lags = offset == 10 && std::mem::take(&mut lagging);
            let records = if lags { Vec::new() } else { records_of(offset) };
            let part = PartitionData::default().with_records(Some(records.into()));
            let part = part.with_high_watermark(if lags { 10 } else { 20 });
            let topic = FetchableTopicResponse::default().with_topic(request.topics[0].topic.clone());
            let topic = topic.with_partitions(vec![part]);
            asked.reply(&FetchResponse::default().with_responses(vec![topic]))
        }
    }
}

fn pieces(offset: i64) -> Vec<u8> {
    match offset {
        // The second batch is cut by the end of the answer.
        3 => [batch(0, 4), batch(5, 9), batch(10, 17)[..30].to_vec()].concat(),
        10 => batch(10, 17),
        _ => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_read_to_its_end_through_pieces_gaps_and_lagging_leaders() {
    let test = TestCluster::start(1, &[("t", &[(1, 0)])], reader(pieces)).await;
    let logs = test.cluster.read_to_end(&"t".into(), READ, 1_000).await.unwrap();
    let batches = [batch(0, 4), batch(5, 9), batch(10, 17)].map(Bytes::from).to_vec();
    let log = PartitionLog { batches, start_offset: 3, end_offset: 20 };
    assert_eq!(logs, BTreeMap::from([(0, log)]));
}

#[tokio::test(start_paused = true)]
async fn a_topic_over_the_limit_damaged_or_unknown_is_an_error() {
    let test = TestCluster::start(1, &[("t", &[(1, 0)])], reader(pieces)).await;
    let error = test.cluster.read_to_end(&"t".into(), READ, 150).await.unwrap_err();
    assert_eq!(error.to_string(), "cluster A: topic t holds more than 150 bytes");
    let error = test.cluster.read_to_end(&"u".into(), READ, 150).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { subject: Subject::Topic(_), .. }), "{error:?}");
    for records in [|_| vec![7; 100], |_| batch(0, 4)[..50].to_vec()] as [fn(i64) -> Vec<u8>; 2] {
        let test = TestCluster::start(1, &[("t", &[(1, 0)])], reader(records)).await;
        let error = test.cluster.read_to_end(&"t".into(), READ, 1_000).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_produced_to_the_leader_and_again_after_a_retriable_code() {
    let mut codes = [19, 6, 0].into_iter();
    let test = TestCluster::start(1, &[("t", &[(1, 0)])], move |asked| {
        let request: ProduceRequest = asked.decode();
        assert_eq!((request.acks, asked.version), (-1, 12));
        assert_eq!(request.topic_data[0].partition_data[0].records.as_deref(), Some(&b"batch"[..]));
        let part = PartitionProduceResponse::default().with_error_code(codes.next().unwrap_or(-1));
        let topic = TopicProduceResponse::default().with_name(request.topic_data[0].name.clone());
        let topic = topic.with_partition_responses(vec![part.with_base_offset(42)]);
        asked.reply(&ProduceResponse::default().with_responses(vec![topic]))
    })
    .await;
    let produced = test.cluster.produce(&"t".into(), 0, Bytes::from_static(b"batch")).await;
    assert_eq!(produced.unwrap(), 42);
    assert_eq!(test.asked(ApiKey::Produce).len(), 3);
    let error = test.cluster.produce(&"t".into(), 0, Bytes::from_static(b"batch")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UNKNOWN_SERVER_ERROR));
}
