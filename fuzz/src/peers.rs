//! What brokers and other members of a group send.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiVersionsResponse, CreatePartitionsResponse, CreateTopicsResponse, DescribeAclsResponse,
    DescribeClusterResponse, DescribeConfigsResponse, DescribeGroupsResponse, DescribeProducersResponse,
    DescribeTransactionsResponse, FetchResponse, FindCoordinatorResponse, HeartbeatResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListGroupsResponse, ListOffsetsResponse, ListTransactionsResponse, MetadataResponse,
    OffsetCommitResponse, OffsetFetchResponse, OffsetForLeaderEpochResponse, ProduceResponse,
    SaslAuthenticateResponse, SaslHandshakeResponse, SyncGroupResponse,
};
use kafka_protocol::protocol::{Decodable, Message};
use kmirror::client::fetch::{FETCH_VERSION_MAX, FETCH_VERSION_MIN, FetchWalker, Step, WalkLimits};
use kmirror::client::produce::Awaited;
use kmirror::client::{ClusterView, ProduceBatch, ProduceRequest, TargetKey, TargetTopic, Topics};
use kmirror::mirror::lease::protocol::{Assignment, Claim, choose};
use kmirror::record::HEADER_BYTES;
use uuid::Uuid;

/// A Fetch response behind its version and the size of the reads that it comes in: the same is found whole and in parts,
/// and no byte behind the frame is touched.
pub fn fetch_walker(data: &[u8]) {
    let [version, read_bytes, frame @ ..] = data else { return };
    let versions = FETCH_VERSION_MAX - FETCH_VERSION_MIN + 1;
    let version = FETCH_VERSION_MIN + i16::from(*version) % versions;
    let read_bytes = usize::from(*read_bytes).max(1);
    assert_eq!(walked(version, frame, frame.len().max(1)), walked(version, frame, read_bytes));
}

const BEHIND: &[u8] = b"the next frame";

/// What the walker finds, in words.
fn walked(version: i16, frame: &[u8], read_bytes: usize) -> Vec<String> {
    let limits = WalkLimits { batch_bytes_max: 1 << 16, aborted_transactions_max: 100 };
    let mut walker = FetchWalker::new(version, frame.len(), limits);
    let mut unread = [frame, BEHIND].concat();
    let (mut front, mut found) = (BytesMut::new(), Vec::new());
    loop {
        match walker.step(&mut front) {
            Ok(Step::Need(bytes)) => {
                let missing = bytes.saturating_sub(front.len()).max(1).max(read_bytes);
                assert!(bytes <= frame.len(), "more is needed than there is");
                assert!(!unread.is_empty(), "{bytes} are needed of {}", front.len());
                let rest = unread.split_off(missing.min(unread.len()));
                front.extend_from_slice(&unread);
                unread = rest;
            }
            Ok(Step::End) => {
                found.push("end".to_owned());
                assert_eq!([&front[..], &unread].concat(), BEHIND);
                return found;
            }
            Ok(step) => found.push(format!("{step:?}")),
            Err(error) => {
                found.push(error.to_string());
                return found;
            }
        }
    }
}

/// A Produce response behind its version: each batch of the request gets one answer.
pub fn produce_response(data: &[u8]) {
    let Some((response, _)) = decoded::<ProduceResponse>(data) else { return };
    let mut batches = BTreeMap::new();
    for (index, name) in [(0, "a"), (1, "b")] {
        let topic_id = Uuid::from_bytes([index as u8; 16]);
        let topic = Arc::new(TargetTopic { index, name: Arc::from(name), topic_id });
        for partition in 0..2 {
            let key = TargetKey(index * 2 + partition as u32);
            let batch =
                ProduceBatch { key, topic: topic.clone(), header: [0; HEADER_BYTES], body: Bytes::new() };
            batches.insert((index, partition), batch);
        }
    }
    let awaited = Awaited::of(&ProduceRequest { id: 1, connection: 1, batches });
    let keys: Vec<u32> = awaited.answers(response).iter().map(|answer| answer.key.0).collect();
    assert_eq!(keys, [0, 1, 2, 3]);
}

