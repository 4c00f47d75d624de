//! A producer id of the target's, without a transactional id (KIP-98).

use kafka_protocol::messages::InitProducerIdRequest;

use tokio::sync::mpsc::UnboundedSender;

use crate::client::{Cluster, ErrorCode, Node};

/// Asks until there is an id, or nobody wants it any more.
pub(super) async fn ask_until_answered(target: &Cluster, done: &UnboundedSender<(i64, i16)>) {
    let mut failures = 0;
    while !done.is_closed() {
        match init_producer(target).await {
            Ok((id, epoch)) => {
                let _ = done.send((id, epoch));
                return;
            }
            Err(reason) => tracing::warn!(target = %target.alias(), "no producer id: {reason}"),
        }
        tokio::time::sleep(target.settings().retry_backoff.delay(failures, target.seam().random())).await;
        failures += 1;
    }
}

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
