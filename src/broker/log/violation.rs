//! What brokers let pass although no reader can be happy with it.

/// A rule that brokers do not check and that the batch breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the batch was stored.
    pub base_offset: i64,
    /// What is wrong.
    pub kind: ViolationKind,
}

/// The rules of [`Violation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A record's offset delta is not its index: offsets overlap or leave holes.
    OffsetDelta {
        /// Index of the record.
        index: i32,
        /// Its delta.
        delta: i32,
    },
    /// Transactional without a producer id: no marker can ever end it.
    TransactionalWithoutProducer,
    /// An attribute bit of the batch that a producer must not set.
    AttributeBits(i16),
    /// An attribute of a record is not 0.
    RecordAttributes {
        /// Index of the record.
        index: i32,
        /// Its attributes.
        attributes: u8,
    },
    /// A null that is not written as length −1.
    NullLength {
        /// Index of the record.
        index: i32,
    },
    /// A record's length is not that of its fields: passes in a compressed batch, and no reader gets over it.
    RecordLength {
        /// Index of the record.
        index: i32,
    },
    /// The header's largest timestamp is not that of the records.
    MaxTimestamp {
        /// In the header.
        stored: i64,
        /// Of the records.
        actual: i64,
    },
    /// Producer epoch or sequence without a producer id.
    IdentityWithoutProducer,
}
