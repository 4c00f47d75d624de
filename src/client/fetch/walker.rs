//! A Fetch response, walked while its bytes arrive: the frame is never held whole.
//!
//! Sans-I/O. The caller owns the buffer that it reads into and hands its front to [`FetchWalker::step`]; the walker
//! consumes what it understands and splits each log entry off as a slice of that buffer. It stands apart from the crate
//! that decodes all other replies because that one wants the whole frame, which here would be the memory of the process.
//!
//! Invariants: no byte behind the frame is touched; nothing is allocated by a count or length of the peer; what a
//! partition's records hold never ends the walk (a damaged section is skipped by its length and reported).
//!
//! Layout: `FetchResponse.json`, versions 4 to 17; flexible from 12 (KIP-482), topic ids from 13 (KIP-516).

use std::time::Duration;

use bytes::{Buf, BytesMut};
use uuid::Uuid;

use super::cursor::{Cursor, Stop, invalid};
use crate::client::{AbortedTransaction, FetchedBatch};
use crate::record::{self, Entry, next_entry};

/// The lowest version that is walked.
pub const FETCH_VERSION_MIN: i16 = 4;
/// The highest version that is walked.
pub const FETCH_VERSION_MAX: i16 = 17;

const FLEXIBLE_SINCE: i16 = 12;
const TOPIC_IDS_SINCE: i16 = 13;
/// Index, error code, two watermarks, and at least a byte each for the aborted transactions and the records.
const PARTITION_BYTES_MIN: usize = 24;

/// What a walk may hold.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// The largest log entry.
    pub batch_bytes_max: usize,
    /// The longest list of aborted transactions of a partition.
    pub aborted_transactions_max: usize,
}

/// A frame that is no Fetch response; the connection that it came from cannot be used further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A field lies behind the end of the frame.
    #[error("Fetch response ends before its {what}")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// A count, length or name that cannot be.
    #[error("Fetch response: {what} {value} {rule}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// Bytes behind the last field.
    #[error("Fetch response has {bytes} bytes behind its end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// What the walker found, or needs.
#[derive(Debug)]
pub enum Step {
    /// So many bytes must stand at the front before anything more can be said.
    Need(usize),
    /// The head of the response.
    Head(FetchHead),
    /// The partitions that follow belong to this topic.
    Topic(TopicName),
    /// A partition; its entries follow.
    Partition(PartitionHead),
    /// A whole log entry of the partition.
    Batch(FetchedBatch),
    /// The end of the partition.
    PartitionEnd(PartitionEnd),
    /// The end of the frame.
    End,
}

/// The head of a Fetch response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchHead {
    /// Which request it answers.
    pub correlation_id: i32,
    /// How long the broker wants us to wait (KIP-219).
    pub throttle: Duration,
    /// Error of the whole request.
    pub error_code: i16,
    /// The fetch session, 0 for none (KIP-227).
    pub session_id: i32,
}

/// How a response names a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicName {
    /// By name, up to version 12.
    Name(String),
    /// By id, from version 13.
    Id(Uuid),
}

/// A partition of the response, up to its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionHead {
    /// Partition index.
    pub partition: i32,
    /// Error of this partition.
    pub error_code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start offset, -1 below version 5.
    pub log_start_offset: i64,
    /// Aborted transactions that touch the records.
    pub aborted: Vec<AbortedTransaction>,
    /// The replica that the broker would rather have us read from (KIP-392), -1 for none.
    pub preferred_read_replica: i32,
    /// Bytes of the records that follow.
    pub records_bytes: usize,
}

/// What is known of a partition when its records are over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionEnd {
    /// The records ended inside of an entry.
    pub cut: Option<CutEntry>,
    /// The records are no log entries from here on.
    pub damage: Option<record::Error>,
    /// Where the logs diverge, (epoch, end offset) (KIP-595).
    pub diverging: Option<(i32, i64)>,
    /// The leader and its epoch, when the error is about that (KIP-951).
    pub current_leader: Option<(i32, i32)>,
}

