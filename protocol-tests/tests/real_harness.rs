//! Whether the harness itself works: brokers start, stock clients write and read, a node survives a crash.
//! What fails here is no fault of kmirror.

use protocol_tests::Result;
use protocol_tests::compare::{Side, compare_topics};
use protocol_tests::kafka::{
    Client, ClientKind, ClusterSpec, Codec, Isolation, Kafka, KafkaVersion, MirrorMaker, ProducerKind, Step,
};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::records::{ReadRecord, TestRecord, TimestampType};
use std::time::Duration;

/// One node of the older release and three of the current one.
fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a").version(KafkaVersion::V3_9_1), ClusterSpec::new("b").nodes(3))
}

fn sample() -> Vec<TestRecord> {
    let mut records = vec![
        TestRecord::new("key", "value").at(1_700_000_000_000).header("h", Some(b"1")).header("h", None),
        TestRecord { value: Some(b"null key".to_vec()), ..TestRecord::default() }.at(1_700_000_000_001),
        TestRecord::tombstone("null value").at(1_700_000_000_002),
        TestRecord::new("", "").at(1_700_000_000_003).header("", Some(b"")),
        TestRecord::new("schl\u{fc}ssel", "\u{65e5}\u{672c}")
            .at(1_700_000_000_004)
            .header("\u{43a}", Some(&[0xff, 0])),
    ];
    records.extend((0..200).map(|i| TestRecord::new(format!("k{i}"), "x".repeat(i)).at(1_700_000_001_000)));
    records.into_iter().map(|record| record.to_partition(0)).collect()
}

fn assert_read(wanted: &[TestRecord], found: &[ReadRecord]) {
    assert_eq!(found.len(), wanted.len());
    for (wanted, found) in wanted.iter().zip(found) {
        assert_eq!(found.key, wanted.key);
        assert_eq!(found.value, wanted.value);
        assert_eq!(found.headers, wanted.headers);
        assert_eq!(Some(found.timestamp), wanted.timestamp);
        assert_eq!(found.timestamp_type, TimestampType::CreateTime);
    }
}

fn check_client(client: &Client, reader: &Client, admin: &Client, kafka: &Kafka) -> Result<()> {
    let (bootstrap, client_kind) = (kafka.bootstrap(), client.kind());
    for codec in Codec::ALL {
        let topic = format!("{client_kind:?}-{}", codec.name());
        admin.admin(&bootstrap).create_topic(&topic, 1, &[])?;
        let producer =
            client.producer(&bootstrap, &ProducerKind::Idempotent, codec, &[("linger.ms", "50")])?;
        let wanted = sample();
        let offsets = producer.send(&topic, &wanted)?;
        assert_eq!(offsets, (0..wanted.len() as i64).collect::<Vec<_>>());
        assert_read(&wanted, &reader.read(&bootstrap, &topic, Isolation::ReadCommitted)?);
        let leader = admin.admin(&bootstrap).describe_topic(&topic)?.expect("the topic")[0].leader;
        let batches = kafka.stored_batches(leader, &topic, 0)?;
        assert_eq!(batches.iter().map(|batch| batch.record_count()).sum::<i32>(), wanted.len() as i32);
        assert!(batches.iter().all(|batch| batch.producer_id() >= 0), "{batches:?}");
        assert!(batches.iter().any(|batch| batch.codec() == codec.bits()), "{codec:?}: {batches:?}");
        let side = Side { bootstrap: &bootstrap, topic: &topic };
        assert_eq!(compare_topics(reader, side, side, Isolation::ReadCommitted)?, wanted.len());
    }
    Ok(())
}

#[test]
fn the_java_client_writes_and_reads_every_codec() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    check_client(pair.java(), pair.java(), pair.java(), &pair.a)
}

#[test]
fn librdkafka_writes_and_reads_every_codec() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let Some(librdkafka) = pair.real.librdkafka()? else { return Ok(()) };
    assert_eq!(librdkafka.kind(), ClientKind::Librdkafka);
    check_client(librdkafka, pair.java(), pair.java(), &pair.b)?;
    let side = Side { bootstrap: &pair.b.bootstrap(), topic: "Librdkafka-zstd" };
    assert_eq!(compare_topics(librdkafka, side, side, Isolation::ReadCommitted)?, sample().len());
    Ok(())
}

