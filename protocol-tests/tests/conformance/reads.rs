//! Fetch, ListOffsets and OffsetForLeaderEpoch: offsets, error codes and sessions.

use crate::produce::{now_ms, produce, ready_topic};
use crate::{assert_observed, on_both};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, ListOffsetsRequest, OffsetForLeaderEpochRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use protocol_tests::Result;
use protocol_tests::batch::CraftedBatch;
use protocol_tests::embedded::TestCluster;
use protocol_tests::raw::RawConnection;

on_both!(fetches, super::check_fetches);
on_both!(sessions, super::check_sessions);
on_both!(offsets, super::check_offsets);

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn partition(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(index)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(offset)
        .with_last_fetched_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(1 << 20)
}

/// A full fetch outside sessions unless changed.
fn fetch(topic: &str, partitions: Vec<FetchPartition>) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(50)
        .with_min_bytes(1)
        .with_max_bytes(10 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![FetchTopic::default().with_topic(name(topic)).with_partitions(partitions)])
}

/// Error codes, offsets and lengths of a reply, as text.
fn described(reply: &FetchResponse) -> String {
    let mut text = format!("top {}", reply.error_code);
    let mut partitions: Vec<_> = reply.responses.iter().flat_map(|topic| &topic.partitions).collect();
    partitions.sort_by_key(|data| data.partition_index);
    for data in partitions {
        text += &format!(
            "; {}: {} high {} stable {} start {} bytes {}",
            data.partition_index,
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            data.records.as_ref().map_or(0, bytes::Bytes::len)
        );
    }
    text
}

/// Three batches of three records; a batch has 88 bytes.
fn filled(connection: &mut RawConnection, topic: &str) -> Result<()> {
    ready_topic(connection, topic, &[])?;
    for _ in 0..3 {
        produce(connection, topic, 0, &CraftedBatch::new(3, now_ms()).bytes())?;
    }
    Ok(())
}

fn check_fetches(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    filled(connection, "fetched")?;
    let mut epoch_behind = partition(0, 0);
    epoch_behind.current_leader_epoch = 9;
    let mut small = partition(0, 1);
    small.partition_max_bytes = 100;
    let mut tiny = partition(0, 1);
    tiny.partition_max_bytes = 1;
    let cases = [
        ("from the start", fetch("fetched", vec![partition(0, 0)])),
        ("from the middle of a batch", fetch("fetched", vec![partition(0, 5)])),
        ("at the end", fetch("fetched", vec![partition(0, 10)])),
        ("beyond the end", fetch("fetched", vec![partition(0, 11)])),
        ("before the start", fetch("fetched", vec![partition(0, -5)])),
        ("a leader epoch of the future", fetch("fetched", vec![epoch_behind])),
        ("a limit within a batch", fetch("fetched", vec![small])),
        ("a limit below the first batch", fetch("fetched", vec![tiny])),
        ("no such partition", fetch("fetched", vec![partition(4, 0)])),
        ("no such topic", fetch("not-there", vec![partition(0, 0)])),
        ("committed", fetch("fetched", vec![partition(0, 0)]).with_isolation_level(1)),
    ];
    let mut observed = Vec::new();
    for (words, request) in cases {
        observed.push(format!("{words}: {}", described(&connection.call(11, &request)?)));
    }
    assert_observed(cluster, &observed, EXPECTED_FETCHES);
    Ok(())
}

const EXPECTED_FETCHES: &str = "
from the start: top 0; 0: 0 high 10 stable 10 start 0 bytes 334
from the middle of a batch: top 0; 0: 0 high 10 stable 10 start 0 bytes 176
at the end: top 0; 0: 0 high 10 stable 10 start 0 bytes 0
beyond the end: top 0; 0: 1 high -1 stable -1 start -1 bytes 0
before the start: top 0; 0: 1 high -1 stable -1 start -1 bytes 0
a leader epoch of the future: top 0; 0: 75 high -1 stable -1 start -1 bytes 0
a limit within a batch: top 0; 0: 0 high 10 stable 10 start 0 bytes 100
a limit below the first batch: top 0; 0: 0 high 10 stable 10 start 0 bytes 88
no such partition: top 0; 4: 3 high -1 stable -1 start -1 bytes 0
no such topic: top 0; 0: 3 high -1 stable -1 start -1 bytes 0
committed: top 0; 0: 0 high 10 stable 10 start 0 bytes 334
";

