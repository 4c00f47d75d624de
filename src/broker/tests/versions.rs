//! Every API in every version that is served: a plausible request must be read, and its reply must fit the version.

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::*;

use super::*;
use crate::broker::wire::BrokerId;
use crate::broker::{KafkaVersion, versions};

/// Sends a request in every version that the newest release serves, made for that version.
fn check<R: Api>(make: impl Fn(i16, &mut Bench) -> R)
where
    R::Response: std::fmt::Debug,
{
    let key = ApiKey::try_from(R::KEY).unwrap();
    let range = versions::range(key, KafkaVersion::V4_3).unwrap();
    for version in range.min..=range.max {
        for broker in [1, 2] {
            let mut bench = Bench::with_topic(2, 1, 1, &[]);
            bench.produce(&batch(1, "x"));
            let request = make(version, &mut bench);
            match bench.send(broker, version, &request) {
                reply @ Outcome::Reply(_) => drop(read::<R>(version, reply)),
                Outcome::Wait { .. } => {}
                other => panic!("{key:?} v{version} at broker {broker}: {other:?}"),
            }
        }
    }
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn transaction() -> TransactionalId {
    TransactionalId(text("tx"))
}

#[test]
fn data_apis_in_all_versions() {
    check(|version, bench| {
        let mut request =
            produce(if version >= 13 { "" } else { "t" }, &[(0, &batch(1, "x")), (7, &batch(1, "x"))]);
        if version >= 13 {
            request.topic_data[0].topic_id = bench.topic_id("t");
        }
        request
    });
    check(|version, bench| {
        let mut request = fetch(if version >= 13 { "" } else { "t" }, &[(0, 0), (0, 1), (7, 0)]);
        if version >= 13 {
            request.topics[0].topic_id = bench.topic_id("t");
        }
        request.with_isolation_level(1)
    });
    check(|version, _| {
        let partition = |index, timestamp| {
            let partition =
                ListOffsetsPartition::default().with_partition_index(index).with_timestamp(timestamp);
            partition.with_current_leader_epoch(if version >= 4 { 0 } else { -1 })
        };
        let partitions = vec![partition(0, -1), partition(0, -2), partition(0, START_MS), partition(9, -1)];
        let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(partitions);
        ListOffsetsRequest::default().with_topics(vec![topic])
    });
    check(|_, _| {
        let partition =
            |index| OffsetForLeaderPartition::default().with_partition(index).with_current_leader_epoch(-1);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(name("t"))
            .with_partitions(vec![partition(0), partition(9)]);
        OffsetForLeaderEpochRequest::default().with_topics(vec![topic])
    });
    check(|_, _| DeleteRecordsRequest::default());
    check(|_, _| DescribeProducersRequest::default());
}

#[test]
fn cluster_apis_in_all_versions() {
    check(|_, _| ApiVersionsRequest::default().with_client_software_name(text("test")));
    // Without SASL both are refused; with it they do not come to the state.
    check(|_, _| SaslHandshakeRequest::default().with_mechanism(text("PLAIN")));
    check(|_, _| SaslAuthenticateRequest::default());
    check(|_, _| MetadataRequest::default().with_topics(Some(vec![])));
    check(|version, _| {
        let topic = |topic: &str| MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![topic("t"), topic("none"), topic("")]));
        request.with_allow_auto_topic_creation(version < 4)
    });
    check(|_, _| DescribeClusterRequest::default().with_endpoint_type(1));
    check(|version, _| match version {
        ..4 => FindCoordinatorRequest::default().with_key(text("g")),
        _ => FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g"), text("h")]),
    });
    check(|_, _| {
        let topic = |topic: &str| {
            CreatableTopic::default().with_name(name(topic)).with_num_partitions(1).with_replication_factor(1)
        };
        CreateTopicsRequest::default().with_topics(vec![topic("t"), topic("new")])
    });
    check(|_, _| CreatePartitionsRequest::default());
    check(|version, bench| match version {
        ..6 => DeleteTopicsRequest::default().with_topic_names(vec![name("t"), name("none")]),
        _ => {
            let by_name = DeleteTopicState::default().with_name(Some(name("none")));
            let by_id = DeleteTopicState::default().with_name(None).with_topic_id(bench.topic_id("t"));
            DeleteTopicsRequest::default().with_topics(vec![by_name, by_id])
        }
    });
    check(|_, _| {
        let resource = |kind, resource: &str| {
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(resource))
                .with_configuration_keys(None)
        };
        let resources = vec![resource(2, "t"), resource(2, "none"), resource(4, "1"), resource(9, "")];
        DescribeConfigsRequest::default().with_resources(resources).with_include_synonyms(true)
    });
    check(|_, _| IncrementalAlterConfigsRequest::default());
    check(|_, _| DescribeAclsRequest::default());
    check(|_, _| CreateAclsRequest::default().with_creations(vec![Default::default()]));
    check(|_, _| DeleteAclsRequest::default().with_filters(vec![Default::default()]));
}

