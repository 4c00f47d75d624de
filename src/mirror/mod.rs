//! What is replicated, and the promises about it.
//!
//! Opens no socket and parses no file: it is given settings and clients of both clusters.

mod append;
mod budget;
mod cargo;
pub mod control;
pub mod dry_run;
mod engine;
mod evidence;
mod fields;
mod filter;
mod flow;
mod groups;
mod heartbeats;
mod java_regex;
pub mod lease;
pub mod measure;
pub mod member;
pub mod mm2;
mod name_format;
mod neighbours;
pub mod offset_map;
mod onward;
mod origins;
mod partitioning;
mod plain_patterns;
mod plan;
mod policy;
pub mod positions;
mod principals;
mod producer_id;
mod rename;
mod replicator;
pub mod rights;
mod settings;
mod share;
pub mod start;
pub mod state;
pub mod status;
mod syncs;
pub mod takeover;
mod topic_rewrites;
pub mod topics;
mod window;

pub use fields::FieldError;
pub use filter::{MatchGivenUp, PatternError, PatternList};
pub use name_format::{NameFormat, Parsed};
pub use neighbours::Naming;
pub use onward::{Onward, selects};
pub use partitioning::{Choice, Gathering, Partitioning, WantedPartitioning};
pub use policy::{
    Compat, KMIRROR_TOPICS, PolicyKind, ReplicationPolicy, Selection, configs_topic, kmirror_topic,
    offsets_topic,
};
pub use principals::PrincipalMap;
pub use rename::Rename;
pub use replicator::Replicator;
pub use settings::{
    Batching, CONFIG_PROPERTIES_EXCLUDE_DEFAULT, CompressedBatching, DefaultsFrom, FlowSettings, OffsetReset,
    OnOversize, OnPaused, OnRefused, OnSourceReset, ProcessSettings, ReplicationFactor, RetryLimits,
    config_properties_exclude_default, topics_exclude_default,
};
pub use share::{OtherShare, Share};
pub use topic_rewrites::TopicRewrites;
