//! What a broker answers, observed alike on the embedded broker and on real Kafka: where they differ, the embedded one
//! is wrong. The part on the embedded broker needs Rust alone.

mod clients;
mod coordinators;
mod produce;
mod reads;
mod sasl;

use protocol_tests::Result;
use protocol_tests::embedded::TestCluster;
use protocol_tests::kafka::{ClusterSpec, real_kafka};
use std::sync::OnceLock;

type Shared = OnceLock<std::result::Result<TestCluster, String>>;

/// The embedded cluster of this binary: one broker, as the real one.
fn embedded() -> &'static TestCluster {
    static CLUSTER: Shared = Shared::new();
    started(&CLUSTER, || TestCluster::embedded(1))
}

/// The real cluster of this binary, unless real Kafka is not to be used.
fn real() -> Result<Option<&'static TestCluster>> {
    static CLUSTER: Shared = Shared::new();
    Ok(real_kafka()?.map(|_| started(&CLUSTER, || TestCluster::real(ClusterSpec::new("conformance")))))
}

fn started(cell: &'static Shared, start: impl FnOnce() -> Result<TestCluster>) -> &'static TestCluster {
    let result = cell.get_or_init(|| start().map_err(|error| error.to_string()));
    result.as_ref().expect("the cluster starts")
}

/// Compares what was observed with what real Kafka says, line by line.
fn assert_observed(cluster: &TestCluster, observed: &[String], expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let observed: Vec<&str> = observed.iter().map(String::as_str).collect();
    assert_eq!(observed, expected, "{} ({})", cluster.name(), observed.join("\n"));
}

/// Makes two tests, one per kind of cluster, of a function that takes a cluster.
#[macro_export]
macro_rules! on_both {
    ($name:ident, $check:path) => {
        mod $name {
            #[test]
            fn embedded() -> protocol_tests::Result<()> {
                $check(super::super::embedded())
            }
            #[test]
            fn real() -> protocol_tests::Result<()> {
                super::super::real()?.map_or(Ok(()), $check)
            }
        }
    };
}
