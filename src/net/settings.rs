//! What a connection needs to know, with Kafka's own defaults (`CommonClientConfigs.java`).

use std::sync::Arc;
use std::time::Duration;

use super::sasl::SaslSettings;
use super::tls::Tls;
use crate::seam::SocketOptions;

/// Settings of the connections to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `client.id`, sent with each request; quotas go by it.
    pub client_id: String,
    /// `security.protocol`.
    pub security: Security,
    /// `client.dns.lookup`.
    pub dns_lookup: DnsLookup,
    /// `socket.connection.setup.timeout.ms`, grown to `.max.ms` with each failure.
    pub connection_setup_timeout: Backoff,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `reconnect.backoff.ms`, grown to `reconnect.backoff.max.ms`.
    pub reconnect_backoff: Backoff,
    /// `connections.max.idle.ms`; `None` never closes an idle connection.
    pub connections_max_idle: Option<Duration>,
    /// `send.buffer.bytes` and `receive.buffer.bytes`.
    pub socket: SocketOptions,
    /// The largest reply that is read whole; Fetch is streamed and not bound by it.
    pub reply_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            client_id: "kmirror".to_owned(),
            security: Security::PLAINTEXT,
            dns_lookup: DnsLookup::UseAllDnsIps,
            connection_setup_timeout: Backoff::millis(10_000, 30_000),
            request_timeout: Duration::from_millis(30_000),
            reconnect_backoff: Backoff::millis(50, 1_000),
            connections_max_idle: Some(Duration::from_millis(540_000)),
            socket: SocketOptions::default(),
            reply_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// `security.protocol`, with all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// `SSL` and `SASL_SSL`; the connections of a cluster share it.
    pub tls: Option<Arc<Tls>>,
    /// `SASL_PLAINTEXT` and `SASL_SSL`.
    pub sasl: Option<Arc<SaslSettings>>,
}

impl Security {
    /// `PLAINTEXT`.
    pub const PLAINTEXT: Security = Security { tls: None, sasl: None };
    /// How long whoever was refused waits before asking again, grown with each refusal: too many wrong passwords lock an
    /// account, and nothing changes by itself.
    pub const REFUSED_BACKOFF: Backoff = Backoff::millis(1_000, 30_000);

    /// Kafka's name of the protocol.
    pub fn protocol(&self) -> &'static str {
        match (&self.tls, &self.sasl) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }
}

/// `client.dns.lookup` (KIP-302, KIP-602).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsLookup {
    /// Try all addresses of a name, one after the other.
    UseAllDnsIps,
    /// Replace each bootstrap name by the canonical names of its addresses.
    ResolveCanonicalBootstrapServersOnly,
}

/// A delay that doubles with each failure up to a limit, with jitter of a fifth (`ExponentialBackoff.java`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// From milliseconds.
    pub const fn millis(initial: u64, max: u64) -> Backoff {
        Backoff { initial: Duration::from_millis(initial), max: Duration::from_millis(max) }
    }

    /// The delay after `failures` failures in a row (0 gives the first delay); `random` are random bits for the jitter.
    pub fn delay(&self, failures: u32, random: u64) -> Duration {
        let base = self.initial.saturating_mul(1 << failures.min(20)).min(self.max.max(self.initial));
        let jitter = 0.8 + 0.4 * ((random >> 11) as f64 / (1_u64 << 53) as f64);
        base.mul_f64(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_its_limit_with_jitter_of_a_fifth() {
        let backoff = Backoff::millis(50, 1_000);
        for (failures, millis) in [(0, 50.0), (1, 100.0), (4, 800.0), (5, 1_000.0), (u32::MAX, 1_000.0)] {
            for random in [0, u64::MAX / 2, u64::MAX] {
                let delay = backoff.delay(failures, random).as_secs_f64() * 1_000.0;
                assert!((millis * 0.79..=millis * 1.21).contains(&delay), "{failures} failures: {delay} ms");
            }
        }
    }
}
