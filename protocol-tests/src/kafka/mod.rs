//! Real Apache Kafka: jars, brokers, stock clients and MirrorMaker 2.
//!
//! Everything is fetched by the ordinary clients of Maven and pip into a cache folder and runs on 127.0.0.1 under the
//! test process. Whether that happens at all is decided once, by [`real_kafka`].

mod admin;
mod agent;
mod client;
mod cluster;
mod gate;
mod jars;
mod mirror_maker;
mod stored;

pub use admin::{Admin, GroupMember, JoinedMember, Offsets, PartitionInfo};
pub use client::{Client, ClientKind, Codec, Isolation, Load, Producer, ProducerKind, Step};
pub use cluster::{ClusterSpec, Kafka};
pub use gate::{RealKafka, RealMode, real_kafka};
pub use jars::{KafkaJars, KafkaVersion};
pub use mirror_maker::MirrorMaker;
pub use stored::{StoredBatch, committed_batches};
