//! A fetch lane against a broker that the test plays by hand.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, RequestHeader, TopicName};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::{FetchLane, spawn_fetch_lane};
use crate::client::scripted::{Accepted, Broker, encode_reply};
use crate::client::{FetchCommand, FetchEvent, FetchPartition, FetchSettings, Fetched, LaneId, PartitionKey};
use crate::net;

const TOPIC_ID: Uuid = Uuid::from_u128(9);

struct Rig {
    broker: Broker,
    lane: FetchLane,
    events: mpsc::Receiver<(LaneId, FetchEvent)>,
    /// How often the lane said that nothing comes.
    silences: u32,
}

impl Rig {
    async fn start(version_max: i16, settings: FetchSettings) -> Rig {
        let broker = Broker::offering::<FetchRequest>(version_max).await;
        let (sender, events) = mpsc::channel(4);
        let (seam, net) = (broker.seam(), net::Settings::default());
        let lane = spawn_fetch_lane(seam, net, broker.host_port(), settings, LaneId(7), sender);
        Rig { broker, lane, events, silences: 0 }
    }

    async fn connected(&mut self) -> Accepted {
        let accepted = self.broker.accept().await;
        assert!(matches!(self.event().await, FetchEvent::Connected));
        accepted
    }

    async fn event(&mut self) -> FetchEvent {
        loop {
            let (lane, event) = self.events.recv().await.expect("the lane is alive");
            assert_eq!(lane, LaneId(7));
            match event {
                FetchEvent::Silent => self.silences += 1,
                event => return event,
            }
        }
    }

    async fn fetched(&mut self) -> Fetched {
        match self.event().await {
            FetchEvent::Fetched(fetched) => fetched,
            other => panic!("{other:?}"),
        }
    }

