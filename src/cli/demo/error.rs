//! What can keep the demo from ending with a verdict.

use std::sync::Arc;

use crate::client::{self, ErrorCode};
use crate::{broker, net, record};

/// An error of the demo. That both sides differ is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An embedded cluster could not start, or refused a command.
    #[error("embedded cluster")]
    Broker(#[from] broker::Error),
    /// A call to a cluster failed.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// A partition refused what was asked of it.
    #[error("{topic}-{partition} answered {code}")]
    Refused {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The code.
        code: ErrorCode,
    },
    /// A topic or transaction was refused.
    #[error("{what} was refused with {code}")]
    Command {
        /// What was asked for.
        what: String,
        /// The code.
        code: ErrorCode,
    },
    /// A batch could not be made or read.
    #[error("the batch at offset {offset} cannot be read")]
    Batch {
        /// Where it stands.
        offset: i64,
        /// Why.
        source: record::Error,
    },
    /// A batch for the demo's own traffic could not be made.
    #[error("a batch cannot be made")]
    Build(#[from] record::Error),
    /// A message of magic 0 or 1, which the comparison does not read.
    #[error("offset {offset} holds a message of an old format, which is not compared")]
    OldFormat {
        /// Where it stands.
        offset: i64,
    },
    /// The demo's own `.properties` file is refused: a defect of this program.
    #[error("the demo's file is refused: {0}")]
    File(String),
    /// The brokers' certificate could not be made.
    #[error("a certificate cannot be made: {0}")]
    Certificate(String),
    /// Nothing can be written to the terminal.
    #[error("the output cannot be written")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// The message with the messages of all its causes.
    pub fn chain(&self) -> String {
        net::chain(self)
    }
}
