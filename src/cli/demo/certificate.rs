//! A certificate for the demo's brokers (`--tls`), made anew for each run; its key never leaves the process.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;

use super::Error;

/// What the brokers show, and what a client has to trust.
pub(super) struct BrokerCertificate {
    pub(super) server: Arc<ServerConfig>,
    /// PEM on one line, as a `.properties` file takes it.
    pub(super) trusted: String,
}

impl BrokerCertificate {
    /// For brokers on loopback addresses.
    pub(super) fn make() -> Result<BrokerCertificate, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Certificate(error.to_string());
        let names = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| failed(&error))?;
        let key =
            PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|error| failed(&error))?;
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .map_err(|error| failed(&error))?;
        let trusted = made.cert.pem().lines().collect::<Vec<_>>().join(" ");
        Ok(BrokerCertificate { server: Arc::new(server), trusted })
    }
}
