//! Administration of a cluster through the Java admin client.

use super::client::{Client, Isolation};
use crate::Result;
use crate::records::malformed;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The Java admin client for one cluster.
#[derive(Clone)]
pub struct Admin<'a> {
    client: &'a Client,
    bootstrap: String,
}

/// One partition of a described topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub partition: i32,
    /// −1 while there is none.
    pub leader: i32,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
}

/// Log start and end of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    pub earliest: i64,
    /// High watermark, or last stable offset with [`Isolation::ReadCommitted`].
    pub latest: i64,
}

/// One member of a described group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    pub member_id: String,
    pub client_id: String,
    pub host: String,
    /// How many partitions it has.
    pub partitions: u64,
}

impl Client {
    /// The admin client of this (Java) process for one cluster.
    pub fn admin(&self, bootstrap: &str) -> Admin<'_> {
        Admin { client: self, bootstrap: bootstrap.to_owned() }
    }
}

impl Admin<'_> {
    fn call(&self, op: &str, mut arguments: Value) -> Result<Value> {
        arguments["bootstrap"] = json!(self.bootstrap);
        self.client.call(op, arguments)
    }

    /// Creates a topic with the cluster's default replication factor; waits until every broker knows its leaders.
    pub fn create_topic(&self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        let configs: BTreeMap<_, _> = configs.iter().copied().collect();
        let arguments = json!({"topic": topic, "partitions": partitions, "configs": configs});
        self.call("topic.create", arguments).map(drop)
    }

    /// Creates a topic whose partition `i` has the replicas `assignment[i]`, the first of which is the leader.
    pub fn create_topic_on(
        &self,
        topic: &str,
        assignment: &[Vec<i32>],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let configs: BTreeMap<_, _> = configs.iter().copied().collect();
        let arguments = json!({"topic": topic, "assignment": assignment, "configs": configs});
        self.call("topic.create", arguments).map(drop)
    }

    /// Raises the number of partitions.
    pub fn create_partitions(&self, topic: &str, total: i32) -> Result<()> {
        self.call("partitions.create", json!({"topic": topic, "total": total})).map(drop)
    }

    /// Deletes a topic and waits until no broker knows it.
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        self.call("topic.delete", json!({"topic": topic})).map(drop)
    }

    /// Names of all topics, internal ones too.
    pub fn topics(&self) -> Result<Vec<String>> {
        strings(&self.call("topics", json!({}))?)
    }

    /// The partitions of a topic; `None` when there is no such topic.
    pub fn describe_topic(&self, topic: &str) -> Result<Option<Vec<PartitionInfo>>> {
        let result = self.call("topic.describe", json!({"topic": topic}))?;
        let Some(list) = result.as_array() else { return Ok(None) };
        let partition = |value: &Value| {
            Ok(PartitionInfo {
                partition: integer(&value["partition"])? as i32,
                leader: integer(&value["leader"])? as i32,
                replicas: integers(&value["replicas"])?,
                in_sync: integers(&value["in_sync"])?,
            })
        };
        list.iter().map(partition).collect::<Result<Vec<_>>>().map(Some)
    }

    /// The configs set on the topic itself, not those it inherits.
    pub fn topic_configs(&self, topic: &str) -> Result<BTreeMap<String, String>> {
        let result = self.call("configs.describe", json!({"topic": topic}))?;
        let object = result.as_object().ok_or_else(|| malformed("topic configs", &result))?;
        Ok(object.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    /// Sets (`Some`) or deletes (`None`) configs of a topic.
    pub fn alter_topic_configs(&self, topic: &str, configs: &[(&str, Option<&str>)]) -> Result<()> {
        let configs: BTreeMap<_, _> = configs.iter().copied().collect();
        self.call("configs.alter", json!({"topic": topic, "configs": configs})).map(drop)
    }

    /// Sets (`Some`) or deletes (`None`) dynamic broker configs for the whole cluster.
    pub fn alter_broker_configs(&self, configs: &[(&str, Option<&str>)]) -> Result<()> {
        let configs: BTreeMap<_, _> = configs.iter().copied().collect();
        self.call("configs.alter", json!({"configs": configs})).map(drop)
    }

    /// Creates an ACL of a topic for all hosts; pattern (`literal`, `prefixed`), operation and permission by Kafka's words.
    pub fn create_topic_acl(
        &self,
        pattern: &str,
        topic: &str,
        principal: &str,
        operation: &str,
        permission: &str,
    ) -> Result<()> {
        let arguments = json!({"pattern": pattern, "topic": topic, "principal": principal,
            "operation": operation, "permission": permission});
        self.call("acl.create", arguments).map(drop)
    }

    /// All ACLs, sorted, as `LITERAL TOPIC name principal host OPERATION PERMISSION`.
    pub fn acls(&self) -> Result<Vec<String>> {
        strings(&self.call("acls", json!({}))?)
    }

    /// Gives a right, as a line of [`Admin::acls`].
    pub fn give_acl(&self, acl: &str) -> Result<()> {
        self.call("acl.change", json!({"acl": acl, "give": true})).map(drop)
    }

    /// Takes a right away.
    pub fn take_acl(&self, acl: &str) -> Result<()> {
        self.call("acl.change", json!({"acl": acl, "give": false})).map(drop)
    }

    /// Sets (`Some`) or removes (`None`) a quota of a client id, such as `producer_byte_rate` in bytes per second.
    pub fn alter_quota(&self, client_id: &str, quota: &str, value: Option<u32>) -> Result<()> {
        self.call("quota.alter", json!({"client_id": client_id, "quota": quota, "value": value})).map(drop)
    }

    /// Deletes the records of a partition before `offset`.
    pub fn delete_records(&self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let arguments = json!({"topic": topic, "partition": partition, "offset": offset});
        self.call("records.delete", arguments).map(drop)
    }

    /// Log start and end of every partition of a topic.
    pub fn offsets(&self, topic: &str, isolation: Isolation) -> Result<BTreeMap<i32, Offsets>> {
        let result = self.call("offsets", json!({"topic": topic, "isolation": isolation.name()}))?;
        let list = result.as_array().ok_or_else(|| malformed("offsets", &result))?;
        list.iter()
            .map(|entry| {
                let offsets =
                    Offsets { earliest: integer(&entry["earliest"])?, latest: integer(&entry["latest"])? };
                Ok((integer(&entry["partition"])? as i32, offsets))
            })
            .collect()
    }

    /// High watermarks of some partitions: the others need not have a leader.
    pub fn end_offsets(&self, topic: &str, partitions: &[i32]) -> Result<BTreeMap<i32, i64>> {
        let result = self.call("ends", json!({"topic": topic, "partitions": partitions}))?;
        let list = result.as_array().ok_or_else(|| malformed("offsets", &result))?;
        list.iter()
            .map(|entry| Ok((integer(&entry["partition"])? as i32, integer(&entry["latest"])?)))
            .collect()
    }

    /// Names of all groups.
    pub fn groups(&self) -> Result<Vec<String>> {
        strings(&self.call("groups", json!({}))?)
    }

    /// Members of a classic group; empty when it has none or does not exist.
    pub fn group_members(&self, group: &str) -> Result<Vec<GroupMember>> {
        let result = self.call("group.describe", json!({"group": group}))?;
        let list = result.as_array().ok_or_else(|| malformed("members", &result))?;
        let member = |value: &Value| GroupMember {
            member_id: text(&value["member_id"]),
            client_id: text(&value["client_id"]),
            host: text(&value["host"]),
            partitions: value["partitions"].as_u64().unwrap_or_default(),
        };
        Ok(list.iter().map(member).collect())
    }

    /// Joins a classic group with a live consumer of `topic`; it leaves when the value is dropped.
    pub fn join_group(&self, group: &str, topic: &str) -> Result<JoinedMember<'_>> {
        let member = format!("{group}@{}", self.bootstrap);
        self.call("group.join", json!({"member": member, "group": group, "topic": topic}))?;
        Ok(JoinedMember { admin: self, member })
    }

    /// Makes a streams group (KIP-1071) that reads a topic and has no members.
    pub fn make_streams_group(&self, group: &str, topic: &str) -> Result<()> {
        self.call("group.streams", json!({"group": group, "topic": topic})).map(drop)
    }

    /// Commits an offset for an inactive group.
    pub fn commit_group_offset(&self, group: &str, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let arguments = json!({"group": group, "topic": topic, "partition": partition, "offset": offset});
        self.call("group.commit", arguments).map(drop)
    }

    /// The committed offsets of a group, by topic and partition.
    pub fn group_offsets(&self, group: &str) -> Result<BTreeMap<(String, i32), i64>> {
        let result = self.call("group.offsets", json!({"group": group}))?;
        let list = result.as_array().ok_or_else(|| malformed("group offsets", &result))?;
        list.iter()
            .map(|entry| {
                let partition = integer(&entry["partition"])? as i32;
                Ok(((text(&entry["topic"]), partition), integer(&entry["offset"])?))
            })
            .collect()
    }

    /// Gives a partition new replicas, the first of which becomes its leader, and waits until that is done.
    pub fn move_leader(&self, topic: &str, partition: i32, replicas: &[i32]) -> Result<()> {
        let arguments = json!({"topic": topic, "partition": partition, "replicas": replicas});
        self.call("leader.move", arguments).map(drop)
    }

    /// Ids of the live brokers.
    pub fn brokers(&self) -> Result<Vec<i32>> {
        integers(&self.call("brokers", json!({}))?)
    }
}

/// A live member of a group; leaves on drop.
pub struct JoinedMember<'a> {
    admin: &'a Admin<'a>,
    member: String,
}

impl Drop for JoinedMember<'_> {
    fn drop(&mut self) {
        let _ = self.admin.call("group.leave", json!({"member": self.member}));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(value: &Value) -> Result<Vec<String>> {
    let list = value.as_array().ok_or_else(|| malformed("a list of names", value))?;
    Ok(list.iter().map(text).collect())
}

fn integer(value: &Value) -> Result<i64> {
    value.as_i64().ok_or_else(|| malformed("a number", value))
}

fn integers(value: &Value) -> Result<Vec<i32>> {
    let list = value.as_array().ok_or_else(|| malformed("a list of numbers", value))?;
    list.iter().map(|value| integer(value).map(|number| number as i32)).collect()
}