/// An entry that the response holds only a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutEntry {
    /// Bytes of the whole entry, if its length was there.
    pub size_bytes: Option<usize>,
}

/// Where the walk stands. Fields of a partition gather in [`FetchWalker::head`] until its records begin.
///
/// ```text
/// CorrelationId → tags → Head → Topic → Partition → Aborted ⇄ tags → PartitionTail → Records → tags ┐
///                         └→ tags → Done  ↑  └──────────── tags ← (none left) ←──────────────────────┘
/// ```
#[derive(Clone, Copy, Debug)]
enum Stage {
    CorrelationId,
    Head,
    Topic,
    Partition,
    Aborted { left: usize },
    PartitionTail,
    Records { bytes_left: usize },
    TagCount(Section),
    Tags { section: Section, left: u32 },
    Done,
}

/// Whose tagged fields are being read.
#[derive(Clone, Copy, Debug)]
enum Section {
    Header,
    Aborted { left: usize },
    Partition,
    Topic,
    Body,
}

/// A walk over one Fetch response.
#[derive(Debug)]
pub struct FetchWalker {
    version: i16,
    limits: WalkLimits,
    frame_bytes_left: usize,
    skip_bytes: usize,
    correlation_id: i32,
    topics_left: usize,
    partitions_left: usize,
    head: PartitionHead,
    end: PartitionEnd,
    stage: Stage,
}

type Advance = Result<Option<Step>, Stop>;

impl FetchWalker {
    /// Over a frame of `frame_bytes`, the size field not counted: correlation id, tagged fields of the header, body.
    pub fn new(version: i16, frame_bytes: usize, limits: WalkLimits) -> FetchWalker {
        FetchWalker {
            version,
            limits,
            frame_bytes_left: frame_bytes,
            skip_bytes: 0,
            correlation_id: 0,
            topics_left: 0,
            partitions_left: 0,
            head: PartitionHead::default(),
            end: PartitionEnd::default(),
            stage: Stage::CorrelationId,
        }
    }

    /// Consumes from `front` up to the next thing worth telling. After an error the walk is over.
    pub fn step(&mut self, front: &mut BytesMut) -> Result<Step, FrameError> {
        loop {
            let skipped = self.skip_bytes.min(front.len());
            self.skip_bytes -= skipped;
            self.consume(front, skipped);
            if self.skip_bytes > 0 {
                return Ok(Step::Need(1));
            }
            match self.advance(front) {
                Ok(Some(step)) => return Ok(step),
                Ok(None) => {}
                Err(Stop::Short(bytes)) => return Ok(Step::Need(bytes)),
                Err(Stop::Broken(error)) => return Err(error),
            }
        }
    }

    /// Passes over the rest of the current partition's records without keeping them.
    pub fn skip_records(&mut self) {
        if let Stage::Records { bytes_left } = self.stage {
            self.skip_bytes = bytes_left;
            self.stage = Stage::TagCount(Section::Partition);
        }
    }

    /// Bytes of the frame that are not consumed yet.
    pub fn frame_bytes_left(&self) -> usize {
        self.frame_bytes_left
    }

