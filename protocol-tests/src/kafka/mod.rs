//! Real Apache Kafka: jars, brokers, stock clients and MirrorMaker 2.
//!
//! Everything is fetched by the ordinary clients of Maven and pip into a cache folder and runs on 127.0.0.1 under the
//! test process. Whether that happens at all is decided once, by [`real_kafka`].

mod admin;
mod agent;
mod client;
mod cluster;
mod console;
mod gate;
mod groups;
mod jars;
mod mirror_maker;
mod security;
mod stored;

/// log4j2 of every Java process: all to its standard output.
const LOGGING: &str = "\
status = error
rootLogger.level = info
rootLogger.appenderRef.c.ref = c
appender.c.type = Console
appender.c.name = c
appender.c.target = SYSTEM_OUT
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
";

pub use admin::{Admin, GroupMember, JoinedMember, Offsets, PartitionInfo};
pub use client::{Client, ClientKind, Isolation, Load, Producer, ProducerKind, Step};
pub(crate) use cluster::free_ports;
pub use cluster::{ClusterSpec, Kafka};
pub use console::Console;
pub use gate::{RealKafka, RealMode, real_kafka};
pub use groups::{GroupRead, MirrorView};
pub use jars::{KafkaJars, KafkaVersion};
pub use kmirror::record::Codec;
pub use mirror_maker::{ConnectWorker, MirrorMaker, MirrorMaker1};
pub use security::{Certificates, Listener, TOKEN_CLAIMS, USERS};
pub use stored::{StoredBatch, committed_batches};
