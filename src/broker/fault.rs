//! Faults on command of a test: which requests they hit, and what happens to those.
//!
//! A rule is armed until it has hit `times` requests. Chance comes from the cluster's seed, so a run can be repeated.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::wire::{BrokerId, Request};

/// When a rule hits a request that matches it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// The requests after the first `n` matching ones.
    After(u64),
    /// Each matching request with this probability, 0 to 1.
    Probability(f64),
}

/// What happens to a request that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Neither effect nor reply; the connection stays open and is never answered again.
    Drop,
    /// Everything as usual, but later.
    Delay(Duration),
    /// No effect, and this error wherever the reply of the API has place for one.
    Error(i16),
    /// The connection is reset before the effect.
    Close,
    /// The effect takes place, then the connection is reset instead of a reply.
    ReplyLostAfterEffect,
}

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// API that it hits; `None` hits all.
    pub key: Option<ApiKey>,
    /// Broker that it hits; `None` hits all.
    pub broker: Option<i32>,
    /// Which of the matching requests.
    pub when: When,
    /// How many requests it hits before it is spent.
    pub times: u64,
    /// What happens to them.
    pub effect: Effect,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<Armed>,
}

#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    seen: u64,
    hit: u64,
}

impl Faults {
    pub(super) fn arm(&mut self, rule: FaultRule) {
        self.armed.push(Armed { rule, seen: 0, hit: 0 });
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// The effect of the first rule that hits; `random` is asked only for rules by probability.
    pub(super) fn decide(&mut self, request: &Request, mut random: impl FnMut() -> u64) -> Option<Effect> {
        let hit = self.armed.iter_mut().find_map(|armed| armed.meets(request, &mut random));
        self.armed.retain(|armed| armed.hit < armed.rule.times);
        hit
    }
}

impl Armed {
    fn meets(&mut self, request: &Request, random: &mut impl FnMut() -> u64) -> Option<Effect> {
        let matches = self.rule.key.is_none_or(|key| key == request.key)
            && self.rule.broker.is_none_or(|broker| BrokerId(broker) == request.broker);
        if !matches {
            return None;
        }
        self.seen += 1;
        let hit = match self.rule.when {
            When::After(n) => self.seen > n,
            When::Probability(p) => (random() >> 11) as f64 / ((1_u64 << 53) as f64) < p,
        };
        self.hit += u64::from(hit);
        hit.then_some(self.rule.effect)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::broker::wire::ConnectionId;

    fn request(key: ApiKey, broker: i32) -> Request {
        Request {
            broker: BrokerId(broker),
            connection: ConnectionId(1),
            key,
            version: 3,
            correlation_id: 1,
            client_id: Default::default(),
            body: Bytes::new(),
            refuse_with: None,
        }
    }

    #[test]
    fn a_rule_hits_after_its_count_on_its_broker_and_is_spent() {
        let mut faults = Faults::default();
        faults.arm(FaultRule {
            key: Some(ApiKey::Produce),
            broker: Some(2),
            when: When::After(1),
            times: 1,
            effect: Effect::Close,
        });
        let mut hits = |key, broker| faults.decide(&request(key, broker), || 0);
        assert_eq!(hits(ApiKey::Produce, 2), None);
        assert_eq!(hits(ApiKey::Produce, 1), None);
        assert_eq!(hits(ApiKey::Fetch, 2), None);
        assert_eq!(hits(ApiKey::Produce, 2), Some(Effect::Close));
        assert_eq!(hits(ApiKey::Produce, 2), None);
    }
}
