//! What lets kmirror in is replaced while records flow: certificates of both sides, and delegation tokens.

use crate::{TIMEOUT, lines, secured};
use kmirror::broker::log::Isolation as Read;
use protocol_tests::embedded::Embedded;
use protocol_tests::kafka::{
    Certificates, ClusterSpec, Isolation, Kafka, KafkaJars, KafkaVersion, Listener, USERS, real_kafka,
};
use protocol_tests::mirror::Kmirror;
use protocol_tests::process::ScratchFolder;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use protocol_tests::{HarnessError, Result};
use std::path::Path;
use std::time::{Duration, Instant};

fn put(path: &Path, text: &str) {
    // As whoever replaces such files does: a new one takes the name of the old one.
    let new = path.with_extension("new");
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).expect("a folder of ours");
}

fn values(target: &Embedded, topic: &str) -> Vec<String> {
    let records = target.cluster().read_all(topic, 0, Read::ReadUncommitted).unwrap_or_default();
    let value = |one: kmirror::broker::LoggedRecord| one.record.value.unwrap_or_default();
    records.into_iter().map(|one| String::from_utf8_lossy(&value(one)).into_owned()).collect()
}

/// A broker is restarted with a new certificate, and kmirror shows its own new one; then its file is broken, and the last good
/// one serves.
#[test]
fn certificates_of_both_sides_are_replaced() -> Result<()> {
    let Some(real) = real_kafka()? else { return Ok(()) };
    let folder = ScratchFolder::new("rotation")?;
    let certificates = Certificates::make(folder.path())?;
    let source = Kafka::start(ClusterSpec::new("rot").secured(&certificates))?;
    let target = Embedded::start(kmirror::broker::Settings::default())?;
    real.java.admin(&source.bootstrap()).create_topic("t", 1, &[])?;
    let own = certificates.path("own.pem");
    put(&own, &certificates.text("client.pem")?);
    let way = Listener::MutualSsl;
    let text = format!(
        "clusters = R, B\n{}R.ssl.keystore.location = {}\nB.bootstrap.servers = {}\nR->B.enabled = true\nR->B.topics = t\n\
         emit.heartbeats.enabled = false\nemit.checkpoints.enabled = false\nrefresh.topics.interval.seconds = 1\n",
        lines("R", &source.bootstrap_of(way), &certificates, way, ""),
        own.display(),
        target.cluster().bootstrap()
    );
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    let mut sent = Vec::new();
    let mut more = |mirror: &mut Kmirror, what: &str| -> Result<()> {
        for nth in 0..10 {
            sent.push(format!("{what} {nth}"));
        }
        let records: Vec<TestRecord> =
            sent[sent.len() - 10..].iter().map(|value| TestRecord::new("k", value.as_str())).collect();
        real.java.produce(&source.bootstrap(), "t", &records)?;
        wait_for(what, TIMEOUT, || {
            mirror.expect_running()?;
            let found = values(&target, "R.t");
            let is_there = found.len() >= sent.len();
            Ok(if is_there {
                Look::Done(())
            } else {
                Look::Pending(format!("{}\n{}", found.len(), mirror.output()))
            })
        })?;
        assert_eq!(values(&target, "R.t"), sent, "each record once, in order");
        Ok(())
    };
    more(&mut mirror, "the first certificates")?;
    certificates.sign("renewed", "ec -pkeyopt ec_paramgen_curve:P-256", "DNS:client", 30)?;
    certificates.sign("broker", "rsa:2048", "IP:127.0.0.1,DNS:localhost", 60)?;
    put(&own, &certificates.text("renewed.pem")?);
    source.stop(1)?;
    source.restart(1)?;
    more(&mut mirror, "new certificates")?;
    let metrics = mirror.get("/metrics")?.1;
    let expiry = metrics
        .lines()
        .find(|line| line.starts_with("kmirror_tls_certificate_expiry_seconds{") && line.contains("renewed"));
    let seconds: f64 =
        expiry.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the new certificate's expiry");
    assert!((29.0..31.0).contains(&(seconds / 86_400.0)), "{seconds}");
    put(&own, "nothing of use");
    source.stop(1)?;
    source.restart(1)?;
    more(&mut mirror, "a broken file")?;
    let metrics = mirror.get("/metrics")?.1;
    assert!(metrics.contains("kmirror_tls_stores_unusable{cluster=\"R\"} 1"), "{metrics}");
    assert!(mirror.output().contains("the certificates read before stay in use"), "{}", mirror.output());
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

/// A delegation token as `kafka-delegation-tokens` makes it.
struct DelegationToken {
    id: String,
    hmac: String,
}

fn token_command(bootstrap: &str, arguments: &[&str]) -> Result<String> {
    let folder = ScratchFolder::new("delegation")?;
    let file = folder.path().join("alice.properties");
    let (name, password) = USERS[0];
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let text = format!(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module} required username=\"{name}\" password=\"{password}\";\n"
    );
    std::fs::write(&file, text).expect("a folder of ours");
    let jars = KafkaJars::get(KafkaVersion::CURRENT)?;
    let options = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
    let program = jars.java(&options, None, "org.apache.kafka.tools.DelegationTokenCommand");
    let program = program.args(["--bootstrap-server", bootstrap, "--command-config"]).arg(&file);
    program.args(arguments.iter().copied()).run("kafka-delegation-tokens")
}

