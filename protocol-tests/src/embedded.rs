//! One face for the embedded broker and real Kafka, so that the same conformance tests run against both.

use crate::kafka::Kafka;

/// A cluster under test.
pub enum TestCluster {
    /// Real Apache Kafka.
    Real(Kafka),
}

impl TestCluster {
    /// `host:port` of every broker.
    pub fn bootstrap(&self) -> String {
        match self {
            TestCluster::Real(kafka) => kafka.bootstrap(),
        }
    }
}
