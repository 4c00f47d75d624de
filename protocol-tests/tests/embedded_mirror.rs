//! The replicator between two embedded clusters, over the same sockets that real clusters get.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, EmbeddedCluster, FaultRule, KafkaVersion, When, log};
use kmirror::mirror::Replicator;
use kmirror::mirror::status::{EventKind, FlowState, ReplicatorStatus};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Link, Seam, Simulation};
use protocol_tests::inside::{self, cluster, cluster_of, numbered, replicator};

fn file(a: &EmbeddedCluster, b: &EmbeddedCluster, more: &str) -> String {
    format!(
        "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
         A->B.topics = .*\nB->A.emit.heartbeats.enabled = false\nrefresh.topics.interval.seconds = 1\n{more}\n",
        a.bootstrap(),
        b.bootstrap()
    )
}

fn append(cluster: &EmbeddedCluster, topic: &str, partition: i32, first: u32, count: u32, codec: Codec) {
    cluster.append(topic, partition, &numbered(first, count, codec)).unwrap();
}

/// A record that is larger than some topics take.
fn append_large(cluster: &EmbeddedCluster, topic: &str) {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    let value = Some(Bytes::from(vec![7; 5_000]));
    builder.push(&RecordData { timestamp: 1, key: None, value, headers: Vec::new() }).unwrap();
    cluster.append(topic, 0, &builder.build().unwrap()).unwrap();
}

