//! The 61 bytes in front of the records of a v2 batch (KIP-98; `DefaultRecordBatch.java`), as typed values.
//!
//! ```text
//! 0 base offset i64 | 8 batch length i32 | 12 partition leader epoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
//! 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16
//! 53 base sequence i32 | 57 record count i32 | 61 records
//! ```
//! The checksum (CRC-32C) covers everything from the attributes on; base offset and leader epoch lie outside it.

use super::Error;

/// Base offset and batch length: in front of every entry of a log, whatever its magic.
pub const PREFIX_BYTES: usize = 12;
/// Everything in front of the records of a v2 batch.
pub const HEADER_BYTES: usize = 61;
/// No producer id: the batch is not idempotent.
pub const NO_PRODUCER_ID: i64 = -1;
/// No producer epoch.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// No sequence number.
pub const NO_SEQUENCE: i32 = -1;

/// How the records of a batch are compressed: the lower three bits of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Not compressed.
    None,
    /// gzip.
    Gzip,
    /// Snappy, raw or in Xerial's framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard (KIP-110).
    Zstd,
}

impl Codec {
    /// All five, in the order of their bits.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// Kafka's name, as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The value of the attribute bits.
    pub fn bits(self) -> i16 {
        self as i16
    }

    /// The codec of the attribute bits; 5 to 7 are none.
    pub fn from_bits(bits: i16) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.bits() == bits)
    }
}

/// Whose clock the timestamps of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's at append: every record has the batch's max timestamp.
    LogAppendTime,
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    /// Bits that choose the codec.
    pub const CODEC_MASK: i16 = 0x07;
    /// Timestamps are the broker's.
    pub const LOG_APPEND_TIME: i16 = 0x08;
    /// Part of a transaction.
    pub const TRANSACTIONAL: i16 = 0x10;
    /// A commit or abort marker.
    pub const CONTROL: i16 = 0x20;
    /// The base timestamp holds the delete horizon (KIP-534).
    pub const DELETE_HORIZON: i16 = 0x40;

    /// The codec, or the unknown bits.
    pub fn codec(self) -> Result<Codec, Error> {
        let bits = self.0 & Self::CODEC_MASK;
        Codec::from_bits(bits).ok_or(Error::Invalid {
            what: "compression codec",
            value: i64::from(bits),
            rule: "is none of none, gzip, snappy, lz4, zstd (0 to 4)",
        })
    }

    /// Whose clock the timestamps are.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Part of a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// A commit or abort marker.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// The base timestamp holds the delete horizon.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

