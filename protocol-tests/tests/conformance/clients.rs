//! Stock clients produce, read and administer alike on both.

use crate::on_both;
use crate::produce::ready_topic;
use protocol_tests::Result;
use protocol_tests::embedded::TestCluster;
use protocol_tests::kafka::{Client, Codec, Isolation, ProducerKind, Step, real_kafka};
use protocol_tests::process::{Program, ScratchFolder};
use protocol_tests::raw::RawConnection;
use protocol_tests::records::{ReadRecord, TestRecord, TimestampType};

on_both!(codecs, super::check_codecs);
on_both!(transactions, super::check_transactions);
on_both!(administration, super::check_administration);
on_both!(groups, super::check_groups);
on_both!(kcat, super::check_kcat);

/// The clients that there are, with a name each; none where there is no Java.
fn clients() -> Result<Vec<&'static Client>> {
    let Some(real) = real_kafka()? else { return Ok(Vec::new()) };
    Ok([Some(&real.java), real.librdkafka()?].into_iter().flatten().collect())
}

fn java() -> Result<Option<&'static Client>> {
    Ok(real_kafka()?.map(|real| &real.java))
}

/// Asserts that the client threw this exception.
fn assert_refused(result: Result<()>, exception: &str) {
    let error = result.expect_err(exception).to_string();
    assert!(error.contains(exception), "{exception} was expected: {error}");
}

fn sample() -> Vec<TestRecord> {
    let mut records = vec![
        TestRecord::new("key", "value").at(1_700_000_000_000).header("h", Some(b"1")).header("h", None),
        TestRecord { value: Some(b"null key".to_vec()), ..TestRecord::default() }.at(1_700_000_000_001),
        TestRecord::tombstone("null value").at(1_700_000_000_002),
    ];
    records.extend((0..100).map(|i| TestRecord::new(format!("k{i}"), "x".repeat(i)).at(1_700_000_001_000)));
    records.into_iter().map(|record| record.to_partition(0)).collect()
}

fn check_codecs(cluster: &TestCluster) -> Result<()> {
    let (bootstrap, clients) = (cluster.bootstrap(), clients()?);
    for writer in &clients {
        for codec in Codec::ALL {
            let topic = format!("codecs-{:?}-{}", writer.kind(), codec.name());
            let admin = java()?.expect("Java is there").admin(&bootstrap);
            admin.create_topic(&topic, 1, &[("retention.ms", "-1")])?;
            let settings = [("linger.ms", "20")];
            let producer = writer.producer(&bootstrap, &ProducerKind::Idempotent, codec, &settings)?;
            let wanted = sample();
            let offsets = producer.send(&topic, &wanted)?;
            assert_eq!(offsets, (0..wanted.len() as i64).collect::<Vec<_>>());
            for reader in &clients {
                let found = reader.read(&bootstrap, &topic, Isolation::ReadCommitted)?;
                assert_eq!(found.len(), wanted.len());
                for (wanted, found) in wanted.iter().zip(&found) {
                    assert_eq!((&found.key, &found.value), (&wanted.key, &wanted.value));
                    assert_eq!(found.headers, wanted.headers);
                    assert_eq!(Some(found.timestamp), wanted.timestamp);
                    assert_eq!(found.timestamp_type, TimestampType::CreateTime);
                }
            }
        }
    }
    Ok(())
}

fn check_transactions(cluster: &TestCluster) -> Result<()> {
    let bootstrap = cluster.bootstrap();
    for client in clients()? {
        let topic = format!("transactions-{:?}", client.kind());
        let java = java()?.expect("Java is there");
        java.admin(&bootstrap).create_topic(&topic, 1, &[])?;
        let kind = ProducerKind::Transactional(topic.clone());
        let producer = client.producer(&bootstrap, &kind, Codec::Lz4, &[])?;
        let send = |value: &str| Step::Send(topic.clone(), TestRecord::new("k", value).to_partition(0));
        producer.run(&[Step::Begin, send("committed"), Step::Commit])?;
        producer.run(&[Step::Begin, send("aborted"), Step::Flush, Step::Abort])?;
        producer.run(&[Step::Begin, send("open"), Step::Flush])?;
        let values = |reader: &Client, isolation| -> Result<Vec<String>> {
            let records = reader.read(&bootstrap, &topic, isolation)?;
            Ok(records.iter().map(ReadRecord::value_text).collect())
        };
        for reader in clients()? {
            assert_eq!(values(reader, Isolation::ReadUncommitted)?, ["committed", "aborted", "open"]);
            assert_eq!(values(reader, Isolation::ReadCommitted)?, ["committed"]);
        }
        let ends =
            |isolation| -> Result<i64> { Ok(java.admin(&bootstrap).offsets(&topic, isolation)?[&0].latest) };
        assert_eq!((ends(Isolation::ReadUncommitted)?, ends(Isolation::ReadCommitted)?), (5, 4));
        // A second producer under the same id ends the transaction of the first.
        let second = client.producer(&bootstrap, &kind, Codec::None, &[])?;
        second.run(&[Step::Begin, send("second"), Step::Commit])?;
        assert_eq!(values(java, Isolation::ReadCommitted)?, ["committed", "second"]);
    }
    Ok(())
}

