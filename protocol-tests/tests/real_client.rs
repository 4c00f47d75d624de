//! The control plane of the client against real Kafka, the older release on one node and the newest on three: admin
//! calls, internal topics, groups, and what a killed broker costs.

use bytes::Bytes;
use kmirror::client::{
    Cluster, ConfigChange, Election, ErrorCode, GroupEvent, GroupSettings, IsolationLevel, Membership,
    NewTopic, Node, OffsetSpec, PartitionLog, Rejoin, Role, Settings, Topics,
};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::Seam;
use protocol_tests::Result;
use protocol_tests::kafka::{ClusterSpec, Kafka, KafkaVersion};
use protocol_tests::pair::{Pair, PairCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a").version(KafkaVersion::V3_9_1), ClusterSpec::new("b").nodes(3))
}

fn open(kafka: &Kafka) -> Cluster {
    let servers = kafka.bootstrap().split(',').map(|server| server.parse().unwrap()).collect();
    Cluster::new(Seam::real(), Settings::new(kafka.name(), servers))
}

/// One test at a time: one of them kills a node.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a check against both clusters of the pair.
fn check(check: impl AsyncFn(&Kafka)) -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for kafka in [&pair.a, &pair.b] {
        runtime.block_on(check(kafka));
    }
    Ok(())
}

fn topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> NewTopic {
    let configs = configs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    NewTopic { name: name.into(), partitions, replication_factor: -1, configs }
}

async fn create(cluster: &Cluster, topic: NewTopic) {
    let created = cluster.create_topics(std::slice::from_ref(&topic)).await.unwrap();
    assert!(created[&topic.name].is_ok(), "{created:?}");
    cluster.wait_for_leaders(&BTreeMap::from([(topic.name, topic.partitions)])).await.unwrap();
}

fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::Lz4));
    for &value in values {
        let bytes: Option<Bytes> = Some(value.to_owned().into());
        let record = RecordData {
            timestamp: 1_767_225_600_000,
            key: bytes.clone(),
            value: bytes,
            ..RecordData::default()
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn values(log: &PartitionLog) -> Vec<String> {
    let opened = log.batches.iter().map(|batch| OpenBatch::open(batch, 1 << 20).unwrap());
    let texts = |batch: OpenBatch| {
        batch
            .records()
            .map(|record| String::from_utf8_lossy(record.unwrap().value.unwrap()).into_owned())
            .collect()
    };
    opened.flat_map(|batch| -> Vec<String> { texts(batch) }).collect()
}

#[test]
fn topics_and_configs() -> Result<()> {
    check(async |kafka| {
        let cluster = open(kafka);
        let name: Arc<str> = "client-topics".into();
        create(&cluster, topic(&name, 2, &[("cleanup.policy", "compact")])).await;
        let again = cluster.create_topics(&[topic(&name, 2, &[])]).await.unwrap();
        assert_eq!(again[&name].as_ref().unwrap_err().code(), Some(ErrorCode::TOPIC_ALREADY_EXISTS));
        let grown = cluster.create_partitions(&BTreeMap::from([(name.clone(), 3)])).await.unwrap();
        assert!(grown[&name].is_ok(), "{grown:?}");
        let view = cluster.wait_for_leaders(&BTreeMap::from([(name.clone(), 3)])).await.unwrap();
        assert_ne!(view.topic(&name).unwrap().id.as_u128(), 0);
        let changes = vec![
            ConfigChange::Delete("cleanup.policy".to_owned()),
            ConfigChange::Set("retention.ms".to_owned(), "12345".to_owned()),
        ];
        let altered =
            cluster.incremental_alter_configs(&BTreeMap::from([(name.clone(), changes)])).await.unwrap();
        assert!(altered[&name].is_ok(), "{altered:?}");
        let configs = cluster.describe_topic_configs(std::slice::from_ref(&name)).await.unwrap();
        let configs = configs[&name].as_ref().unwrap();
        let value =
            |name: &str| configs.iter().find(|one| one.name == name).and_then(|one| one.value.clone());
        assert_eq!(value("retention.ms").as_deref(), Some("12345"));
        assert_eq!(value("cleanup.policy").as_deref(), Some("delete"));
        let described = cluster.describe_cluster().await.unwrap();
        assert_eq!(described.brokers.len(), kafka.node_ids().count());
        assert!(described.controller_id.is_some() && described.cluster_id.is_some());
        let deleted = cluster.delete_topics(std::slice::from_ref(&name)).await.unwrap();
        assert!(deleted[&name].is_ok(), "{deleted:?}");
    })
}

#[test]
fn internal_topics_offsets_and_producers() -> Result<()> {
    check(async |kafka| {
        let cluster = open(kafka);
        let name: Arc<str> = "client-internal".into();
        create(&cluster, topic(&name, 3, &[])).await;
        assert_eq!(cluster.produce(&name, 1, batch(&["a", "b"])).await.unwrap(), 0);
        assert_eq!(cluster.produce(&name, 1, batch(&["c"])).await.unwrap(), 2);
        assert_eq!(cluster.produce(&name, 2, batch(&["d"])).await.unwrap(), 0);
        let logs = cluster.read_to_end(&name, IsolationLevel::ReadCommitted, 1 << 20).await.unwrap();
        let read: Vec<Vec<String>> = logs.values().map(values).collect();
        assert_eq!(read, [vec![], vec!["a".to_owned(), "b".into(), "c".into()], vec!["d".into()]]);
        let key = (name.clone(), 1);
        for (spec, offset) in
            [(OffsetSpec::Earliest, 0), (OffsetSpec::Latest, 3), (OffsetSpec::Timestamp(1), 0)]
        {
            let listed = cluster.list_offsets([(key.clone(), spec)], IsolationLevel::ReadCommitted).await;
            assert_eq!(listed[&key].as_ref().unwrap().offset, offset, "{spec:?}");
        }
        let (_, epoch) = cluster.leader(&name, 1).await.unwrap();
        let ends = cluster.offset_for_leader_epoch([(key.clone(), epoch)]).await;
        assert_eq!(ends[&key].as_ref().unwrap().end_offset, 3);
        let deleted = cluster.delete_records([(key.clone(), 2)]).await;
        assert_eq!(*deleted[&key].as_ref().unwrap(), 2);
        let (first, _) = cluster.init_producer_id(None).await.unwrap();
        let (second, _) = cluster.init_producer_id(None).await.unwrap();
        assert_ne!(first, second);
        let transactional: Arc<str> = "client-id".into();
        let (id, epoch) = cluster.init_producer_id(Some(&transactional)).await.unwrap();
        assert_eq!(cluster.init_producer_id(Some(&transactional)).await.unwrap(), (id, epoch + 1));
        assert!(cluster.describe_producers([key.clone()]).await[&key].as_ref().unwrap().is_empty());
    })
}

fn join(cluster: &Cluster, metadata: &'static str) -> Membership {
    let settings = GroupSettings {
        group_id: "client-group".into(),
        protocol_type: "kmirror".into(),
        group_instance_id: None,
        protocols: vec!["lease".into()],
        session_timeout: Duration::from_secs(6),
        rebalance_timeout: Duration::from_secs(6),
        heartbeat_interval: Duration::from_secs(1),
        rejoin: Rejoin::AtOnce,
    };
    let count = |election: &Election<'_>| {
        let text = Bytes::from(election.members.len().to_string());
        election.members.iter().map(|(id, _)| (id.clone(), text.clone())).collect()
    };
    Membership::join(cluster, settings, vec![Bytes::from_static(metadata.as_bytes())], Box::new(count))
}

/// Waits for a generation of `count` members; gives our role in it.
async fn generation_of(member: &mut Membership, count: &str) -> Role {
    loop {
        match member.next().await.unwrap() {
            GroupEvent::Joined { assignment, role, .. } if assignment == count => return role,
            GroupEvent::Lost { reason } => panic!("{reason}"),
            GroupEvent::Trouble(error) => eprintln!("{}", error.chain()),
            _ => {}
        }
    }
}

#[test]
fn members_come_and_leave() -> Result<()> {
    check(async |kafka| {
        let (cluster, other) = (open(kafka), open(kafka));
        let mut first = join(&cluster, "first");
        assert_eq!(generation_of(&mut first, "1").await, Role::Leader);
        let mut second = join(&other, "second");
        tokio::join!(generation_of(&mut first, "2"), generation_of(&mut second, "2"));
        let group: Arc<str> = "client-group".into();
        let described = cluster.describe_group(&group).await.unwrap();
        assert_eq!((described.state.as_str(), described.protocol_type.as_str()), ("Stable", "kmirror"));
        let mut metadata: Vec<&[u8]> = described.members.iter().map(|member| &member.metadata[..]).collect();
        metadata.sort_unstable();
        assert_eq!(metadata, [b"first".as_slice(), b"second"]);
        let (groups, errors) = cluster.list_groups().await.unwrap();
        assert!(groups.iter().any(|one| one.id == group && one.protocol_type == "kmirror"), "{groups:?}");
        assert!(errors.is_empty(), "{errors:?}");
        first.leave().await;
        assert_eq!(generation_of(&mut second, "1").await, Role::Leader);
        second.leave().await;
        let described = cluster.describe_group(&group).await.unwrap();
        assert!(described.members.is_empty(), "{described:?}");
        assert_eq!(cluster.describe_group(&"client-no-group".into()).await.unwrap().state, "Dead");
    })
}

/// Every call goes on while a node of three is killed, and a member stays one.
#[test]
fn a_killed_node_is_survived() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = open(&pair.b);
        let name: Arc<str> = "client-crash".into();
        create(&cluster, topic(&name, 6, &[("min.insync.replicas", "2")])).await;
        let mut member = join(&cluster, "survivor");
        generation_of(&mut member, "1").await;
        for partition in 0..6 {
            cluster.produce(&name, partition, batch(&["before"])).await.unwrap();
        }
        pair.b.kill(2).unwrap();
        let killed = Instant::now();
        for partition in 0..6 {
            cluster.produce(&name, partition, batch(&["after"])).await.unwrap();
        }
        println!("all partitions written {} ms after the kill", killed.elapsed().as_millis());
        let logs = cluster.read_to_end(&name, IsolationLevel::ReadUncommitted, 1 << 20).await.unwrap();
        for (partition, log) in &logs {
            let read = values(log);
            assert_eq!(read.first().map(String::as_str), Some("before"), "{partition}: {read:?}");
            assert_eq!(read.last().map(String::as_str), Some("after"), "{partition}: {read:?}");
        }
        let heard = async {
            loop {
                match member.next().await.unwrap() {
                    GroupEvent::Heard { sent } if sent.into_std() > killed + Duration::from_secs(8) => break,
                    GroupEvent::Lost { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), heard).await.unwrap();
        member.leave().await;
        pair.b.restart(2).unwrap();
        let back = Instant::now();
        while cluster.refresh(Topics::All).await.unwrap().brokers.len() < 3 {
            assert!(back.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let listing = kafka_protocol::messages::ListGroupsRequest::default();
        cluster.call(Node::Broker(2), &listing).await.unwrap();
    });
    Ok(())
}
