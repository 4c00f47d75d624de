//! Hand-made batches, most of them wrong, sent to real brokers and to the log of the embedded one: all must answer by
//! the table, and store the same bytes. Then the same batches compacted by a real cleaner and by the embedded log.

mod batches;
mod cases;
mod compaction;
mod random;
mod sessions;
mod wire;

use bytes::Bytes;
use cases::{Case, Expected, Scope, Stored};
use kmirror::broker::log::{FirstBatch, Isolation, LogSettings, Origin, PartitionLog, Verification};
use protocol_tests::Result;
use protocol_tests::embedded::TestCluster;
use protocol_tests::kafka::{ClusterSpec, KafkaVersion};
use protocol_tests::pair::{Pair, PairCell};
use wire::{Answer, Connection};

/// One node of each release, with a cleaner that does not wait.
fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    // The limit for timestamps ahead is the default since 4.0.
    let spec = |name| {
        ClusterSpec::new(name)
            .set("log.cleaner.backoff.ms", "100")
            .set("log.message.timestamp.after.max.ms", "3600000")
    };
    Pair::get(&PAIR, spec("old").version(KafkaVersion::V3_9_1), spec("new"))
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_millis() as i64
}

fn new_log(case: &Case) -> PartitionLog {
    let settings = LogSettings::default().with_configs(case.configs.iter().copied());
    PartitionLog::new("conformance-0", settings.expect("configs of a topic"))
}

fn log_answer(log: &mut PartitionLog, batch: &Bytes) -> Answer {
    match log.append(now_ms(), 0, batch, Origin::Client(Verification::Missing)) {
        Ok(done) => Answer {
            code: 0,
            base_offset: done.base_offset,
            has_append_time: done.log_append_time != -1,
            log_start_offset: done.log_start_offset,
            bad_records: Vec::new(),
            message: None,
        },
        Err(error) => Answer {
            code: error.code.code(),
            base_offset: -1,
            has_append_time: false,
            log_start_offset: error.log_start_offset,
            bad_records: error.record_errors.iter().map(|error| error.batch_index).collect(),
            message: error.client_message().map(str::to_owned),
        },
    }
}

fn read_log(log: &PartitionLog) -> Bytes {
    let read = log.read(0, usize::MAX, Isolation::ReadUncommitted, FirstBatch::Whole);
    Bytes::from(read.expect("the log begins at 0").batches.concat())
}

fn expected_of(answer: &Answer) -> Expected {
    match answer.code {
        0 => Expected::At(answer.base_offset),
        code if answer.bad_records.is_empty() => Expected::Code(code),
        code => Expected::Records(code, answer.bad_records.clone()),
    }
}

#[test]
fn the_embedded_log_answers_by_the_table() {
    for case in cases::all(now_ms()).iter().filter(|case| case.scope == Scope::All) {
        let mut log = new_log(case);
        for (step, (batch, expected)) in case.steps.iter().enumerate() {
            let answer = log_answer(&mut log, batch);
            assert_eq!(expected_of(&answer), *expected, "{} [{step}]: {answer:?}", case.name);
        }
    }
}

/// Asks a broker for every case; whole answers and stored bytes must be the log's.
fn check_broker(bootstrap: &str) {
    let mut connection = Connection::open(bootstrap);
    let mut wrong = Vec::new();
    for (n, case) in cases::all(now_ms()).iter().enumerate() {
        let topic = format!("conformance-{n}");
        connection.create_topic(&topic, case.configs);
        let mut log = new_log(case);
        for (step, (batch, expected)) in case.steps.iter().enumerate() {
            let answer = connection.produce(&topic, None, batch);
            if expected_of(&answer) != *expected {
                wrong.push(format!("{} [{step}]: {answer:?}, not {expected:?}", case.name));
            }
            let ours = log_answer(&mut log, batch).of_topic(&topic);
            if case.scope == Scope::All && answer != ours {
                wrong.push(format!("{} [{step}]: {answer:?}, the log {ours:?}", case.name));
            }
        }
        if case.scope == Scope::All && case.stored == Stored::Equal {
            let (stored, ours) = (connection.read_all(&topic), read_log(&log));
            if stored != ours {
                wrong.push(format!("{}: {stored:02x?} is stored, in the log {ours:02x?}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences at {bootstrap}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_embedded_broker_answers_by_the_table() -> Result<()> {
    let cluster = TestCluster::embedded(1)?;
    check_broker(&cluster.bootstrap());
    Ok(())
}

#[test]
fn a_broker_4_3_answers_by_the_table() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    check_broker(&pair.b.bootstrap());
    Ok(())
}

#[test]
fn a_broker_3_9_answers_by_the_table() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    check_broker(&pair.a.bootstrap());
    Ok(())
}

#[test]
fn the_embedded_log_compacts_as_a_cleaner_does() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let mut connection = Connection::open(&pair.b.bootstrap());
    compaction::check(&mut connection, "create-time", &[]);
    compaction::check(&mut connection, "append-time", &[("message.timestamp.type", "LogAppendTime")]);
    compaction::check(&mut connection, "no-retention", &[("delete.retention.ms", "0")]);
    Ok(())
}

fn check_seeds(check: fn(&str, &str, u64, i64) -> std::result::Result<(), String>) -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (embedded, now_ms) = (TestCluster::embedded(1)?, now_ms());
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let (real, embedded) = (pair.b.bootstrap(), embedded.bootstrap());
    let failures: Vec<String> =
        (0..seeds).filter_map(|seed| check(&real, &embedded, seed, now_ms).err()).collect();
    assert!(failures.is_empty(), "{} of {seeds} seeds:\n{}", failures.len(), failures.join("\n\n"));
    Ok(())
}

#[test]
fn random_requests_are_answered_alike() -> Result<()> {
    check_seeds(random::check)
}

#[test]
fn random_fetches_of_many_partitions_are_answered_alike() -> Result<()> {
    check_seeds(sessions::check)
}
