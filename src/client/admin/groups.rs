//! Groups, their coordinators, and producer ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, GroupId, InitProducerIdRequest, ListGroupsRequest,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::super::api::words;
use super::super::cluster::{Cluster, CoordinatorKind, Node, string};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::super::metadata::Topics;
use super::Each;

/// What a group without members and offsets is called by every version.
const DEAD: &str = "Dead";

/// A group as a broker lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedGroup {
    /// Its id.
    pub id: Arc<str>,
    /// Its protocol type: `consumer`, `connect`, empty for a group that only committed offsets.
    pub protocol_type: String,
    /// Its state; empty when the broker is too old to tell.
    pub state: String,
    /// `classic`, `consumer`, `share`, `streams`; empty when the broker is too old to tell.
    pub group_type: String,
}

/// A classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`, or `Dead` for a group that does not exist.
    pub state: String,
    /// Its protocol type.
    pub protocol_type: String,
    /// The protocol that its members agreed on.
    pub protocol: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// Its client id.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// What it joined with.
    pub metadata: Bytes,
    /// What the leader gave it.
    pub assignment: Bytes,
}

impl Cluster {
    /// All groups of all brokers. A broker that cannot be asked is in the second list and hides only its own groups.
    ///
    /// # Errors
    /// As a whole, when the brokers are not known.
    pub async fn list_groups(&self) -> Result<(Vec<ListedGroup>, Vec<Error>), Error> {
        let view = self.refresh(Topics::Named(Vec::new())).await?;
        let asked: Vec<_> = view.brokers.keys().map(|&id| self.spawn_list_groups(id)).collect();
        let (mut groups, mut errors) = (Vec::new(), Vec::new());
        for answer in asked {
            match answer.await {
                Ok(Ok(listed)) => groups.extend(listed),
                Ok(Err(error)) => errors.push(error),
                Err(_) => errors.push(Error::Closed { cluster: self.alias().clone() }),
            }
        }
        groups.sort();
        groups.dedup_by(|a, b| a.id == b.id);
        Ok((groups, errors))
    }

    fn spawn_list_groups(&self, broker: i32) -> tokio::task::JoinHandle<Result<Vec<ListedGroup>, Error>> {
        let cluster = self.clone();
        self.seam().spawn(async move {
            let answer = cluster.call(Node::Broker(broker), &ListGroupsRequest::default()).await?;
            let groups = answer.response.groups.iter().map(|group| ListedGroup {
                id: Arc::from(group.group_id.0.as_str()),
                protocol_type: group.protocol_type.to_string(),
                state: group.group_state.to_string(),
                group_type: group.group_type.to_string(),
            });
            Ok(groups.collect())
        })
    }

    /// Describes classic groups at their coordinators. One that does not exist is `Dead` without members.
    pub async fn describe_groups(&self, ids: &[Arc<str>]) -> Each<Arc<str>, GroupDescription> {
        let mut each = BTreeMap::new();
        for id in ids {
            each.insert(id.clone(), self.describe_group(id).await);
        }
        each
    }

    /// Describes one classic group.
    ///
    /// # Errors
    /// What the coordinator refuses with.
    pub async fn describe_group(&self, id: &Arc<str>) -> Result<GroupDescription, Error> {
        let node = Node::Coordinator(CoordinatorKind::Group, id.clone());
        let subject = Subject::Group(id.clone());
        let build = |_| DescribeGroupsRequest::default().with_groups(vec![GroupId(string(id))]);
        let answer = self
            .call_judged::<DescribeGroupsRequest>(node, subject.clone(), build, |response| {
                described(response, id).map_or((ErrorCode::NONE, None), judge)
            })
            .await?;
        let broker = Box::new(answer.broker);
        described(&answer.response, id).map(description).ok_or_else(|| Error::LeftOut {
            cluster: self.alias().clone(),
            broker,
            api: kafka_protocol::messages::ApiKey::DescribeGroups,
            subject,
        })
    }

    /// The broker that coordinates a group or transactional id, tried until there is one.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    pub async fn find_coordinator(&self, kind: CoordinatorKind, key: &Arc<str>) -> Result<i32, Error> {
        let mut retry = self.retry(kafka_protocol::messages::ApiKey::FindCoordinator);
        loop {
            match retry.within(self.coordinator(kind, key)).await? {
                Ok(id) => return Ok(id),
                Err(error) => retry.after(error, &Node::Any).await?,
            }
        }
    }

    /// A producer id and epoch: a fresh one, or the transactional id's with its next epoch.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    pub async fn init_producer_id(&self, transactional_id: Option<&Arc<str>>) -> Result<(i64, i16), Error> {
        let node = match transactional_id {
            // On a fresh cluster, only the lookup creates the topic that transactional ids live in.
            Some(id) => Node::Coordinator(CoordinatorKind::Transaction, id.clone()),
            None => Node::Any,
        };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(transactional_id.map(|id| TransactionalId(string(id))))
            .with_transaction_timeout_ms(self.request_timeout_ms());
        let response = self.call(node, &request).await?.response;
        Ok((response.producer_id.0, response.producer_epoch))
    }
}

fn described<'a>(response: &'a DescribeGroupsResponse, id: &Arc<str>) -> Option<&'a DescribedGroup> {
    response.groups.iter().find(|group| group.group_id.0.as_str() == &**id)
}

/// From version 6 a group that does not exist is GROUP_ID_NOT_FOUND; older ones say `Dead` (KIP-1043).
fn judge(group: &DescribedGroup) -> (ErrorCode, Option<String>) {
    match ErrorCode(group.error_code) {
        ErrorCode::GROUP_ID_NOT_FOUND => (ErrorCode::NONE, None),
        code => (code, words(group.error_message.as_ref())),
    }
}

fn description(group: &DescribedGroup) -> GroupDescription {
    let not_found = ErrorCode(group.error_code) == ErrorCode::GROUP_ID_NOT_FOUND;
    let text = |text: &StrBytes| text.to_string();
    let members = group.members.iter().map(|member| GroupMember {
        member_id: text(&member.member_id),
        client_id: text(&member.client_id),
        client_host: text(&member.client_host),
        metadata: member.member_metadata.clone(),
        assignment: member.member_assignment.clone(),
    });
    GroupDescription {
        state: if not_found { DEAD.to_owned() } else { text(&group.group_state) },
        protocol_type: text(&group.protocol_type),
        protocol: text(&group.protocol_data),
        members: members.collect(),
    }
}