/// Two Metadata responses behind their version: leader epochs never go back while a topic's id stays.
pub fn metadata(data: &[u8]) {
    let Some((first, rest)) = decoded::<MetadataResponse>(data) else { return };
    let version = data.first().copied().unwrap_or_default();
    let second = decoded::<MetadataResponse>(&[&[version], &rest[..]].concat());
    let before = ClusterView::default().apply(&first, &Topics::All);
    let after = before.apply(second.as_ref().map_or(&first, |(second, _)| second), &Topics::All);
    assert_eq!((before.generation, after.generation), (1, 2));
    for topic in after.topics() {
        let Some(old) = before.topic(&topic.name).filter(|old| old.id == topic.id) else { continue };
        if before.cluster_id != after.cluster_id {
            continue;
        }
        for partition in topic.partitions.values() {
            if let Some(before) = old.partitions.get(&partition.index) {
                assert!(partition.leader_epoch >= before.leader_epoch, "{topic:?} {old:?}");
            }
        }
        assert!(topic.partitions.len() >= old.partitions.len(), "{topic:?} {old:?}");
    }
}

/// Any other reply, behind its API and version: counts that a peer claims allocate nothing.
pub fn replies(data: &[u8]) {
    let Some((api, rest)) = data.split_first() else { return };
    match api % 25 {
        0 => drop(decoded::<ApiVersionsResponse>(rest)),
        1 => drop(decoded::<CreatePartitionsResponse>(rest)),
        2 => drop(decoded::<CreateTopicsResponse>(rest)),
        3 => drop(decoded::<DescribeClusterResponse>(rest)),
        4 => drop(decoded::<DescribeConfigsResponse>(rest)),
        5 => drop(decoded::<DescribeGroupsResponse>(rest)),
        6 => drop(decoded::<FetchResponse>(rest)),
        7 => drop(decoded::<FindCoordinatorResponse>(rest)),
        8 => drop(decoded::<HeartbeatResponse>(rest)),
        9 => drop(decoded::<IncrementalAlterConfigsResponse>(rest)),
        10 => drop(decoded::<InitProducerIdResponse>(rest)),
        11 => drop(decoded::<JoinGroupResponse>(rest)),
        12 => drop(decoded::<LeaveGroupResponse>(rest)),
        13 => drop(decoded::<ListGroupsResponse>(rest)),
        14 => drop(decoded::<ListOffsetsResponse>(rest)),
        15 => drop(decoded::<OffsetCommitResponse>(rest)),
        16 => drop(decoded::<OffsetFetchResponse>(rest)),
        17 => drop(decoded::<OffsetForLeaderEpochResponse>(rest)),
        18 => drop(decoded::<SyncGroupResponse>(rest)),
        19 => drop(decoded::<DescribeAclsResponse>(rest)),
        20 => drop(decoded::<DescribeProducersResponse>(rest)),
        21 => drop(decoded::<DescribeTransactionsResponse>(rest)),
        22 => drop(decoded::<ListTransactionsResponse>(rest)),
        23 => drop(decoded::<SaslHandshakeResponse>(rest)),
        _ => drop(decoded::<SaslAuthenticateResponse>(rest)),
    }
}

/// What the members of a lease's group say to each other.
pub fn lease(data: &[u8]) {
    // Long names are cut when they are written, and then stay as they are.
    let claim = Claim::decode(&Claim::decode(data).encode());
    assert_eq!(Claim::decode(&claim.encode()), claim);
    if let Some(assignment) = Assignment::decode(data) {
        let assignment = Assignment::decode(&assignment.encode());
        assert!(assignment.is_some());
        assert_eq!(assignment.as_ref().and_then(|cut| Assignment::decode(&cut.encode())), assignment);
    }
    let members = [("x".into(), claim.clone()), ("y".into(), claim)];
    assert_eq!(choose(1, &members).len(), 2);
}

/// A reply behind its version, and the bytes behind it.
fn decoded<T: Decodable + Message>(data: &[u8]) -> Option<(T, Bytes)> {
    let (version, rest) = data.split_first()?;
    let versions = T::VERSIONS;
    let version = versions.min + i16::from(*version) % (versions.max - versions.min + 1);
    let mut bytes = Bytes::copy_from_slice(rest);
    let reply = T::decode(&mut bytes, version).ok()?;
    Some((reply, bytes))
}
