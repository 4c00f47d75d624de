//! `security.protocol` and what belongs to it, from whole files.

use std::path::Path;

use crate::net::Security;
use crate::net::sasl::{Mechanism, PasswordKind};
use crate::net::tls::{Identification, Place, Protocol, StoreKind};

use super::*;

const ENABLED: &str =
    "clusters=A,B\nA.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\nA->B.enabled=true\n";
const PLAIN: &str = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"me\" password=\"s3cret\";";
const SCRAM: &str = "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"me\" password=\"s3cret\";";

/// A certificate of nobody: two bytes of no meaning do for a trust store, which skips what it cannot read.
fn file(path: &Path) -> std::io::Result<Vec<u8>> {
    match path.to_str() {
        Some("/ca.pem") => Ok(b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn load_text(lines: &str) -> Report {
    let text = format!("{ENABLED}{lines}");
    let outside = Outside { env: &|_| None, read: &file };
    load("f", text.as_bytes(), &Options { clusters: &[], takeover_timeout: Duration::ZERO, outside })
}

fn security(lines: &str) -> [Security; 2] {
    let report = load_text(lines);
    let settings = report.settings.unwrap_or_else(|| panic!("{lines}: {:#?}", report.problems));
    ["A", "B"].map(|alias| settings.process.clusters[alias].net.security.clone())
}

#[test]
fn protocols_reach_their_cluster_with_kafkas_precedence() {
    let trust = "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nsasl.mechanism=PLAIN\n";
    for (lines, protocols) in [
        ("security.protocol=SSL", ["SSL", "SSL"]),
        ("security.protocol=ssl\nB.security.protocol=PLAINTEXT", ["SSL", "PLAINTEXT"]),
        ("A.security.protocol=SASL_SSL", ["SASL_SSL", "PLAINTEXT"]),
        ("B.security.protocol=sasl_plaintext", ["PLAINTEXT", "SASL_PLAINTEXT"]),
        ("A.consumer.security.protocol=SSL", ["SSL", "PLAINTEXT"]),
        ("B.producer.security.protocol=SSL\nB.admin.security.protocol=SSL", ["PLAINTEXT", "SSL"]),
    ] {
        let found = security(&format!("{trust}{PLAIN}\n{lines}"));
        assert_eq!(found.each_ref().map(Security::protocol), protocols, "{lines}");
    }
}

#[test]
fn each_key_of_tls_is_honoured() {
    let [a, _] = security(
        "A.security.protocol=SSL\nA.ssl.truststore.type=pem\nA.ssl.truststore.location=/ca.pem\n\
         A.ssl.endpoint.identification.algorithm=\nA.ssl.enabled.protocols=TLSv1.3,TLSv1.1\n\
         A.ssl.cipher.suites=TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA",
    );
    let settings = a.tls.unwrap().settings().clone();
    let trust = settings.trust.unwrap();
    assert_eq!((trust.kind, trust.place), (StoreKind::Pem, Place::File("/ca.pem".into())));
    assert_eq!(settings.identification, Identification::Off);
    assert_eq!(settings.protocols, [Protocol::Tls13]);
    assert_eq!(settings.cipher_suites, [rustls::CipherSuite::TLS13_AES_128_GCM_SHA256]);
    let inline = "ssl.truststore.certificates=-----BEGIN CERTIFICATE----- MAA= -----END CERTIFICATE-----";
    let [a, _] = security(&format!("security.protocol=SSL\nssl.truststore.type=PEM\n{inline}"));
    assert!(matches!(a.tls.unwrap().settings().trust.as_ref().unwrap().place, Place::Inline(_)));
}

#[test]
fn users_come_from_jaas_or_explicit_keys() {
    for (lines, mechanism, username, kind) in [
        (format!("sasl.mechanism=PLAIN\n{PLAIN}"), Mechanism::Plain, "me", PasswordKind::User),
        (format!("sasl.mechanism=SCRAM-SHA-256\n{SCRAM}"), Mechanism::ScramSha256, "me", PasswordKind::User),
        (
            format!("sasl.mechanism=SCRAM-SHA-512\n{}", SCRAM.replace(';', " tokenauth=true;")),
            Mechanism::ScramSha512,
            "me",
            PasswordKind::DelegationToken,
        ),
        (
            "sasl.mechanism=PLAIN\nsasl.username=you\nsasl.password=s3cret".to_owned(),
            Mechanism::Plain,
            "you",
            PasswordKind::User,
        ),
    ] {
        let [a, _] = security(&format!("A.security.protocol=SASL_PLAINTEXT\n{lines}"));
        let sasl = a.sasl.unwrap();
        assert_eq!(
            (sasl.mechanism, sasl.credentials.username.as_str(), sasl.credentials.kind),
            (mechanism, username, kind)
        );
        assert_eq!(sasl.credentials.password.reveal(), b"s3cret");
    }
}

#[test]
fn what_cannot_be_is_refused_and_no_secret_is_shown() {
    let sasl = "A.security.protocol=SASL_PLAINTEXT";
    for (lines, message) in [
        ("security.protocol=TLS".to_owned(), "security.protocol: \"TLS\" is not one of"),
        (sasl.to_owned(), "sasl.mechanism is not set, which means GSSAPI"),
        (format!("{sasl}\nsasl.mechanism=GSSAPI"), "sasl.mechanism GSSAPI is not spoken here"),
        (format!("{sasl}\nsasl.mechanism=plain"), "sasl.mechanism plain is not spoken here"),
        (format!("{sasl}\nsasl.mechanism=PLAIN"), "A: sasl.jaas.config is missing"),
        (
            format!("{sasl}\nsasl.mechanism=PLAIN\n{SCRAM}"),
            "A: the login module in sasl.jaas.config does not belong to PLAIN",
        ),
        (
            format!("{sasl}\nsasl.mechanism=PLAIN\n{}", PLAIN.replace("username", "user")),
            "A: sasl.jaas.config needs username and password",
        ),
        (
            format!("{sasl}\nsasl.mechanism=PLAIN\n{}", PLAIN.replace("\"s3cret\"", "s3\"cret")),
            "A: sasl.jaas.config: ",
        ),
        (
            format!("{sasl}\nsasl.mechanism=PLAIN\n{PLAIN}\nsasl.login.class=com.example.Login"),
            "the sasl.login.class com.example.Login is Java, which cannot run here",
        ),
        (
            "A.security.protocol=SSL\nA.ssl.truststore.location=/none.jks".to_owned(),
            "ssl.truststore (/none.jks): it cannot be read",
        ),
        (
            "A.security.protocol=SSL\nA.ssl.truststore.location=/ca.pem".to_owned(),
            "ssl.truststore (/ca.pem): it is no JKS or PKCS12 store but PEM; write ssl.truststore.type = PEM",
        ),
        (
            "A.security.protocol=SSL\nA.ssl.keystore.location=/k.jks".to_owned(),
            "ssl.keystore.location is set, but ssl.keystore.password is not",
        ),
        (
            "A.security.protocol=SSL\nA.ssl.keystore.type=PEM\nA.ssl.keystore.key=s3cret".to_owned(),
            "ssl.keystore.key is set, but ssl.keystore.certificate.chain is not",
        ),
        (
            "A.security.protocol=SSL\nA.ssl.endpoint.identification.algorithm=ldap".to_owned(),
            "ssl.endpoint.identification.algorithm: \"ldap\" is neither https nor empty",
        ),
        (
            "A.security.protocol=SSL\nssl.enabled.protocols=TLSv1".to_owned(),
            "ssl.enabled.protocols has nothing that is spoken here",
        ),
        (
            "A->B.source.consumer.security.protocol=SSL".to_owned(),
            "connections to the cluster A are shared by its flows: they cannot be SSL here and PLAINTEXT elsewhere",
        ),
        (
            "A.consumer.security.protocol=PLAINTEXT\nA.admin.security.protocol=SSL".to_owned(),
            "connections to the cluster A are shared by its flows: they cannot be SSL here and PLAINTEXT elsewhere",
        ),
    ] {
        let report = load_text(&lines);
        let errors: Vec<&str> = report
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| problem.message.as_str())
            .collect();
        assert!(errors.iter().any(|error| error.starts_with(message)), "{lines}: {errors:#?}");
        let text = format!("{report:?}");
        assert!(!text.contains("s3cret") && !text.contains("s3\\\"cret"), "{text}");
    }
}

#[test]
fn what_weakens_security_is_warned_of() {
    for (lines, message) in [
        (
            format!("A.security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{PLAIN}"),
            "the password of A crosses the network in the clear: PLAIN without TLS",
        ),
        (
            "A.security.protocol=SSL\nssl.endpoint.identification.algorithm=\nssl.truststore.type=PEM\nssl.truststore.location=/ca.pem"
                .to_owned(),
            "ssl.endpoint.identification.algorithm is empty",
        ),
    ] {
        let report = load_text(&lines);
        let found = report.problems.iter().any(|problem| {
            problem.severity == Severity::Warning && problem.message.starts_with(message)
        });
        assert!(found && report.settings.is_some(), "{lines}: {:#?}", report.problems);
    }
}

/// Everything that a user could print of settings.
#[test]
fn settings_do_not_print_their_secrets() {
    let lines = format!("A.security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{PLAIN}");
    let report = load_text(&lines);
    assert!(report.settings.is_some());
    assert!(!format!("{report:?}").contains("s3cret"));
}
