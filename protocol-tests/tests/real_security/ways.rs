//! Each way in, as source and as target.

use crate::{TIMEOUT, lines, secured};
use protocol_tests::Result;
use protocol_tests::kafka::{Isolation, Listener};
use protocol_tests::mirror::Kmirror;
use protocol_tests::records::TestRecord;
use std::time::{Duration, Instant};

const WAYS: [(Listener, &str); 8] = [
    (Listener::Ssl, ""),
    (Listener::MutualSsl, ""),
    (Listener::Sasl, "PLAIN"),
    (Listener::Sasl, "SCRAM-SHA-256"),
    (Listener::Sasl, "SCRAM-SHA-512"),
    (Listener::SaslSsl, "PLAIN"),
    (Listener::SaslSsl, "SCRAM-SHA-256"),
    (Listener::SaslSsl, "SCRAM-SHA-512"),
];

fn records(count: usize, bytes: usize) -> Vec<TestRecord> {
    let value = |nth: usize| (0..bytes).map(|at| (nth * 31 + at * 7) as u8).collect::<Vec<u8>>();
    (0..count).map(|nth| TestRecord::new(format!("k{nth}"), value(nth))).collect()
}

#[test]
fn records_arrive_over_each_way_in_and_out() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("ways", 2, &[])?;
    // More than the buffers of a connection hold, so that reads and writes are cut in every way.
    pair.java().produce(&pair.a.bootstrap(), "ways", &records(300, 20_000))?;
    for (nth, (listener, mechanism)) in WAYS.into_iter().enumerate() {
        // The other side takes another way, so that the list is gone through twice.
        let (other, other_mechanism) = WAYS[(nth + 3) % WAYS.len()];
        let alias = format!("Way{nth}");
        let source = lines(&alias, &pair.a.bootstrap_of(listener), certificates, listener, mechanism);
        let target = lines("B", &pair.b.bootstrap_of(other), certificates, other, other_mechanism);
        let flow = pair.flow(&alias).topics("ways");
        Kmirror::run_until_caught_up(&format!("{}{source}{target}", flow.text()), TIMEOUT)?;
        let count = pair.compare(&flow, "ways", Isolation::ReadUncommitted)?;
        assert_eq!(count, 300, "{listener:?} {mechanism} to {other:?} {other_mechanism}");
    }
    Ok(())
}

/// Case 55. Sessions of 3 s: the lanes and the control plane authenticate again while records flow, and nothing is lost or repeated.
#[test]
fn sessions_are_renewed_while_records_flow() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("renewed", 2, &[])?;
    let (source_way, target_way) = (Listener::SaslSsl, Listener::Sasl);
    let source =
        lines("Renewed", &pair.a.bootstrap_of(source_way), certificates, source_way, "SCRAM-SHA-512");
    let target = lines("B", &pair.b.bootstrap_of(target_way), certificates, target_way, "PLAIN");
    let flow = pair.flow("Renewed").topics("renewed");
    let text = format!("{}{source}{target}", flow.text());
    let text = text.replace("kmirror.admin.listen = none\n", "");
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(13) {
        pair.java().produce(&pair.a.bootstrap(), "renewed", &records(20, 2_000))?;
        sent += 20;
        pair.wait_mirrored(&mut mirror, &flow, "renewed", Isolation::ReadUncommitted, TIMEOUT)?;
    }
    let count = pair.compare(&flow, "renewed", Isolation::ReadUncommitted)?;
    assert_eq!(count, sent);
    let status = mirror.status()?;
    let brokers = status["flows"][0]["brokers"].as_array().expect("brokers of the flow");
    assert_eq!(brokers.len(), 2, "{brokers:?}");
    for broker in brokers {
        assert_eq!(broker["disconnects"], 0, "a session was not renewed in time: {broker}");
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    let output = mirror.output();
    assert!(!output.contains("closed the connection"), "{output}");
    Ok(())
}