#[test]
fn transactions_commit_abort_and_stay_open() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let bootstrap = pair.a.bootstrap();
    let clients = [Some(pair.java()), pair.real.librdkafka()?];
    for client in clients.into_iter().flatten() {
        let topic = format!("transactions-{:?}", client.kind());
        pair.java().admin(&bootstrap).create_topic(&topic, 1, &[])?;
        let kind = ProducerKind::Transactional(topic.clone());
        let producer = client.producer(&bootstrap, &kind, Codec::Lz4, &[])?;
        let send = |value: &str| Step::Send(topic.clone(), TestRecord::new("k", value).to_partition(0));
        let commit = [Step::Begin, send("committed"), Step::Commit];
        let abort = [Step::Begin, send("aborted"), Step::Flush, Step::Abort];
        let leave_open = [Step::Begin, send("open"), Step::Flush];
        for steps in [&commit[..], &abort, &leave_open] {
            producer.run(steps)?;
        }
        let values = |isolation| -> Result<Vec<String>> {
            let records = pair.java().read(&bootstrap, &topic, isolation)?;
            Ok(records.iter().map(ReadRecord::value_text).collect())
        };
        assert_eq!(values(Isolation::ReadUncommitted)?, ["committed", "aborted", "open"]);
        assert_eq!(values(Isolation::ReadCommitted)?, ["committed"]);
        producer.run(&[Step::Commit])?;
        assert_eq!(values(Isolation::ReadCommitted)?, ["committed", "open"]);
        let batches = pair.a.stored_batches(1, &topic, 0)?;
        assert_eq!(
            batches.iter().map(|batch| batch.is_control()).collect::<Vec<_>>(),
            [false, true, false, true, false, true]
        );
    }
    Ok(())
}

#[test]
fn a_killed_node_comes_back_and_leaders_move() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let bootstrap = pair.b.bootstrap();
    let admin = pair.java().admin(&bootstrap);
    admin.create_topic_on("crash", &[vec![3, 1, 2]], &[("min.insync.replicas", "2")])?;
    let producer = pair.java().producer(&bootstrap, &ProducerKind::Idempotent, Codec::None, &[])?;
    producer.send("crash", &[TestRecord::new("k", "before")])?;
    pair.b.kill(3)?;
    producer.send("crash", &[TestRecord::new("k", "while node 3 is down")])?;
    pair.b.restart(3)?;
    admin.move_leader("crash", 0, &[3, 1, 2])?;
    producer.send("crash", &[TestRecord::new("k", "after")])?;
    let records = pair.java().read(&bootstrap, "crash", Isolation::ReadCommitted)?;
    let values: Vec<String> = records.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, ["before", "while node 3 is down", "after"]);
    assert_eq!(admin.describe_topic("crash")?.expect("the topic")[0].leader, 3);
    Ok(())
}

#[test]
fn topics_are_administered() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let admin = pair.java().admin(&pair.a.bootstrap());
    admin.create_topic("admin", 2, &[("retention.ms", "3600000")])?;
    admin.create_partitions("admin", 3)?;
    admin.alter_topic_configs("admin", &[("retention.ms", None), ("max.message.bytes", Some("2000"))])?;
    let configs: Vec<(String, String)> = admin.topic_configs("admin")?.into_iter().collect();
    assert_eq!(configs, [("max.message.bytes".to_owned(), "2000".to_owned())]);
    let records: Vec<TestRecord> = (0..10).map(|i| TestRecord::new("k", [i]).to_partition(2)).collect();
    pair.java().produce(&pair.a.bootstrap(), "admin", &records)?;
    admin.delete_records("admin", 2, 4)?;
    let offsets = admin.offsets("admin", Isolation::ReadUncommitted)?;
    assert_eq!((offsets[&0].earliest, offsets[&0].latest), (0, 0));
    assert_eq!((offsets[&2].earliest, offsets[&2].latest), (4, 10));
    admin.commit_group_offset("readers", "admin", 2, 7)?;
    assert_eq!(admin.group_offsets("readers")?[&("admin".to_owned(), 2)], 7);
    assert!(admin.groups()?.contains(&"readers".to_owned()));
    assert_eq!(admin.group_members("readers")?, []);
    admin.delete_topic("admin")?;
    assert_eq!(admin.describe_topic("admin")?, None);
    Ok(())
}

#[test]
fn mirror_maker_copies_a_topic_and_stops() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("mm2", 2, &[])?;
    let records: Vec<TestRecord> =
        (0..50).map(|i| TestRecord::new("k", [i]).to_partition(i32::from(i) % 2)).collect();
    pair.java().produce(&pair.a.bootstrap(), "mm2", &records)?;
    let flow = pair.flow("M").topics("mm2").single_replicas();
    let mirror =
        MirrorMaker::start(flow.text(), &["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])?;
    assert_eq!(pair.wait_equal(&flow, "mm2", Isolation::ReadUncommitted, Duration::from_secs(90))?, 50);
    mirror.stop()?;
    assert!(pair.target().topics()?.contains(&"mm2-offsets.M.internal".to_owned()));
    Ok(())
}
