//! One transactional id at its coordinator (KIP-98, KIP-360, KIP-890; `TransactionMetadata`, `TransactionCoordinator`).
//!
//! ```text
//! Empty ──add──► Ongoing ──end──► Prepare ──markers written──► Complete ──add──► Ongoing
//! ```
//! Invariant: partitions and groups are held only in Ongoing and Prepare; the epoch never falls under one producer id.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;

use crate::broker::log::TransactionResult;

/// At this epoch a producer id is used up and the next one is given out.
const EPOCH_EXHAUSTED: i16 = i16::MAX - 1;

/// A producer id and its epoch.
pub(super) type Producer = (i64, i16);

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Never used.
    Empty,
    /// Partitions or groups were added.
    Ongoing { started_ms: i64 },
    /// Its end is decided; the markers are written at `due_ms`.
    Prepare { result: TransactionResult, due_ms: i64 },
    /// The markers are written.
    Complete(TransactionResult),
}

/// One transactional id.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) producer_id: i64,
    pub(super) epoch: i16,
    /// The epoch before the last bump that its producer asked for: a repeat of that request is answered alike.
    last_epoch: Option<i16>,
    /// Who the markers are written for, when the id changed with the end of the transaction.
    pub(super) marked: Producer,
    pub(super) timeout_ms: i64,
    pub(super) phase: Phase,
    pub(super) partitions: BTreeSet<(String, i32)>,
    pub(super) groups: BTreeSet<String>,
}

/// How InitProducerId goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Init {
    /// Here is the id.
    Ready(Producer),
    /// An open transaction has to be aborted first; the client asks again.
    AbortFirst,
}

/// How an EndTxn is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndMode {
    /// Up to version 4: the epoch stays.
    KeepEpoch,
    /// Version 5: every end begins a new epoch (KIP-890).
    BumpEpoch,
}

impl Transaction {
    pub(super) fn new(producer_id: i64, timeout_ms: i64) -> Transaction {
        Transaction {
            producer_id,
            epoch: 0,
            last_epoch: None,
            marked: (producer_id, 0),
            timeout_ms,
            phase: Phase::Empty,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
        }
    }

    /// InitProducerId of a known transactional id. `expected` is the identity that the producer believes to have.
    pub(super) fn init(
        &mut self,
        expected: Option<Producer>,
        timeout_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) -> Result<Init, ResponseError> {
        if expected.is_some_and(|(id, _)| id != self.producer_id) {
            return Err(ResponseError::ProducerFenced);
        }
        match self.phase {
            Phase::Prepare { .. } => return Err(ResponseError::ConcurrentTransactions),
            Phase::Ongoing { .. } => return Ok(Init::AbortFirst),
            Phase::Empty | Phase::Complete(_) => {}
        }
        if let Some((_, epoch)) = expected
            && epoch != self.epoch
        {
            return match self.last_epoch == Some(epoch) {
                true => Ok(Init::Ready((self.producer_id, self.epoch))),
                false => Err(ResponseError::ProducerFenced),
            };
        }
        self.last_epoch = expected.map(|(_, epoch)| epoch);
        self.timeout_ms = timeout_ms;
        self.phase = Phase::Empty;
        if self.epoch >= EPOCH_EXHAUSTED {
            (self.producer_id, self.epoch) = (new_id(), 0);
        } else {
            self.epoch += 1;
        }
        Ok(Init::Ready((self.producer_id, self.epoch)))
    }

    /// Whether the transaction may take more partitions or groups now; begins it if there is none.
    pub(super) fn begin(&mut self, producer: Producer, now_ms: i64) -> Result<(), ResponseError> {
        self.check(producer)?;
        match self.phase {
            Phase::Prepare { .. } => Err(ResponseError::ConcurrentTransactions),
            Phase::Ongoing { .. } => Ok(()),
            Phase::Empty | Phase::Complete(_) => {
                self.phase = Phase::Ongoing { started_ms: now_ms };
                Ok(())
            }
        }
    }

    pub(super) fn check(&self, (id, epoch): Producer) -> Result<(), ResponseError> {
        if id != self.producer_id {
            Err(ResponseError::InvalidProducerIdMapping)
        } else if epoch != self.epoch {
            Err(ResponseError::ProducerFenced)
        } else {
            Ok(())
        }
    }

    pub(super) fn is_ongoing(&self) -> bool {
        matches!(self.phase, Phase::Ongoing { .. })
    }

    /// EndTxn: decides the end; true if markers are to be written now or later.
    pub(super) fn end(
        &mut self,
        producer: Producer,
        result: TransactionResult,
        mode: EndMode,
        due_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) -> Result<Decided, ResponseError> {
        let is_repeat =
            mode == EndMode::BumpEpoch && !self.is_ongoing() && producer == self.marked_before_bump();
        if !is_repeat {
            self.check(producer)?;
        }
        match (self.phase, mode) {
            (Phase::Ongoing { .. }, _) => {}
            (Phase::Prepare { result: decided, .. }, _) => {
                let same = decided == result;
                return Err(if same {
                    ResponseError::ConcurrentTransactions
                } else {
                    ResponseError::InvalidTxnState
                });
            }
            (Phase::Complete(done), EndMode::KeepEpoch) if done == result => return Ok(Decided::Already),
            (Phase::Complete(done), EndMode::BumpEpoch) if is_repeat && done == result => {
                return Ok(Decided::Already);
            }
            // Version 5 may abort without anything to abort: it costs an epoch all the same.
            (Phase::Empty | Phase::Complete(_), EndMode::BumpEpoch)
                if !is_repeat && result == TransactionResult::Abort => {}
            _ => return Err(ResponseError::InvalidTxnState),
        }
        self.prepare(result, mode, due_ms, new_id);
        Ok(Decided::Now)
    }

