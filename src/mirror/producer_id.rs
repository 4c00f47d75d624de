//! A producer id of the target's, without a transactional id (KIP-98).

use kafka_protocol::messages::InitProducerIdRequest;

use crate::client::{Cluster, ErrorCode, Node};

/// Asks any broker for a producer id of our own, with its epoch; the reason in words when there is none.
pub(super) async fn init_producer(target: &Cluster) -> Result<(i64, i16), String> {
    let request =
        InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
    let answer = target.call(Node::Any, &request).await.map_err(|error| error.chain())?.response;
    match ErrorCode(answer.error_code) {
        ErrorCode::NONE => Ok((answer.producer_id.0, answer.producer_epoch)),
        code => Err(code.to_string()),
    }
}
