//! What a client of one cluster needs to know, with Kafka's own defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::net::{self, HostPort};

/// Addresses of a cluster that are named.
const ADDRESSES_SHOWN_MAX: usize = 3;

/// Settings of everything that talks to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The cluster's alias, for messages.
    pub alias: Arc<str>,
    /// `bootstrap.servers`, at least one.
    pub bootstrap_servers: Vec<HostPort>,
    /// `metadata.max.age.ms`.
    pub metadata_max_age: Duration,
    /// `retry.backoff.ms`, grown to `retry.backoff.max.ms` (KIP-580).
    pub retry_backoff: net::Backoff,
    /// `default.api.timeout.ms`: how long a control-plane call is tried in all.
    pub default_api_timeout: Duration,
    /// Its connections.
    pub net: net::Settings,
}

impl Settings {
    /// Kafka's defaults for a cluster.
    pub fn new(alias: &str, bootstrap_servers: Vec<HostPort>) -> Settings {
        Settings {
            alias: Arc::from(alias),
            bootstrap_servers,
            metadata_max_age: Duration::from_millis(300_000),
            retry_backoff: net::Backoff::millis(100, 1_000),
            default_api_timeout: Duration::from_millis(60_000),
            net: net::Settings::default(),
        }
    }

    /// The cluster with its addresses, for people.
    pub fn title(&self) -> String {
        let servers = &self.bootstrap_servers;
        let shown: Vec<String> = servers.iter().take(ADDRESSES_SHOWN_MAX).map(ToString::to_string).collect();
        let more = if servers.len() > ADDRESSES_SHOWN_MAX { ", …" } else { "" };
        format!("cluster {} ({}{more})", self.alias, shown.join(", "))
    }
}

/// `isolation.level` of a fetch (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Everything up to the high watermark, aborted records too.
    ReadUncommitted,
    /// Up to the last stable offset, with the list of aborted transactions.
    ReadCommitted,
}

/// How a fetch lane fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchSettings {
    /// `isolation.level`.
    pub isolation_level: IsolationLevel,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `fetch.max.bytes`: one response; it is streamed, so this is not memory.
    pub fetch_max_bytes: i32,
    /// `max.partition.fetch.bytes`, to start with; raised above the largest batch seen.
    pub max_partition_fetch_bytes: i32,
    /// `fetch.max.wait.ms`.
    pub fetch_max_wait: Duration,
    /// As [`FetchSettings::fetch_max_wait`], where nothing has come for a while: an answer with data comes at once all the
    /// same, and an idle mirror wakes up less often. Counts only while one byte is enough (`fetch.min.bytes`).
    pub fetch_max_wait_idle: Duration,
    /// The largest single batch that is read.
    pub batch_bytes_max: usize,
}

impl Default for FetchSettings {
    fn default() -> FetchSettings {
        FetchSettings {
            isolation_level: IsolationLevel::ReadUncommitted,
            fetch_min_bytes: 1,
            fetch_max_bytes: 16 * 1024 * 1024,
            max_partition_fetch_bytes: 4 * 1024 * 1024,
            fetch_max_wait: Duration::from_millis(500),
            fetch_max_wait_idle: Duration::from_secs(2),
            batch_bytes_max: 128 * 1024 * 1024,
        }
    }
}

/// How a produce lane produces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceSettings {
    /// How long the broker may wait for its followers before it answers.
    pub ack_timeout: Duration,
    /// `max.request.size`: the most bytes in one request.
    pub max_request_bytes: usize,
    /// The most requests in flight on one connection.
    pub max_in_flight_requests: usize,
}

impl Default for ProduceSettings {
    fn default() -> ProduceSettings {
        ProduceSettings {
            ack_timeout: Duration::from_millis(30_000),
            max_request_bytes: 1024 * 1024,
            max_in_flight_requests: 5,
        }
    }
}
