//! Which versions of which API a cluster of a given release advertises: the ranges of the real releases, cut to what the
//! codecs can read and to what is served here.
//!
//! The highest versions are those of the message definitions in the release's source (`clients/src/main/resources/common/
//! message`). From 4.0 on the lowest are those of KIP-896; before, they are what the codecs can read, which is the same.

use kafka_protocol::messages::ApiKey;

use super::KafkaVersion;
use KafkaVersion::{V2_1, V2_4, V2_8, V3_3, V3_6, V3_9, V4_0, V4_1};

/// An API and the highest version in each release that raised it; absent before the first.
type Row = (ApiKey, &'static [(KafkaVersion, i16)]);

const SERVED: &[Row] = &[
    (ApiKey::Produce, &[(V2_1, 7), (V2_4, 8), (V2_8, 9), (V3_9, 11), (V4_0, 12), (V4_1, 13)]),
    (ApiKey::Fetch, &[(V2_1, 10), (V2_4, 11), (V2_8, 12), (V3_3, 13), (V3_6, 15), (V3_9, 17), (V4_1, 18)]),
    (ApiKey::ListOffsets, &[(V2_1, 4), (V2_4, 5), (V2_8, 6), (V3_3, 7), (V3_6, 8), (V3_9, 9), (V4_0, 10)]),
    (ApiKey::Metadata, &[(V2_1, 7), (V2_4, 9), (V2_8, 11), (V3_3, 12), (V4_0, 13)]),
    (ApiKey::OffsetCommit, &[(V2_1, 6), (V2_4, 8), (V3_6, 9)]),
    (ApiKey::OffsetFetch, &[(V2_1, 5), (V2_4, 6), (V2_8, 7), (V3_3, 8), (V3_6, 9)]),
    (ApiKey::FindCoordinator, &[(V2_1, 2), (V2_4, 3), (V3_3, 4), (V3_9, 6)]),
    (ApiKey::JoinGroup, &[(V2_1, 3), (V2_4, 6), (V2_8, 7), (V3_3, 9)]),
    (ApiKey::Heartbeat, &[(V2_1, 2), (V2_4, 4)]),
    (ApiKey::LeaveGroup, &[(V2_1, 2), (V2_4, 4), (V3_3, 5)]),
    (ApiKey::SyncGroup, &[(V2_1, 2), (V2_4, 4), (V2_8, 5)]),
    (ApiKey::DescribeGroups, &[(V2_1, 2), (V2_4, 5), (V4_0, 6)]),
    (ApiKey::ListGroups, &[(V2_1, 2), (V2_4, 3), (V2_8, 4), (V3_9, 5)]),
    (ApiKey::SaslHandshake, &[(V2_1, 1)]),
    (ApiKey::ApiVersions, &[(V2_1, 2), (V2_4, 3), (V3_9, 4)]),
    (ApiKey::CreateTopics, &[(V2_1, 3), (V2_4, 5), (V2_8, 7)]),
    (ApiKey::DeleteTopics, &[(V2_1, 3), (V2_4, 4), (V2_8, 6)]),
    (ApiKey::DeleteRecords, &[(V2_1, 1), (V2_8, 2)]),
    (ApiKey::InitProducerId, &[(V2_1, 1), (V2_4, 2), (V2_8, 4), (V3_9, 5)]),
    (ApiKey::OffsetForLeaderEpoch, &[(V2_1, 2), (V2_4, 3), (V2_8, 4)]),
    (ApiKey::AddPartitionsToTxn, &[(V2_1, 1), (V2_8, 3), (V3_6, 4), (V3_9, 5)]),
    (ApiKey::AddOffsetsToTxn, &[(V2_1, 1), (V2_8, 3), (V3_9, 4)]),
    (ApiKey::EndTxn, &[(V2_1, 1), (V2_8, 3), (V3_9, 4), (V4_0, 5)]),
    (ApiKey::WriteTxnMarkers, &[(V2_1, 0), (V2_8, 1)]),
    (ApiKey::TxnOffsetCommit, &[(V2_1, 2), (V2_8, 3), (V3_9, 4), (V4_0, 5)]),
    (ApiKey::DescribeAcls, &[(V2_1, 1), (V2_8, 2), (V3_3, 3)]),
    (ApiKey::CreateAcls, &[(V2_1, 1), (V2_8, 2), (V3_3, 3)]),
    (ApiKey::DeleteAcls, &[(V2_1, 1), (V2_8, 2), (V3_3, 3)]),
    (ApiKey::DescribeConfigs, &[(V2_1, 2), (V2_8, 4)]),
    (ApiKey::SaslAuthenticate, &[(V2_1, 0), (V2_4, 1), (V2_8, 2)]),
    (ApiKey::CreatePartitions, &[(V2_1, 1), (V2_8, 3)]),
    (ApiKey::DeleteGroups, &[(V2_1, 1), (V2_4, 2)]),
    (ApiKey::IncrementalAlterConfigs, &[(V2_4, 1)]),
    (ApiKey::OffsetDelete, &[(V2_4, 0)]),
    (ApiKey::DescribeCluster, &[(V2_8, 0), (V3_9, 1), (V4_0, 2)]),
    (ApiKey::DescribeProducers, &[(V2_8, 0)]),
    // 3.0 has both; 3.3 is the release before which no other is listed here.
    (ApiKey::DescribeTransactions, &[(V3_3, 0)]),
    (ApiKey::ListTransactions, &[(V3_3, 0), (V3_9, 1), (V4_1, 2)]),
];

/// Lowest and highest version of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Lowest.
    pub min: i16,
    /// Highest.
    pub max: i16,
}

/// All APIs that a cluster of `version` serves, in the order of their keys.
pub fn served(version: KafkaVersion) -> Vec<(ApiKey, Range)> {
    let mut rows: Vec<_> =
        SERVED.iter().filter_map(|row| range_of(row, version).map(|range| (row.0, range))).collect();
    rows.sort_by_key(|(key, _)| *key as i16);
    rows
}

/// The versions of `key` that a cluster of `version` takes; `None` when it does not know the API.
pub fn range(key: ApiKey, version: KafkaVersion) -> Option<Range> {
    range_of(SERVED.iter().find(|row| row.0 == key)?, version)
}

/// The lowest version that is advertised. Brokers from 4.0 on name Produce 0 although they refuse it, because
/// librdkafka reads from it which message formats there are (KAFKA-18659).
pub fn advertised_min(key: ApiKey, range: Range) -> i16 {
    if key == ApiKey::Produce { 0 } else { range.min }
}

fn range_of(row: &Row, version: KafkaVersion) -> Option<Range> {
    let &(_, max) = row.1.iter().rev().find(|(since, _)| *since <= version)?;
    let codec = row.0.valid_versions();
    let range = Range { min: codec.min, max: max.min(codec.max) };
    (range.min <= range.max).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_release_knows_fewer_apis_and_lower_versions() {
        let fetch = |version| range(ApiKey::Fetch, version).map(|range| (range.min, range.max));
        assert_eq!(fetch(V2_1), Some((4, 10)));
        assert_eq!(fetch(V3_9), Some((4, 17)));
        assert_eq!(fetch(KafkaVersion::V4_3), Some((4, 18)));
        assert_eq!(range(ApiKey::IncrementalAlterConfigs, V2_1), None);
        assert_eq!(range(ApiKey::Produce, V4_0), Some(Range { min: 3, max: 12 }));
        assert_eq!(range(ApiKey::Vote, V4_0), None);
    }

    #[test]
    fn every_row_rises() {
        for (key, steps) in SERVED {
            assert!(steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{key:?}");
        }
    }
}
