//! kmirror and brokers that want to know who it is: each way in as source and as target, and what is said when one is
//! closed. The test's own clients go through a plaintext listener of the same brokers.

mod refusals;
mod rotation;
mod stores;
mod tokens;
mod ways;

use protocol_tests::kafka::{Certificates, ClusterSpec, Listener, USERS};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::ScratchFolder;
use protocol_tests::{HarnessError, Result};
use std::sync::OnceLock;
use std::time::Duration;

/// Far above what a run of these sizes takes; a busy machine must not fail a test.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A session of SASL ends after this, so that each longer run renews it.
const SESSION: &str = "3000";

/// The clusters of this binary and their certificates.
fn secured() -> Result<Option<(&'static Pair, &'static Certificates)>> {
    static PAIR: PairCell = PairCell::new();
    let certificates = certificates()?;
    let spec = |name| {
        let spec = ClusterSpec::new(name).secured(certificates).set("connections.max.reauth.ms", SESSION);
        spec.set("delegation.token.secret.key", "of-these-tests")
    };
    Ok(Pair::get(&PAIR, spec("sa"), spec("sb"))?.map(|pair| (pair, certificates)))
}

fn certificates() -> Result<&'static Certificates> {
    static MADE: OnceLock<std::result::Result<(Certificates, ScratchFolder), String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = ScratchFolder::new("certificates").map_err(|error| error.to_string())?;
        let made = Certificates::make(folder.path()).map_err(|error| error.to_string())?;
        Ok((made, folder))
    });
    match made {
        Ok((certificates, _)) => Ok(certificates),
        Err(detail) => Err(HarnessError::Missing { what: "certificates".to_owned(), detail: detail.clone() }),
    }
}

/// The lines of a file that lead into a cluster by a listener.
fn lines(
    alias: &str,
    bootstrap: &str,
    certificates: &Certificates,
    listener: Listener,
    mechanism: &str,
) -> String {
    let (protocol, has_tls, has_sasl) = match listener {
        Listener::Sasl | Listener::Jwks => ("SASL_PLAINTEXT", false, true),
        Listener::SaslSsl => ("SASL_SSL", true, true),
        _ => ("SSL", true, false),
    };
    let mut lines =
        format!("{alias}.bootstrap.servers = {bootstrap}\n{alias}.security.protocol = {protocol}\n");
    let mut set = |key: &str, value: &str| lines.push_str(&format!("{alias}.{key} = {value}\n"));
    if has_tls {
        set("ssl.truststore.type", "PEM");
        set("ssl.truststore.location", &certificates.path("ca.pem").display().to_string());
    }
    if listener == Listener::MutualSsl {
        set("ssl.keystore.type", "PEM");
        set("ssl.keystore.location", &certificates.path("client.pem").display().to_string());
    }
    if mechanism == "OAUTHBEARER" {
        // The test says where tokens come from.
        set("sasl.mechanism", mechanism);
    } else if has_sasl {
        let module = if mechanism == "PLAIN" { "plain.PlainLoginModule" } else { "scram.ScramLoginModule" };
        let (name, password) = USERS[0];
        set("sasl.mechanism", mechanism);
        set(
            "sasl.jaas.config",
            &format!(
                "org.apache.kafka.common.security.{module} required username=\"{name}\" password=\"{password}\";"
            ),
        );
    }
    lines
}
