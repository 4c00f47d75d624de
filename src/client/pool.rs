//! Which broker to connect to, and when, without connecting.
//!
//! Known brokers and bootstrap servers stand in one table. A node that fails backs off (`reconnect.backoff.ms`, doubling)
//! and is chosen after all that failed less; so a dead bootstrap server is skipped, and when all known brokers fail, the
//! bootstrap servers get their turn again (KIP-899). A node that is silent for now is asked after all others. Where a broker
//! says that all is stale (KIP-1102), the table is made anew.

use std::collections::BTreeMap;

use std::time::Duration;

use tokio::time::Instant;

use super::metadata::ClusterView;
use crate::net::{Backoff, Connection, HostPort, Security};

/// A dial that takes longer, or a reply that does, makes others preferred meanwhile.
const SILENT_AFTER: Duration = Duration::from_millis(900);

/// Somebody to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeKey {
    /// A broker of the metadata, by id.
    Broker(i32),
    /// An address of `bootstrap.servers`, by position.
    Bootstrap(usize),
}

/// The nodes of a cluster; `C` is what connecting one brings.
#[derive(Debug)]
pub(super) struct Pool<C> {
    backoff: Backoff,
    nodes: BTreeMap<NodeKey, Node<C>>,
}

#[derive(Debug)]
pub(super) struct Node<C> {
    pub(super) address: HostPort,
    failures: u32,
    not_before: Option<Instant>,
    pub(super) state: State<C>,
}

/// Where a node stands.
#[derive(Debug)]
pub(super) enum State<C> {
    Down,
    /// Since then.
    Dialing(Instant),
    Up(C),
}

/// What a connection tells of itself.
pub(super) trait Heard {
    /// Since when something is asked and nothing is heard.
    fn silent_since(&self) -> Option<Instant>;
}

impl Heard for Connection {
    fn silent_since(&self) -> Option<Instant> {
        Connection::silent_since(self)
    }
}

impl<C: Heard> Pool<C> {
    pub(super) fn new(bootstrap: &[HostPort], backoff: Backoff) -> Pool<C> {
        let mut pool = Pool { backoff, nodes: BTreeMap::new() };
        pool.set_bootstrap(bootstrap);
        pool
    }

    /// Replaces the bootstrap servers, as their names resolve now.
    pub(super) fn set_bootstrap(&mut self, bootstrap: &[HostPort]) {
        self.nodes.retain(|key, _| matches!(key, NodeKey::Broker(_)));
        for (index, address) in bootstrap.iter().enumerate() {
            self.nodes.insert(NodeKey::Bootstrap(index), Node::new(address.clone()));
        }
    }

    /// Takes over the brokers of a new view. A node whose address changed starts anew; a connection that was made through
    /// a bootstrap address becomes its broker's.
    pub(super) fn update(&mut self, view: &ClusterView) {
        self.nodes.retain(|key, node| match key {
            NodeKey::Bootstrap(_) => true,
            NodeKey::Broker(id) => view.brokers.get(id).is_some_and(|broker| broker.address == node.address),
        });
        for broker in view.brokers.values() {
            let key = NodeKey::Broker(broker.id);
            if self.nodes.contains_key(&key) {
                continue;
            }
            let mut node = Node::new(broker.address.clone());
            let same = self
                .nodes
                .values_mut()
                .find(|known| known.address == broker.address && matches!(known.state, State::Up(_)));
            if let Some(same) = same {
                node.state = std::mem::replace(&mut same.state, State::Down);
            }
            self.nodes.insert(key, node);
        }
    }

    pub(super) fn get(&mut self, key: NodeKey) -> Option<&mut Node<C>> {
        self.nodes.get_mut(&key)
    }

    pub(super) fn keys(&self) -> Vec<NodeKey> {
        self.nodes.keys().copied().collect()
    }

    /// The node to use when any will do: one that is up, else the one that failed least, brokers first; of equals a random
    /// one. When all back off, the first that may be tried.
    ///
    /// One time in four a random sound broker is taken though another is up: a broker that is cut off from the controller
    /// answers with old metadata for as long as it is asked.
    pub(super) fn any(&self, now: Instant, random: u64) -> Option<NodeKey> {
        let count = self.nodes.len().max(1);
        let start = usize::try_from((random >> 2) % count as u64).unwrap_or(0);
        if let Some(key) = self.sound(now, random, start) {
            return Some(key);
        }
        let rank = |index: usize, key: &NodeKey, node: &Node<C>| {
            let waits = node.not_before.filter(|&at| at > now);
            let is_bootstrap = matches!(key, NodeKey::Bootstrap(_));
            (node.is_silent(now), waits, node.failures, is_bootstrap, (index + count - start) % count)
        };
        let ranked = self.nodes.iter().enumerate();
        ranked.min_by_key(|&(index, (key, node))| rank(index, key, node)).map(|(_, (&key, _))| key)
    }

