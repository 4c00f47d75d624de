//! Replays what is kept in `fuzz/corpus`, cut short and changed byte by byte, through the checks of the fuzz targets.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../fuzz/src/lib.rs"]
mod checks;

use std::fs;
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use checks::{CHECKS, Check};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    BrokerId, FetchResponse, JoinGroupResponse, MetadataResponse, ProduceResponse, ProducerId, TopicName,
};
use kafka_protocol::protocol::{Encodable, Message, StrBytes};
use kmirror::mirror::Share;
use kmirror::mirror::lease::protocol::{Assignment, Claim};
use kmirror::mirror::mm2::formats::{Checkpoint, Heartbeat, OffsetSync};
use kmirror::mirror::state::TopicPartition;
use kmirror::mirror::state::mm2_offsets;
use kmirror::mirror::state::records::{Gap, Owner, Position, StateRecord};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};

/// Files are cut and changed at this many places at most.
const PLACES_MAX: usize = 50;
/// A file of the corpus is a seed, not a load.
const FILE_BYTES_MAX: u64 = 16 * 1024;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn files(target: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    files
}

fn replay(target: &str, check: Check) {
    for file in files(target) {
        // Shown when the check panics.
        println!("{}", file.display());
        assert!(fs::metadata(&file).unwrap().len() <= FILE_BYTES_MAX);
        let data = fs::read(&file).unwrap();
        check(&data);
        let step = data.len() / PLACES_MAX + 1;
        for at in (0..data.len()).step_by(step) {
            check(&data[..at]);
            let mut changed = data.clone();
            for change in [0x01, 0x80, 0xff] {
                changed[at] = data[at] ^ change;
                check(&changed);
            }
        }
    }
}

#[test]
fn the_corpus_holds() {
    for (target, check) in CHECKS {
        replay(target, check);
    }
}

/// Several changes at once, drawn by a seed. `KMIRROR_FUZZ_ROUNDS` asks for more of them, where there is no fuzzer.
#[test]
fn random_changes_hold() {
    let rounds =
        std::env::var("KMIRROR_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    for (target, check) in CHECKS {
        let files = files(target);
        let mut random = 1;
        for round in 0..rounds {
            for file in &files {
                let data = changed(&fs::read(file).unwrap(), &mut random);
                // Shown when the check panics.
                println!("{}, round {round}: {}", file.display(), data.escape_ascii());
                check(&data);
            }
        }
    }
}

/// A few bytes changed, doubled or taken out, with a liking for the values at which counts and lengths turn.
fn changed(data: &[u8], random: &mut u64) -> Vec<u8> {
    let mut below = |sides: usize| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) as usize % sides.max(1)
    };
    let mut data = data.to_vec();
    for _ in 0..=below(6) {
        let at = below(data.len());
        let until = (at + 1 + below(8)).min(data.len());
        match below(5) {
            0 => drop(data.drain(at..until)),
            1 => {
                let copy = data[at..until].to_vec();
                data.splice(at..at, copy);
            }
            2 if at < data.len() => data[at] ^= 1 << below(8),
            3 if at < data.len() => data[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][below(6)],
            _ => data[at..until].iter_mut().for_each(|byte| *byte = below(256) as u8),
        }
    }
    data
}

#[test]
fn every_target_has_a_check() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    targets.sort();
    assert_eq!(targets, CHECKS.map(|(target, _)| target.to_owned()));
}

#[test]
#[ignore = "writes the seeds into fuzz/corpus"]
fn write_seeds() {
    for (target, name, bytes) in seeds() {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::write(corpus(target).join(name), bytes).unwrap();
    }
}

fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for bits in 0..5 {
        let batch = batch(Codec::from_bits(bits).unwrap(), 3);
        let two = [&batch[..], &batch[..], &batch[..40]].concat();
        seeds.push(("record_entries", format!("codec-{bits}"), two));
        seeds.push(("broker_append", format!("codec-{bits}"), batch.to_vec()));
    }
    seeds.push(("record_entries", "magic-0".to_owned(), message(0).to_vec()));
    seeds.push(("record_entries", "magic-1".to_owned(), message(1).to_vec()));
    for version in [4, 11, 12, 13, 17] {
        let frame = [&[(version - 4) as u8, 7][..], &fetch_response(version)].concat();
        seeds.push(("fetch_walker", format!("version-{version}"), frame));
    }
    seeds.extend(metadata_and_produce());
    let joined = JoinGroupResponse::default().with_member_id(text("member"));
    seeds.push(("replies", "join-group".to_owned(), [&[11][..], &encoded(&joined, 5)].concat()));
    seeds.extend(own_records());
    seeds.extend(mirror_makers_records());
    for name in ["one-way", "both-ways", "bulk-load"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("configs/{name}.properties"));
        seeds.push(("properties", name.to_owned(), fs::read(file).unwrap()));
    }
    let escapes = "clusters=A,B\nA.bootstrap.servers : h\\u003a1 # one\n! no\nA->B.topics=a\\,b\\\n   ,c\\";
    seeds.push(("properties", "escapes".to_owned(), escapes.into()));
    for (name, patterns) in [
        ("plain", "orders\npayments.*\norders"),
        ("look-around", "(?!mm2).*[^-]\n(?<=a)b{2,3}+\\Qx.y\\E\naaaab"),
        ("classes", "[a-z&&[^bc]]+\\p{Alpha}\\d\n\u{e9}t\u{e9}"),
    ] {
        seeds.push(("patterns", name.to_owned(), patterns.into()));
    }
    seeds
}

fn metadata_and_produce() -> Vec<(&'static str, String, Vec<u8>)> {
    let partition = MetadataResponsePartition::default()
        .with_leader_id(BrokerId(1))
        .with_leader_epoch(4)
        .with_replica_nodes(vec![BrokerId(1)])
        .with_isr_nodes(vec![BrokerId(1)]);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text("a"))))
        .with_partitions(vec![partition.clone(), partition.with_partition_index(1)]);
    let broker =
        MetadataResponseBroker::default().with_node_id(BrokerId(1)).with_host(text("h")).with_port(9092);
    let answer = MetadataResponse::default().with_brokers(vec![broker]).with_topics(vec![topic]);
    let mut seeds = Vec::new();
    for version in [4, 9, 13] {
        let reply = encoded(&answer, version);
        let twice = [&reply[..], &reply[1..]].concat();
        seeds.push(("metadata", format!("version-{version}"), twice));
    }
    let partition = PartitionProduceResponse::default().with_index(1).with_base_offset(7);
    let topic = TopicProduceResponse::default()
        .with_name(TopicName(text("b")))
        .with_partition_responses(vec![partition]);
    let answer = ProduceResponse::default().with_responses(vec![topic]);
    for version in [3, 9, 12, 13] {
        seeds.push(("produce_response", format!("version-{version}"), encoded(&answer, version)));
    }
    seeds
}

fn own_records() -> Vec<(&'static str, String, Vec<u8>)> {
    let source = TopicPartition::new("t", 3);
    let (source_topic_id, target_topic_id) =
        (uuid::Uuid::from_bytes([1; 16]), uuid::Uuid::from_bytes([2; 16]));
    let position = Position {
        source_topic_id,
        target_topic_id,
        upstream: 5,
        downstream: 4,
        leader_epoch: 1,
        producer_id: 9,
        producer_epoch: 0,
        at_ms: 1,
    };
    let gap = Gap { source_topic_id, from: 1, to: 2, at_ms: 3, reason: "retention".into() };
    let owner = Owner { target: "B".into(), shard: 0 };
    let record = |record: StateRecord| pair(&record.key().encode(&owner), &record.encode_value());
    let claim =
        Claim { held_since: 1, since_ms: 2, name: "host".into(), share: Share::Unknown, naming: None };
    let assignment = Assignment {
        held_since: 1,
        holder: "member".into(),
        holder_name: "host".into(),
        before: vec![(Share::Unknown, "other".into())],
    };
    vec![
        ("state_records", "position".to_owned(), record(StateRecord::Position(source.clone(), position))),
        ("state_records", "gap".to_owned(), record(StateRecord::Gap(source.clone(), gap))),
        (
            "state_records",
            "mm2-offset".to_owned(),
            pair(&mm2_offsets::key("MirrorSourceConnector", "A", &source), &mm2_offsets::value(7)),
        ),
        ("lease", "claim".to_owned(), claim.encode().to_vec()),
        ("lease", "assignment".to_owned(), assignment.encode().to_vec()),
    ]
}

