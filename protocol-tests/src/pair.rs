//! The two real clusters of a test binary and what tests do with them all the time.

use crate::compare::{Side, compare_topics};
use crate::flow::FlowFile;
use crate::kafka::{Admin, Client, ClusterSpec, Isolation, Kafka, RealKafka, real_kafka};
use crate::mirror::Kmirror;
use crate::process::tail;
use crate::wait::{Look, wait_for};
use crate::{HarnessError, Result};
use std::sync::OnceLock;
use std::time::Duration;

/// Source and target, shared by the tests of one binary.
pub struct Pair {
    pub real: &'static RealKafka,
    /// The source.
    pub a: Kafka,
    /// The target.
    pub b: Kafka,
}

/// Where a binary keeps its pair.
pub type PairCell = OnceLock<std::result::Result<Option<Pair>, String>>;

impl Pair {
    /// The pair of this binary, started by the first test that asks; `None` when real Kafka is not to be used.
    pub fn get(cell: &'static PairCell, a: ClusterSpec, b: ClusterSpec) -> Result<Option<&'static Pair>> {
        let started = cell.get_or_init(|| Pair::start(a, b).map_err(|error| error.to_string()));
        match started {
            Ok(pair) => Ok(pair.as_ref()),
            Err(log) => Err(HarnessError::Process {
                what: "the pair of clusters did not start".to_owned(),
                log: log.clone(),
            }),
        }
    }

    fn start(a: ClusterSpec, b: ClusterSpec) -> Result<Option<Pair>> {
        let Some(real) = real_kafka()? else { return Ok(None) };
        Ok(Some(Pair { real, a: Kafka::start(a)?, b: Kafka::start(b)? }))
    }

    /// The Java client.
    pub fn java(&self) -> &'static Client {
        &self.real.java
    }

    /// The source's administration.
    pub fn source(&self) -> Admin<'static> {
        self.real.java.admin(&self.a.bootstrap())
    }

    /// The target's administration.
    pub fn target(&self) -> Admin<'static> {
        self.real.java.admin(&self.b.bootstrap())
    }

    /// A file for a flow from A, under an alias of the test's own, to B.
    pub fn flow(&self, alias: &str) -> FlowFile {
        FlowFile::new(alias, &self.a.bootstrap(), &self.b.bootstrap()).set("kmirror.admin.listen", "none")
    }

    /// Compares a topic with its remote topic through the Java client; gives the number of records.
    pub fn compare(&self, flow: &FlowFile, topic: &str, isolation: Isolation) -> Result<usize> {
        self.compare_by(self.java(), flow, topic, isolation)
    }

    /// Compares a topic with its remote topic through any client.
    pub fn compare_by(
        &self,
        client: &Client,
        flow: &FlowFile,
        topic: &str,
        isolation: Isolation,
    ) -> Result<usize> {
        let (a, b, remote) = (self.a.bootstrap(), self.b.bootstrap(), flow.remote(topic));
        let source = Side { bootstrap: &a, topic };
        compare_topics(client, source, Side { bootstrap: &b, topic: &remote }, isolation)
    }

    /// Waits until the remote topic equals the topic; gives the number of records. Ends at once when the mirror does.
    pub fn wait_mirrored(
        &self,
        mirror: &mut Kmirror,
        flow: &FlowFile,
        topic: &str,
        isolation: Isolation,
        timeout: Duration,
    ) -> Result<usize> {
        self.wait_compared(flow, topic, isolation, timeout, || {
            mirror.expect_running()?;
            Ok(tail(&mirror.output(), 40))
        })
    }

    /// The same for any mirror.
    pub fn wait_equal(
        &self,
        flow: &FlowFile,
        topic: &str,
        isolation: Isolation,
        timeout: Duration,
    ) -> Result<usize> {
        self.wait_compared(flow, topic, isolation, timeout, || Ok(String::new()))
    }

    /// `mirror` says what is to be known of the mirror if it takes too long, or that it is over.
    fn wait_compared(
        &self,
        flow: &FlowFile,
        topic: &str,
        isolation: Isolation,
        timeout: Duration,
        mut mirror: impl FnMut() -> Result<String>,
    ) -> Result<usize> {
        let what = format!("{} to equal {topic}", flow.remote(topic));
        wait_for(&what, timeout, || {
            let output = mirror()?;
            Ok(match self.compare(flow, topic, isolation) {
                Ok(count) => Look::Done(count),
                Err(error) => Look::Pending(format!("{error}\n{output}")),
            })
        })
    }

    /// Number of records that a partition of a topic on the target holds; 0 while there is no such topic.
    pub fn target_end(&self, topic: &str, partition: i32) -> Result<i64> {
        if self.target().describe_topic(topic)?.is_none() {
            return Ok(0);
        }
        let offsets = self.target().offsets(topic, Isolation::ReadUncommitted)?;
        Ok(offsets.get(&partition).map_or(0, |offsets| offsets.latest))
    }
}
