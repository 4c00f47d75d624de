//! `security.protocol` and what belongs to it, from whole files.

use std::path::Path;

use crate::net::sasl::{ClientProof, Credentials, Mechanism, PasswordKind, TokenOrigin};
use crate::net::tls::{Identification, Place, Protocol, StoreKind};
use crate::net::{Secret, Security};

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

/// Kafka says nothing when `security.protocol` is forgotten, and then the broker closes the connection.
#[test]
fn credentials_and_stores_that_are_not_used_are_told() {
    let stores = "ssl.truststore.type=PEM\nA.ssl.truststore.location=/ca.pem";
    for (lines, wanted) in [
        (format!("A.{PLAIN}"), &["A.sasl.jaas.config has no effect"][..]),
        (format!("A.{PLAIN}\nA.security.protocol=SSL"), &["A.sasl.jaas.config has no effect"]),
        (stores.to_owned(), &["A.ssl.truststore.location has no effect"]),
        (
            format!("A.sasl.mechanism=PLAIN\nA.{PLAIN}\n{stores}\nA.security.protocol=SASL_PLAINTEXT"),
            &["A.ssl.truststore.location has no effect"],
        ),
        (format!("sasl.mechanism=PLAIN\n{PLAIN}\n{stores}\nA.security.protocol=SASL_SSL"), &[]),
        (format!("sasl.mechanism=PLAIN\n{PLAIN}"), &[]),
    ] {
        let found: Vec<String> = load_text(&lines)
            .problems
            .iter()
            .filter(|problem| problem.message.contains("has no effect under"))
            .map(|problem| problem.message.clone())
            .collect();
        assert_eq!(found.len(), wanted.len(), "{lines}: {found:?}");
        assert!(wanted.iter().all(|wanted| found.iter().any(|found| found.starts_with(wanted))), "{found:?}");
    }
}

#[test]
fn a_login_module_in_quotes_is_told() {
    let report = load_text(&format!(
        "A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=PLAIN\nA.{}",
        PLAIN.replace("config=", "config='") + "'"
    ));
    let helps: Vec<_> = report.problems.iter().filter_map(|problem| problem.help.as_deref()).collect();
    assert!(helps.contains(&"leave out the quotes around the whole of it"), "{:?}", report.problems);
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
        let Credentials::Password(found) = &sasl.credentials else { panic!("{sasl:?}") };
        assert_eq!((sasl.mechanism, found.username.as_str(), found.kind), (mechanism, username, kind));
        assert_eq!(found.password.reveal(), b"s3cret");
    }
}

/// A provider's file is read again by the real machine.
#[test]
fn passwords_of_a_provider_are_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets.properties");
    let write = |text: &str| std::fs::write(&path, format!("password={text}\n")).unwrap();
    write("one");
    let text = format!(
        "{ENABLED}config.providers=file\nconfig.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n\
         A.security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nA.sasl.username=me\nA.sasl.password=${{file:{}:password}}\n",
        path.display()
    );
    let options = Options { clusters: &[], takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let report = load("f", text.as_bytes(), &options);
    let settings = report.settings.unwrap_or_else(|| panic!("{:#?}", report.problems));
    let sasl = settings.process.clusters["A"].net.security.sasl.clone().unwrap();
    let Credentials::Provided(source) = &sasl.credentials else { panic!("{sasl:?}") };
    let read = || source.read().password.reveal_text().to_string();
    assert_eq!(read(), "one");
    write("two");
    assert_eq!(read(), "two");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(), "two");
}

const BEARER: &str = "A.security.protocol=SASL_SSL\nA.ssl.truststore.type=PEM\nA.ssl.truststore.location=/ca.pem\n\
    A.sasl.mechanism=OAUTHBEARER\n\
    A.sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n";
const MODULE: &str =
    "A.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";

