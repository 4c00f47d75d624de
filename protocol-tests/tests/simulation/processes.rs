//! The replicators of a world: started, killed, cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::status::{FlowState, FlowStatus};
use kmirror::seam::{Link, Seam};

use crate::world::{BROKERS, BUDGET_BYTES, Partition, World, opened};

/// A replicator, under the name that its links have.
pub struct Process {
    pub name: String,
    pub replicator: Replicator,
}

impl World {
    pub fn start_process(&mut self) {
        self.processes_started += 1;
        let name = process_name(self.processes_started);
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
             B->A.emit.heartbeats.enabled = false\nA->B.topics = t.*\nrefresh.topics.interval.seconds = 1\n\
             config.properties.exclude = max.message.bytes\nkmirror.memory.budget = {BUDGET_BYTES}\n",
            self.a.bootstrap(),
            self.b.bootstrap()
        );
        let report = config::load("simulation.properties", file.as_bytes(), &config::Options::default());
        let settings = report.settings.unwrap_or_else(|| panic!("{:?}", report.problems));
        self.variant.install(&self.simulation, &name);
        let replicator = Replicator::start(Seam::Simulated(self.simulation.named(&name)), settings.process);
        self.note(format_args!("{name} starts"));
        self.processes.push(Process { name, replicator });
    }

    /// A process dies, and another takes its place; or nobody hears of it until another has taken its place, while it
    /// knows nothing and what it has sent is still under way.
    pub fn crash_or_cut_off(&mut self) {
        if self.processes.len() > 1 {
            self.kill_oldest();
        } else if self.pick(2) == 0 {
            self.share_from_now();
            self.start_process();
            self.kill_oldest();
        } else {
            self.share_from_now();
            self.cut_off();
            self.start_process();
        }
    }

    fn cut_off(&mut self) {
        let name = self.processes[0].name.clone();
        self.note(format_args!("{name} is cut off"));
        for (side, broker) in all_brokers() {
            if let Some(address) = self.cluster(side).address(broker) {
                self.simulation.set_link(&name, address, Link::Silent);
            }
        }
    }

    /// Ends the oldest process without a word: alone, so that what it has written still arrives, or with its machine.
    pub fn kill_oldest(&mut self) {
        let process = self.processes.remove(0);
        let with_machine = self.pick(2) == 0;
        self.note(format_args!("{} dies, with its machine: {with_machine}", process.name));
        self.simulation.kill(&process.name);
        for (side, broker) in all_brokers().filter(|_| with_machine) {
            if let Some(address) = self.cluster(side).address(broker) {
                self.simulation.reset(&process.name, address);
            }
        }
        self.share_until_now();
    }

    /// From the positions that are stored now on, two processes may write the same.
    fn share_from_now(&mut self) {
        let stored = self.stored_positions();
        for partition in self.appended.keys() {
            let from = stored.get(partition).copied().unwrap_or(0);
            self.shared.entry(partition.clone()).or_default().push(from..u32::MAX);
        }
        self.takeovers += 1;
    }

    fn share_until_now(&mut self) {
        for (partition, &count) in &self.appended {
            let ranges = self.shared.entry(partition.clone()).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == u32::MAX => last.end = count,
                _ => ranges.push(0..count),
            }
        }
    }

    /// The positions that a process would find, as numbers of the next record.
    fn stored_positions(&self) -> BTreeMap<Partition, u32> {
        let topic = "mm2-offsets.A.internal";
        let partitions =
            self.b.topics().iter().find(|(name, _)| name == topic).map_or(0, |(_, count)| *count);
        let batches = (0..partitions).flat_map(|partition| self.b.batches(topic, partition).unwrap());
        batches.flat_map(|batch| opened(&batch).1).filter_map(|record| position_of(&record)).collect()
    }

    /// Every link works again; what dead processes wrote arrives, too.
    pub fn heal_links(&mut self) {
        for number in 1..=self.processes_started {
            for (side, broker) in all_brokers() {
                if let Some(address) = self.cluster(side).address(broker) {
                    let up = Link::Up(Duration::from_micros(200));
                    self.simulation.set_link(&process_name(number), address, up);
                }
            }
        }
    }

    pub async fn flows(&self) -> Vec<FlowStatus> {
        let mut flows = Vec::new();
        for process in &self.processes {
            flows.extend(process.replicator.status().await.flows);
        }
        flows
    }

    /// The flow of the process that writes.
    pub async fn running(&self) -> Option<FlowStatus> {
        self.flows().await.into_iter().find(|flow| flow.state == FlowState::Running)
    }

    pub async fn stop(self) {
        for process in self.processes {
            process.replicator.stop().await;
        }
    }
}

fn process_name(number: u32) -> String {
    format!("kmirror-{number}")
}

pub fn all_brokers() -> impl Iterator<Item = (char, i32)> {
    ['A', 'B'].into_iter().flat_map(|side| (1..=BROKERS).map(move |broker| (side, broker)))
}

/// The position in a record of MirrorMaker's offsets topic: `["…",{"cluster":…,"partition":0,"topic":"t"}]`,
/// `{"offset":N}`, N being the offset of the last record copied. Offsets of the source are the numbers of its records.
pub fn position_of(record: &kmirror::record::RecordData) -> Option<(Partition, u32)> {
    let key: serde_json::Value = serde_json::from_slice(record.key.as_ref()?).ok()?;
    let place = key.get(1)?;
    let partition = (place.get("topic")?.as_str()?.to_owned(), place.get("partition")?.as_i64()? as i32);
    let value: serde_json::Value = serde_json::from_slice(record.value.as_ref()?).ok()?;
    Some((partition, (value.get("offset")?.as_i64()? + 1) as u32))
}