/// The header of a v2 batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record, also when that record is gone.
    pub base_offset: i64,
    /// Bytes of the whole batch, prefix included.
    pub size_bytes: usize,
    /// Leader epoch at append.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type, transactional, control, delete horizon.
    pub attributes: Attributes,
    /// Offset of the last record less the base offset, also when that record is gone.
    pub last_offset_delta: i32,
    /// Timestamp that the records' deltas add to.
    pub base_timestamp: i64,
    /// The largest timestamp in the batch.
    pub max_timestamp: i64,
    /// Producer, or [`NO_PRODUCER_ID`].
    pub producer_id: i64,
    /// Producer epoch, or [`NO_PRODUCER_EPOCH`].
    pub producer_epoch: i16,
    /// Sequence of the first record, or [`NO_SEQUENCE`].
    pub base_sequence: i32,
    /// Records that are really there.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header of a batch; `batch` may hold less than the whole batch, but at least [`HEADER_BYTES`].
    pub fn parse(batch: &[u8]) -> Result<BatchHeader, Error> {
        let Some(h) = batch.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::Truncated {
                what: "batch header",
                needed: HEADER_BYTES,
                available: batch.len(),
            });
        };
        let magic = h[16] as i8;
        if magic != 2 {
            return Err(Error::Magic(magic));
        }
        let header = BatchHeader {
            base_offset: i64::from_be_bytes(field(h, 0)),
            size_bytes: size_of_entry(i32::from_be_bytes(field(h, 8)))?,
            partition_leader_epoch: i32::from_be_bytes(field(h, 12)),
            crc: u32::from_be_bytes(field(h, 17)),
            attributes: Attributes(i16::from_be_bytes(field(h, 21))),
            last_offset_delta: i32::from_be_bytes(field(h, 23)),
            base_timestamp: i64::from_be_bytes(field(h, 27)),
            max_timestamp: i64::from_be_bytes(field(h, 35)),
            producer_id: i64::from_be_bytes(field(h, 43)),
            producer_epoch: i16::from_be_bytes(field(h, 51)),
            base_sequence: i32::from_be_bytes(field(h, 53)),
            record_count: i32::from_be_bytes(field(h, 57)),
        };
        header.check()
    }

    fn check(self) -> Result<BatchHeader, Error> {
        let invalid = |what, value, rule| Err(Error::Invalid { what, value, rule });
        if self.size_bytes < HEADER_BYTES {
            return invalid("batch length", self.size_bytes as i64, "is less than a batch header");
        }
        if self.base_offset < 0 {
            return invalid("base offset", self.base_offset, "is negative");
        }
        if self.last_offset_delta < 0
            || self.base_offset.checked_add(i64::from(self.last_offset_delta) + 1).is_none()
        {
            return invalid(
                "last offset delta",
                i64::from(self.last_offset_delta),
                "gives no valid last offset",
            );
        }
        if self.record_count < 0 {
            return invalid("record count", i64::from(self.record_count), "is negative");
        }
        Ok(self)
    }

    /// Offset of the last record, also when that record is gone.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// The offset that follows the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// Every offset of the batch has its record: what a broker demands of a produced batch (`LogValidator`).
    pub fn is_dense(&self) -> bool {
        self.record_count > 0 && self.last_offset_delta == self.record_count - 1
    }
}

/// Bytes of a log entry from its length field, prefix included.
pub(super) fn size_of_entry(length: i32) -> Result<usize, Error> {
    usize::try_from(length).map(|length| length + PREFIX_BYTES).map_err(|_| Error::Invalid {
        what: "batch length",
        value: i64::from(length),
        rule: "is negative",
    })
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&40_i64.to_be_bytes());
        bytes[8..12].copy_from_slice(&(HEADER_BYTES as i32 - 12).to_be_bytes());
        bytes[16] = 2;
        bytes[21..23].copy_from_slice(&0x54_i16.to_be_bytes());
        bytes[23..27].copy_from_slice(&9_i32.to_be_bytes());
        bytes[43..51].copy_from_slice(&7_i64.to_be_bytes());
        bytes[57..61].copy_from_slice(&10_i32.to_be_bytes());
        bytes
    }

    #[test]
    fn reads_each_field_from_its_place() {
        let header = BatchHeader::parse(&batch()).unwrap();
        assert_eq!((header.base_offset, header.last_offset(), header.next_offset()), (40, 49, 50));
        assert_eq!(header.size_bytes, HEADER_BYTES);
        assert_eq!(header.attributes.codec(), Ok(Codec::Zstd));
        assert!(header.attributes.is_transactional() && header.attributes.has_delete_horizon());
        assert!(!header.attributes.is_control());
        assert_eq!((header.producer_id, header.record_count), (7, 10));
        assert!(header.is_dense());
    }

    #[test]
    fn refuses_values_that_no_broker_writes() {
        let broken = |at: usize, bytes: &[u8]| {
            let mut batch = batch();
            batch[at..at + bytes.len()].copy_from_slice(bytes);
            BatchHeader::parse(&batch).unwrap_err()
        };
        assert_eq!(
            BatchHeader::parse(&[0; 60]).unwrap_err().to_string(),
            "batch header needs 61 bytes, 60 are there"
        );
        assert_eq!(broken(16, &[3]), Error::Magic(3));
        for (at, bytes) in
            [(0, &(-1_i64).to_be_bytes()[..]), (8, &[255; 4]), (8, &[0; 4]), (23, &[255; 4]), (57, &[255; 4])]
        {
            assert!(matches!(broken(at, bytes), Error::Invalid { .. }), "field at {at}");
        }
        assert!(matches!(
            broken(0, &i64::MAX.to_be_bytes()),
            Error::Invalid { what: "last offset delta", .. }
        ));
    }
}
