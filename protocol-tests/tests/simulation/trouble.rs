//! What goes wrong, or well again, by the seed.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, FaultRule, When};
use kmirror::seam::Link;

use crate::world::{BROKERS, World};

impl World {
    pub async fn trouble(&mut self) {
        let side = if self.pick(2) == 0 { 'A' } else { 'B' };
        let broker = 1 + self.pick(BROKERS as u64) as i32;
        let kind = self.pick(12);
        self.note(format_args!("{kind} {side}{broker}"));
        match kind {
            0 => self.reset(side, broker),
            1 => self.set_link(side, broker, Link::Refused),
            2 => self.set_link(side, broker, Link::Silent),
            3 | 4 => self.heal_links(),
            5 => self.fail_requests('B', broker, ApiKey::Produce),
            6 if self.down.is_empty() && self.cluster(side).stop_broker(broker).await.is_ok() => {
                self.down.push((side, broker));
            }
            7 => self.start_brokers().await,
            8 => self.fail_requests('A', broker, ApiKey::Fetch),
            9 => self.set_link(side, broker, Link::Up(Duration::from_secs(3))),
            // Brokers do this every ten minutes: the records of odd partitions are older than `producer.id.expiration.ms`.
            10 => self.b.expire_producers(86_400_000),
            _ => self.move_leader(side),
        }
    }

    fn reset(&mut self, side: char, broker: i32) {
        if let Some(address) = self.cluster(side).address(broker) {
            self.processes.iter().for_each(|process| self.simulation.reset(&process.name, address));
        }
    }

    /// For the youngest process; one that is cut off stays so.
    pub fn set_link(&mut self, side: char, broker: i32, link: Link) {
        if let (Some(address), Some(process)) = (self.cluster(side).address(broker), self.processes.last()) {
            self.simulation.set_link(&process.name, address, link);
        }
    }

    fn fail_requests(&mut self, side: char, broker: i32, key: ApiKey) {
        let effects = [
            Effect::ReplyLostAfterEffect,
            Effect::Close,
            Effect::Drop,
            Effect::Delay(Duration::from_secs(2)),
            Effect::Error(6),
            Effect::Error(20),
        ];
        let effect = effects[self.pick(effects.len() as u64) as usize];
        let times = 1 + self.pick(12);
        let broker = (self.pick(2) == 0).then_some(broker);
        let rule = FaultRule { key: Some(key), broker, when: When::Probability(0.5), times, effect };
        self.cluster(side).fault(rule);
    }

    fn move_leader(&mut self, side: char) {
        let to = 1 + self.pick(BROKERS as u64) as i32;
        let (topic, partition) = self.pick_partition();
        let topic = if side == 'A' { topic } else { format!("A.{topic}") };
        // A topic that is not there yet, or a broker that is down, cannot lead.
        let _ = self.cluster(side).move_leader(&topic, partition, to);
    }

    pub async fn start_brokers(&mut self) {
        for (side, broker) in std::mem::take(&mut self.down) {
            self.cluster(side).start_broker(broker).await.unwrap();
        }
    }

    /// Nothing fails any more.
    pub async fn heal(&mut self) {
        self.a.clear_faults();
        self.b.clear_faults();
        self.heal_links();
        self.start_brokers().await;
    }
}
