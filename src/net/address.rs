//! Where a broker is: the name that was given, and the address that was really dialled.
//!
//! Apart from the rest because both the settings and every error speak of it. IPv6 addresses are kept without brackets
//! and printed with them, as Kafka does (`Utils.java`, `formatAddress`).

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A host name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Name, IPv4 address or IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostPort {
    /// From a host (an IPv6 address without brackets) and a port.
    pub fn new(host: impl Into<String>, port: u16) -> HostPort {
        HostPort { host: host.into(), port }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a text is no `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    /// There is no `:port`.
    #[error("a port is missing; write host:port")]
    PortMissing,
    /// The port is no number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    PortInvalid,
    /// Nothing stands before the port.
    #[error("a host is missing; write host:port")]
    HostMissing,
    /// The host holds characters that no host name or address has.
    #[error("the host is neither a name nor an address; an IPv6 address is written [address]:port")]
    HostInvalid,
}

impl FromStr for HostPort {
    type Err = HostPortError;

    /// Reads `host:port`, `1.2.3.4:port`, `[::1]:port`, and, as Kafka does, `::1:port` and `SCHEME://host:port`.
    fn from_str(text: &str) -> Result<HostPort, HostPortError> {
        let text = text.trim();
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (host, port) = text.rsplit_once(':').ok_or(HostPortError::PortMissing)?;
        let port = match port.parse() {
            Ok(port) if port > 0 && !text.ends_with(']') => port,
            _ if text.ends_with(']') => return Err(HostPortError::PortMissing),
            _ => return Err(HostPortError::PortInvalid),
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(HostPortError::HostMissing);
        }
        if !is_host(bare) {
            return Err(HostPortError::HostInvalid);
        }
        Ok(HostPort::new(bare, port))
    }
}

fn is_host(host: &str) -> bool {
    if host.contains(':') {
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    host.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

/// A broker as it was dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// The name that was asked for.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The address that answered.
    pub address: SocketAddr,
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HostPort::new(self.host.as_str(), self.port).fmt(f)?;
        let named = self.host.parse::<std::net::IpAddr>().is_err();
        if named { write!(f, " ({})", self.address.ip()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_read_and_printed() {
        for (text, host, port, printed) in [
            ("broker-1.example.com:9092", "broker-1.example.com", 9092, "broker-1.example.com:9092"),
            (" 127.0.0.1:1 ", "127.0.0.1", 1, "127.0.0.1:1"),
            ("[::1]:9092", "::1", 9092, "[::1]:9092"),
            ("fe80::1%eth0:9092", "fe80::1%eth0", 9092, "[fe80::1%eth0]:9092"),
            ("2001:db8::1:9092", "2001:db8::1", 9092, "[2001:db8::1]:9092"),
            ("PLAINTEXT://a_b:9092", "a_b", 9092, "a_b:9092"),
        ] {
            let parsed: HostPort = text.parse().unwrap();
            assert_eq!(parsed, HostPort::new(host, port), "{text}");
            assert_eq!(parsed.to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_host_and_port_is_refused_with_its_reason() {
        for (text, error) in [
            ("localhost", HostPortError::PortMissing),
            ("[::1]", HostPortError::PortMissing),
            ("localhost:", HostPortError::PortInvalid),
            ("localhost:0", HostPortError::PortInvalid),
            ("localhost:65536", HostPortError::PortInvalid),
            (":9092", HostPortError::HostMissing),
            ("[]:9092", HostPortError::HostMissing),
            ("a b:9092", HostPortError::HostInvalid),
            ("a:b:9092", HostPortError::HostInvalid),
        ] {
            assert_eq!(text.parse::<HostPort>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_named_broker_prints_its_address_too() {
        let broker = |host: &str, address: &str| BrokerAddress {
            host: host.to_owned(),
            port: 9092,
            address: address.parse().unwrap(),
        };
        assert_eq!(broker("kafka", "10.0.0.1:9092").to_string(), "kafka:9092 (10.0.0.1)");
        assert_eq!(broker("::1", "[::1]:9092").to_string(), "[::1]:9092");
    }
}
