//! The acting side of a flow's memory: creates both topics, reads them to their ends, writes what is to be remembered.
//!
//! One task owns the topics and writes one save after the other, so that an older position never lands behind a newer
//! one. [`PositionStore`] is a handle to it. A save is retried until it is acknowledged by all in-sync replicas, or until
//! the store is told to stop: only what was acknowledged counts.

use tokio::sync::{mpsc, oneshot};

use super::records::StateRecord;

/// A handle to the memory of a flow; cheap to clone.
#[derive(Clone, Debug)]
pub struct PositionStore {
    inbox: mpsc::Sender<Save>,
}

/// Why something could not be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The right to write was lost, or the flow has ended.
    #[error("positions are no longer stored: the flow has been given up")]
    Closed,
    /// The target refuses, and will not change its mind by itself.
    #[error("{topic} on the target cannot be written: {reason}")]
    Refused {
        /// Which of the two topics.
        topic: String,
        /// The target's words.
        reason: String,
    },
}

/// Records to be stored, and who waits for it.
#[derive(Debug)]
pub(crate) struct Save {
    pub(crate) records: Vec<StateRecord>,
    pub(crate) done: oneshot::Sender<Result<(), StoreError>>,
}

impl PositionStore {
    /// A handle to the owner of `inbox`.
    pub(crate) fn new(inbox: mpsc::Sender<Save>) -> PositionStore {
        PositionStore { inbox }
    }

    /// Stores `records`, and returns when they are acknowledged. Saves of one caller, one after the other, are stored in
    /// that order; of several records for one key the last counts. Saving the same again does no harm.
    pub async fn save(&self, records: Vec<StateRecord>) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let (done, answer) = oneshot::channel();
        self.inbox.send(Save { records, done }).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}
