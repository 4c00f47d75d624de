//! What must be true after, or during, every run. A check's error is its story.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, FaultRule, When};
use kmirror::mirror::status::FlowStatus;
use kmirror::record::{BatchHeader, RecordData};
use kmirror::seam::Link;
use tokio::time::{Instant, sleep};

use crate::world::{BAD_TOPIC, BROKERS, BUDGET_BYTES, Partition, World, named, opened, record, records};

/// What may be read before the budget's fullness is seen: the events that wait for the flow.
const SLACK_BYTES: u64 = 16 << 20;
/// Within this time after the last fault everything is on the target.
const SETTLES_WITHIN: Duration = Duration::from_secs(900);
/// Within this time everything is on the target that has nothing to do with a broker that is away. Shorter than the
/// lease's session: the broker may be its coordinator.
const OTHERS_WITHIN: Duration = Duration::from_secs(5);

impl World {
    /// Promise E.
    pub async fn check_budget(&self) -> Result<(), String> {
        for process in &self.processes {
            let used = process.replicator.status().await.budget_used_bytes;
            if used > BUDGET_BYTES + SLACK_BYTES {
                return Err(format!("{} has {used} bytes alive", process.name));
            }
        }
        Ok(())
    }

    /// Waits until the target has everything, without further faults.
    pub async fn settle(&mut self) -> Result<(), String> {
        self.heal().await;
        while self.processes.len() > 1 {
            self.kill_oldest();
        }
        let all = self.appended.keys().cloned().collect();
        self.wait_for(&all, SETTLES_WITHIN).await
    }

