//! The `.properties` file of one flow, as MirrorMaker 2 and kmirror both read it.

use std::fmt::Write;

/// Alias of the target in every file; the source's alias is the test's own, so that tests beside each other have
/// their own flows, remote topics and positions.
pub const TARGET_ALIAS: &str = "B";

/// A file being written. Short intervals, no heartbeats, checkpoints or ACL sync unless a test sets them again: the
/// last of two lines with one key wins.
#[derive(Clone, Debug)]
pub struct FlowFile {
    source: String,
    text: String,
}

impl FlowFile {
    /// A flow from the cluster `source` (an alias) to [`TARGET_ALIAS`].
    pub fn new(source: &str, source_bootstrap: &str, target_bootstrap: &str) -> FlowFile {
        let text = format!(
            "clusters = {source}, {TARGET_ALIAS}\n\
             {source}.bootstrap.servers = {source_bootstrap}\n\
             {TARGET_ALIAS}.bootstrap.servers = {target_bootstrap}\n\
             {source}->{TARGET_ALIAS}.enabled = true\n\
             {TARGET_ALIAS}->{source}.enabled = false\n\
             {TARGET_ALIAS}->{source}.emit.heartbeats.enabled = false\n\
             emit.heartbeats.enabled = false\n\
             emit.checkpoints.enabled = false\n\
             sync.topic.acls.enabled = false\n\
             refresh.topics.interval.seconds = 1\n\
             {TARGET_ALIAS}.offset.storage.partitions = 2\n\
             {TARGET_ALIAS}.offset.flush.interval.ms = 1000\n"
        );
        FlowFile { source: source.to_owned(), text }
    }

    /// Which topics the flow takes (Java regular expressions, separated by commas).
    pub fn topics(self, topics: &str) -> FlowFile {
        self.set_for_flow("topics", topics)
    }

    /// Adds a line.
    pub fn set(mut self, key: &str, value: &str) -> FlowFile {
        let _ = writeln!(self.text, "{key} = {value}");
        self
    }

    /// Adds a line for the source cluster.
    pub fn set_for_source(self, key: &str, value: &str) -> FlowFile {
        let key = format!("{}.{key}", self.source);
        self.set(&key, value)
    }

    /// Adds a line for the target cluster.
    pub fn set_for_target(self, key: &str, value: &str) -> FlowFile {
        let key = format!("{TARGET_ALIAS}.{key}");
        self.set(&key, value)
    }

    /// Adds a line for the flow.
    pub fn set_for_flow(self, key: &str, value: &str) -> FlowFile {
        let key = format!("{}->{TARGET_ALIAS}.{key}", self.source);
        self.set(&key, value)
    }

    /// Replication factor 1 for everything, which MirrorMaker needs on one broker.
    pub fn single_replicas(mut self) -> FlowFile {
        for key in ["replication.factor", "checkpoints.topic.replication.factor"] {
            self = self.set(key, "1");
        }
        for key in ["heartbeats.topic.replication.factor", "offset-syncs.topic.replication.factor"] {
            self = self.set(key, "1");
        }
        for key in ["config", "offset", "status"] {
            self = self.set_for_target(&format!("{key}.storage.replication.factor"), "1");
        }
        self
    }

    /// The source's alias.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What a source topic is called on the target by the default replication policy.
    pub fn remote(&self, topic: &str) -> String {
        format!("{}.{topic}", self.source)
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }
}