    /// Aborts an open transaction under a new epoch, so that its producer is fenced.
    pub(super) fn fence(&mut self, due_ms: i64, new_id: impl FnOnce() -> i64) {
        self.prepare(TransactionResult::Abort, EndMode::BumpEpoch, due_ms, new_id);
    }

    fn prepare(
        &mut self,
        result: TransactionResult,
        mode: EndMode,
        due_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) {
        match mode {
            EndMode::KeepEpoch => self.marked = (self.producer_id, self.epoch),
            EndMode::BumpEpoch => {
                self.marked = (self.producer_id, self.epoch.saturating_add(1));
                if self.epoch >= EPOCH_EXHAUSTED {
                    (self.producer_id, self.epoch) = (new_id(), 0);
                } else {
                    self.epoch += 1;
                }
            }
        }
        self.last_epoch = None;
        self.phase = Phase::Prepare { result, due_ms };
    }

    fn marked_before_bump(&self) -> Producer {
        (self.marked.0, self.marked.1.saturating_sub(1))
    }

    /// When the coordinator has to act by itself.
    pub(super) fn due_ms(&self) -> Option<i64> {
        match self.phase {
            Phase::Ongoing { started_ms } => Some(started_ms.saturating_add(self.timeout_ms)),
            Phase::Prepare { due_ms, .. } => Some(due_ms),
            Phase::Empty | Phase::Complete(_) => None,
        }
    }
}

/// What an EndTxn brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// The end is decided now.
    Now,
    /// It had been, and is carried out.
    Already,
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransactionResult::{Abort, Commit};

    fn no_id() -> i64 {
        unreachable!("no new id is needed")
    }

    fn ongoing() -> Transaction {
        let mut transaction = Transaction::new(7, 60_000);
        transaction.begin((7, 0), 100).unwrap();
        transaction
    }

    fn complete(transaction: &mut Transaction) {
        let Phase::Prepare { result, .. } = transaction.phase else { panic!("{transaction:?}") };
        transaction.phase = Phase::Complete(result);
    }

    #[test]
    fn version_4_keeps_the_epoch_and_version_5_takes_the_next() {
        let mut kept = ongoing();
        assert_eq!(kept.end((7, 0), Commit, EndMode::KeepEpoch, 0, no_id), Ok(Decided::Now));
        assert_eq!((kept.epoch, kept.marked), (0, (7, 0)));
        let repeat = kept.end((7, 0), Commit, EndMode::KeepEpoch, 0, no_id);
        assert_eq!(repeat, Err(ResponseError::ConcurrentTransactions));
        complete(&mut kept);
        assert_eq!(kept.end((7, 0), Commit, EndMode::KeepEpoch, 0, no_id), Ok(Decided::Already));
        assert_eq!(
            kept.end((7, 0), Abort, EndMode::KeepEpoch, 0, no_id),
            Err(ResponseError::InvalidTxnState)
        );

        let mut bumped = ongoing();
        assert_eq!(bumped.end((7, 0), Abort, EndMode::BumpEpoch, 0, no_id), Ok(Decided::Now));
        assert_eq!((bumped.epoch, bumped.marked), (1, (7, 1)));
        complete(&mut bumped);
        assert_eq!(bumped.end((7, 0), Abort, EndMode::BumpEpoch, 0, no_id), Ok(Decided::Already));
        assert_eq!(bumped.end((7, 1), Abort, EndMode::BumpEpoch, 0, no_id), Ok(Decided::Now));
        assert_eq!(bumped.epoch, 2);
    }

    #[test]
    fn a_second_producer_fences_the_first() {
        let mut transaction = ongoing();
        assert_eq!(transaction.init(None, 1, no_id), Ok(Init::AbortFirst));
        transaction.fence(0, no_id);
        assert_eq!(transaction.init(None, 1, no_id), Err(ResponseError::ConcurrentTransactions));
        complete(&mut transaction);
        assert_eq!(transaction.init(None, 1, no_id), Ok(Init::Ready((7, 2))));
        assert_eq!(transaction.begin((7, 0), 0), Err(ResponseError::ProducerFenced));
        assert_eq!(transaction.begin((8, 2), 0), Err(ResponseError::InvalidProducerIdMapping));
    }

    #[test]
    fn a_repeated_bump_gives_the_same_epoch_and_the_last_epoch_a_new_id() {
        let mut transaction = Transaction::new(7, 1);
        assert_eq!(transaction.init(Some((7, 0)), 1, no_id), Ok(Init::Ready((7, 1))));
        assert_eq!(transaction.init(Some((7, 0)), 1, no_id), Ok(Init::Ready((7, 1))));
        assert_eq!(transaction.init(Some((7, 5)), 1, no_id), Err(ResponseError::ProducerFenced));
        transaction.epoch = EPOCH_EXHAUSTED;
        assert_eq!(transaction.init(None, 1, || 8), Ok(Init::Ready((8, 0))));
    }
}
