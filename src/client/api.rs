//! The APIs of the control plane: which versions we speak, and where a reply keeps the code that stands for all of it.
//!
//! Fetch and Produce stand here for internal topics only; lanes have their own walker and envelope.

use std::ops::RangeInclusive;

use kafka_protocol::messages::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, CreateAclsRequest,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest, DescribeAclsResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeProducersRequest, DescribeTransactionsRequest, FetchRequest, FetchResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse,
    ListOffsetsRequest, ListTransactionsRequest, ListTransactionsResponse, MetadataRequest, MetadataResponse,
    OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, SyncGroupRequest,
    SyncGroupResponse,
};
use kafka_protocol::protocol::{Request, StrBytes};

use super::code::ErrorCode;

/// An API as the control plane uses it.
pub trait Api: Request<Response: Send> + Send + Sync + 'static {
    /// The API's key.
    const API: ApiKey;
    /// The versions that we speak.
    const OURS: RangeInclusive<i16>;

    /// The code that stands for the whole reply, with the broker's words; success when each part has its own.
    fn refusal(response: &Self::Response) -> (ErrorCode, Option<String>);

    /// How long the broker wants no further request, in milliseconds (KIP-219).
    fn throttle_time_ms(_response: &Self::Response) -> i32 {
        0
    }
}

/// A broker's words, owned.
pub(super) fn words(text: Option<&StrBytes>) -> Option<String> {
    text.map(|text| text.as_str().to_owned()).filter(|text| !text.is_empty())
}

const SUCCESS: (ErrorCode, Option<String>) = (ErrorCode::NONE, None);