#[test]
fn group_apis_in_all_versions() {
    check(|_, _| {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        JoinGroupRequest::default()
            .with_group_id(group())
            .with_session_timeout_ms(10_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol])
    });
    check(|_, _| SyncGroupRequest::default().with_group_id(group()));
    check(|_, _| HeartbeatRequest::default().with_group_id(group()));
    check(|version, _| match version {
        ..3 => LeaveGroupRequest::default().with_group_id(group()),
        _ => {
            LeaveGroupRequest::default().with_group_id(group()).with_members(vec![MemberIdentity::default()])
        }
    });
    check(|_, _| OffsetCommitRequest::default().with_group_id(group()));
    check(|version, _| match version {
        ..8 => {
            let topic =
                OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
            OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![topic]))
        }
        _ => {
            let topic =
                OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0]);
            let group =
                OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(Some(vec![topic]));
            OffsetFetchRequest::default().with_groups(vec![group])
        }
    });
    check(|_, _| ListGroupsRequest::default());
    check(|_, _| DescribeGroupsRequest::default().with_groups(vec![group()]));
    check(|_, _| DeleteGroupsRequest::default().with_groups_names(vec![group()]));
    check(|_, _| OffsetDeleteRequest::default().with_group_id(group()));
}

#[test]
fn transaction_apis_in_all_versions() {
    check(|_, _| {
        InitProducerIdRequest::default()
            .with_transactional_id(Some(transaction()))
            .with_transaction_timeout_ms(1)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    });
    check(|version, _| {
        let topic = AddPartitionsToTxnTopic::default().with_name(name("t")).with_partitions(vec![0]);
        match version {
            ..4 => AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(transaction())
                .with_v3_and_below_topics(vec![topic]),
            _ => {
                let asked = AddPartitionsToTxnTransaction::default()
                    .with_transactional_id(transaction())
                    .with_topics(vec![topic]);
                AddPartitionsToTxnRequest::default().with_transactions(vec![asked])
            }
        }
    });
    check(|_, _| {
        AddOffsetsToTxnRequest::default().with_transactional_id(transaction()).with_group_id(group())
    });
    check(|_, _| {
        TxnOffsetCommitRequest::default().with_transactional_id(transaction()).with_group_id(group())
    });
    check(|_, _| EndTxnRequest::default().with_transactional_id(transaction()));
    check(|_, _| ListTransactionsRequest::default());
    check(|_, _| {
        DescribeTransactionsRequest::default().with_transactional_ids(vec![transaction(), transaction()])
    });
    check(|_, _| {
        let topic = WritableTxnMarkerTopic::default().with_name(name("t")).with_partition_indexes(vec![0, 9]);
        let marker = WritableTxnMarker::default().with_producer_id(ProducerId(3)).with_topics(vec![topic]);
        WriteTxnMarkersRequest::default().with_markers(vec![marker])
    });
}

#[test]
fn every_api_that_is_served_is_checked_here() {
    assert_eq!(versions::served(KafkaVersion::V4_3).len(), 38, "add the new API to a test of this file");
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let mut bench = Bench::new(Settings { version: KafkaVersion::V2_4, ..Settings::default() });
    let Outcome::Reply(reply) = bench.send(1, 4, &ApiVersionsRequest::default()) else { panic!("no reply") };
    let mut bytes = Bytes::from(reply.pieces.concat());
    ResponseHeader::decode(&mut bytes, 0).unwrap();
    let body = ApiVersionsResponse::decode(&mut bytes, 0).unwrap();
    assert_eq!(body.error_code, 35);
    let fetch = body.api_keys.iter().find(|key| key.api_key == ApiKey::Fetch as i16).unwrap();
    assert_eq!((fetch.min_version, fetch.max_version), (4, 11));
    assert_eq!(bench.send(1, 12, &MetadataRequest::default()), Outcome::Close);
}

#[test]
fn garbage_closes_the_connection_and_never_panics() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let whole = frame(9, &produce("t", &[(0, &batch(2, "x"))]));
    for end in 0..whole.len() {
        let request = Request::parse(BrokerId(1), ConnectionId(0), whole.slice(..end));
        if let Ok(request) = request {
            assert_eq!(bench.state.handle(&request, START_MS), Outcome::Close, "{end} bytes");
        }
    }
    assert!(
        Request::parse(BrokerId(1), ConnectionId(0), Bytes::from_static(&[0x7f, 0xff, 0, 0, 0, 0, 0, 0]))
            .is_err()
    );
}

proptest::proptest! {
    #[test]
    fn mutated_frames_never_panic(at in 4_usize..200, to in proptest::num::u8::ANY, version in 4_i16..=17) {
        let mut bench = Bench::with_topic(1, 1, 1, &[]);
        for whole in [frame(9, &produce("t", &[(0, &batch(2, "x"))])), frame(version.min(12), &fetch("t", &[(0, 0)]))] {
            let mut bytes = whole.to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(request) = Request::parse(BrokerId(1), ConnectionId(0), Bytes::from(bytes)) {
                let _ = bench.state.handle(&request, START_MS);
            }
        }
    }
}
