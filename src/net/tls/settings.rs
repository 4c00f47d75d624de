//! What is asked of TLS, in Kafka's terms (`SslConfigs.java`).

use std::path::PathBuf;

use rustls::CipherSuite;

use crate::net::Secret;

/// `ssl.*` of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `ssl.truststore.*`; `None` for the system's roots.
    pub trust: Option<Store>,
    /// `ssl.keystore.*`: who we are (mTLS).
    pub identity: Option<Store>,
    /// `ssl.key.password`; a Java store's own password without.
    pub key_password: Option<Secret>,
    /// `ssl.endpoint.identification.algorithm`.
    pub identification: Identification,
    /// `ssl.enabled.protocols`, at least one.
    pub protocols: Vec<Protocol>,
    /// `ssl.cipher.suites`; empty for all that there are.
    pub cipher_suites: Vec<CipherSuite>,
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings {
            trust: None,
            identity: None,
            key_password: None,
            identification: Identification::Https,
            protocols: vec![Protocol::Tls12, Protocol::Tls13],
            cipher_suites: Vec::new(),
        }
    }
}

/// A place of certificates and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// What it is.
    pub kind: StoreKind,
    /// Where it is.
    pub place: Place,
    /// `ssl.keystore.password` or `ssl.truststore.password`.
    pub password: Option<Secret>,
}

/// `ssl.keystore.type` and `ssl.truststore.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// `PEM`.
    Pem,
    /// `JKS` or `PKCS12`: which of them it really is, its first bytes say, as in Java since 9 (`keystore.type.compat`).
    Java,
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, which is read again for each connection.
    File(PathBuf),
    /// The value of a setting.
    Inline(Secret),
}

/// `ssl.endpoint.identification.algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// The certificate must be for the name or address that is dialled.
    Https,
    /// Any certificate that is trusted will do: whoever holds one can pretend to be any broker.
    Off,
}

/// A version of TLS that is spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `TLSv1.2`.
    Tls12,
    /// `TLSv1.3`.
    Tls13,
}

/// Cipher suites by their Java names (the ones of the IANA registry).
pub const CIPHER_SUITES: [(&str, CipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