fn check_administration(cluster: &TestCluster) -> Result<()> {
    let Some(java) = java()? else { return Ok(()) };
    let admin = java.admin(&cluster.bootstrap());
    admin.create_topic("admin", 2, &[("retention.ms", "3600000"), ("cleanup.policy", "delete")])?;
    assert_refused(admin.create_topic("admin", 2, &[]), "TopicExistsException");
    assert_refused(admin.create_topic("bad name", 1, &[]), "InvalidTopicException");
    assert_refused(
        admin.create_topic("bad-config", 1, &[("retention.ms", "never")]),
        "InvalidConfigurationException",
    );
    assert_refused(
        admin.create_topic("bad-config", 1, &[("no.such.config", "1")]),
        "InvalidConfigurationException",
    );
    assert_refused(
        admin.create_topic_on("bad-replicas", &[vec![1, 99]], &[]),
        "InvalidReplicaAssignmentException",
    );
    admin.create_partitions("admin", 3)?;
    assert_refused(admin.create_partitions("admin", 2), "InvalidPartitionsException");
    admin.alter_topic_configs("admin", &[("retention.ms", None), ("max.message.bytes", Some("2000"))])?;
    let configs: Vec<(String, String)> = admin.topic_configs("admin")?.into_iter().collect();
    let wanted = [("cleanup.policy", "delete"), ("max.message.bytes", "2000")];
    assert_eq!(configs, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let records: Vec<TestRecord> = (0..10).map(|i| TestRecord::new("k", [i]).to_partition(2)).collect();
    java.produce(&cluster.bootstrap(), "admin", &records)?;
    admin.delete_records("admin", 2, 4)?;
    let offsets = admin.offsets("admin", Isolation::ReadUncommitted)?;
    assert_eq!((offsets[&0].earliest, offsets[&0].latest), (0, 0));
    assert_eq!((offsets[&2].earliest, offsets[&2].latest), (4, 10));
    assert_refused(admin.delete_records("admin", 2, 11), "OffsetOutOfRangeException");
    let read = java.read(&cluster.bootstrap(), "admin", Isolation::ReadUncommitted)?;
    assert_eq!(read.iter().map(|record| record.offset).collect::<Vec<_>>(), (4..10).collect::<Vec<_>>());
    admin.delete_topic("admin")?;
    assert_eq!(admin.describe_topic("admin")?, None);
    Ok(())
}

fn check_groups(cluster: &TestCluster) -> Result<()> {
    let Some(java) = java()? else { return Ok(()) };
    let admin = java.admin(&cluster.bootstrap());
    admin.create_topic("grouped", 2, &[])?;
    let member = admin.join_group("readers", "grouped")?;
    assert_eq!(admin.group_members("readers")?.len(), 1);
    assert!(admin.groups()?.contains(&"readers".to_owned()));
    assert_refused(admin.commit_group_offset("readers", "grouped", 1, 7), "UnknownMemberIdException");
    drop(member);
    assert_eq!(admin.group_members("readers")?, []);
    admin.commit_group_offset("readers", "grouped", 1, 7)?;
    assert_eq!(admin.group_offsets("readers")?[&("grouped".to_owned(), 1)], 7);
    Ok(())
}

/// Where kcat is installed: it writes every codec and reads it back.
fn check_kcat(cluster: &TestCluster) -> Result<()> {
    if Program::new("kcat").arg("-V").run("kcat").is_err() {
        return Ok(());
    }
    let bootstrap = cluster.bootstrap();
    let mut connection = RawConnection::open(&bootstrap)?;
    ready_topic(&mut connection, "kcat", &[])?;
    let folder = ScratchFolder::new("kcat")?;
    let lines = folder.path().join("lines");
    std::fs::write(&lines, "k1:first\nk2:second\n").expect("the lines are written");
    for codec in Codec::ALL {
        let produce =
            ["-P", "-b", &bootstrap, "-t", "kcat", "-p", "0", "-K", ":", "-H", "h=1", "-z", codec.name()];
        Program::new("kcat").args(produce).arg("-l").arg(&lines).run("kcat -P")?;
    }
    let consume = ["-C", "-q", "-e", "-b", &bootstrap, "-t", "kcat", "-o", "1", "-f", "%p %o %k %h %s\n"];
    let output = Program::new("kcat").args(consume).run("kcat -C")?;
    let record = |offset: usize| match offset % 2 {
        1 => format!("0 {offset} k1 h=1 first"),
        _ => format!("0 {offset} k2 h=1 second"),
    };
    assert_eq!(output.lines().collect::<Vec<_>>(), (1..=10).map(record).collect::<Vec<_>>());
    Ok(())
}