#[test]
fn tokens_come_from_where_the_file_says() {
    let source = |lines: &str| {
        let [a, _] = security(&format!("{BEARER}{lines}"));
        let Credentials::Token(source) = a.sasl.unwrap().credentials.clone() else { panic!("{lines}") };
        source
    };
    let url = "A.sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token\n";
    let jaas = format!(
        "{MODULE} clientId=\"me\" clientSecret=\"s3cret\" scope=\"a b\" extension_traceId=\"7\" \
        ssl.truststore.type=\"PEM\" ssl.truststore.location=\"/ca.pem\";\n"
    );
    let keys = "A.sasl.oauthbearer.client.credentials.client.id=other\n\
        A.sasl.oauthbearer.client.credentials.client.secret=s3cret\nA.sasl.oauthbearer.scope=c\n\
        A.sasl.oauthbearer.header.urlencode=true\n";
    for (lines, id, scope, has_store) in [
        (format!("{url}{jaas}"), "me", "a b", true),
        (format!("{url}{keys}"), "other", "c", false),
        // The keys win over the options.
        (format!("{url}{jaas}{keys}"), "other", "c", true),
    ] {
        let source = source(&lines);
        let TokenOrigin::Endpoint(endpoint) = &source.settings().origin else { panic!("{lines}") };
        assert_eq!((endpoint.client_id.as_str(), endpoint.scope.as_deref()), (id, Some(scope)), "{lines}");
        assert_eq!(endpoint.proof, ClientProof::Secret(Secret::new("s3cret")));
        assert_eq!(endpoint.tls.settings().trust.is_some(), has_store, "{lines}");
        let extension = source.settings().extensions.get("traceId");
        assert_eq!(extension.is_some(), lines.contains("extension_"), "{lines}");
    }
    let signed = source(&format!("{url}{jaas}A.sasl.oauthbearer.assertion.file=/t/assertion\n"));
    let TokenOrigin::Endpoint(endpoint) = &signed.settings().origin else { panic!() };
    assert_eq!(endpoint.proof, ClientProof::AssertionFile("/t/assertion".into()), "it goes before a secret");
    for text in ["file:/t/token", "file:///t/token", "file://localhost/t/token"] {
        let source = source(&format!("A.sasl.oauthbearer.token.endpoint.url={text}\n{MODULE};\n"));
        assert_eq!(source.settings().origin, TokenOrigin::File("/t/token".into()), "{text}");
    }
    let source = source(&format!(
        "{MODULE} unsecuredLoginStringClaim_sub=\"me\" unsecuredLoginListClaim_scope=\"|a|b\" unsecuredLoginLifetimeSeconds=\"60\";\n"
    ));
    let TokenOrigin::Unsecured { claims, lifetime_ms } = &source.settings().origin else { panic!() };
    assert_eq!(*lifetime_ms, 60_000);
    let claims: Vec<String> = claims.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(claims, ["scope=[\"a\",\"b\"]", "sub=\"me\""]);
}

#[test]
fn what_a_token_lacks_is_told() {
    for (lines, message) in [
        (format!("{MODULE};"), "A: sasl.oauthbearer.token.endpoint.url is missing"),
        (
            "A.sasl.oauthbearer.token.endpoint.url=ftp://idp/".to_owned(),
            "A: sasl.oauthbearer.token.endpoint.url: it is no URL",
        ),
        (
            format!("A.sasl.oauthbearer.token.endpoint.url=https://idp/\n{MODULE} clientId=\"me\";"),
            "A: the token endpoint wants to know who asks",
        ),
        (
            format!(
                "A.sasl.oauthbearer.token.endpoint.url=https://idp/\nA.sasl.oauthbearer.assertion.claim.iss=me\n\
                 {MODULE} clientId=\"me\" clientSecret=\"s3cret\";"
            ),
            "A: a client assertion is asked for, and none is signed here",
        ),
        (
            format!("A.sasl.oauthbearer.token.endpoint.url=file:/t\n{MODULE} extension_auth=\"s3cret\";"),
            "A: an extension in sasl.jaas.config cannot be sent",
        ),
        (
            "A.sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
                .to_owned(),
            "the sasl.oauthbearer.jwt.retriever.class org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever is Java",
        ),
    ] {
        let report = load_text(&format!("{BEARER}{lines}"));
        let errors: Vec<&str> = report.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(errors.iter().any(|error| error.starts_with(message)), "{lines}: {errors:#?}");
        assert!(!format!("{report:?}").contains("s3cret"));
    }
}

#[test]
fn roles_and_profiles_of_aws_are_options_of_its_login_module() {
    let [a, _] = security(
        "A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=AWS_MSK_IAM\n\
         A.sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n\
         A.sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName=\"p\" awsRoleArn=\"arn:r\" \
         awsRoleSessionName=\"n\" awsStsRegion=\"eu-west-1\" awsRoleAccessKeyId=\"AKIA\" awsRoleSecretAccessKey=\"s3cret\";",
    );
    let Credentials::Aws(source) = a.sasl.unwrap().credentials.clone() else { panic!() };
    let options = source.options();
    let role = options.role.as_ref().unwrap();
    assert_eq!((options.profile.as_deref(), options.sts_region.as_deref()), (Some("p"), Some("eu-west-1")));
    assert_eq!((role.arn.as_str(), role.session_name.as_str()), ("arn:r", "n"));
    assert_eq!(role.keys.as_ref().unwrap().access_key_id, "AKIA");
    assert!(!format!("{source:?}").contains("s3cret"));
    // Without any option the places of this machine do.
    let [a, _] = security("A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=AWS_MSK_IAM");
    assert!(matches!(a.sasl.unwrap().credentials, Credentials::Aws(_)));
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