fn mirror_makers_records() -> Vec<(&'static str, String, Vec<u8>)> {
    let place = TopicPartition::new("t", 3);
    let sync = OffsetSync { source: place.clone(), upstream: 5, downstream: 4 };
    let (group, metadata) = ("g".into(), "".into());
    let checkpoint = Checkpoint { group, target: place, upstream: 5, downstream: 4, metadata };
    let heartbeat = Heartbeat { source: "A".into(), target: "B".into(), timestamp_ms: 1 };
    [
        ("offset-sync", pair(&sync.key(), &sync.value())),
        ("checkpoint", pair(&checkpoint.key(), &checkpoint.value())),
        ("heartbeat", pair(&heartbeat.key(), &heartbeat.value())),
        ("target-state", pair(b"target-state-x", br#"{"state.v2":"PAUSED"}"#)),
        ("tasks-fencing", pair(b"tasks-fencing-x", br#"{"task-count":3}"#)),
    ]
    .map(|(name, record)| ("mirror_maker", name.to_owned(), record))
    .into()
}

fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&[key.len() as u8][..], key, value].concat()
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// A reply behind its version, as the checks take it.
fn encoded<T: Encodable + Message>(reply: &T, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_u8((version - T::VERSIONS.min) as u8);
    reply.encode(&mut bytes, version).unwrap();
    bytes.to_vec()
}

fn batch(codec: Codec, records: i64) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    for number in 0..records {
        let headers = vec![("h".into(), None), ("h".into(), Some("v".into()))];
        let key = (number % 2 == 0).then(|| "key".into());
        builder.push(&RecordData { timestamp: number, key, value: Some("value".into()), headers }).unwrap();
    }
    builder.build().unwrap()
}

/// An uncompressed message of the old formats. Its checksum is not verified where the conversion does not ask for it.
fn message(magic: u8) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u8(magic);
    body.put_u8(0);
    if magic == 1 {
        body.put_i64(1_000);
    }
    body.put_i32(-1);
    body.put_i32(2);
    body.put_slice(b"ab");
    let mut out = BytesMut::new();
    out.put_i64(0);
    out.put_i32(body.len() as i32 + 4);
    out.put_u32(crc32(&body));
    out.put_slice(&body);
    out.freeze()
}

/// The checksum of the old formats (IEEE).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn fetch_response(version: i16) -> Vec<u8> {
    let aborted = AbortedTransaction::default().with_producer_id(ProducerId(3)).with_first_offset(1);
    let records =
        [&batch(Codec::None, 2)[..], &batch(Codec::Lz4, 2)[..], &batch(Codec::None, 2)[..30]].concat();
    let partition = PartitionData::default()
        .with_high_watermark(9)
        .with_last_stable_offset(8)
        .with_log_start_offset(if version < 5 { -1 } else { 0 })
        .with_aborted_transactions(Some(vec![aborted]))
        .with_records(Some(records.into()));
    let topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
    let topic = match version {
        13.. => topic.with_topic_id(uuid::Uuid::from_bytes([3; 16])),
        _ => topic.with_topic(TopicName(text("t"))),
    };
    let mut bytes = BytesMut::new();
    bytes.put_i32(7);
    if version >= 12 {
        bytes.put_u8(0);
    }
    FetchResponse::default().with_responses(vec![topic]).encode(&mut bytes, version).unwrap();
    bytes.to_vec()
}
