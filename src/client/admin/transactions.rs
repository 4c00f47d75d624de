//! Transactional ids: which there are, and how their transactions stand (KIP-664).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{
    ApiKey, DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    TransactionalId,
};

use super::super::cluster::{Cluster, CoordinatorKind, Node, string};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::super::metadata::Topics;
use super::TopicPartition;

/// A transactional id and its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`, `Dead` or
    /// `PrepareEpochFence`.
    pub state: String,
    /// The producer id that it has now.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// When the transaction began, in ms since the epoch; -1 when there is none.
    pub started_ms: i64,
    /// The partitions that are part of it.
    pub partitions: Vec<TopicPartition>,
}

impl Cluster {
    /// The transactional ids of all brokers that we may describe. A broker that cannot be asked is in the second list and
    /// hides only its own ids; brokers before 3.0 do not know the request at all.
    ///
    /// # Errors
    /// As a whole, when the brokers are not known.
    pub async fn list_transactional_ids(&self) -> Result<(Vec<Arc<str>>, Vec<Error>), Error> {
        let view = self.refresh(Topics::Named(Vec::new())).await?;
        let asked: Vec<_> = view.brokers.keys().map(|&id| self.spawn_list_transactions(id)).collect();
        let (mut ids, mut errors) = (Vec::new(), Vec::new());
        for answer in asked {
            match answer.await {
                Ok(Ok(listed)) => ids.extend(listed),
                Ok(Err(error)) => errors.push(error),
                Err(_) => errors.push(Error::Closed { cluster: self.alias().clone() }),
            }
        }
        ids.sort();
        ids.dedup();
        Ok((ids, errors))
    }

    fn spawn_list_transactions(&self, broker: i32) -> tokio::task::JoinHandle<Result<Vec<Arc<str>>, Error>> {
        let cluster = self.clone();
        self.seam().spawn(async move {
            // From version 1 on the filter by duration is off at -1, which is the default.
            let answer = cluster.call(Node::Broker(broker), &ListTransactionsRequest::default()).await?;
            let ids = answer.response.transaction_states.iter();
            Ok(ids.map(|state| Arc::from(state.transactional_id.0.as_str())).collect())
        })
    }

    /// Describes a transactional id at its coordinator; `None` when the coordinator does not know it.
    ///
    /// # Errors
    /// What the coordinator refuses with.
    pub async fn describe_transaction(&self, id: &Arc<str>) -> Result<Option<TransactionDescription>, Error> {
        let node = Node::Coordinator(CoordinatorKind::Transaction, id.clone());
        let subject = Subject::TransactionalId(id.clone());
        let build = |_| {
            DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(string(id))])
        };
        let answer = self
            .call_judged::<DescribeTransactionsRequest>(node, subject.clone(), build, |response| {
                (described(response, id).map_or(ErrorCode::NONE, judge), None)
            })
            .await?;
        let left_out = Error::LeftOut {
            cluster: self.alias().clone(),
            broker: Box::new(answer.broker),
            api: ApiKey::DescribeTransactions,
            subject,
        };
        let state = described(&answer.response, id).ok_or(left_out)?;
        let is_known = ErrorCode(state.error_code) == ErrorCode::NONE;
        Ok(is_known.then(|| description(state)))
    }
}

fn described<'a>(response: &'a DescribeTransactionsResponse, id: &Arc<str>) -> Option<&'a TransactionState> {
    response.transaction_states.iter().find(|state| state.transactional_id.0.as_str() == &**id)
}

/// TRANSACTIONAL_ID_NOT_FOUND is an answer.
fn judge(state: &TransactionState) -> ErrorCode {
    match ErrorCode(state.error_code) {
        ErrorCode::TRANSACTIONAL_ID_NOT_FOUND => ErrorCode::NONE,
        code => code,
    }
}

fn description(state: &TransactionState) -> TransactionDescription {
    let mut partitions: BTreeMap<TopicPartition, ()> = BTreeMap::new();
    for topic in &state.topics {
        let name: Arc<str> = Arc::from(topic.topic.0.as_str());
        partitions.extend(topic.partitions.iter().map(|&index| ((name.clone(), index), ())));
    }
    TransactionDescription {
        state: state.transaction_state.to_string(),
        producer_id: state.producer_id.0,
        producer_epoch: state.producer_epoch,
        started_ms: state.transaction_start_time_ms,
        partitions: partitions.into_keys().collect(),
    }
}
