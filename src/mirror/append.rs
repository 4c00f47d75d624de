//! How batches get into one target partition: producer id, epoch, sequences, and what is not acknowledged yet.
//!
//! The idempotent producer of KIP-98, seen from one partition. Invariants:
//! - `unacked` is in the order of its sequences, without gaps, and never longer than the broker's duplicate window;
//! - what is sent again is the same frozen batch, unless the broker is known not to have appended it;
//! - a broker that knows nothing of our producer takes any first sequence (`ProducerAppendInfo.java`), so until it has
//!   acknowledged one batch, one is all that is in flight: otherwise a second batch could overtake a first that failed.
//!
//! ```text
//! Open ──failure──► Draining ──nothing in flight──► settle() names the remedy
//!  ▲                                                  │ Resend: the same bytes, in order
//!  └──────── everything in flight again ◄── Resending ◄┤
//!  └──────── nothing unacknowledged ◄── requeue() ◄────┘ the others: known not to be appended, cut anew
//! ```
//!
//! Where the broker may have forgotten us since, the log is read before anything of unknown outcome is sent again:
//! Draining ──inquire()──► Inquiring ──found()──► Draining, with nothing unknown, or Open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cargo::Cargo;
use crate::client::{PartitionKey, TargetKey};
use crate::record::{self, HEADER_BYTES, ProducerIdentity};

/// The broker keeps this many batches per producer and partition (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const UNACKED_BATCHES_MAX: usize = 5;

/// Silence after which the broker may have forgotten our producer (`producer.id.expiration.ms` is a day by default).
const CONFIRMED_FOR: Duration = Duration::from_secs(6 * 3_600);
/// The same, where the last records were old: brokers look for producers to forget every ten minutes.
const CONFIRMED_FOR_IF_OLD: Duration = Duration::from_secs(1);
/// A batch whose outcome is unknown is not sent again blindly after this time.
const UNKNOWN_FOR_MAX: Duration = Duration::from_secs(12 * 3_600);
/// Nor is one whose records are older than this, in ms: brokers go by the records' timestamps (see [`super::evidence`]).
const REMEMBERED_FOR_MS: i64 = 12 * 3_600_000;

/// The append state of one target partition.
#[derive(Debug)]
pub struct Append {
    identity: ProducerIdentity,
    unacked: VecDeque<Unacked>,
    phase: Phase,
    confirmed: Option<Duration>,
    forgets_soon: bool,
    failures: u32,
}

#[derive(Debug)]
struct Unacked {
    cargo: Cargo,
    header: [u8; HEADER_BYTES],
    sequence: i32,
    sent: Sent,
    /// An earlier attempt may have appended it: a refusal of a later attempt says nothing about that one.
    in_doubt: bool,
    first_sent: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    InFlight(u64),
    /// Not in flight, and the broker is known not to have appended it.
    NotAppended,
    /// Not in flight, and it may be in the log.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Draining(Remedy),
    /// The target's log is read, by the inquiry of this number.
    Inquiring(Remedy, u64),
    Resending,
}

/// A question to a target partition's log: which batches of a producer are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Its number.
    pub id: u64,
    /// The target partition.
    pub key: TargetKey,
    /// Its topic.
    pub topic: Arc<str>,
    /// Its number.
    pub partition: i32,
    /// Everything before this offset is known.
    pub from_offset: i64,
    /// Producer id and epoch.
    pub producer: (i64, i16),
}

/// What a failure calls for, once nothing is in flight any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Send the same bytes again.
    Resend,
    /// The broker's sequence is not ours although nothing is missing: epoch + 1, sequence 0.
    BumpEpoch,
    /// Our producer id or epoch is no longer taken.
    NewProducer,
    /// Larger than the target takes.
    Split,
    /// A record is refused: the one with this index, if the broker said so.
    Narrow(Option<usize>),
    /// The target says that the checksum is wrong.
    CheckCrc,
    /// The target does not take the codec.
    Recode,
    /// Nothing can be done now, with Kafka's error code.
    Stop(i16),
}

/// Answers to a batch, as far as appending goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the log, its first record at this offset if the broker said so.
    Appended(Option<i64>),
    /// It failed and may be in the log (the answer is about waiting, not about appending).
    FailedUnknown(Remedy),
    /// It failed and is not in the log.
    Failed(Remedy),
    /// Its sequence was not the one that the broker expected.
    OutOfSequence,
}

/// A batch that is acknowledged.
#[derive(Debug)]
pub struct Acked {
    /// What was appended.
    pub cargo: Cargo,
    /// Target offset of its first record, if known.
    pub base_offset: Option<i64>,
}

