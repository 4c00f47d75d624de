//! When a flow between embedded clusters counts as ready, in the time of a simulation: brokers that die, hang and refuse.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::log::Isolation;
use kmirror::broker::{self, Effect, EmbeddedCluster, FaultRule, When};
use kmirror::mirror::Replicator;
use kmirror::mirror::status::{FlowStatus, Readiness};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::{Link, Seam, Simulation};
use protocol_tests::inside::replicator;
use tokio::time::{Instant, sleep};

struct World {
    simulation: Simulation,
    source: EmbeddedCluster,
    target: EmbeddedCluster,
    mirror: Replicator,
    produced: usize,
}

impl World {
    /// A flow that runs and has copied a first record of the one partition of `t`.
    async fn new(brokers: u32, more: &str) -> World {
        let simulation = Simulation::new(11);
        let cluster = |last: u8, id: &str| {
            let settings = broker::Settings {
                cluster_id: id.to_owned(),
                brokers,
                address: format!("10.0.0.{last}").parse().unwrap(),
                seed: last.into(),
                group_initial_rebalance_delay_ms: 0,
                ..broker::Settings::default()
            };
            EmbeddedCluster::start(Seam::Simulated(simulation.named(id)), settings)
        };
        let (source, target) = (cluster(1, "source").await.unwrap(), cluster(2, "target").await.unwrap());
        source.create_topic("t", 1, 1, &[]).unwrap();
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n{more}",
            source.bootstrap(),
            target.bootstrap()
        );
        let mirror = replicator(&Seam::Simulated(simulation.named("kmirror")), &file);
        let mut world = World { simulation, source, target, mirror, produced: 0 };
        assert_eq!(world.readiness().await, Readiness::NotReady(None), "it has just begun");
        world.produce();
        world.until_ready(Duration::from_secs(10)).await;
        world.until_copied().await;
        world
    }

    fn produce(&mut self) {
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        let value = Some(Bytes::from(self.produced.to_string()));
        builder.push(&RecordData { timestamp: 1, value, ..RecordData::default() }).unwrap();
        self.source.append("t", 0, &builder.build().unwrap()).unwrap();
        self.produced += 1;
    }

    async fn until_copied(&self) {
        let wanted: Vec<String> = (0..self.produced).map(|number| number.to_string()).collect();
        let copied = || {
            let records = self.target.read_all("A.t", 0, Isolation::ReadUncommitted).unwrap_or_default();
            let text = |value: Option<Bytes>| String::from_utf8(value.unwrap().to_vec()).unwrap();
            records.into_iter().map(|logged| text(logged.record.value)).collect::<Vec<_>>()
        };
        let started = Instant::now();
        while copied() != wanted {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?} instead of {wanted:?}", copied());
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn flow(&self) -> FlowStatus {
        self.mirror.status().await.flows.remove(0)
    }

    async fn readiness(&self) -> Readiness {
        self.flow().await.readiness
    }

    async fn until_ready(&self, within: Duration) {
        let started = Instant::now();
        while self.readiness().await != Readiness::Ready {
            assert!(started.elapsed() < within, "{:?} after {:?}", self.flow().await, started.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// After how long it is not ready, with the reason.
    async fn until_unready(&self, within: Duration) -> (Duration, String) {
        let started = Instant::now();
        loop {
            if let Readiness::NotReady(reason) = self.readiness().await {
                return (started.elapsed(), reason.unwrap_or_default());
            }
            assert!(started.elapsed() < within, "still ready after {:?}", started.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// All that the target's brokers are asked to write is refused with this, so often.
    fn refuse(&self, error: ResponseError, times: u64) {
        self.target.fault(FaultRule {
            key: Some(ApiKey::Produce),
            broker: None,
            when: When::After(0),
            times,
            effect: Effect::Error(error.code()),
        });
    }
}

/// Either cluster loses its only broker, and gets it back.
#[tokio::test(start_paused = true)]
async fn a_cluster_without_brokers_turns_it_within_seconds_and_back() {
    for alias in ["A", "B"] {
        let mut world = World::new(1, "").await;
        let cluster = if alias == "A" { &world.source } else { &world.target };
        cluster.stop_broker(1).await.unwrap();
        let (after, reason) = world.until_unready(Duration::from_secs(10)).await;
        assert!(after < Duration::from_secs(3), "{alias}: {after:?}");
        assert!(reason.starts_with(&format!("no broker of {alias} answers: ")), "{reason}");
        sleep(Duration::from_secs(100)).await;
        assert_ne!(world.readiness().await, Readiness::Ready, "{alias}");
        cluster.start_broker(1).await.unwrap();
        world.until_ready(Duration::from_secs(10)).await;
        world.produce();
        world.until_copied().await;
        world.mirror.stop().await;
    }
}

/// A broker that hangs closes no connection: the lease tells of a target, `request.timeout.ms` of a source.
#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_turns_it_in_time() {
    for (alias, within_s) in [("A", 40), ("B", 20)] {
        let mut world = World::new(1, "").await;
        let cluster = if alias == "A" { &world.source } else { &world.target };
        let address = cluster.address(1).unwrap();
        world.simulation.set_link("kmirror", address, Link::Silent);
        let (after, reason) = world.until_unready(Duration::from_secs(100)).await;
        assert!(after < Duration::from_secs(within_s), "{alias}: {after:?}, {reason}");
        world.simulation.set_link("kmirror", address, Link::Up(Duration::from_millis(1)));
        world.until_ready(Duration::from_secs(60)).await;
        world.produce();
        world.until_copied().await;
        world.mirror.stop().await;
    }
}

/// `errors.retry.timeout` says how long an outage is nobody's business; delivery goes on after it as before.
#[tokio::test(start_paused = true)]
async fn errors_retry_timeout_delays_the_turn_and_ends_nothing() {
    let mut world = World::new(1, "errors.retry.timeout = 60000\n").await;
    world.target.stop_broker(1).await.unwrap();
    world.produce();
    let (after, _) = world.until_unready(Duration::from_secs(100)).await;
    assert!((58..65).contains(&after.as_secs()), "{after:?}");
    sleep(Duration::from_secs(900)).await;
    world.target.start_broker(1).await.unwrap();
    world.until_ready(Duration::from_secs(30)).await;
    world.until_copied().await;
    world.mirror.stop().await;
}

/// One broker of three is away: the flow goes on and is ready.
#[tokio::test(start_paused = true)]
async fn one_broker_of_three_does_not_turn_it() {
    for alias in ["A", "B"] {
        let mut world = World::new(3, "").await;
        let cluster = if alias == "A" { &world.source } else { &world.target };
        let topic = if alias == "A" { "t" } else { "A.t" };
        let leader = cluster.leader(topic, 0).unwrap().0.unwrap();
        let other = (1..=3).find(|&id| id != leader).unwrap();
        cluster.stop_broker(other).await.unwrap();
        let started = Instant::now();
        // A coordinator that moves may take the lease for a while.
        while started.elapsed() < Duration::from_secs(60) {
            world.produce();
            world.until_copied().await;
            sleep(Duration::from_secs(1)).await;
        }
        world.until_ready(Duration::from_millis(1)).await;
        world.mirror.stop().await;
    }
}

/// What Kafka's producer would give up is said by name, and delivered all the same.
#[tokio::test(start_paused = true)]
async fn records_that_wait_too_long_are_told_of_and_delivered() {
    for (more, from_s, to_s, key) in [
        ("A->B.producer.override.delivery.timeout.ms = 20000\n", 19, 24, "(delivery.timeout.ms)"),
        ("A->B.producer.override.retries = 3\n", 0, 10, "(retries)"),
        ("", 119, 124, "(delivery.timeout.ms)"),
    ] {
        let mut world = World::new(1, more).await;
        world.refuse(ResponseError::NotEnoughReplicas, u64::MAX);
        world.produce();
        let (after, reason) = world.until_unready(Duration::from_secs(200)).await;
        assert!((from_s..to_s).contains(&after.as_secs()), "{more}: {after:?}");
        assert!(reason.contains("B has acknowledged nothing of A.t-0 "), "{reason}");
        assert!(reason.contains(key) && reason.contains("NOT_ENOUGH_REPLICAS"), "{reason}");
        sleep(Duration::from_secs(1_000)).await;
        assert_ne!(world.readiness().await, Readiness::Ready, "{more}");
        world.target.clear_faults();
        // The longest pause of a partition that could not be written.
        world.until_ready(Duration::from_secs(301)).await;
        world.until_copied().await;
        world.mirror.stop().await;
    }
}

/// `errors.retry.delay.max.ms`: the longest pause before a partition that was stopped is tried again.
#[tokio::test(start_paused = true)]
async fn errors_retry_delay_max_caps_the_pause_of_a_stopped_partition() {
    for (more, pause_ms) in [("", 30_000), ("errors.retry.delay.max.ms = 2000\n", 2_000)] {
        let mut world = World::new(1, more).await;
        world.refuse(ResponseError::TopicAuthorizationFailed, u64::MAX);
        world.produce();
        let started = Instant::now();
        let stopped = loop {
            if let Some(stopped) = world.flow().await.partitions.values().find_map(|p| p.stopped.clone()) {
                break stopped;
            }
            assert!(started.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(
            (stopped.reason, stopped.retry_ms.unwrap() - stopped.since_ms),
            ("not_authorized", pause_ms)
        );
        assert_eq!(world.readiness().await, Readiness::Ready, "a stopped partition is no reason");
        world.target.clear_faults();
        world.until_copied().await;
        world.mirror.stop().await;
    }
}
