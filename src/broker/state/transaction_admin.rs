//! What an admin client asks about transactional ids: ListTransactions, DescribeTransactions (KIP-664).

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::list_transactions_response::TransactionState as ListedTransaction;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::transaction::{Phase, Transaction};
use super::{ClusterState, Handled};
use crate::broker::log::TransactionResult;
use crate::broker::wire::Request;

impl ClusterState {
    pub(super) fn handle_list_transactions(&mut self, request: &Request) -> Handled {
        let body: ListTransactionsRequest = request.decode()?;
        let listed = self.transactions.iter().filter(|(id, transaction)| {
            let state = state(transaction);
            self.coordinator(id) == Some(request.broker.0)
                && (body.state_filters.is_empty()
                    || body.state_filters.iter().any(|wanted| **wanted == *state))
                && (body.producer_id_filters.is_empty()
                    || body.producer_id_filters.contains(&ProducerId(transaction.producer_id)))
        });
        let states = listed.map(|(id, transaction)| {
            ListedTransaction::default()
                .with_transactional_id(TransactionalId(StrBytes::from_string(id.to_owned())))
                .with_producer_id(ProducerId(transaction.producer_id))
                .with_transaction_state(StrBytes::from_static_str(state(transaction)))
        });
        let reply = ListTransactionsResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_error_code(request.refuse_with.unwrap_or_default())
            .with_transaction_states(states.collect());
        Ok(request.reply(&reply))
    }

    pub(super) fn handle_describe_transactions(&mut self, request: &Request) -> Handled {
        let body: DescribeTransactionsRequest = request.decode()?;
        let states = body.transactional_ids.iter().map(|id| {
            let described = TransactionState::default().with_transactional_id(id.clone());
            match self.described_transaction(request, id) {
                Ok(transaction) => describe(described, transaction),
                Err(code) => described.with_error_code(code),
            }
        });
        let reply = DescribeTransactionsResponse::default().with_transaction_states(states.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn described_transaction(&self, request: &Request, id: &str) -> Result<&Transaction, i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, id)?;
        self.transactions.get(id).ok_or(ResponseError::TransactionalIdNotFound.code())
    }
}

fn describe(described: TransactionState, transaction: &Transaction) -> TransactionState {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in &transaction.partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        TopicData::default().with_topic(name).with_partitions(partitions)
    });
    let started_ms = match transaction.phase {
        Phase::Ongoing { started_ms } => started_ms,
        Phase::Empty | Phase::Prepare { .. } | Phase::Complete(_) => -1,
    };
    described
        .with_transaction_state(StrBytes::from_static_str(state(transaction)))
        .with_transaction_timeout_ms(i32::try_from(transaction.timeout_ms).unwrap_or(i32::MAX))
        .with_transaction_start_time_ms(started_ms)
        .with_producer_id(ProducerId(transaction.producer_id))
        .with_producer_epoch(transaction.epoch)
        .with_topics(topics.collect())
}

/// `TransactionState.java`.
fn state(transaction: &Transaction) -> &'static str {
    match transaction.phase {
        Phase::Empty => "Empty",
        Phase::Ongoing { .. } => "Ongoing",
        Phase::Prepare { result: TransactionResult::Commit, .. } => "PrepareCommit",
        Phase::Prepare { result: TransactionResult::Abort, .. } => "PrepareAbort",
        Phase::Complete(TransactionResult::Commit) => "CompleteCommit",
        Phase::Complete(TransactionResult::Abort) => "CompleteAbort",
    }
}
