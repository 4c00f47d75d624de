//! One face for the embedded broker and real Kafka, so that the same conformance tests run against both.
//!
//! The harness is synchronous; an embedded cluster brings a runtime of its own.

use crate::kafka::{ClusterSpec, Kafka};
use crate::{HarnessError, Result};
use kmirror::broker::{EmbeddedCluster, Settings};
use kmirror::seam::Seam;
use tokio::runtime::Runtime;

/// A running embedded cluster on loopback TCP.
pub struct Embedded {
    /// Before the runtime: its brokers are that runtime's tasks.
    cluster: EmbeddedCluster,
    runtime: Runtime,
}

impl Embedded {
    /// Starts a cluster.
    pub fn start(settings: Settings) -> Result<Embedded> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| HarnessError::io("a runtime", error))?;
        let cluster = runtime.block_on(EmbeddedCluster::start(Seam::real(), settings)).map_err(|error| {
            HarnessError::Process { what: "the embedded cluster".to_owned(), log: error.to_string() }
        })?;
        Ok(Embedded { cluster, runtime })
    }

    /// Everything a test does to it.
    pub fn cluster(&self) -> &EmbeddedCluster {
        &self.cluster
    }

    /// Runs one of the cluster's asynchronous calls.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// A cluster under test.
pub enum TestCluster {
    /// The embedded broker.
    Embedded(Embedded),
    /// Real Apache Kafka.
    Real(Kafka),
}

impl TestCluster {
    /// Starts an embedded cluster with this many brokers.
    pub fn embedded(brokers: u32) -> Result<TestCluster> {
        let replication_factor = brokers.min(3) as u16;
        let settings = Settings { brokers, replication_factor, ..Settings::default() };
        Embedded::start(settings).map(TestCluster::Embedded)
    }

    /// Starts a real cluster.
    pub fn real(spec: ClusterSpec) -> Result<TestCluster> {
        Kafka::start(spec).map(TestCluster::Real)
    }

    /// `host:port` of every broker.
    pub fn bootstrap(&self) -> String {
        match self {
            TestCluster::Embedded(embedded) => embedded.cluster.bootstrap(),
            TestCluster::Real(kafka) => kafka.bootstrap(),
        }
    }

    /// For messages.
    pub fn name(&self) -> &'static str {
        match self {
            TestCluster::Embedded(_) => "embedded",
            TestCluster::Real(_) => "real",
        }
    }
}