fn check_sessions(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    filled(connection, "session")?;
    let mut observed = Vec::new();
    let opened = connection.call(11, &fetch("session", vec![partition(0, 10)]).with_session_epoch(0))?;
    assert_ne!(opened.session_id, 0);
    observed.push(format!("open: {}", described(&opened)));
    let next = |epoch: i32, partitions: Vec<FetchPartition>| {
        let mut request =
            fetch("session", partitions).with_session_id(opened.session_id).with_session_epoch(epoch);
        request.topics.retain(|topic| !topic.partitions.is_empty());
        request
    };
    let steps = [
        ("nothing new", next(1, vec![])),
        ("another offset", next(2, vec![partition(0, 7)])),
        ("a skipped epoch", next(4, vec![])),
        ("the right epoch", next(3, vec![])),
        ("a partition that is not there", next(4, vec![partition(3, 0)])),
        ("and again", next(5, vec![])),
        ("no such session", fetch("session", vec![]).with_session_id(1).with_session_epoch(1)),
        ("closed", next(-1, vec![])),
        ("after the close", next(6, vec![])),
    ];
    for (words, request) in steps {
        let reply = connection.call(11, &request)?;
        let session = if reply.session_id == opened.session_id { "same" } else { "none" };
        observed.push(format!("{words}: {session} session, {}", described(&reply)));
    }
    assert_observed(cluster, &observed, EXPECTED_SESSIONS);
    Ok(())
}

const EXPECTED_SESSIONS: &str = "
open: top 0; 0: 0 high 10 stable 10 start 0 bytes 0
nothing new: same session, top 0
another offset: same session, top 0; 0: 0 high 10 stable 10 start 0 bytes 88
a skipped epoch: none session, top 71
the right epoch: same session, top 0; 0: 0 high 10 stable 10 start 0 bytes 88
a partition that is not there: same session, top 0; 0: 0 high 10 stable 10 start 0 bytes 88; 3: 3 high -1 stable -1 start -1 bytes 0
and again: same session, top 0; 0: 0 high 10 stable 10 start 0 bytes 88; 3: 3 high -1 stable -1 start -1 bytes 0
no such session: none session, top 70
closed: none session, top 0
after the close: none session, top 70
";

fn check_offsets(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "listed", &[("retention.ms", "-1")])?;
    for timestamp in [1_000, 3_000, 2_000] {
        produce(connection, "listed", 0, &CraftedBatch::new(2, timestamp).bytes())?;
    }
    let mut observed = Vec::new();
    let wanted: [(&str, i32, i32, i64); 9] = [
        ("earliest", 0, -1, -2),
        ("latest", 0, -1, -1),
        ("max timestamp", 0, -1, -3),
        ("timestamp 0", 0, -1, 0),
        ("timestamp 1500", 0, -1, 1_500),
        ("timestamp 3000", 0, -1, 3_000),
        ("timestamp of the far future", 0, -1, i64::MAX),
        ("no such partition", 5, -1, -1),
        ("a leader epoch of the future", 0, 9, -1),
    ];
    for (words, index, epoch, timestamp) in wanted {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(index)
            .with_current_leader_epoch(epoch)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name("listed")).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let reply = connection.call(7, &request)?;
        let found = &reply.topics[0].partitions[0];
        let stamp = if found.timestamp > 1_000_000 { "now".to_owned() } else { found.timestamp.to_string() };
        observed.push(format!("{words}: {} at {} stamped {stamp}", found.error_code, found.offset));
    }
    for (words, index, current, epoch) in
        [("epoch 0", 0, -1, 0), ("epoch 5", 0, -1, 5), ("no such partition", 5, -1, 0), ("ahead", 0, 9, 0)]
    {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(index)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic =
            OffsetForLeaderTopic::default().with_topic(name("listed")).with_partitions(vec![partition]);
        let request =
            OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let reply = connection.call(4, &request)?;
        let found = &reply.topics[0].partitions[0];
        observed.push(format!(
            "{words}: {} epoch {} ends {}",
            found.error_code, found.leader_epoch, found.end_offset
        ));
    }
    assert_observed(cluster, &observed, EXPECTED_OFFSETS);
    Ok(())
}

const EXPECTED_OFFSETS: &str = "
earliest: 0 at 0 stamped -1
latest: 0 at 7 stamped -1
max timestamp: 0 at 0 stamped now
timestamp 0: 0 at 0 stamped now
timestamp 1500: 0 at 0 stamped now
timestamp 3000: 0 at 0 stamped now
timestamp of the far future: 0 at -1 stamped -1
no such partition: 3 at -1 stamped -1
a leader epoch of the future: 75 at -1 stamped -1
epoch 0: 0 epoch 0 ends 7
epoch 5: 0 epoch -1 ends -1
no such partition: 3 epoch -1 ends -1
ahead: 75 epoch -1 ends -1
";