    fn advance(&mut self, front: &mut BytesMut) -> Advance {
        match self.stage {
            Stage::CorrelationId => self.correlation_id(front),
            Stage::Head => self.head(front),
            Stage::Topic => self.topic(front),
            Stage::Partition => self.partition(front),
            Stage::Aborted { left } => self.aborted(front, left),
            Stage::PartitionTail => self.partition_tail(front),
            Stage::Records { bytes_left } => self.records(front, bytes_left),
            Stage::TagCount(section) => self.tag_count(front, section),
            Stage::Tags { section, left: 0 } => self.close(section),
            Stage::Tags { section, left } => self.tag(front, section, left),
            Stage::Done => Ok(Some(Step::End)),
        }
    }

    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE_SINCE
    }

    fn cursor<'a>(&self, front: &'a BytesMut) -> Cursor<'a> {
        Cursor::new(front, self.frame_bytes_left)
    }

    fn consume(&mut self, front: &mut BytesMut, bytes: usize) {
        front.advance(bytes);
        self.frame_bytes_left -= bytes;
    }

    fn correlation_id(&mut self, front: &mut BytesMut) -> Advance {
        let mut cursor = self.cursor(front);
        self.correlation_id = cursor.i32("correlation id")?;
        let position = cursor.position();
        self.consume(front, position);
        self.stage = Stage::TagCount(Section::Header);
        Ok(None)
    }

    fn head(&mut self, front: &mut BytesMut) -> Advance {
        let mut cursor = self.cursor(front);
        let throttle_ms = cursor.i32("throttle time")?;
        let (error_code, session_id) = match self.version {
            ..7 => (0, 0),
            _ => (cursor.i16("error code")?, cursor.i32("session id")?),
        };
        let topic_bytes_min = if self.version >= TOPIC_IDS_SINCE { 18 } else { 3 };
        self.topics_left = cursor.count("topic count", self.flexible(), topic_bytes_min)?;
        let position = cursor.position();
        self.consume(front, position);
        self.next_topic();
        Ok(Some(Step::Head(FetchHead {
            correlation_id: self.correlation_id,
            throttle: Duration::from_millis(u64::try_from(throttle_ms).unwrap_or(0)),
            error_code,
            session_id,
        })))
    }

    fn next_topic(&mut self) {
        self.stage = match self.topics_left.checked_sub(1) {
            None => Stage::TagCount(Section::Body),
            Some(left) => {
                self.topics_left = left;
                Stage::Topic
            }
        };
    }

    fn topic(&mut self, front: &mut BytesMut) -> Advance {
        let mut cursor = self.cursor(front);
        let name = if self.version >= TOPIC_IDS_SINCE {
            TopicName::Id(cursor.uuid("topic id")?)
        } else {
            TopicName::Name(cursor.string("topic name", self.flexible())?.to_owned())
        };
        self.partitions_left = cursor.count("partition count", self.flexible(), PARTITION_BYTES_MIN)?;
        let position = cursor.position();
        self.consume(front, position);
        self.next_partition();
        Ok(Some(Step::Topic(name)))
    }

    fn next_partition(&mut self) {
        self.stage = match self.partitions_left.checked_sub(1) {
            None => Stage::TagCount(Section::Topic),
            Some(left) => {
                self.partitions_left = left;
                Stage::Partition
            }
        };
    }

    fn partition(&mut self, front: &mut BytesMut) -> Advance {
        let mut cursor = self.cursor(front);
        self.head = PartitionHead {
            partition: cursor.i32("partition index")?,
            error_code: cursor.i16("partition error code")?,
            high_watermark: cursor.i64("high watermark")?,
            last_stable_offset: cursor.i64("last stable offset")?,
            log_start_offset: if self.version >= 5 { cursor.i64("log start offset")? } else { -1 },
            ..PartitionHead::default()
        };
        let left = cursor.count("aborted transaction count", self.flexible(), 16)?;
        if left > self.limits.aborted_transactions_max {
            return Err(invalid("aborted transaction count", left, "is over the limit"));
        }
        self.end = PartitionEnd::default();
        if left == 0 {
            return self.read_partition_tail(cursor.position(), front);
        }
        let position = cursor.position();
        self.consume(front, position);
        self.stage = Stage::Aborted { left };
        Ok(None)
    }

    fn aborted(&mut self, front: &mut BytesMut, mut left: usize) -> Advance {
        while left > 0 {
            let mut cursor = self.cursor(front);
            let aborted = AbortedTransaction {
                producer_id: cursor.i64("producer id of an aborted transaction")?,
                first_offset: cursor.i64("first offset of an aborted transaction")?,
            };
            let tags = cursor.tag_count(self.flexible())?;
            let position = cursor.position();
            self.consume(front, position);
            self.head.aborted.push(aborted);
            left -= 1;
            self.stage = Stage::Aborted { left };
            if tags > 0 {
                self.stage = Stage::Tags { section: Section::Aborted { left }, left: tags };
                return Ok(None);
            }
        }
        self.stage = Stage::PartitionTail;
        Ok(None)
    }

    fn partition_tail(&mut self, front: &mut BytesMut) -> Advance {
        self.read_partition_tail(0, front)
    }

    /// What stands between the aborted transactions and the records, `offset` bytes behind the front.
    fn read_partition_tail(&mut self, offset: usize, front: &mut BytesMut) -> Advance {
        let mut cursor = self.cursor(front);
        cursor.skip("partition head", offset)?;
        let preferred_read_replica =
            if self.version >= 11 { cursor.i32("preferred read replica")? } else { -1 };
        let records_bytes = cursor.length("records length", self.flexible())?;
        if records_bytes > cursor.frame_bytes_behind() {
            return Err(invalid("records length", records_bytes, "is more than the frame holds"));
        }
        let position = cursor.position();
        self.consume(front, position);
        self.stage = Stage::Records { bytes_left: records_bytes };
        let head = std::mem::take(&mut self.head);
        Ok(Some(Step::Partition(PartitionHead { preferred_read_replica, records_bytes, ..head })))
    }

    fn records(&mut self, front: &mut BytesMut, bytes_left: usize) -> Advance {
        match next_entry(front, bytes_left, self.limits.batch_bytes_max) {
            Ok(Entry::Batch { size_bytes, magic }) => {
                let bytes = front.split_to(size_bytes).freeze();
                self.frame_bytes_left -= size_bytes;
                self.stage = Stage::Records { bytes_left: bytes_left - size_bytes };
                return Ok(Some(Step::Batch(FetchedBatch { bytes, magic })));
            }
            Ok(Entry::Need(bytes)) => return Err(Stop::Short(bytes)),
            Ok(Entry::Partial { size_bytes }) => self.end.cut = Some(CutEntry { size_bytes }),
            Ok(Entry::End) => {}
            Err(error) => self.end.damage = Some(error),
        }
        self.skip_records();
        Ok(None)
    }

    fn tag_count(&mut self, front: &mut BytesMut, section: Section) -> Advance {
        let mut cursor = self.cursor(front);
        let left = cursor.tag_count(self.flexible())?;
        let position = cursor.position();
        self.consume(front, position);
        self.stage = Stage::Tags { section, left };
        Ok(None)
    }

    fn tag(&mut self, front: &mut BytesMut, section: Section, left: u32) -> Advance {
        let mut cursor = self.cursor(front);
        let tag = cursor.unsigned("tag")?;
        let bytes = cursor.unsigned("size of a tagged field")? as usize;
        if bytes > cursor.frame_bytes_behind() {
            return Err(invalid("size of a tagged field", bytes, "is more than the frame holds"));
        }
        let field_start = cursor.position();
        match (section, tag) {
            (Section::Partition, 0) if bytes >= 12 => {
                let diverging = (cursor.i32("diverging epoch")?, cursor.i64("diverging end offset")?);
                self.end.diverging = Some(diverging).filter(|&(epoch, _)| epoch >= 0);
            }
            (Section::Partition, 1) if bytes >= 8 => {
                let leader = (cursor.i32("current leader")?, cursor.i32("current leader epoch")?);
                self.end.current_leader = Some(leader).filter(|&(id, _)| id >= 0);
            }
            _ => {}
        }
        self.consume(front, field_start);
        self.skip_bytes = bytes;
        self.stage = Stage::Tags { section, left: left - 1 };
        Ok(None)
    }

    /// A section is over.
    fn close(&mut self, section: Section) -> Advance {
        match section {
            Section::Header => self.stage = Stage::Head,
            Section::Aborted { left } => self.stage = Stage::Aborted { left },
            Section::Partition => {
                self.next_partition();
                return Ok(Some(Step::PartitionEnd(std::mem::take(&mut self.end))));
            }
            Section::Topic => self.next_topic(),
            Section::Body if self.frame_bytes_left > 0 => {
                return Err(Stop::Broken(FrameError::Trailing { bytes: self.frame_bytes_left }));
            }
            Section::Body => self.stage = Stage::Done,
        }
        Ok(None)
    }
}
