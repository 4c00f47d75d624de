//! The control plane against embedded clusters that speak like each release, on the simulated network.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::broker::{self, EmbeddedCluster, KafkaVersion};
use crate::net::Fault;
use crate::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use crate::seam::{Seam, Simulation};

const VERSIONS: [KafkaVersion; 9] = [
    KafkaVersion::V2_1,
    KafkaVersion::V2_4,
    KafkaVersion::V2_8,
    KafkaVersion::V3_3,
    KafkaVersion::V3_6,
    KafkaVersion::V3_9,
    KafkaVersion::V4_0,
    KafkaVersion::V4_1,
    KafkaVersion::V4_3,
];

async fn start(version: KafkaVersion) -> (EmbeddedCluster, Cluster) {
    let seam = Seam::Simulated(Simulation::new(1));
    let settings = broker::Settings { brokers: 3, version, ..broker::Settings::default() };
    let embedded = EmbeddedCluster::start(seam.clone(), settings).await.unwrap();
    let servers = embedded.bootstrap().split(',').map(|server| server.parse().unwrap()).collect();
    let cluster = Cluster::new(seam, Settings::new("A", servers));
    (embedded, cluster)
}

fn topic(name: &str, partitions: i32) -> NewTopic {
    let configs = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
    NewTopic { name: name.into(), partitions, replication_factor: 3, configs }
}