    async fn wait_for(&self, partitions: &BTreeSet<Partition>, within: Duration) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let running = self.running().await;
            let missing: Vec<&Partition> =
                partitions.iter().filter(|partition| !self.is_copied(running.as_ref(), partition)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if started.elapsed() > within {
                let flows = self.flows().await;
                return Err(format!(
                    "{missing:?} stand still after {within:?}\n{flows:#?}\n{:#?}",
                    self.trace()
                ));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn is_copied(&self, running: Option<&FlowStatus>, (topic, partition): &Partition) -> bool {
        let Some(flow) = running else { return false };
        let count = self.appended[&(topic.clone(), *partition)];
        let status = flow.partitions.get(&(topic.as_str().into(), *partition));
        count == 0 || status.is_some_and(|status| status.position >= Some(i64::from(count)))
    }

    /// Promises A and B. Gives the number of copies beyond the first.
    pub async fn check_contents(&self) -> Result<usize, String> {
        let mut repeated = 0;
        for (partition, &count) in &self.appended {
            repeated += self.check_partition(partition, count)?;
        }
        let bad: Partition = (BAD_TOPIC.to_owned(), 0);
        self.check_first_copies(&bad, &records(&self.b, &format!("A.{BAD_TOPIC}"), 0), self.bad.1)?;
        match self.b.violations().as_slice() {
            [] => Ok(repeated),
            violations => Err(format!("{violations:?}\n{:#?}", self.trace())),
        }
    }

    fn check_partition(&self, partition: &Partition, count: u32) -> Result<usize, String> {
        let got = records(&self.b, &format!("A.{}", partition.0), partition.1);
        let copies = self.check_first_copies(partition, &got, count)?;
        for (number, copies) in copies.iter().filter(|(_, copies)| **copies > 1) {
            let ranges = self.shared.get(partition).map_or(&[][..], Vec::as_slice);
            let allowed = 1 + ranges.iter().filter(|range| range.contains(number)).count();
            if *copies > allowed {
                let (trace, batches) = (self.trace(), self.batches_of(partition));
                return Err(format!(
                    "{partition:?} has record {number} {copies} times, shared {ranges:?}\n{trace:#?}\n{batches:#?}"
                ));
            }
        }
        Ok(got.len() - count as usize)
    }

    /// The batches of a partition on the target, for stories: who wrote them, and what they hold.
    fn batches_of(&self, (topic, partition): &Partition) -> Vec<String> {
        let batches = self.b.batches(&format!("A.{topic}"), *partition).unwrap();
        let line = |batch: &Bytes| {
            let header = BatchHeader::parse(batch).unwrap();
            let numbers: Vec<u32> =
                opened(batch).1.iter().filter_map(|record| named(record).map(|(_, number)| number)).collect();
            format!(
                "{}: producer {} epoch {} sequence {}, records {:?} to {:?}",
                header.base_offset,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                numbers.first(),
                numbers.last()
            )
        };
        batches.iter().map(line).collect()
    }

    /// The first copies are all records of the source, as they are and in order. Gives the number of copies of each.
    fn check_first_copies(
        &self,
        partition: &Partition,
        got: &[RecordData],
        count: u32,
    ) -> Result<BTreeMap<u32, usize>, String> {
        let mut copies = BTreeMap::new();
        let mut next = 0;
        for (at, found) in got.iter().enumerate() {
            let number = match named(found) {
                Some((from, number)) if from == *partition => number,
                _ => return Err(format!("{partition:?} holds a foreign record at {at}: {found:?}")),
            };
            if *found != record(&partition.0, partition.1, number) || number > next {
                let trace = self.trace();
                return Err(format!("{partition:?} holds {found:?} at {at} where {next} is due\n{trace:#?}"));
            }
            next = next.max(number + 1);
            *copies.entry(number).or_default() += 1;
        }
        if next != count {
            return Err(format!("{partition:?} has {next} of {count} records\n{:#?}", self.trace()));
        }
        Ok(copies)
    }

    /// Promise F: the topic that cannot be copied says why.
    pub async fn check_bad_topic(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let flow = self.running().await;
            let status = flow.as_ref().and_then(|flow| flow.partitions.get(&(BAD_TOPIC.into(), 0)));
            let reason = status.and_then(|status| status.stopped.as_ref()).map(|stopped| stopped.reason);
            if reason == Some(self.bad.0) {
                return Ok(());
            }
            if started.elapsed() > SETTLES_WITHIN {
                return Err(format!("the bad topic is not {}: {status:#?}\n{:#?}", self.bad.0, self.trace()));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Promise F: while one broker is away, what others lead on both sides is copied as ever.
    pub async fn check_that_one_broker_stops_no_other(&mut self) -> Result<(), String> {
        // Requests that were never answered end by `request.timeout.ms` first.
        sleep(Duration::from_secs(60)).await;
        let side = if self.pick(2) == 0 { 'A' } else { 'B' };
        let broker = 1 + self.pick(BROKERS as u64) as i32;
        let others: BTreeSet<Partition> = self
            .appended
            .keys()
            .filter(|partition| !self.is_led_by(partition, side, broker))
            .cloned()
            .collect();
        let kind = self.pick(4);
        self.note(format_args!("alone: {kind} {side}{broker}"));
        match kind {
            0 => self.set_link(side, broker, Link::Silent),
            1 => self.set_link(side, broker, Link::Refused),
            2 => {
                self.cluster(side).stop_broker(broker).await.unwrap();
                self.down.push((side, broker));
            }
            _ => {
                let key = Some(if side == 'A' { ApiKey::Fetch } else { ApiKey::Produce });
                let (when, effect) = (When::After(0), Effect::Drop);
                self.cluster(side).fault(FaultRule { key, broker: Some(broker), when, times: 1_000, effect });
            }
        }
        self.append_everywhere();
        self.wait_for(&others, OTHERS_WITHIN).await
    }

    fn is_led_by(&self, (topic, partition): &Partition, side: char, broker: i32) -> bool {
        let topic = if side == 'A' { topic.clone() } else { format!("A.{topic}") };
        self.cluster(side).leader(&topic, *partition).is_none_or(|(leader, _)| leader == Some(broker))
    }
}