/// An answer that breaks the producer's contract: a later batch was taken while an earlier one was not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the target took the batch at sequence {taken} although the one at sequence {missing} before it is not in its log"
)]
pub struct OvertakenError {
    /// First sequence of the batch that is missing.
    pub missing: i32,
    /// First sequence of the batch that was taken.
    pub taken: i32,
}

impl Append {
    /// A partition to which this producer has appended nothing yet.
    pub fn new(producer_id: i64, producer_epoch: i16) -> Append {
        Append {
            identity: ProducerIdentity { producer_id, producer_epoch, base_sequence: 0 },
            unacked: VecDeque::new(),
            phase: Phase::Open,
            confirmed: None,
            forgets_soon: false,
            failures: 0,
        }
    }

    /// Whether a new batch may be sent after those that are unacknowledged.
    pub fn takes_new(&self, now: Duration) -> bool {
        let lasts = if self.forgets_soon { CONFIRMED_FOR_IF_OLD } else { CONFIRMED_FOR };
        let confirmed = self.confirmed.is_some_and(|at| now.saturating_sub(at) < lasts);
        self.phase == Phase::Open && self.unacked.len() < if confirmed { UNACKED_BATCHES_MAX } else { 1 }
    }

    /// The topic was created anew: its log knows nothing of our producer.
    pub fn forget(&mut self) {
        self.confirmed = None;
    }

    /// Whether batches wait to be sent again.
    pub fn takes_resend(&self) -> bool {
        self.phase == Phase::Resending && (self.confirmed.is_some() || self.in_flight() == 0)
    }

