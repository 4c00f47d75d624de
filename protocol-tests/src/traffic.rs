//! Numbered records that flow while a test breaks things, and the check that none is lost or out of order.

use crate::Result;
use crate::kafka::{Client, Codec, ProducerKind};
use crate::records::{ReadRecord, TestRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A producer in a thread: every round sends a few records to each partition and waits for their acknowledgements.
/// The value of a record is `PARTITION:NUMBER`, numbers from 0.
pub struct Traffic {
    ended: Arc<AtomicBool>,
    /// Records acknowledged per partition.
    sent: Arc<AtomicI64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Traffic {
    /// Starts traffic to partitions `0..partitions` of a topic, `per_round` records each, with a pause between rounds.
    pub fn start(
        client: &'static Client,
        bootstrap: &str,
        topic: &str,
        partitions: i32,
        per_round: i64,
        pause: Duration,
    ) -> Traffic {
        Traffic::start_padded(client, bootstrap, topic, partitions, per_round, pause, 0)
    }

    /// The same with keys that are filled up to so many bytes.
    pub fn start_padded(
        client: &'static Client,
        bootstrap: &str,
        topic: &str,
        partitions: i32,
        per_round: i64,
        pause: Duration,
        key_bytes: usize,
    ) -> Traffic {
        let (ended, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
        let thread = std::thread::spawn({
            let (ended, sent) = (Arc::clone(&ended), Arc::clone(&sent));
            move || -> Result<()> {
                let settings = [("delivery.timeout.ms", "180000"), ("reconnect.backoff.max.ms", "200")];
                let producer =
                    client.producer(&bootstrap, &ProducerKind::Idempotent, Codec::None, &settings)?;
                while !ended.load(Ordering::Acquire) {
                    let first = sent.load(Ordering::Acquire);
                    let records: Vec<TestRecord> = (0..partitions)
                        .flat_map(|partition| {
                            (first..first + per_round).map(move |n| padded(partition, n, key_bytes))
                        })
                        .collect();
                    producer.send(&topic, &records)?;
                    sent.fetch_add(per_round, Ordering::AcqRel);
                    std::thread::sleep(pause);
                }
                Ok(())
            }
        });
        Traffic { ended, sent, thread: Some(thread) }
    }

    /// Records acknowledged per partition so far.
    pub fn sent(&self) -> i64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Ends it and gives the number of records per partition.
    pub fn stop(mut self) -> Result<i64> {
        self.ended.store(true, Ordering::Release);
        if let Some(Ok(result)) = self.thread.take().map(JoinHandle::join) {
            result?;
        }
        Ok(self.sent())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// One record of the traffic.
pub fn numbered(partition: i32, number: i64) -> TestRecord {
    padded(partition, number, 0)
}

fn padded(partition: i32, number: i64, key_bytes: usize) -> TestRecord {
    TestRecord::new(format!("k{number:0>key_bytes$}"), format!("{partition}:{number}"))
        .to_partition(partition)
}

/// Checks that each partition holds its numbers `0..count` in order; gives the number of records that came again. A
/// repetition must be a run that begins earlier and goes on without a hole, as a restart from an older position makes.
pub fn check_numbers(
    records: &[ReadRecord],
    partitions: i32,
    count: i64,
) -> std::result::Result<u64, String> {
    let mut state: BTreeMap<i32, (i64, i64)> = (0..partitions).map(|partition| (partition, (0, 0))).collect();
    let mut repeated = 0;
    for record in records {
        let number = number_of(record).ok_or_else(|| format!("a foreign record: {record:?}"))?;
        let (next, highest) = state
            .get_mut(&record.partition)
            .ok_or_else(|| format!("a record in partition {}", record.partition))?;
        if number > *next {
            return Err(format!(
                "partition {}, offset {}: number {number} follows, {} is missing; its runs: {}",
                record.partition,
                record.offset,
                next,
                runs(records, record.partition)
            ));
        }
        if number < *highest {
            repeated += 1;
        }
        *next = number + 1;
        *highest = (*highest).max(number + 1);
    }
    match state.iter().find(|(_, (next, highest))| *next != count || *highest != count) {
        None => Ok(repeated),
        Some((partition, (next, _))) => {
            Err(format!("partition {partition} ends before number {next}, but {count} were sent"))
        }
    }
}

/// The numbers of all partitions as they stand, a line each.
pub fn all_runs(records: &[ReadRecord], partitions: i32) -> String {
    let line = |partition| format!("partition {partition}: {}", runs(records, partition));
    (0..partitions).map(line).collect::<Vec<_>>().join("\n")
}

/// The numbers of a partition as they stand, as `0..=9 5..=20`.
fn runs(records: &[ReadRecord], partition: i32) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for number in records.iter().filter(|record| record.partition == partition).filter_map(number_of) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs.iter().map(|(first, last)| format!("{first}..={last}")).collect::<Vec<_>>().join(" ")
}

fn number_of(record: &ReadRecord) -> Option<i64> {
    let text = record.value_text();
    let (partition, number) = text.split_once(':')?;
    (partition.parse() == Ok(record.partition)).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::TimestampType;

    #[test]
    fn losses_and_disorder_are_found_and_repetitions_counted() {
        let cases: [(&[i64], std::result::Result<u64, &str>); 6] = [
            (&[0, 1, 2, 3], Ok(0)),
            (&[0, 1, 2, 1, 2, 3], Ok(2)),
            (&[0, 1, 3], Err("2 is missing")),
            (&[0, 2, 1, 3], Err("1 is missing")),
            (&[0, 1, 2], Err("ends before number 3")),
            (&[0, 1, 2, 3, 0, 1], Err("ends before number 2")),
        ];
        for (numbers, wanted) in cases {
            let records: Vec<ReadRecord> = (0..)
                .zip(numbers)
                .map(|(offset, number)| ReadRecord {
                    partition: 0,
                    offset,
                    timestamp: 0,
                    timestamp_type: TimestampType::CreateTime,
                    key: None,
                    value: Some(format!("0:{number}").into_bytes()),
                    headers: vec![],
                })
                .collect();
            match (check_numbers(&records, 1, 4), wanted) {
                (Ok(repeated), Ok(wanted)) => assert_eq!(repeated, wanted, "{numbers:?}"),
                (Err(text), Err(words)) => assert!(text.contains(words), "{numbers:?}: {text}"),
                (found, _) => panic!("{numbers:?}: {found:?}"),
            }
        }
    }
}
