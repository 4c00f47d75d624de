//! What is said, and what is not done, when a way in is closed.

use crate::{lines, secured};
use protocol_tests::Result;
use protocol_tests::kafka::{Certificates, Isolation, Listener};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use std::time::Duration;

/// A way into the source that is closed, and what the log must say of it.
struct Closed {
    name: &'static str,
    listener: Listener,
    mechanism: &'static str,
    more: fn(&str, &Certificates) -> String,
    says: &'static [&'static str],
}

fn truststore(alias: &str, certificates: &Certificates, file: &str) -> String {
    format!("{alias}.ssl.truststore.location = {}\n", certificates.path(file).display())
}

const CASES: [Closed; 9] = [
    Closed {
        name: "WrongPassword",
        listener: Listener::SaslSsl,
        mechanism: "SCRAM-SHA-512",
        more: |alias, _| {
            format!(
                "{alias}.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" password=\"hunter2\";\n"
            )
        },
        says: &["SASL: the broker refuses the user \"alice\" with SCRAM-SHA-512", "sasl.jaas.config"],
    },
    Closed {
        name: "WrongPlain",
        listener: Listener::Sasl,
        mechanism: "PLAIN",
        more: |alias, _| {
            format!(
                "{alias}.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password=\"hunter2\";\n"
            )
        },
        says: &["SASL: the broker refuses the user \"alice\" with PLAIN"],
    },
    Closed {
        name: "UnknownCa",
        listener: Listener::Ssl,
        mechanism: "",
        more: |alias, certificates| truststore(alias, certificates, "stranger.pem"),
        says: &["issuer CN=ca-of-the-tests", "is signed by nobody that ssl.truststore holds"],
    },
    Closed {
        name: "WrongName",
        listener: Listener::WrongName,
        mechanism: "",
        more: |_, _| String::new(),
        says: &["is for elsewhere.example.com, 10.9.8.7, and not for 127.0.0.1"],
    },
    Closed {
        name: "Expired",
        listener: Listener::Expired,
        mechanism: "",
        more: |_, _| String::new(),
        says: &[
            "the broker's certificate (subject O=tests, CN=expired) is valid from",
            "the clock of this machine",
        ],
    },
    Closed {
        name: "NoCertificate",
        listener: Listener::MutualSsl,
        mechanism: "",
        more: |_, _| String::new(),
        says: &["the broker refuses us", "ssl.keystore"],
    },
    Closed {
        name: "TlsToPlaintext",
        listener: Listener::Sasl,
        mechanism: "PLAIN",
        more: |alias, certificates| {
            format!(
                "{alias}.security.protocol = SSL\n{alias}.ssl.truststore.type = PEM\n{}",
                truststore(alias, certificates, "ca.pem")
            )
        },
        says: &["security.protocol and the port"],
    },
    Closed {
        name: "PlaintextToTls",
        listener: Listener::Ssl,
        mechanism: "",
        more: |alias, _| format!("{alias}.security.protocol = PLAINTEXT\n"),
        says: &["security.protocol"],
    },
    Closed {
        name: "PlaintextToSasl",
        listener: Listener::Sasl,
        mechanism: "PLAIN",
        more: |alias, _| format!("{alias}.security.protocol = PLAINTEXT\n"),
        says: &["a listener with SASL does that to a client without it"],
    },
];

#[test]
fn a_closed_way_is_named_not_hammered_and_stops_no_other_flow() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("open", 1, &[])?;
    for case in CASES {
        refused(pair, certificates, &case)?;
    }
    Ok(())
}

fn refused(pair: &Pair, certificates: &Certificates, case: &Closed) -> Result<()> {
    let (alias, healthy) = (format!("Closed{}", case.name), format!("Open{}", case.name));
    let flow = pair.flow(&healthy).topics("open");
    let mut text =
        flow.text().replacen(&format!("clusters = {healthy}"), &format!("clusters = {alias}, {healthy}"), 1);
    text.push_str(&lines(
        &alias,
        &pair.a.bootstrap_of(case.listener),
        certificates,
        case.listener,
        case.mechanism,
    ));
    text.push_str(&format!("{alias}->B.enabled = true\n{alias}->B.topics = open\n"));
    text.push_str(&(case.more)(&alias, certificates));
    let mut text = text.replace("kmirror.admin.listen = none\n", "");
    if case.name == "NoCertificate" {
        // Without a key store at all.
        text = text
            .lines()
            .filter(|line| !line.contains("ssl.keystore"))
            .map(|line| format!("{line}\n"))
            .collect();
    }
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    wait_for(case.name, Duration::from_secs(40), || {
        mirror.expect_running()?;
        let output = mirror.output();
        let is_said = case.says.iter().all(|words| output.contains(words));
        Ok(if is_said { Look::Done(()) } else { Look::Pending(output) })
    })?;
    // The other flow goes on.
    pair.java().produce(&pair.a.bootstrap(), "open", &[TestRecord::new(case.name, "x")])?;
    pair.wait_mirrored(&mut mirror, &flow, "open", Isolation::ReadUncommitted, Duration::from_secs(40))?;
    let (code, body) = mirror.get("/readyz")?;
    assert_eq!(code, 503, "{body}");
    assert!(body.contains(&format!("{alias}->B")), "{body}");
    let (_, status) = mirror.get("/status")?;
    let output = mirror.output();
    assert!(!output.contains("hunter2") && !status.contains("hunter2") && !output.contains("alice-secret"));
    assert_eq!(mirror.stop(Duration::from_secs(60))?, 0, "{}", mirror.output());
    Ok(())
}