    async fn disconnected(&mut self, why: &str) {
        match self.event().await {
            FetchEvent::Disconnected { reason } => assert!(reason.contains(why), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    fn tell(&self, command: FetchCommand) {
        self.lane.commands.send(command).unwrap();
    }

    fn add(&self, key: u32, generation: u32, fetch_offset: i64) {
        self.tell(FetchCommand::Add(added(key, generation, fetch_offset)));
    }
}

/// Partition `key` of the one topic.
fn added(key: u32, generation: u32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        key: PartitionKey(key),
        generation,
        topic: Arc::from("t"),
        topic_id: TOPIC_ID,
        partition: key as i32,
        fetch_offset,
        current_leader_epoch: 3,
        last_fetched_epoch: -1,
    }
}

/// A batch as far as a lane looks.
fn batch(base_offset: i64, records: i32, size_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![base_offset as u8; size_bytes.max(61)];
    bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[12..16].copy_from_slice(&5_i32.to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&records.to_be_bytes());
    bytes
}

fn data(partition: i32, records: Vec<u8>) -> PartitionData {
    PartitionData::default()
        .with_partition_index(partition)
        .with_high_watermark(1_000)
        .with_last_stable_offset(900)
        .with_log_start_offset(1)
        .with_records(Some(records.into()))
}

fn response(header: &RequestHeader, session_id: i32, partitions: Vec<PartitionData>) -> Bytes {
    let version = header.request_api_version;
    let topic = FetchableTopicResponse::default();
    let topic = match version {
        13.. => topic.with_topic_id(TOPIC_ID),
        _ => topic.with_topic(TopicName("t".into())),
    };
    let topics = if partitions.is_empty() { vec![] } else { vec![topic.with_partitions(partitions)] };
    let mut response = FetchResponse::default().with_responses(topics);
    if version >= 7 {
        response = response.with_session_id(session_id);
    }
    encode_reply::<FetchRequest>(header, &response)
}

fn refusal(header: &RequestHeader, code: i16) -> Bytes {
    encode_reply::<FetchRequest>(header, &FetchResponse::default().with_error_code(code))
}

/// (session id, session epoch, asked (partition, offset), forgotten partitions) of a request.
type Asked = (i32, i32, Vec<(i32, i64)>, Vec<i32>);

async fn next(accepted: &mut Accepted) -> (RequestHeader, Asked) {
    let (header, request) = accepted.request::<FetchRequest>().await;
    (header, asked(&request))
}

fn asked(request: &FetchRequest) -> Asked {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    let asked = partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect();
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| topic.partitions.clone());
    (request.session_id, request.session_epoch, asked, forgotten.collect())
}

fn offsets(fetched: &Fetched) -> Vec<i64> {
    let first = |bytes: &Bytes| i64::from_be_bytes(*bytes.first_chunk().unwrap());
    fetched.batches.iter().map(|batch| first(&batch.bytes)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_asks_for_what_changed_only() {
    for version in [7, 11, 12, 13, 16, 17, 99] {
        let mut rig = Rig::start(version, FetchSettings::default()).await;
        let mut broker = rig.connected().await;
        rig.add(0, 1, 10);
        rig.add(1, 1, 20);
        let (header, first) = next(&mut broker).await;
        assert_eq!(header.request_api_version, version.min(17));
        assert_eq!(first, (0, 0, vec![(0, 10), (1, 20)], vec![]));
        let records = [batch(10, 5, 100), batch(15, 1, 200)].concat();
        broker.write(&response(&header, 44, vec![data(0, records.clone()), data(1, vec![])])).await;
        let fetched = rig.fetched().await;
        assert_eq!((fetched.key, fetched.generation), (PartitionKey(0), 1));
        let bytes: Vec<u8> = fetched.batches.iter().flat_map(|batch| batch.bytes.to_vec()).collect();
        assert_eq!(bytes, records);
        let watermarks = (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset);
        assert_eq!(watermarks, (1_000, 900, 1));
        assert_eq!(rig.fetched().await.batches.len(), 0, "the first watermarks of the other partition");
        let (header, second) = next(&mut broker).await;
        assert_eq!(second, (44, 1, vec![(0, 16)], vec![]));
        broker.write(&response(&header, 44, vec![])).await;
        let (header, third) = next(&mut broker).await;
        assert_eq!(third, (44, 2, vec![], vec![]));
        rig.tell(FetchCommand::Remove(PartitionKey(1)));
        rig.add(2, 1, 30);
        broker.write(&response(&header, 44, vec![])).await;
        assert_eq!(next(&mut broker).await.1, (44, 3, vec![(2, 30)], vec![1]));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_session_every_fetch_is_full_and_takes_turns() {
    for version in [4, 6, 17] {
        let mut rig = Rig::start(version, FetchSettings::default()).await;
        let mut broker = rig.connected().await;
        rig.add(0, 1, 10);
        rig.add(1, 1, 20);
        let (header, _) = next(&mut broker).await;
        broker.write(&response(&header, 0, vec![data(0, batch(10, 2, 100))])).await;
        assert_eq!(offsets(&rig.fetched().await), [10]);
        let expected = if version < 7 { (0, -1) } else { (0, 0) };
        let (_, (id, epoch, asked, _)) = next(&mut broker).await;
        assert_eq!((id, epoch), expected);
        assert_eq!(asked, [(1, 20), (0, 12)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_without_id_is_fetched_by_name() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, _) = next(&mut broker).await;
    assert_eq!(header.request_api_version, 17);
    rig.tell(FetchCommand::Add(FetchPartition {
        topic_id: Uuid::nil(),
        topic: "u".into(),
        ..added(1, 1, 0)
    }));
    broker.write(&response(&header, 44, vec![])).await;
    let (header, (id, epoch, asked, _)) = next(&mut broker).await;
    assert_eq!(header.request_api_version, 12);
    assert_eq!((id, epoch, asked.len()), (44, 0, 2), "the session starts again with names");
}

#[tokio::test(start_paused = true)]
async fn session_errors_lead_to_a_full_fetch() {
    for (code, expected) in [(70, (0, 0)), (71, (44, 0)), (106, (44, 0))] {
        let mut rig = Rig::start(17, FetchSettings::default()).await;
        let mut broker = rig.connected().await;
        rig.add(0, 1, 10);
        rig.add(1, 1, 20);
        let (header, _) = next(&mut broker).await;
        broker.write(&response(&header, 44, vec![data(0, batch(10, 1, 70))])).await;
        let (header, _) = next(&mut broker).await;
        broker.write(&refusal(&header, code)).await;
        let (header, (id, epoch, asked, forgotten)) = next(&mut broker).await;
        assert_eq!((id, epoch), expected);
        let mut asked = asked;
        asked.sort_unstable();
        assert_eq!((asked, forgotten), (vec![(0, 11), (1, 20)], vec![]));
        broker.write(&response(&header, 45, vec![])).await;
        assert_eq!(next(&mut broker).await.1, (45, 1, vec![], vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_every_fetch_is_given_time() {
    for code in [70, 71, -1] {
        let mut rig = Rig::start(17, FetchSettings::default()).await;
        rig.add(0, 1, 10);
        for _ in 0..3 {
            let mut broker = rig.connected().await;
            let mut asked = 0;
            while let Some((header, _)) = broker.frame().await {
                asked += 1;
                assert!(asked < 10);
                broker.write(&refusal(&header, code)).await;
            }
            rig.disconnected(&format!("refused with error code {code}")).await;
        }
    }
}

/// Case 53: a broker that dies in the middle of its answer.
#[tokio::test(start_paused = true)]
async fn after_a_cut_connection_the_lane_goes_on_behind_what_it_handed_over() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, _) = next(&mut broker).await;
    let bytes = response(&header, 44, vec![data(0, [batch(10, 5, 100), batch(15, 5, 100)].concat())]);
    broker.write(&bytes[..bytes.len() - 50]).await;
    assert_eq!(offsets(&rig.fetched().await), [10]);
    drop(broker);
    rig.disconnected("Fetch v17").await;
    let mut broker = rig.connected().await;
    let (header, asked) = next(&mut broker).await;
    // The broker counted the request: the session is replaced.
    assert_eq!(asked, (44, 0, vec![(0, 15)], vec![]));
    broker.write(&response(&header, 46, vec![data(0, batch(15, 5, 100))])).await;
    assert_eq!(offsets(&rig.fetched().await), [15]);
}

/// Case 54: a connection that only seems to be open.
#[tokio::test(start_paused = true)]
async fn slow_bytes_are_understood_and_silence_is_not_waited_out_for_ever() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, _) = next(&mut broker).await;
    for byte in response(&header, 44, vec![data(0, batch(10, 5, 70))]) {
        broker.write(&[byte]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(offsets(&rig.fetched().await), [10]);
    next(&mut broker).await;
    let (start, silences) = (Instant::now(), rig.silences);
    rig.disconnected("no reply to Fetch v17 within 30500 ms").await;
    assert!((28..=31).contains(&start.elapsed().as_secs()));
    assert_eq!((silences, rig.silences), (0, 8), "every three and a half seconds");
    rig.connected().await;
}

/// The largest batch that a partition is asked for in the next fetch.
async fn next_max_bytes(broker: &mut Accepted) -> (RequestHeader, Vec<i32>) {
    let (header, request) = broker.request::<FetchRequest>().await;
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    (header, partitions.map(|partition| partition.partition_max_bytes).collect())
}

#[tokio::test(start_paused = true)]
async fn more_is_asked_for_when_batches_are_large_or_come_cut() {
    let settings = FetchSettings { max_partition_fetch_bytes: 1_000, ..FetchSettings::default() };
    let mut rig = Rig::start(17, settings).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, bytes) = next_max_bytes(&mut broker).await;
    assert_eq!(bytes, [1_000]);
    // A part of a batch, too small to tell its size.
    broker.write(&response(&header, 44, vec![data(0, batch(10, 1, 5_000)[..11].to_vec())])).await;
    assert!(rig.fetched().await.batches.is_empty());
    let (header, bytes) = next_max_bytes(&mut broker).await;
    assert_eq!(bytes, [2_000]);
    // A part that tells the size of the whole.
    broker.write(&response(&header, 44, vec![data(0, batch(10, 1, 5_000)[..1_900].to_vec())])).await;
    let (header, bytes) = next_max_bytes(&mut broker).await;
    assert_eq!(bytes, [40_000]);
    // A whole batch, larger than what was seen before, and the beginning of the next.
    let records = [batch(10, 1, 9_000), batch(11, 1, 5_000)[..400].to_vec()].concat();
    broker.write(&response(&header, 44, vec![data(0, records)])).await;
    assert_eq!(offsets(&rig.fetched().await), [10]);
    assert_eq!(next_max_bytes(&mut broker).await.1, [72_000]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_any_slab_comes_whole() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, _) = next(&mut broker).await;
    let whole = batch(10, 3, 9_000_000);
    broker.write(&response(&header, 44, vec![data(0, whole.clone()), data(1, vec![])])).await;
    let fetched = rig.fetched().await;
    assert!(fetched.batches[0].bytes == whole);
    assert_eq!(next(&mut broker).await.1.2, [(0, 13)]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_lane_reads_nothing_but_hears_commands() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 0);
    let (header, _) = next(&mut broker).await;
    rig.tell(FetchCommand::Pause);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let records: Vec<u8> = (0..100).flat_map(|offset| batch(offset, 1, 10_000)).collect();
    let bytes = response(&header, 44, vec![data(0, records)]);
    // The network holds 256 KB; the rest waits until the lane reads.
    let writing = tokio::spawn(async move {
        broker.write(&bytes).await;
        broker
    });
    assert!(tokio::time::timeout(Duration::from_secs(300), rig.events.recv()).await.is_err());
    assert!(!writing.is_finished());
    rig.tell(FetchCommand::Resume);
    let mut got = Vec::new();
    while got.len() < 100 {
        got.extend(offsets(&rig.fetched().await));
    }
    assert_eq!(got, (0..100).collect::<Vec<_>>());
    assert_eq!(next(&mut writing.await.unwrap()).await.1.2, [(0, 100)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_on_the_wire_of_a_removed_partition_is_nobodys() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    (0..3).for_each(|key| rig.add(key, 1, 10));
    let (header, _) = next(&mut broker).await;
    rig.tell(FetchCommand::Remove(PartitionKey(0)));
    rig.tell(FetchCommand::Remove(PartitionKey(1)));
    rig.add(1, 2, 50);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let partitions = (0..3).map(|partition| data(partition, batch(10, 1, 3_000))).collect();
    broker.write(&response(&header, 44, partitions)).await;
    let fetched = rig.fetched().await;
    assert_eq!((fetched.key, offsets(&fetched)), (PartitionKey(2), vec![10]));
    // Re-added, it is named with its new offset and not forgotten.
    let (header, (_, _, mut asked, forgotten)) = next(&mut broker).await;
    asked.sort_unstable();
    assert_eq!((asked, forgotten), (vec![(1, 50), (2, 11)], vec![0]));
    broker.write(&response(&header, 44, vec![data(1, batch(50, 1, 80))])).await;
    let fetched = rig.fetched().await;
    assert_eq!((fetched.generation, offsets(&fetched)), (2, vec![50]));
}

#[tokio::test(start_paused = true)]
async fn a_partition_removed_in_the_middle_of_its_records_stops_there() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    rig.add(1, 1, 10);
    let (header, _) = next(&mut broker).await;
    let records = [batch(10, 1, 100), batch(11, 1, 100)].concat();
    let bytes = response(&header, 44, vec![data(0, records), data(1, batch(10, 1, 100))]);
    broker.write(&bytes[..200]).await;
    assert_eq!(offsets(&rig.fetched().await), [10]);
    rig.tell(FetchCommand::Remove(PartitionKey(0)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    broker.write(&bytes[200..]).await;
    assert_eq!(rig.fetched().await.key, PartitionKey(1));
    assert_eq!(next(&mut broker).await.1, (44, 1, vec![(1, 11)], vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_partition_in_error_leaves_and_the_others_go_on() {
    use kafka_protocol::messages::fetch_response::EpochEndOffset;
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    (0..4).for_each(|key| rig.add(key, 8, 10));
    let (header, _) = next(&mut broker).await;
    let diverging = EpochEndOffset::default().with_epoch(2).with_end_offset(7);
    let mut damaged = [batch(10, 1, 80), batch(11, 1, 80)].concat();
    damaged[80 + 16] = 7;
    let partitions = vec![
        data(0, vec![]).with_error_code(6),
        data(1, vec![]).with_diverging_epoch(diverging),
        data(2, damaged),
        data(3, batch(10, 1, 80)),
    ];
    broker.write(&response(&header, 44, partitions)).await;
    let mut failed = Vec::new();
    for _ in 0..2 {
        match rig.event().await {
            FetchEvent::Failed { key, generation: 8, code, diverging } => {
                failed.push((key.0, code, diverging))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(failed, [(0, 6, None), (1, 0, Some((2, 7)))]);
    let before_damage = rig.fetched().await;
    assert_eq!((before_damage.key.0, offsets(&before_damage)), (2, vec![10]));
    match rig.event().await {
        FetchEvent::Damaged { key: PartitionKey(2), generation: 8, offset: 11, .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.fetched().await.key, PartitionKey(3));
    assert_eq!(next(&mut broker).await.1, (44, 1, vec![(3, 11)], vec![0, 1, 2]));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_lane_waits_before_its_next_fetch() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    let (header, _) = next(&mut broker).await;
    let throttled = FetchResponse::default().with_throttle_time_ms(4_000).with_session_id(44);
    let start = Instant::now();
    broker.write(&encode_reply::<FetchRequest>(&header, &throttled)).await;
    match rig.event().await {
        FetchEvent::Throttled(throttle) => assert_eq!(throttle, Duration::from_secs(4)),
        other => panic!("{other:?}"),
    }
    next(&mut broker).await;
    assert_eq!(start.elapsed().as_secs(), 4);
}

/// Case 54: a broker closes what is idle.
#[tokio::test(start_paused = true)]
async fn without_partitions_nothing_is_fetched_and_an_idle_close_is_no_news() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let broker = rig.connected().await;
    assert!(tokio::time::timeout(Duration::from_secs(60), rig.events.recv()).await.is_err());
    drop(broker);
    assert!(tokio::time::timeout(Duration::from_secs(60), rig.events.recv()).await.is_err());
    rig.add(0, 1, 10);
    let mut broker = rig.connected().await;
    assert_eq!(next(&mut broker).await.1.2, [(0, 10)]);
    // And a lane that is left alone closes by itself.
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    let start = Instant::now();
    assert!(broker.frame().await.is_none());
    assert_eq!(start.elapsed().as_secs(), 540);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_does_not_wait_long_while_a_partition_is_out() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    rig.add(1, 1, 10);
    let (header, request) = broker.request::<FetchRequest>().await;
    assert_eq!(request.max_wait_ms, 500);
    rig.tell(FetchCommand::Remove(PartitionKey(1)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    broker.write(&response(&header, 44, vec![])).await;
    let (header, request) = broker.request::<FetchRequest>().await;
    assert_eq!(request.max_wait_ms, 10);
    tokio::time::sleep(Duration::from_secs(1)).await;
    broker.write(&response(&header, 44, vec![])).await;
    assert_eq!(broker.request::<FetchRequest>().await.1.max_wait_ms, 500);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_comes_a_fetch_waits_longer() {
    let check = async |settings: FetchSettings, records: bool, after_ms: u64, waits: [i32; 3]| {
        let mut rig = Rig::start(17, settings).await;
        let mut broker = rig.connected().await;
        rig.add(0, 1, 10);
        let mut found = Vec::new();
        for offset in 10..32 {
            let (header, request) = broker.request::<FetchRequest>().await;
            found.push(request.max_wait_ms);
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let partitions = if records { vec![data(0, batch(offset, 1, 100))] } else { vec![] };
            broker.write(&response(&header, 44, partitions)).await;
            if records {
                rig.fetched().await;
            }
        }
        assert_eq!([found[0], found[19], found[20]], waits);
    };
    let settings = FetchSettings::default();
    check(settings.clone(), false, 0, [500, 500, 2_000]).await;
    check(settings.clone(), true, 200, [500, 500, 500]).await;
    // As a heartbeat comes each second, for which there is no need to ask twice.
    check(settings.clone(), true, 300, [500, 500, 2_000]).await;
    check(FetchSettings { fetch_min_bytes: 2, ..settings }, false, 0, [500, 500, 500]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_right_ends_the_connection() {
    for broken in ["correlation", "size", "unasked", "trailing"] {
        let mut rig = Rig::start(17, FetchSettings::default()).await;
        let mut broker = rig.connected().await;
        let mut header = RequestHeader::default().with_request_api_version(17).with_correlation_id(1);
        if broken != "unasked" {
            rig.add(0, 1, 10);
            header = next(&mut broker).await.0;
        }
        if broken == "correlation" {
            header.correlation_id += 1;
        }
        let mut bytes = response(&header, 44, vec![]).to_vec();
        if broken == "size" {
            bytes[..4].copy_from_slice(&(-5_i32).to_be_bytes());
        }
        if broken == "trailing" {
            bytes.push(0);
            let size = bytes.len() as i32 - 4;
            bytes[..4].copy_from_slice(&size.to_be_bytes());
        }
        broker.write(&bytes).await;
        rig.disconnected("10.0.0.1").await;
        rig.add(0, 1, 10);
        rig.connected().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lane_ends_with_its_flow() {
    let mut rig = Rig::start(17, FetchSettings::default()).await;
    let mut broker = rig.connected().await;
    rig.add(0, 1, 10);
    next(&mut broker).await;
    drop(rig.lane.commands);
    rig.lane.task.await.unwrap();
    assert!(broker.frame().await.is_none());
}