    fn sound(&self, now: Instant, random: u64, start: usize) -> Option<NodeKey> {
        let is_up = |node: &Node<C>| matches!(node.state, State::Up(_)) && !node.is_silent(now);
        let up = self.nodes.iter().find(|(_, node)| is_up(node)).map(|(&key, _)| key)?;
        if !random.is_multiple_of(4) {
            return Some(up);
        }
        let is_sound = |key: &NodeKey, node: &Node<C>| {
            matches!(key, NodeKey::Broker(_)) && node.failures == 0 && !node.is_silent(now)
        };
        let mut turned = self.nodes.iter().cycle().skip(start).take(self.nodes.len());
        turned.find(|&(key, node)| is_sound(key, node)).map_or(Some(up), |(&key, _)| Some(key))
    }

    /// Whether nobody answers: no connection is up, and each broker that is known (or else each bootstrap server) failed when
    /// it was last dialled.
    pub(super) fn is_out_of_reach(&self) -> bool {
        let is_broker = |key: &NodeKey| matches!(key, NodeKey::Broker(_));
        let knows_brokers = self.nodes.keys().any(is_broker);
        let has_failed = |(key, node): (&NodeKey, &Node<C>)| {
            let counts = is_broker(key) == knows_brokers;
            !matches!(node.state, State::Up(_)) && (!counts || node.failures > 0)
        };
        self.nodes.iter().all(has_failed)
    }

    /// When the node may be dialled.
    pub(super) fn not_before(&self, key: NodeKey) -> Option<Instant> {
        self.nodes.get(&key).and_then(|node| node.not_before)
    }

    /// How often in a row it could not be dialled.
    pub(super) fn failures(&self, key: NodeKey) -> u32 {
        self.nodes.get(&key).map_or(0, |node| node.failures)
    }

    pub(super) fn connected(&mut self, key: NodeKey, connection: C, now: Instant, random: u64) {
        let wait = self.backoff.delay(0, random);
        if let Some(node) = self.nodes.get_mut(&key) {
            // A broker that accepts and closes at once is not dialled in a busy loop.
            *node = Node {
                address: node.address.clone(),
                failures: 0,
                not_before: Some(now + wait),
                state: State::Up(connection),
            };
        }
    }

    pub(super) fn failed(&mut self, key: NodeKey, now: Instant, random: u64) {
        self.back_off(key, self.backoff, now, random);
    }

    /// It does not believe us, or we do not believe it; asking soon again would not help.
    pub(super) fn refused(&mut self, key: NodeKey, now: Instant, random: u64) {
        self.back_off(key, Security::REFUSED_BACKOFF, now, random);
    }

    fn back_off(&mut self, key: NodeKey, backoff: Backoff, now: Instant, random: u64) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.not_before = Some(now + backoff.delay(node.failures, random));
            node.failures = node.failures.saturating_add(1);
            node.state = State::Down;
        }
    }
}

impl<C> Node<C> {
    fn new(address: HostPort) -> Node<C> {
        Node { address, failures: 0, not_before: None, state: State::Down }
    }
}

