//! Which topics the demo has, and who writes what to them: one of each kind that a mirror has to get right.

use super::content::{HeaderKind, Keys, Shape};
use crate::record::Codec;

/// A topic of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicPlan {
    pub(super) name: &'static str,
    pub(super) partitions: i32,
    pub(super) configs: &'static [(&'static str, &'static str)],
    pub(super) appears: Appears,
    /// Partitions that it has from half-way on.
    pub(super) grows_to: Option<i32>,
    pub(super) writers: &'static [WriterPlan],
}

/// When a topic is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appears {
    /// Before the mirror starts.
    AtStart,
    /// While it runs.
    HalfWay,
}

/// A producer of a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterPlan {
    pub(super) producer: ProducerKind,
    /// Thousandths of `--rate`.
    pub(super) share: u32,
    pub(super) batch_records: (usize, usize),
    /// Taken in turn.
    pub(super) codecs: &'static [Codec],
    pub(super) shape: Shape,
}

/// How a writer produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProducerKind {
    Plain,
    Idempotent,
    /// One of so many transactions is aborted.
    Transactional {
        aborted_one_in: u64,
    },
}

const ALL_CODECS: &[Codec] = &[Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const NO_CODEC: &[Codec] = &[Codec::None];

/// A record as most have it.
const PLAIN: Shape = Shape {
    keys: Keys::OneOf(1_000),
    null_values_one_in: 0,
    value_bytes: (80, 400),
    headers: HeaderKind::None,
};

const ORDERS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Idempotent,
    share: 280,
    batch_records: (5, 120),
    codecs: ALL_CODECS,
    shape: Shape { keys: Keys::Some(5_000), null_values_one_in: 40, headers: HeaderKind::All, ..PLAIN },
}];

const PAYMENTS: &[WriterPlan] = &[
    WriterPlan {
        producer: ProducerKind::Transactional { aborted_one_in: 4 },
        share: 120,
        batch_records: (1, 30),
        codecs: &[Codec::None, Codec::Lz4],
        shape: Shape { headers: HeaderKind::All, ..PLAIN },
    },
    WriterPlan {
        producer: ProducerKind::Plain,
        share: 20,
        batch_records: (1, 4),
        codecs: NO_CODEC,
        shape: PLAIN,
    },
];

const CLICKS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Idempotent,
    share: 180,
    batch_records: (1, 1),
    codecs: NO_CODEC,
    shape: Shape { keys: Keys::Null, value_bytes: (40, 120), ..PLAIN },
}];

const DOCUMENTS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Plain,
    share: 10,
    batch_records: (4, 24),
    codecs: &[Codec::None, Codec::Zstd, Codec::Gzip],
    shape: Shape { value_bytes: (2_000, 30_000), ..PLAIN },
}];

const ACCOUNTS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Idempotent,
    share: 120,
    batch_records: (1, 20),
    codecs: &[Codec::None, Codec::Snappy],
    shape: Shape { keys: Keys::OneOf(300), null_values_one_in: 12, headers: HeaderKind::All, ..PLAIN },
}];

const SENSORS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Idempotent,
    share: 150,
    batch_records: (10, 60),
    codecs: &[Codec::Lz4, Codec::None],
    shape: Shape { keys: Keys::OneOf(40), value_bytes: (60, 90), ..PLAIN },
}];

const EVENTS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Plain,
    share: 70,
    batch_records: (1, 40),
    codecs: &[Codec::None, Codec::Zstd],
    shape: Shape { keys: Keys::Some(100), ..PLAIN },
}];

const RETURNS: &[WriterPlan] = &[WriterPlan {
    producer: ProducerKind::Transactional { aborted_one_in: 6 },
    share: 50,
    batch_records: (2, 20),
    codecs: ALL_CODECS,
    shape: Shape { null_values_one_in: 5, ..PLAIN },
}];

const TOPIC: TopicPlan = TopicPlan {
    name: "",
    partitions: 2,
    configs: &[],
    appears: Appears::AtStart,
    grows_to: None,
    writers: &[],
};

/// The compacted topic.
pub(super) const COMPACTED: &str = "accounts";

/// All of them.
pub(super) const TOPICS: &[TopicPlan] = &[
    TopicPlan { name: COMPACTED, configs: &[("cleanup.policy", "compact")], writers: ACCOUNTS, ..TOPIC },
    TopicPlan { name: "clicks", partitions: 6, writers: CLICKS, ..TOPIC },
    TopicPlan { name: "documents", writers: DOCUMENTS, ..TOPIC },
    TopicPlan {
        name: "events",
        configs: &[("message.timestamp.type", "LogAppendTime")],
        writers: EVENTS,
        ..TOPIC
    },
    TopicPlan { name: "orders", partitions: 3, writers: ORDERS, ..TOPIC },
    TopicPlan { name: "payments", partitions: 3, writers: PAYMENTS, ..TOPIC },
    TopicPlan { name: "returns", appears: Appears::HalfWay, writers: RETURNS, ..TOPIC },
    TopicPlan { name: "sensors", grows_to: Some(4), writers: SENSORS, ..TOPIC },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_the_whole() {
        let shares = TOPICS.iter().flat_map(|topic| topic.writers).map(|writer| writer.share);
        assert_eq!(shares.sum::<u32>(), 1_000);
    }

    #[test]
    fn no_batch_is_larger_than_brokers_take() {
        for writer in TOPICS.iter().flat_map(|topic| topic.writers) {
            let bytes = writer.batch_records.1 * (writer.shape.value_bytes.1 + 300);
            assert!(bytes < 1_000_000, "{bytes}");
        }
    }
}
