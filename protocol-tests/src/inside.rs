//! The replicator inside the test's own process, between embedded clusters: over TCP, or in the simulated network.

use bytes::Bytes;
use kmirror::broker::{self, EmbeddedCluster, KafkaVersion};
use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::status::ReplicatorStatus;
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::Seam;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Nothing takes nearly so long, be it in real or in simulated time.
const PATIENCE: Duration = Duration::from_secs(120);

/// An embedded cluster of three brokers, all at this address.
pub async fn cluster(seam: &Seam, seed: u64, host: &str) -> EmbeddedCluster {
    cluster_of(seam, seed, host, KafkaVersion::default()).await
}

/// The same, with the API versions of a release.
pub async fn cluster_of(seam: &Seam, seed: u64, host: &str, version: KafkaVersion) -> EmbeddedCluster {
    let address = host.parse().unwrap();
    let settings = broker::Settings { brokers: 3, seed, address, version, ..broker::Settings::default() };
    EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
}

/// A replicator by the text of a file.
pub fn replicator(seam: &Seam, file: &str) -> Replicator {
    let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
    let settings = report.settings.unwrap_or_else(|| panic!("{:#?}", report.problems));
    Replicator::start(seam.clone(), settings.process)
}

/// Waits until the state is as wanted; `shown` makes what is shown when it does not come.
pub async fn until<S: std::fmt::Debug>(
    replicator: &Replicator,
    what: &str,
    condition: impl Fn(&ReplicatorStatus) -> bool,
    shown: impl Fn(&ReplicatorStatus) -> S,
) {
    let started = Instant::now();
    loop {
        let status = replicator.status().await;
        if condition(&status) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {:#?}", shown(&status));
        sleep(Duration::from_millis(20)).await;
    }
}

/// A batch of records `first..first + count`, whose timestamp, key and value are their number.
pub fn numbered(first: u32, count: u32, codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    for number in first..first + count {
        let record = RecordData {
            timestamp: i64::from(number),
            key: Some(Bytes::from(format!("{number}"))),
            value: Some(Bytes::from(format!("value {number}"))),
            headers: vec![(Bytes::from_static(b"h"), None)],
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}