fn batch(values: &[&str]) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    for &value in values {
        let record = RecordData {
            timestamp: 1_767_225_600_000,
            key: Some(value.to_owned().into()),
            value: Some(value.to_owned().into()),
            ..RecordData::default()
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn values(log: &PartitionLog) -> Vec<String> {
    let mut values = Vec::new();
    for batch in &log.batches {
        let opened = OpenBatch::open(batch, 1 << 20).unwrap();
        for record in opened.records() {
            values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

async fn config(cluster: &Cluster, topic: &Arc<str>, name: &str) -> ConfigEntry {
    let each = cluster.describe_topic_configs(std::slice::from_ref(topic)).await.unwrap();
    each[topic].as_ref().unwrap().iter().find(|config| config.name == name).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn topics_are_created_grown_configured_and_deleted_at_every_release() {
    for version in VERSIONS {
        let (_embedded, cluster) = start(version).await;
        let name: Arc<str> = "t".into();
        let created = cluster.create_topics(&[topic("t", 2)]).await.unwrap();
        assert!(created[&name].is_ok(), "{version:?}: {created:?}");
        let again = cluster.create_topics(&[topic("t", 2)]).await.unwrap();
        assert_eq!(again[&name].as_ref().unwrap_err().code(), Some(ErrorCode::TOPIC_ALREADY_EXISTS));
        let grown = cluster.create_partitions(&BTreeMap::from([(name.clone(), 3)])).await.unwrap();
        assert!(grown[&name].is_ok(), "{version:?}: {grown:?}");
        let view = cluster.wait_for_leaders(&BTreeMap::from([(name.clone(), 3)])).await.unwrap();
        assert_eq!(view.topic("t").unwrap().partitions.len(), 3);
        let policy = config(&cluster, &name, "cleanup.policy").await;
        assert_eq!((policy.value.as_deref(), policy.source), (Some("compact"), ConfigSource::Topic));
        let change = ConfigChange::Set("retention.ms".to_owned(), "12345".to_owned());
        match cluster.incremental_alter_configs(&BTreeMap::from([(name.clone(), vec![change])])).await {
            Ok(altered) => {
                assert!(altered[&name].is_ok(), "{version:?}: {altered:?}");
                assert_eq!(config(&cluster, &name, "retention.ms").await.value.as_deref(), Some("12345"));
            }
            Err(Error::Connection { source, .. }) => {
                assert_eq!((version, source.fault()), (KafkaVersion::V2_1, Fault::Incompatible));
            }
            Err(error) => panic!("{version:?}: {error}"),
        }
        let deleted = cluster.delete_topics(std::slice::from_ref(&name)).await.unwrap();
        assert!(deleted[&name].is_ok(), "{version:?}: {deleted:?}");
        cluster.refresh(Topics::All).await.unwrap();
        assert!(cluster.refresh(Topics::All).await.unwrap().topic("t").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn internal_topics_are_written_and_read_at_every_release() {
    for version in VERSIONS {
        let (embedded, cluster) = start(version).await;
        embedded.create_topic("t", 3, 3, &[]).unwrap();
        let name: Arc<str> = "t".into();
        assert_eq!(cluster.produce(&name, 1, batch(&["a", "b"])).await.unwrap(), 0, "{version:?}");
        assert_eq!(cluster.produce(&name, 1, batch(&["c"])).await.unwrap(), 2);
        assert_eq!(cluster.produce(&name, 2, batch(&["d"])).await.unwrap(), 0);
        let logs = cluster.read_to_end(&name, IsolationLevel::ReadUncommitted, 1 << 20).await.unwrap();
        let read: Vec<Vec<String>> = logs.values().map(values).collect();
        assert_eq!(read, [vec![], vec!["a".to_owned(), "b".into(), "c".into()], vec!["d".into()]]);
        assert_eq!(logs[&1].end_offset, 3);
        assert!(embedded.violations().is_empty(), "{:?}", embedded.violations());
    }
}

#[tokio::test(start_paused = true)]
async fn offsets_epochs_and_producers_are_known_at_every_release() {
    for version in VERSIONS {
        let (embedded, cluster) = start(version).await;
        embedded.create_topic("t", 1, 3, &[]).unwrap();
        let name: Arc<str> = "t".into();
        let key = (name.clone(), 0);
        cluster.produce(&name, 0, batch(&["a", "b", "c"])).await.unwrap();
        for (spec, expected) in [
            (OffsetSpec::Earliest, 0),
            (OffsetSpec::Latest, 3),
            (OffsetSpec::Timestamp(1), 0),
            (OffsetSpec::Timestamp(i64::MAX), -1),
        ] {
            for isolation in [IsolationLevel::ReadUncommitted, IsolationLevel::ReadCommitted] {
                let listed = cluster.list_offsets([(key.clone(), spec)], isolation).await;
                assert_eq!(listed[&key].as_ref().unwrap().offset, expected, "{version:?} {spec:?}");
            }
        }
        let (_, epoch) = cluster.leader(&name, 0).await.unwrap();
        let ends = cluster.offset_for_leader_epoch([(key.clone(), epoch.max(0))]).await;
        assert_eq!(ends[&key].as_ref().unwrap().end_offset, 3, "{version:?}");
        let deleted = cluster.delete_records([(key.clone(), 2)]).await;
        assert_eq!(*deleted[&key].as_ref().unwrap(), 2, "{version:?}");
        let (first, epoch) = cluster.init_producer_id(None).await.unwrap();
        let (second, _) = cluster.init_producer_id(None).await.unwrap();
        assert!(second != first && epoch == 0);
        let producers = cluster.describe_producers([key.clone()]).await;
        match &producers[&key] {
            Ok(producers) => assert!(producers.is_empty(), "{version:?}: {producers:?}"),
            Err(error) => assert!(version < KafkaVersion::V2_8, "{version:?}: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_cluster_and_its_groups_are_described_at_every_release() {
    for version in VERSIONS {
        let (_embedded, cluster) = start(version).await;
        let described = cluster.describe_cluster().await.unwrap();
        assert_eq!(described.brokers.len(), 3, "{version:?}");
        assert!(described.controller_id.is_some() && described.cluster_id.is_some());
        let (groups, errors) = cluster.list_groups().await.unwrap();
        assert!(groups.is_empty() && errors.is_empty(), "{version:?}: {errors:?}");
        let group = cluster.describe_group(&"none".into()).await.unwrap();
        assert_eq!((group.state.as_str(), group.members.len()), ("Dead", 0), "{version:?}");
    }
}

/// Case 53, the control plane's part: any one broker may die at any time.
#[tokio::test(start_paused = true)]
async fn calls_survive_a_broker_that_dies() {
    let (embedded, cluster) = start(KafkaVersion::V4_3).await;
    embedded.create_topic("t", 6, 3, &[]).unwrap();
    cluster.refresh(Topics::All).await.unwrap();
    for dies in 1..=3 {
        embedded.stop_broker(dies).await.unwrap();
        let keys = (0..6).map(|index| ((Arc::from("t"), index), OffsetSpec::Latest));
        let listed = cluster.list_offsets(keys, IsolationLevel::ReadUncommitted).await;
        for (key, listed) in listed {
            assert!(listed.is_ok(), "{key:?} without {dies}: {listed:?}");
        }
        let created = cluster.create_topics(&[topic(&format!("without-{dies}"), 1)]).await.unwrap();
        let refused = created.values().all(|one| match one {
            Ok(_) => true,
            Err(error) => error.code() == Some(ErrorCode::INVALID_REPLICATION_FACTOR),
        });
        assert!(refused, "{created:?}");
        embedded.start_broker(dies).await.unwrap();
    }
}

/// KIP-219: a broker that throttles is given its time, on each of its connections.
#[tokio::test(start_paused = true)]
async fn throttle_times_are_honoured() {
    let (embedded, cluster) = start(KafkaVersion::V4_3).await;
    embedded.create_topic("t", 1, 3, &[]).unwrap();
    let name: Arc<str> = "t".into();
    cluster.produce(&name, 0, batch(&["a"])).await.unwrap();
    embedded.set_throttle_ms(40_000);
    cluster.produce(&name, 0, batch(&["b"])).await.unwrap();
    embedded.set_throttle_ms(0);
    let began = tokio::time::Instant::now();
    assert_eq!(cluster.produce(&name, 0, batch(&["c"])).await.unwrap(), 2);
    assert_eq!(began.elapsed().as_secs(), 40);
}

/// Case 18, seen by the view: a topic that is created anew has another id.
#[tokio::test(start_paused = true)]
async fn a_recreated_topic_is_seen_as_another_one() {
    let (embedded, cluster) = start(KafkaVersion::V4_3).await;
    embedded.create_topic("t", 2, 3, &[]).unwrap();
    let before = cluster.refresh(Topics::All).await.unwrap().topic("t").unwrap().clone();
    embedded.recreate_topic("t").unwrap();
    let after = cluster.refresh(Topics::All).await.unwrap();
    assert_ne!(after.topic("t").unwrap().id, before.id);
    assert!(after.topic_by_id(before.id).is_none());
}

/// One OffsetFetch for many groups from 3.0 on, one for each before; a coordinator that moves is looked up again.
#[tokio::test(start_paused = true)]
async fn committed_offsets_of_many_groups_are_read_at_every_release() {
    for version in VERSIONS {
        let (embedded, cluster) = start(version).await;
        embedded.create_topic("t", 2, 3, &[]).unwrap();
        let groups: Vec<Arc<str>> = (0..60).map(|number| format!("g{number}").into()).collect();
        let at = |number: usize| -> GroupOffsets {
            let committed = |offset| CommittedOffset { offset, metadata: "m".into() };
            [0, 1].map(|index| (("t".into(), index), committed(number as i64 + i64::from(index)))).into()
        };
        for (number, group) in groups.iter().enumerate() {
            let each = cluster.commit_group_offsets(group, &at(number)).await.unwrap();
            assert!(each.len() == 2 && each.values().all(Result::is_ok), "{version:?}: {each:?}");
        }
        let moved = broker::Effect::Error(ErrorCode::NOT_COORDINATOR.0);
        let key = Some(kafka_protocol::messages::ApiKey::OffsetFetch);
        let when = broker::When::After(1);
        embedded.fault(broker::FaultRule { key, broker: None, when, times: 2, effect: moved });
        let mut asked = groups.clone();
        asked.push("absent".into());
        let each = cluster.fetch_group_offsets(&asked).await;
        for (number, group) in groups.iter().enumerate() {
            assert_eq!(*each[group].as_ref().unwrap(), at(number), "{version:?}: {group}");
        }
        assert_eq!(*each["absent"].as_ref().unwrap(), GroupOffsets::new(), "{version:?}");
        assert_eq!(embedded.committed("g7").len(), 2);

        // What a coordinator refuses is said for each partition.
        let unknown: GroupOffsets =
            [(("nowhere".into(), 0), CommittedOffset { offset: 1, metadata: "".into() })].into();
        let each = cluster.commit_group_offsets(&groups[0], &unknown).await.unwrap();
        let code = each.into_values().next().unwrap().unwrap_err().code();
        assert_eq!(code, Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), "{version:?}");
    }
}
