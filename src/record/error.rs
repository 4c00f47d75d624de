//! What can be wrong with the bytes of a batch. All of it is the peer's or the disk's fault, never ours.

/// A batch that cannot be read as its format demands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the format needs at this place.
    #[error("{what} needs {needed} bytes, {available} are there")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
    /// A length, count or delta that the format does not allow.
    #[error("{what} is {value}, which {rule}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A message format other than 0, 1 and 2.
    #[error("magic {0} is no known message format")]
    Magic(i8),
    /// The checksum over the batch does not match its bytes.
    #[error("the batch's checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The compressed records cannot be decompressed.
    #[error("{codec} data cannot be decompressed: {reason}")]
    Decompress {
        /// The codec's name.
        codec: &'static str,
        /// The library's words.
        reason: String,
    },
    /// The library could not compress.
    #[error("records cannot be compressed with {codec}: {reason}")]
    Compress {
        /// The codec's name.
        codec: &'static str,
        /// The library's words.
        reason: String,
    },
    /// Decompressed records would be larger than allowed.
    #[error("{codec} data is larger than {limit} bytes when decompressed")]
    TooLarge {
        /// The codec's name.
        codec: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// A whole batch or record is larger than allowed.
    #[error("a {what} of {size_bytes} bytes is over the limit of {limit_bytes}")]
    OverLimit {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        size_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
}