impl<C: Heard> Node<C> {
    fn is_silent(&self, now: Instant) -> bool {
        let since = match &self.state {
            State::Down => None,
            State::Dialing(since) => Some(*since),
            State::Up(connection) => connection.silent_since(),
        };
        since.is_some_and(|since| since + SILENT_AFTER <= now)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
    use kafka_protocol::messages::{BrokerId, MetadataResponse};

    use super::super::metadata::Topics;
    use super::*;

    fn view(brokers: &[(i32, u16)]) -> ClusterView {
        let broker = |&(id, port): &(i32, u16)| {
            let broker = MetadataResponseBroker::default().with_node_id(BrokerId(id));
            broker.with_host("h".into()).with_port(port.into())
        };
        let answer = MetadataResponse::default().with_brokers(brokers.iter().map(broker).collect());
        ClusterView::default().apply(&answer, &Topics::All)
    }

    /// A connection that waits for nothing, or since then.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Fake(&'static str, Option<Instant>);

    impl Heard for Fake {
        fn silent_since(&self) -> Option<Instant> {
            self.1
        }
    }

    fn up(name: &'static str) -> Fake {
        Fake(name, None)
    }

    fn pool() -> Pool<Fake> {
        let bootstrap = [HostPort::new("h", 1), HostPort::new("h", 2)];
        Pool::new(&bootstrap, Backoff::millis(50, 1_000))
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_bootstrap_server_is_skipped() {
        let (mut pool, now) = (pool(), Instant::now());
        for random in 0..4 {
            let first = pool.any(now, random).unwrap();
            pool.failed(first, now, 0);
            let second = pool.any(now, random).unwrap();
            assert_ne!(first, second);
            pool = self::pool();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_brokers_fail_the_bootstrap_servers_get_their_turn() {
        let (mut pool, now) = (pool(), Instant::now());
        pool.update(&view(&[(7, 7), (8, 8)]));
        let mut order = Vec::new();
        for _ in 0..4 {
            let key = pool.any(now, 0).unwrap();
            pool.failed(key, now, 0);
            order.push(key);
        }
        assert_eq!(
            order,
            [NodeKey::Broker(7), NodeKey::Broker(8), NodeKey::Bootstrap(0), NodeKey::Bootstrap(1)]
        );
        let first = pool.any(now, 0).unwrap();
        assert!(pool.not_before(first).is_some_and(|at| at > now), "all back off now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_is_out_of_reach_when_everybody_who_counts_has_failed() {
        let (mut pool, now) = (pool(), Instant::now());
        assert!(!pool.is_out_of_reach(), "nobody has been asked yet");
        pool.failed(NodeKey::Bootstrap(0), now, 0);
        assert!(!pool.is_out_of_reach());
        pool.failed(NodeKey::Bootstrap(1), now, 0);
        assert!(pool.is_out_of_reach());
        pool.connected(NodeKey::Bootstrap(1), up("bootstrap"), now, 0);
        pool.update(&view(&[(7, 7), (8, 8)]));
        assert!(!pool.is_out_of_reach());
        pool.get(NodeKey::Bootstrap(1)).unwrap().state = State::Down;
        pool.failed(NodeKey::Broker(7), now, 0);
        assert!(!pool.is_out_of_reach(), "the other broker may answer");
        pool.failed(NodeKey::Broker(8), now, 0);
        assert!(pool.is_out_of_reach(), "whatever the bootstrap servers would say");
        pool.connected(NodeKey::Broker(8), up("eight"), now, 0);
        assert!(!pool.is_out_of_reach());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_up_is_used_and_a_bootstrap_connection_becomes_its_brokers() {
        let (mut pool, now) = (pool(), Instant::now());
        pool.connected(NodeKey::Bootstrap(1), up("connection"), now, 0);
        assert_eq!(pool.any(now, 1), Some(NodeKey::Bootstrap(1)));
        pool.update(&view(&[(6, 1), (7, 2)]));
        assert_eq!(pool.any(now, 1), Some(NodeKey::Broker(7)));
        assert!(matches!(pool.get(NodeKey::Broker(7)).unwrap().state, State::Up(Fake("connection", None))));
        assert!(matches!(pool.get(NodeKey::Bootstrap(1)).unwrap().state, State::Down));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_up_is_not_the_only_one_that_is_asked() {
        let (mut pool, now) = (pool(), Instant::now());
        pool.update(&view(&[(6, 1), (7, 2), (8, 3)]));
        pool.connected(NodeKey::Broker(7), up("seven"), now, 0);
        pool.failed(NodeKey::Broker(8), now, 0);
        let mut asked = BTreeMap::new();
        for random in 0..64 {
            *asked.entry(pool.any(now, random).unwrap()).or_insert(0) += 1;
        }
        let keys: Vec<NodeKey> = asked.keys().copied().collect();
        assert_eq!(keys, [NodeKey::Broker(6), NodeKey::Broker(7)], "sound ones only");
        assert!(asked[&NodeKey::Broker(7)] >= 48, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_broker_is_asked_after_all_others() {
        let (mut pool, now) = (pool(), Instant::now());
        pool.update(&view(&[(6, 1), (7, 2), (8, 3)]));
        pool.connected(NodeKey::Broker(6), Fake("six", Some(now)), now, 0);
        pool.get(NodeKey::Broker(7)).unwrap().state = State::Dialing(now);
        let later = now + SILENT_AFTER;
        for random in 0..64 {
            assert_eq!(
                pool.any(later, random),
                Some(NodeKey::Broker(8)),
                "neither up and silent nor never up"
            );
        }
        pool.connected(NodeKey::Broker(8), up("eight"), now, 0);
        for random in 0..64 {
            assert_eq!(pool.any(later, random), Some(NodeKey::Broker(8)));
        }
        pool.connected(NodeKey::Broker(8), Fake("eight", Some(now)), now, 0);
        assert!(matches!(pool.any(later, 1), Some(NodeKey::Bootstrap(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_moved_or_removed_broker_starts_anew() {
        let (mut pool, now) = (pool(), Instant::now());
        pool.update(&view(&[(6, 1), (7, 2)]));
        pool.connected(NodeKey::Broker(6), up("six"), now, 0);
        pool.connected(NodeKey::Broker(7), up("seven"), now, 0);
        pool.update(&view(&[(7, 9)]));
        assert!(pool.get(NodeKey::Broker(6)).is_none());
        let seven = pool.get(NodeKey::Broker(7)).unwrap();
        assert_eq!(seven.address, HostPort::new("h", 9));
        assert!(matches!(seven.state, State::Down));
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_and_success_forgets() {
        let (mut pool, now) = (pool(), Instant::now());
        let key = NodeKey::Bootstrap(0);
        for (failures, millis) in [(1, 50), (2, 100), (3, 200)] {
            pool.failed(key, now, u64::MAX / 2);
            assert_eq!(pool.failures(key), failures);
            let wait = (pool.not_before(key).unwrap() - now).as_millis();
            assert!((millis - 2..=millis + 2).contains(&wait), "{wait}");
        }
        pool.connected(key, up("up"), now, 0);
        assert_eq!(pool.failures(key), 0);
    }
}