    /// Failed and waits, for answers, for its back-off, or for what the log tells.
    pub fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining(_) | Phase::Inquiring(..))
    }

    /// Batches in flight.
    pub fn in_flight(&self) -> usize {
        self.unacked.iter().filter(|unacked| matches!(unacked.sent, Sent::InFlight(_))).count()
    }

    /// Batches sent and not acknowledged.
    pub fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// The first batch that is not acknowledged.
    pub fn first(&self) -> Option<&Cargo> {
        self.unacked.front().map(|unacked| &unacked.cargo)
    }

    /// Its state in a line, for tests.
    #[cfg(test)]
    pub(super) fn sketch(&self) -> String {
        let sent: Vec<_> = self.unacked.iter().map(|unacked| (unacked.sequence, unacked.sent)).collect();
        format!("{:?} {sent:?} {} failures, confirmed {:?}", self.phase, self.failures, self.confirmed)
    }

    /// Failures in a row, for the back-off.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether a batch of unknown outcome is in doubt for so long, or is so old, that the broker may have forgotten it.
    pub fn may_be_forgotten(&self, now: Duration, now_ms: i64) -> bool {
        self.unacked.iter().filter(|unacked| unacked.sent == Sent::Unknown).any(|unacked| {
            now.saturating_sub(unacked.first_sent) > UNKNOWN_FOR_MAX
                || is_old(unacked.cargo.max_timestamp, now_ms)
        })
    }

    /// Waits for the log to be read by this inquiry; gives the producer to look for.
    pub fn inquire(&mut self, id: u64) -> Option<(i64, i16)> {
        let Phase::Draining(remedy) = self.phase else { return None };
        self.phase = Phase::Inquiring(remedy, id);
        Some((self.identity.producer_id, self.identity.producer_epoch))
    }

    /// An inquiry has brought nothing, or will never end. `false` when it was none of ours.
    pub fn give_up_inquiry(&mut self, id: Option<u64>) -> bool {
        let Phase::Inquiring(remedy, current) = self.phase else { return false };
        if id.is_some_and(|id| id != current) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Draining(remedy);
        true
    }

    /// Takes what an inquiry has found, base sequences with base offsets; gives what is acknowledged by it. All else is
    /// not in the log, and goes one by one until the broker has acknowledged one of us again.
    pub fn found(&mut self, id: u64, batches: &[(i32, i64)]) -> Result<Vec<Acked>, OvertakenError> {
        if !self.give_up_inquiry(Some(id)) {
            return Ok(Vec::new());
        }
        let offset_of =
            |sequence| batches.iter().find(|(found, _)| *found == sequence).map(|&(_, offset)| offset);
        let count = self.unacked.iter().take_while(|unacked| offset_of(unacked.sequence).is_some()).count();
        let overtaking =
            self.unacked.iter().skip(count).find(|unacked| offset_of(unacked.sequence).is_some());
        if let (Some(missing), Some(taken)) = (self.unacked.get(count), overtaking) {
            return Err(OvertakenError { missing: missing.sequence, taken: taken.sequence });
        }
        (self.failures, self.confirmed) = (0, None);
        let appended = self
            .unacked
            .drain(..count)
            .map(|unacked| Acked { base_offset: offset_of(unacked.sequence), cargo: unacked.cargo });
        let appended = appended.collect();
        for unacked in &mut self.unacked {
            (unacked.sent, unacked.in_doubt) = (Sent::NotAppended, false);
        }
        if self.unacked.is_empty() {
            self.phase = Phase::Open;
        }
        Ok(appended)
    }

    /// The last batch that was acknowledged has this timestamp. The broker may forget us within minutes when it is old:
    /// after a failure it must take one batch before it is trusted with five.
    pub fn acked_timestamp(&mut self, max_timestamp: i64, now_ms: i64) {
        self.forgets_soon = is_old(max_timestamp, now_ms);
    }

    /// Sends a new batch as part of `request`: gives it its sequence and freezes it.
    pub fn send(
        &mut self,
        cargo: Cargo,
        request: u64,
        now: Duration,
    ) -> Result<([u8; HEADER_BYTES], Bytes), record::Error> {
        let header = record::patch(&cargo.batch, cargo.batch.len(), self.identity)?;
        let sequence = self.identity.base_sequence;
        self.identity.base_sequence = following(sequence, cargo.record_count);
        let body = cargo.body();
        self.unacked.push_back(Unacked {
            cargo,
            header,
            sequence,
            sent: Sent::InFlight(request),
            in_doubt: false,
            first_sent: now,
        });
        Ok((header, body))
    }

    /// The next batch that has to be sent again, now as part of `request`: the same bytes.
    pub fn resend(&mut self, request: u64) -> Option<([u8; HEADER_BYTES], Bytes)> {
        if !self.takes_resend() {
            return None;
        }
        let unacked = self.unacked.iter_mut().find(|unacked| !matches!(unacked.sent, Sent::InFlight(_)))?;
        unacked.sent = Sent::InFlight(request);
        let frozen = (unacked.header, unacked.cargo.body());
        self.open_if_resent();
        Some(frozen)
    }

    /// Takes the answer to the batch that was sent with `request`; gives what is acknowledged by it.
    pub fn answered(
        &mut self,
        request: u64,
        verdict: Verdict,
        now: Duration,
    ) -> Result<Vec<Acked>, OvertakenError> {
        let Some(index) = self.unacked.iter().position(|unacked| unacked.sent == Sent::InFlight(request))
        else {
            return Ok(Vec::new());
        };
        let (sent, remedy) = match verdict {
            Verdict::Appended(base_offset) => return self.appended(index, base_offset, now),
            Verdict::FailedUnknown(remedy) => (Sent::Unknown, remedy),
            // A size, a checksum and a codec are refused at every attempt alike: no earlier one can have been taken.
            Verdict::Failed(remedy @ (Remedy::Split | Remedy::CheckCrc | Remedy::Recode)) => {
                (Sent::NotAppended, remedy)
            }
            Verdict::Failed(remedy) if self.unacked[index].in_doubt => (Sent::Unknown, remedy),
            Verdict::Failed(remedy) => (Sent::NotAppended, remedy),
            Verdict::OutOfSequence if index > 0 => (Sent::NotAppended, Remedy::Resend),
            Verdict::OutOfSequence => (Sent::NotAppended, Remedy::BumpEpoch),
        };
        self.unacked[index].sent = sent;
        self.unacked[index].in_doubt = sent == Sent::Unknown;
        self.drain(index, remedy);
        Ok(Vec::new())
    }

    /// The connection that carried `request` is gone.
    pub fn lost(&mut self, request: u64) {
        if let Some(index) = self.unacked.iter().position(|unacked| unacked.sent == Sent::InFlight(request)) {
            self.unacked[index].sent = Sent::Unknown;
            self.unacked[index].in_doubt = true;
            self.drain(index, Remedy::Resend);
        }
    }

    /// Batches of which it is not known whether they are in the log, or still will be.
    pub fn in_doubt(&self) -> usize {
        self.unacked.iter().filter(|unacked| unacked.in_doubt || unacked.sent != Sent::NotAppended).count()
    }

    /// The remedy of the first failure, once nothing is in flight any more.
    pub fn settled(&self) -> Option<Remedy> {
        match self.phase {
            Phase::Draining(remedy) if self.in_flight() == 0 => Some(remedy),
            _ => None,
        }
    }

    /// Starts to send the unacknowledged batches again, as they are.
    pub fn start_resending(&mut self) {
        self.phase = Phase::Resending;
        self.open_if_resent();
    }

    /// Takes all unacknowledged batches back to be cut and numbered anew; only when the first of them is known not to be
    /// in the log, for then the later ones are not either: the broker takes no sequence before the one that is missing.
    pub fn requeue(&mut self, numbering: Numbering) -> Vec<Cargo> {
        let first_sequence =
            self.unacked.front().map_or(self.identity.base_sequence, |unacked| unacked.sequence);
        match numbering {
            Numbering::GoOn => self.identity.base_sequence = first_sequence,
            Numbering::NextEpoch => {
                self.identity.producer_epoch = self.identity.producer_epoch.saturating_add(1);
                self.identity.base_sequence = 0;
                self.confirmed = None;
            }
            Numbering::Producer(producer_id, producer_epoch) => {
                self.identity = ProducerIdentity { producer_id, producer_epoch, base_sequence: 0 };
                self.confirmed = None;
            }
        }
        self.phase = Phase::Open;
        self.unacked.drain(..).map(|unacked| unacked.cargo).collect()
    }

    /// Unacknowledged batches of one source partition.
    pub fn unacked_of(&self, key: PartitionKey) -> usize {
        self.unacked.iter().filter(|unacked| unacked.cargo.source() == Some(key)).count()
    }

    /// Whether the first unacknowledged batch is known not to be in the log.
    pub fn first_is_not_appended(&self) -> bool {
        self.unacked.front().is_some_and(|unacked| unacked.sent == Sent::NotAppended)
    }

    /// Whether the epoch can be raised once more before a new producer id is due.
    pub fn has_epoch_left(&self) -> bool {
        self.identity.producer_epoch < i16::MAX - 1
    }

    /// Copies bodies that hold a much larger slab alive; for batches that will wait long. Bytes copied.
    pub fn compact(&mut self) -> usize {
        let mut copied = 0;
        for unacked in &mut self.unacked {
            unacked.cargo.batch = Bytes::copy_from_slice(&unacked.cargo.batch);
            copied += unacked.cargo.batch.len();
        }
        copied
    }

    /// A batch is in the log, so each before it of which the outcome was unknown is, too: a broker takes no sequence
    /// before the one that is missing. (NOT_ENOUGH_REPLICAS_AFTER_APPEND, then success for the next.)
    fn appended(
        &mut self,
        index: usize,
        base_offset: Option<i64>,
        now: Duration,
    ) -> Result<Vec<Acked>, OvertakenError> {
        if let Some(missing) = self.unacked.iter().take(index).find(|unacked| unacked.sent != Sent::Unknown) {
            return Err(OvertakenError { missing: missing.sequence, taken: self.unacked[index].sequence });
        }
        self.confirmed = Some(now);
        self.failures = 0;
        let cargos = self.unacked.drain(..=index).map(|unacked| unacked.cargo);
        let mut acked: Vec<Acked> = cargos.map(|cargo| Acked { cargo, base_offset: None }).collect();
        if let Some(last) = acked.last_mut() {
            last.base_offset = base_offset;
        }
        self.open_if_resent();
        Ok(acked)
    }

    /// Answers come in order, so the first failure that is seen is the cause and later ones are its consequences.
    fn drain(&mut self, index: usize, remedy: Remedy) {
        if self.forgets_soon {
            self.confirmed = None;
        }
        match self.phase {
            Phase::Draining(Remedy::Resend) if index == 0 => self.phase = Phase::Draining(remedy),
            Phase::Draining(_) | Phase::Inquiring(..) => {}
            Phase::Open | Phase::Resending => {
                self.failures = self.failures.saturating_add(1);
                self.phase = Phase::Draining(remedy);
            }
        }
    }

    fn open_if_resent(&mut self) {
        if self.phase == Phase::Resending && self.in_flight() == self.unacked.len() {
            self.phase = Phase::Open;
        }
    }
}

/// How batches that were taken back are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// From the sequence of the first of them.
    GoOn,
    /// From 0 in the next epoch of the same (plain) producer id.
    NextEpoch,
    /// From 0 under another producer.
    Producer(i64, i16),
}

/// Whether brokers may have dropped a producer of which this is the last timestamp. Some records have none, -1.
fn is_old(max_timestamp: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(max_timestamp) > REMEMBERED_FOR_MS
}

/// The sequence that follows `record_count` records from `sequence` on; wraps from 2^31 - 1 to 0.
fn following(sequence: i32, record_count: i32) -> i32 {
    ((i64::from(sequence) + i64::from(record_count)) & i64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests;