impl DelegationToken {
    fn make(bootstrap: &str) -> Result<DelegationToken> {
        let output = token_command(bootstrap, &["--create", "--max-life-time-period", "-1"])?;
        let mut rows = output.lines().skip_while(|line| !line.starts_with("TOKENID")).skip(1);
        let row = rows.find(|line| !line.trim().is_empty()).unwrap_or_default();
        let mut words = row.split_whitespace();
        match (words.next(), words.next()) {
            (Some(id), Some(hmac)) => Ok(DelegationToken { id: id.to_owned(), hmac: hmac.to_owned() }),
            _ => Err(HarnessError::Malformed { what: "a delegation token".to_owned(), detail: output }),
        }
    }

    fn expire(&self, bootstrap: &str) -> Result<()> {
        let arguments = ["--expire", "--expiry-time-period", "-1", "--hmac", &self.hmac];
        token_command(bootstrap, &arguments).map(drop)
    }

    fn text(&self) -> String {
        format!("id={}\nhmac={}\n", self.id, self.hmac)
    }
}

/// The file of a config provider gets another token; when the first one is ended, nobody needs it any more.
#[test]
fn delegation_tokens_are_replaced() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("delegated", 1, &[])?;
    let way = Listener::Sasl;
    let bootstrap = pair.a.bootstrap_of(way);
    let first = DelegationToken::make(&bootstrap)?;
    let folder = ScratchFolder::new("token")?;
    let file = folder.path().join("token.properties");
    put(&file, &first.text());
    let flow = pair.flow("Delegated").topics("delegated");
    let source = lines("Delegated", &bootstrap, certificates, way, "SCRAM-SHA-512");
    let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
    let path = file.display();
    let text = format!(
        "{}{source}config.providers = file\n\
         config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n\
         Delegated.sasl.jaas.config = {module} required username=\"${{file:{path}:id}}\" password=\"${{file:{path}:hmac}}\" tokenauth=\"true\";\n",
        flow.text()
    );
    let text = text.replace("kmirror.admin.listen = none\n", "");
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    let mut sent = 0;
    let mut flows_for = |mirror: &mut Kmirror, time: Duration| -> Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            pair.java().produce(
                &pair.a.bootstrap(),
                "delegated",
                &[TestRecord::new(format!("k{sent}"), "x")],
            )?;
            sent += 1;
            pair.wait_mirrored(mirror, &flow, "delegated", Isolation::ReadUncommitted, TIMEOUT)?;
        }
        Ok(sent)
    };
    flows_for(&mut mirror, Duration::from_secs(4))?;
    let second = DelegationToken::make(&bootstrap)?;
    put(&file, &second.text());
    // Longer than a session: whatever is open has shown the second token since.
    flows_for(&mut mirror, Duration::from_secs(5))?;
    first.expire(&bootstrap)?;
    let sent = flows_for(&mut mirror, Duration::from_secs(5))?;
    assert_eq!(pair.compare(&flow, "delegated", Isolation::ReadUncommitted)?, sent);
    let status = mirror.status()?;
    for broker in status["flows"][0]["brokers"].as_array().expect("brokers of the flow") {
        assert_eq!(broker["disconnects"], 0, "{broker}");
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    let output = mirror.output();
    assert!(!output.contains(&first.hmac) && !output.contains(&second.hmac), "{output}");
    Ok(())
}