impl Api for MetadataRequest {
    const API: ApiKey = ApiKey::Metadata;
    /// From version 4 a request does not create the topics that it names.
    const OURS: RangeInclusive<i16> = 4..=13;
    fn refusal(response: &MetadataResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for FindCoordinatorRequest {
    const API: ApiKey = ApiKey::FindCoordinator;
    const OURS: RangeInclusive<i16> = 1..=5;
    fn refusal(response: &FindCoordinatorResponse) -> (ErrorCode, Option<String>) {
        // A lookup of several keys is judged key by key.
        match response.coordinators.as_slice() {
            [] => (ErrorCode(response.error_code), words(response.error_message.as_ref())),
            [one] => (ErrorCode(one.error_code), words(one.error_message.as_ref())),
            _ => SUCCESS,
        }
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for DescribeClusterRequest {
    const API: ApiKey = ApiKey::DescribeCluster;
    const OURS: RangeInclusive<i16> = 0..=1;
    fn refusal(response: &DescribeClusterResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), words(response.error_message.as_ref()))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for DescribeAclsRequest {
    const API: ApiKey = ApiKey::DescribeAcls;
    /// From version 1 on patterns are told apart.
    const OURS: RangeInclusive<i16> = 1..=3;
    fn refusal(response: &DescribeAclsResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), words(response.error_message.as_ref()))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for CreateTopicsRequest {
    const API: ApiKey = ApiKey::CreateTopics;
    const OURS: RangeInclusive<i16> = 2..=7;
    fn refusal(response: &CreateTopicsResponse) -> (ErrorCode, Option<String>) {
        // A broker that is not the controller says so for each topic (case 25).
        not_controller(response.topics.iter().map(|topic| topic.error_code))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for CreatePartitionsRequest {
    const API: ApiKey = ApiKey::CreatePartitions;
    const OURS: RangeInclusive<i16> = 0..=3;
    fn refusal(response: &CreatePartitionsResponse) -> (ErrorCode, Option<String>) {
        not_controller(response.results.iter().map(|topic| topic.error_code))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for DeleteTopicsRequest {
    const API: ApiKey = ApiKey::DeleteTopics;
    const OURS: RangeInclusive<i16> = 1..=5;
    fn refusal(response: &kafka_protocol::messages::DeleteTopicsResponse) -> (ErrorCode, Option<String>) {
        not_controller(response.responses.iter().map(|topic| topic.error_code))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

fn not_controller(mut codes: impl Iterator<Item = i16>) -> (ErrorCode, Option<String>) {
    if codes.any(|code| ErrorCode(code) == ErrorCode::NOT_CONTROLLER) {
        (ErrorCode::NOT_CONTROLLER, None)
    } else {
        SUCCESS
    }
}

impl Api for InitProducerIdRequest {
    const API: ApiKey = ApiKey::InitProducerId;
    const OURS: RangeInclusive<i16> = 0..=4;
    fn refusal(response: &InitProducerIdResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for ListGroupsRequest {
    const API: ApiKey = ApiKey::ListGroups;
    const OURS: RangeInclusive<i16> = 0..=5;
    fn refusal(response: &ListGroupsResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for ListTransactionsRequest {
    const API: ApiKey = ApiKey::ListTransactions;
    const OURS: RangeInclusive<i16> = 0..=2;
    fn refusal(response: &ListTransactionsResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for FetchRequest {
    const API: ApiKey = ApiKey::Fetch;
    /// Version 13 speaks of topics by id.
    const OURS: RangeInclusive<i16> = 4..=12;
    fn refusal(response: &FetchResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for JoinGroupRequest {
    const API: ApiKey = ApiKey::JoinGroup;
    const OURS: RangeInclusive<i16> = 2..=9;
    fn refusal(response: &JoinGroupResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for SyncGroupRequest {
    const API: ApiKey = ApiKey::SyncGroup;
    const OURS: RangeInclusive<i16> = 1..=5;
    fn refusal(response: &SyncGroupResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for HeartbeatRequest {
    const API: ApiKey = ApiKey::Heartbeat;
    const OURS: RangeInclusive<i16> = 1..=4;
    fn refusal(response: &HeartbeatResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for ConsumerGroupHeartbeatRequest {
    const API: ApiKey = ApiKey::ConsumerGroupHeartbeat;
    const OURS: RangeInclusive<i16> = 0..=1;
    fn refusal(response: &ConsumerGroupHeartbeatResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), words(response.error_message.as_ref()))
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

impl Api for LeaveGroupRequest {
    const API: ApiKey = ApiKey::LeaveGroup;
    const OURS: RangeInclusive<i16> = 1..=5;
    fn refusal(response: &LeaveGroupResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
    fn throttle_time_ms(response: &Self::Response) -> i32 {
        response.throttle_time_ms
    }
}

/// APIs whose replies carry a code for each part and none for the whole.
macro_rules! judged_by_part {
    ($($request:ident: $api:ident, $ours:expr;)*) => {
        $(impl Api for $request {
            const API: ApiKey = ApiKey::$api;
            const OURS: RangeInclusive<i16> = $ours;
            fn refusal(_: &Self::Response) -> (ErrorCode, Option<String>) {
                SUCCESS
            }
            fn throttle_time_ms(response: &Self::Response) -> i32 {
                response.throttle_time_ms
            }
        })*
    };
}

judged_by_part! {
    CreateAclsRequest: CreateAcls, 1..=3;
    DescribeConfigsRequest: DescribeConfigs, 1..=4;
    IncrementalAlterConfigsRequest: IncrementalAlterConfigs, 0..=1;
    ListOffsetsRequest: ListOffsets, 1..=9;
    OffsetForLeaderEpochRequest: OffsetForLeaderEpoch, 2..=4;
    DescribeGroupsRequest: DescribeGroups, 0..=6;
    // Group and partitions have codes of their own; versions from 10 on speak of topics by id.
    OffsetFetchRequest: OffsetFetch, 2..=9;
    OffsetCommitRequest: OffsetCommit, 2..=9;
    DeleteRecordsRequest: DeleteRecords, 0..=2;
    DescribeProducersRequest: DescribeProducers, 0..=0;
    DescribeTransactionsRequest: DescribeTransactions, 0..=0;
    ProduceRequest: Produce, 3..=12;
}