fn records(cluster: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<RecordData> {
    cluster
        .log(topic, partition, |log| {
            let (mut offset, mut records) = (log.log_start_offset(), Vec::new());
            while offset < log.log_end_offset() {
                let read = log
                    .read(offset, 1 << 20, log::Isolation::ReadUncommitted, log::FirstBatch::Whole)
                    .unwrap();
                for bytes in &read.batches {
                    let Ok(open) = OpenBatch::open(bytes, 1 << 20) else { break };
                    offset = open.header.next_offset();
                    for record in open.records() {
                        let record = record.unwrap();
                        records.push(RecordData::copied(open.timestamp(&record), &record));
                    }
                }
            }
            records
        })
        .unwrap_or_default()
}

async fn until(replicator: &Replicator, what: &str, condition: impl Fn(&ReplicatorStatus) -> bool) {
    inside::until(replicator, what, condition, ReplicatorStatus::clone).await;
}

async fn copies_topics(seam: Seam, hosts: [&str; 2]) {
    let (a, b) = (cluster(&seam, 1, hosts[0]).await, cluster(&seam, 2, hosts[1]).await);
    a.create_topic("t", 3, 1, &[]).unwrap();
    for partition in 0..3 {
        for batch in 0..20 {
            append(&a, "t", partition, batch * 10, 10, if batch % 2 == 0 { Codec::None } else { Codec::Lz4 });
        }
    }
    let replicator = replicator(&seam, &file(&a, &b, ""));
    until(&replicator, "all copied", |status| {
        let flow = &status.flows[0];
        flow.discovered
            && !flow.partitions.is_empty()
            && flow.partitions.values().all(|p| p.has_reached_end())
    })
    .await;
    assert_eq!(replicator.status().await.flows[0].state, FlowState::Running);
    replicator.stop().await;
    for partition in 0..3 {
        let (source, target) = (records(&a, "t", partition), records(&b, "A.t", partition));
        assert_eq!(source.len(), 200);
        assert_eq!(source, target);
    }
    assert!(b.violations().is_empty(), "{:?}", b.violations());
}

#[tokio::test]
async fn copies_topics_over_tcp() {
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    copies_topics(Seam::real(), ["127.0.0.1", "127.0.0.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn copies_topics_in_the_simulated_network() {
    for hosts in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        copies_topics(Seam::Simulated(Simulation::new(5)), hosts).await;
    }
}

/// From each release to the newest and back: all that a flow does goes by what both sides offer.
#[tokio::test(start_paused = true)]
async fn a_flow_runs_between_releases_of_any_age() {
    use KafkaVersion::{V2_1, V2_4, V2_8, V3_3, V3_6, V3_9, V4_0, V4_1, V4_3};
    let older = [V2_1, V2_4, V2_8, V3_3, V3_6, V3_9, V4_0, V4_1];
    for [from, to] in older.iter().flat_map(|&old| [[old, V4_3], [V4_3, old], [old, old]]) {
        let seam = Seam::Simulated(Simulation::new(9));
        let (a, b) =
            (cluster_of(&seam, 1, "10.0.0.1", from).await, cluster_of(&seam, 2, "10.0.0.2", to).await);
        a.create_topic("t", 3, 1, &[("retention.ms", "1234567")]).unwrap();
        for round in 0..2 {
            let replicator = replicator(&seam, &file(&a, &b, ""));
            for (partition, codec) in (0..3).zip([Codec::None, Codec::Gzip, Codec::Zstd]) {
                append(&a, "t", partition, round * 10, 10, codec);
            }
            until(&replicator, &format!("{from:?} to {to:?}, start {round}"), |status| {
                let at = |partition| status.flows[0].partitions.get(&("t".into(), partition));
                let end = Some(i64::from(round + 1) * 10);
                (0..3).all(|partition| at(partition).is_some_and(|at| at.position == end))
            })
            .await;
            replicator.stop().await;
        }
        for partition in 0..3 {
            let copied = records(&b, "A.t", partition);
            assert_eq!((copied.len(), &copied), (20, &records(&a, "t", partition)), "{from:?} to {to:?}");
        }
        assert!(b.violations().is_empty(), "{:?}", b.violations());
    }
}

/// Who may not read a partition says so and what it takes, goes on once it may, and holds up nothing else.
#[tokio::test(start_paused = true)]
async fn a_partition_that_may_not_be_read_stops_alone_and_heals() {
    let seam = Seam::Simulated(Simulation::new(19));
    let (a, b) = (cluster(&seam, 1, "10.0.0.1").await, cluster(&seam, 2, "10.0.0.2").await);
    a.create_topic("t", 3, 1, &[]).unwrap();
    let Some((Some(leader), _)) = a.leader("t", 0) else { panic!("t-0 has a leader") };
    assert!((1..3).all(|partition| a.leader("t", partition).unwrap().0 != Some(leader)));
    let replicator = replicator(&seam, &file(&a, &b, ""));
    let reach = async |partitions: std::ops::Range<i32>, position: i64, what: &str| {
        until(&replicator, what, |status| {
            let at = |partition| status.flows[0].partitions.get(&("t".into(), partition));
            partitions.clone().all(|one| at(one).is_some_and(|at| at.position == Some(position)))
        })
        .await;
    };
    (0..3).for_each(|partition| append(&a, "t", partition, 0, 10, Codec::None));
    reach(0..3, 10, "the start").await;
    a.fault(FaultRule {
        key: Some(ApiKey::Fetch),
        broker: Some(leader),
        when: When::After(0),
        times: u64::MAX,
        effect: Effect::Error(29),
    });
    (0..3).for_each(|partition| append(&a, "t", partition, 10, 10, Codec::None));
    reach(1..3, 20, "the others").await;
    until(&replicator, "the reason", |status| {
        let stopped = status.flows[0].partitions[&("t".into(), 0)].stopped.as_ref();
        stopped.is_some_and(|stopped| {
            stopped.reason == "not_authorized"
                && stopped.message.contains("READ")
                && stopped.retry_ms.is_some()
        })
    })
    .await;
    a.clear_faults();
    reach(0..3, 20, "the one that may be read again").await;
    replicator.stop().await;
    (0..3).for_each(|partition| assert_eq!(records(&a, "t", partition), records(&b, "A.t", partition)));
}

/// A leader that hangs on either side is missed by its cluster after 9 s. What it led goes on with its successor then, and
/// not only when requests to it time out; everything else does not notice.
#[tokio::test(start_paused = true)]
async fn what_a_hanging_broker_led_goes_on_with_its_successor() {
    for hangs_at_source in [true, false] {
        let simulation = Simulation::new(7);
        let seam = |name: &str| Seam::Simulated(simulation.named(name));
        let a = cluster(&seam("a"), 1, "10.0.0.1").await;
        let b = cluster(&seam("b"), 2, "10.0.0.2").await;
        a.create_topic("t", 3, 3, &[]).unwrap();
        b.create_topic("A.t", 3, 3, &[]).unwrap();
        let replicator = replicator(&seam("kmirror"), &file(&a, &b, ""));
        let write = |first| (0..3).for_each(|partition| append(&a, "t", partition, first, 10, Codec::None));
        let reach = async |partitions: std::ops::Range<i32>, position: i64, what: &str| {
            until(&replicator, what, |status| {
                let at = |partition| status.flows[0].partitions.get(&("t".into(), partition));
                partitions.clone().all(|one| at(one).is_some_and(|at| at.position == Some(position)))
            })
            .await;
        };
        write(0);
        reach(0..3, 10, "the start").await;
        let (cluster, topic) = if hangs_at_source { (&a, "t") } else { (&b, "A.t") };
        let leader = |partition| cluster.leader(topic, partition).and_then(|(leader, _)| leader).unwrap();
        let hangs = leader(0);
        assert!((1..3).all(|partition| leader(partition) != hangs));
        simulation.set_link("kmirror", cluster.address(hangs).unwrap(), Link::Silent);
        let hung_at = tokio::time::Instant::now();
        write(10);
        reach(1..3, 20, "the others").await;
        assert!(hung_at.elapsed() < Duration::from_secs(2), "{:?}", hung_at.elapsed());
        tokio::time::sleep_until(hung_at + Duration::from_secs(9)).await;
        cluster.stop_broker(hangs).await.unwrap();
        write(20);
        reach(0..3, 30, "all").await;
        assert!(hung_at.elapsed() < Duration::from_secs(18), "{:?}", hung_at.elapsed());
        replicator.stop().await;
        for partition in 0..3 {
            assert_eq!(records(&a, "t", partition), records(&b, "A.t", partition));
        }
        assert!(b.violations().is_empty(), "{:?}", b.violations());
    }
}

/// Case 18, and its like on the target: while the flow runs.
#[tokio::test(start_paused = true)]
async fn topics_that_are_created_anew_stop_or_go_on_with_a_gap() {
    for append_anew in [false, true] {
        let seam = Seam::Simulated(Simulation::new(8));
        let (a, b) = (cluster(&seam, 1, "10.0.0.1").await, cluster(&seam, 2, "10.0.0.2").await);
        for topic in ["source-anew", "target-anew"] {
            a.create_topic(topic, 1, 1, &[]).unwrap();
            append(&a, topic, 0, 0, 10, Codec::None);
        }
        let more = if append_anew { "kmirror.on.source.reset = append" } else { "" };
        let replicator = replicator(&seam, &file(&a, &b, more));
        let reach = async |topic: &str, position: i64| {
            until(&replicator, topic, |status| {
                let partition = status.flows[0].partitions.get(&(topic.into(), 0));
                partition.is_some_and(|partition| partition.position == Some(position))
            })
            .await;
        };
        reach("source-anew", 10).await;
        reach("target-anew", 10).await;
        a.recreate_topic("source-anew").unwrap();
        append(&a, "source-anew", 0, 100, 3, Codec::None);
        b.recreate_topic("A.target-anew").unwrap();
        append(&a, "target-anew", 0, 10, 5, Codec::None);
        reach("target-anew", 15).await;
        let reset_reason = if append_anew { None } else { Some("source_reset") };
        let wanted = reset_reason;
        until(&replicator, "the reset", |status| {
            let partition = &status.flows[0].partitions[&("source-anew".into(), 0)];
            let stopped = partition.stopped.as_ref().map(|stopped| stopped.reason);
            stopped == wanted && (wanted.is_some() || partition.position == Some(3))
        })
        .await;
        let events = replicator.status().await.flows[0].events.clone();
        let mut gaps: Vec<String> = events
            .iter()
            .map(|event| match &event.kind {
                EventKind::Gap { from, to, .. } => format!("{} {from}..{to}", event.topic),
                other => format!("{other:?}"),
            })
            .collect();
        gaps.sort();
        let wanted: &[&str] =
            if append_anew { &["source-anew 10..0", "target-anew 0..10"] } else { &["target-anew 0..10"] };
        assert_eq!(gaps, wanted);
        replicator.stop().await;
        assert_eq!(records(&b, "A.target-anew", 0), records(&a, "target-anew", 0)[10..]);
        let copied = records(&b, "A.source-anew", 0);
        assert_eq!(copied.len(), if append_anew { 13 } else { 10 });
        // What stopped it stands also after restarts, each of which stores what it knows.
        for _ in 0..2 {
            let replicator = inside::replicator(&seam, &file(&a, &b, more));
            until(&replicator, "the same again", |status| {
                let partition = status.flows[0].partitions.get(&("source-anew".into(), 0));
                let reset = status.flows[0].discovered && partition.is_some();
                reset
                    && partition.is_some_and(|partition| {
                        let stopped = partition.stopped.as_ref().map(|stopped| stopped.reason);
                        stopped == reset_reason && (append_anew || partition.position.is_none())
                    })
            })
            .await;
            replicator.stop().await;
            assert_eq!(records(&b, "A.source-anew", 0), copied);
        }
        assert!(b.violations().is_empty(), "{:?}", b.violations());
    }
}

/// A partition that its topic has no more is not left waiting for a start that nobody gives: a load would never end.
#[tokio::test(start_paused = true)]
async fn partitions_that_a_topic_comes_back_without_are_gone() {
    for append_anew in [false, true] {
        let seam = Seam::Simulated(Simulation::new(9));
        let (a, b) = (cluster(&seam, 1, "10.0.0.1").await, cluster(&seam, 2, "10.0.0.2").await);
        a.create_topic("t", 3, 1, &[]).unwrap();
        (0..3).for_each(|partition| append(&a, "t", partition, 0, 10, Codec::None));
        let more = if append_anew { "kmirror.on.source.reset = append" } else { "" };
        let replicator = replicator(&seam, &file(&a, &b, more));
        let shows = async |wanted: [(Option<&str>, Option<i64>); 3]| {
            until(&replicator, &format!("{wanted:?}"), |status| {
                (0..3).zip(wanted).all(|(number, (reason, position))| {
                    let shown = status.flows[0].partitions.get(&("t".into(), number));
                    shown.is_some_and(|shown| {
                        let stopped = shown.stopped.as_ref().map(|stopped| stopped.reason);
                        stopped == reason && (position.is_none() || shown.position == position)
                    })
                })
            })
            .await;
        };
        shows([(None, Some(10)); 3]).await;
        let anew = |partitions: u32| {
            a.delete_topic("t").unwrap();
            a.create_topic("t", partitions, 1, &[]).unwrap();
            (0..partitions as i32).for_each(|partition| append(&a, "t", partition, 100, 3, Codec::None));
        };
        let back = if append_anew { (None, Some(3)) } else { (Some("source_reset"), None) };
        anew(1);
        shows([back, (Some("topic_gone"), None), (Some("topic_gone"), None)]).await;
        anew(2);
        shows([back, back, (Some("topic_gone"), None)]).await;
        anew(3);
        shows([back; 3]).await;
        replicator.stop().await;
        assert!(b.violations().is_empty(), "{:?}", b.violations());
    }
}

/// A partition that does not go on shows by how much it falls behind, for whatever reason it stopped.
#[tokio::test(start_paused = true)]
async fn the_lag_of_a_stopped_partition_grows() {
    for (isolation, seed) in [("read_committed", 31), ("read_uncommitted", 32)] {
        let seam = Seam::Simulated(Simulation::new(seed));
        let (a, b) = (cluster(&seam, 1, "10.0.0.1").await, cluster(&seam, 2, "10.0.0.2").await);
        for topic in ["oversize", "anew", "gone"] {
            a.create_topic(topic, 1, 1, &[]).unwrap();
            append(&a, topic, 0, 0, 10, Codec::None);
        }
        b.create_topic("A.oversize", 1, 1, &[("max.message.bytes", "1000")]).unwrap();
        let more = format!("A.consumer.isolation.level = {isolation}\nsync.topic.configs.enabled = false");
        let replicator = replicator(&seam, &file(&a, &b, &more));
        let shows = async |topic: &str, reason: Option<&str>, lag: Option<i64>| {
            let since = tokio::time::Instant::now();
            until(&replicator, topic, |status| {
                let shown = status.flows[0].partitions.get(&(topic.into(), 0));
                shown.is_some_and(|shown| {
                    let stopped = shown.stopped.as_ref().map(|stopped| stopped.reason);
                    stopped == reason && shown.lag() == lag
                })
            })
            .await;
            assert!(since.elapsed() < Duration::from_secs(20), "{topic}: {:?}", since.elapsed());
        };
        for topic in ["oversize", "anew", "gone"] {
            shows(topic, None, Some(0)).await;
        }
        append_large(&a, "oversize");
        shows("oversize", Some("oversize"), Some(1)).await;
        a.recreate_topic("anew").unwrap();
        append(&a, "anew", 0, 100, 3, Codec::None);
        shows("anew", Some("source_reset"), Some(3)).await;
        a.delete_topic("gone").unwrap();
        shows("gone", Some("topic_gone"), None).await;
        for round in 1..4 {
            append(&a, "oversize", 0, 10 + round, 1, Codec::None);
            append(&a, "anew", 0, 100 + 5 * round, 5, Codec::None);
            shows("oversize", Some("oversize"), Some(1 + i64::from(round))).await;
            shows("anew", Some("source_reset"), Some(3 + 5 * i64::from(round))).await;
        }
        replicator.stop().await;
    }
}

/// A target that takes a batch long after everybody has given it up: it stands before what the next process writes. It is there
/// twice, but no record stands behind a newer one.
#[tokio::test(start_paused = true)]
async fn what_arrives_late_stands_before_what_a_successor_writes() {
    for late_s in [35, 45] {
        let seam = Seam::Simulated(Simulation::new(41));
        let (a, b) = (cluster(&seam, 1, "10.0.0.1").await, cluster(&seam, 2, "10.0.0.2").await);
        a.create_topic("t", 1, 1, &[]).unwrap();
        b.create_topic("A.t", 1, 1, &[]).unwrap();
        let Some((Some(leader), _)) = b.leader("A.t", 0) else { panic!("A.t-0 has a leader") };
        let first = replicator(&seam, &file(&a, &b, ""));
        append(&a, "t", 0, 0, 10, Codec::None);
        let at = |status: &ReplicatorStatus| {
            status.flows[0].partitions.get(&("t".into(), 0)).and_then(|partition| partition.position)
        };
        until(&first, "the start", |status| at(status) == Some(10)).await;
        b.fault(FaultRule {
            key: Some(ApiKey::Produce),
            broker: Some(leader),
            when: When::After(0),
            times: 1,
            effect: Effect::Delay(Duration::from_secs(late_s)),
        });
        append(&a, "t", 0, 10, 10, Codec::None);
        until(&first, "the batch that is late", |status| {
            status.flows[0].partitions.values().any(|partition| partition.unacknowledged_batches > 0)
        })
        .await;
        let stopped_at = tokio::time::Instant::now();
        let second = replicator(&seam, &file(&a, &b, ""));
        first.stop().await;
        assert!((30..32).contains(&stopped_at.elapsed().as_secs()), "{:?}", stopped_at.elapsed());
        append(&a, "t", 0, 20, 10, Codec::None);
        until(&second, "the successor", |status| at(status) == Some(30)).await;
        assert!(stopped_at.elapsed().as_secs() >= 48, "{:?}", stopped_at.elapsed());
        second.stop().await;
        let numbers: Vec<i64> = records(&b, "A.t", 0).iter().map(|record| record.timestamp).collect();
        let wanted: Vec<i64> = (0..20).chain(10..30).collect();
        assert_eq!(numbers, wanted);
    }
}
