//! Groups that read on, and what MirrorMaker's own client makes of a target (`RemoteClusterUtils`, `MirrorClient`).

use super::client::{Client, Isolation};
use crate::Result;
use crate::records::malformed;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One life of a group's only member.
#[derive(Clone, Copy, Debug)]
pub struct GroupRead<'a> {
    pub group: &'a str,
    /// `classic` or `consumer` (KIP-848).
    pub protocol: &'a str,
    /// A topic of one partition.
    pub topic: &'a str,
    /// This many records, or all up to the end that the topic has now.
    pub records: Option<u64>,
    /// `auto.offset.reset`.
    pub reset: &'a str,
    pub isolation: Isolation,
}

/// What `MirrorClient` says of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorView {
    pub heartbeat_topics: Vec<String>,
    pub checkpoint_topics: Vec<String>,
    pub remote_topics: Vec<String>,
    pub upstream_clusters: Vec<String>,
    /// To the cluster that was asked for, -1 when it is not upstream.
    pub hops: i64,
}

impl Client {
    /// Joins the group, reads on, commits and leaves; gives the values that were read (Java only).
    pub fn read_as_group(&self, bootstrap: &str, read: GroupRead<'_>) -> Result<Vec<String>> {
        let arguments = json!({
            "bootstrap": bootstrap, "group": read.group, "protocol": read.protocol, "topic": read.topic,
            "records": read.records.map_or(-1, |records| records as i64), "reset": read.reset,
            "isolation": read.isolation.name(),
        });
        strings(&self.call("group.read", arguments)?)
    }

    /// `RemoteClusterUtils.translateOffsets`: offsets by topic on the target and partition (Java only).
    pub fn translate_offsets(
        &self,
        bootstrap: &str,
        alias: &str,
        group: &str,
    ) -> Result<BTreeMap<(String, i32), i64>> {
        let arguments = json!({"bootstrap": bootstrap, "alias": alias, "group": group});
        let result = self.call("mirror.translate", arguments)?;
        let list = result.as_array().ok_or_else(|| malformed("translated offsets", &result))?;
        let one = |entry: &Value| {
            let topic = entry["topic"].as_str().unwrap_or_default().to_owned();
            let partition = entry["partition"].as_i64().unwrap_or(-1) as i32;
            ((topic, partition), entry["offset"].as_i64().unwrap_or(-1))
        };
        Ok(list.iter().map(one).collect())
    }

    /// What `MirrorClient` says of a target, and of a cluster upstream of it (Java only).
    pub fn mirror_view(&self, bootstrap: &str, alias: &str) -> Result<MirrorView> {
        let result = self.call("mirror.describe", json!({"bootstrap": bootstrap, "alias": alias}))?;
        Ok(MirrorView {
            heartbeat_topics: strings(&result["heartbeat_topics"])?,
            checkpoint_topics: strings(&result["checkpoint_topics"])?,
            remote_topics: strings(&result["remote_topics"])?,
            upstream_clusters: strings(&result["upstream_clusters"])?,
            hops: result["hops"].as_i64().ok_or_else(|| malformed("hops", &result))?,
        })
    }
}

fn strings(value: &Value) -> Result<Vec<String>> {
    let list = value.as_array().ok_or_else(|| malformed("a list of texts", value))?;
    Ok(list.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect())
}
