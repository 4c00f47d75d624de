//! What the keys of MirrorMaker 1's two files mean here: those of today's clients, and those of the Scala consumer and
//! producer, which users still have in them (`kafka.consumer.ConsumerConfig` and `kafka.producer.ProducerConfig` of Kafka 0.8 to 1.1).
//!
//! Tables only.

use super::super::keys::{self, Effect, Kind};

/// Whose file a key stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    /// `--consumer.config`.
    Consumer,
    /// `--producer.config`.
    Producer,
}

impl File {
    /// The client that the file is for.
    pub(super) fn client(self) -> &'static str {
        match self {
            File::Consumer => "consumer",
            File::Producer => "producer",
        }
    }
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// A key of today's clients.
    Client(&'static str, Kind, Effect),
    /// An old key: what it is called today, with other words for values.
    Renamed(&'static str, &'static [(&'static str, &'static str)]),
    /// An old key without effect.
    Nothing(&'static str),
    /// What it asks for cannot be had; what to do instead.
    Refused(&'static str, &'static str),
    /// One of kmirror's own, for the whole process.
    Process(Kind),
    /// One of kmirror's own, for the flow.
    Flow(Kind),
    /// Not known.
    Unknown,
}

use Meaning::{Client, Flow, Nothing, Process, Refused, Renamed, Unknown};

const SAME: &[(&str, &str)] = &[];
const NO_ZOOKEEPER: Meaning =
    Nothing("no ZooKeeper is asked: brokers and groups are found by bootstrap.servers");
const NO_QUEUE: Meaning =
    Nothing("there is no queue between reading and sending: kmirror.memory.budget bounds what is on its way");
const BY_THE_GROUP: Meaning =
    Nothing("the group's coordinator rebalances, by session.timeout.ms and max.poll.interval.ms");
const AS_IT_IS: &str = "records are copied as they are, whatever is in them";
const CODECS: &[(&str, &str)] = &[("0", "none"), ("1", "gzip"), ("2", "snappy"), ("3", "lz4")];
const RESETS: &[(&str, &str)] = &[("smallest", "earliest"), ("largest", "latest")];
const ACKS: &[(&str, &str)] = &[("-1", "all")];

/// Keys that only MirrorMaker 1's old clients had, or whose old values are others.
const CONSUMER: &[(&str, Meaning)] = &[
    (
        "auto.commit.enable",
        Nothing("offsets are committed when the target has acknowledged, and never before"),
    ),
    (
        "autocommit.enable",
        Nothing("offsets are committed when the target has acknowledged, and never before"),
    ),
    ("autooffset.reset", Renamed("auto.offset.reset", RESETS)),
    ("consumer.id", NO_ZOOKEEPER),
    ("consumer.timeout.ms", Nothing("reading never gives up")),
    ("dual.commit.enabled", Nothing("offsets are committed to Kafka alone")),
    ("fetch.message.max.bytes", Renamed("max.partition.fetch.bytes", SAME)),
    ("fetch.size", Renamed("max.partition.fetch.bytes", SAME)),
    ("fetch.wait.max.ms", Renamed("fetch.max.wait.ms", SAME)),
    ("groupid", Renamed("group.id", SAME)),
    ("num.consumer.fetchers", Nothing("each broker has a lane of its own")),
    ("offsets.channel.backoff.ms", Renamed("retry.backoff.ms", SAME)),
    ("offsets.channel.socket.timeout.ms", Nothing("request.timeout.ms holds for all requests")),
    (
        "offsets.commit.max.retries",
        Nothing("a commit that fails is tried again, and with newer offsets at the next one"),
    ),
    ("queued.max.message.chunks", NO_QUEUE),
    ("rebalance.backoff.ms", BY_THE_GROUP),
    ("rebalance.max.retries", BY_THE_GROUP),
    ("refresh.leader.backoff.ms", Renamed("retry.backoff.ms", SAME)),
    ("shallow.iterator.enable", Nothing(AS_IT_IS)),
    ("socket.receive.buffer.bytes", Renamed("receive.buffer.bytes", SAME)),
    ("socket.timeout.ms", Renamed("request.timeout.ms", SAME)),
    ("zk.connect", NO_ZOOKEEPER),
    ("zookeeper.connect", NO_ZOOKEEPER),
    ("zookeeper.connection.timeout.ms", NO_ZOOKEEPER),
    ("zookeeper.session.timeout.ms", NO_ZOOKEEPER),
    ("zookeeper.sync.time.ms", NO_ZOOKEEPER),
];

const PRODUCER: &[(&str, Meaning)] = &[
    ("batch.num.messages", NO_QUEUE),
    ("broker.list", Renamed("bootstrap.servers", SAME)),
    (
        "compressed.topics",
        Refused(
            "one codec holds for all topics",
            "leave it out: batches keep the codec that they have at the source, or get the one of compression.type",
        ),
    ),
    ("compression.codec", Renamed("compression.type", CODECS)),
    ("key.serializer.class", Nothing(AS_IT_IS)),
    ("message.send.max.retries", Renamed("retries", SAME)),
    ("metadata.broker.list", Renamed("bootstrap.servers", SAME)),
    (
        "producer.type",
        Nothing("both sync and async mean that nothing is committed before the target has acknowledged it"),
    ),
    ("queue.buffering.max.messages", NO_QUEUE),
    ("queue.buffering.max.ms", Renamed("linger.ms", SAME)),
    ("queue.enqueue.timeout.ms", NO_QUEUE),
    ("queue.size", NO_QUEUE),
    ("queue.time", Renamed("linger.ms", SAME)),
    ("request.required.acks", Renamed("acks", ACKS)),
    ("send.buffer.size", Renamed("send.buffer.bytes", SAME)),
    ("serializer.class", Nothing(AS_IT_IS)),
    ("topic.metadata.refresh.interval.ms", Renamed("metadata.max.age.ms", SAME)),
    ("zk.connect", NO_ZOOKEEPER),
    ("zookeeper.connect", NO_ZOOKEEPER),
];

/// Keys of a group's member, which mean nothing where a flow has no group.
const OF_A_MEMBER: &[(&str, Effect)] = &[
    ("group.id", Effect::Used),
    ("group.instance.id", Effect::Used),
    ("group.protocol", Effect::Used),
    ("group.remote.assignor", Effect::Used),
    ("heartbeat.interval.ms", Effect::Used),
    ("max.poll.interval.ms", Effect::Used),
    ("partition.assignment.strategy", Effect::Used),
    ("session.timeout.ms", Effect::Used),
    ("enable.auto.commit", Effect::Used),
    (
        "auto.commit.interval.ms",
        Effect::Nothing("--offset.commit.interval.ms says how often offsets are committed"),
    ),
    (
        "exclude.internal.topics",
        Effect::Nothing("Kafka's internal topics are never copied: they would mean nothing elsewhere"),
    ),
    ("retries", Effect::Used),
];

/// Keys of a producer that deals records out by key, which mean nothing where batches are copied as they are.
const OF_A_PRODUCER: &[(&str, Effect)] = &[("batch.size", Effect::Used), ("linger.ms", Effect::Used)];

/// kmirror's own keys that mean something for MirrorMaker 1.
const OURS: [&str; 5] = [
    "kmirror.batching",
    "kmirror.batching.compressed",
    "kmirror.on.oversize",
    "kmirror.on.source.reset",
    "kmirror.partitioning",
];

/// The words of `kmirror.partitioning`.
pub(super) const PARTITIONINGS: &[&str] = &["preserve", "key"];

/// What a key of a file means.
pub(super) fn meaning(file: File, name: &str) -> Meaning {
    let old = match file {
        File::Consumer => CONSUMER,
        File::Producer => PRODUCER,
    };
    if let Some((_, meaning)) = old.iter().find(|(known, _)| *known == name) {
        return *meaning;
    }
    if name == "kmirror.partitioning" {
        return Flow(Kind::Choice(PARTITIONINGS));
    }
    if name.starts_with("kmirror.") {
        return match keys::find(name) {
            Some(key) if key.home == keys::Home::Top => Process(key.kind),
            Some(key) if OURS.contains(&name) => Flow(key.kind),
            Some(_) => Refused("it means something in a file of MirrorMaker 2 only", "leave it out"),
            None => Unknown,
        };
    }
    let family = || keys::CLIENT_FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix));
    let Some(key) = keys::find_client(name).filter(|key| key.is_of(file.client())) else {
        return family().map_or(Unknown, |(prefix, effect)| Client(prefix, Kind::Text, *effect));
    };
    let kind = match name {
        "auto.offset.reset" => Kind::Choice(&["earliest", "latest", "none"]),
        "partition.assignment.strategy" => Kind::List,
        _ => key.kind,
    };
    let mut here = OF_A_MEMBER.iter().chain(OF_A_PRODUCER);
    let here = here.find(|(known, _)| *known == name);
    Client(key.name, kind, here.map_or(key.effect, |(_, effect)| *effect))
}

/// Other words for a value of a key that is called today as it was.
pub(super) fn old_words(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "auto.offset.reset" => RESETS,
        "acks" => ACKS,
        _ => SAME,
    }
}

/// The names of all that is known in a file, for suggestions.
pub(super) fn names(file: File) -> impl Iterator<Item = &'static str> + Clone {
    let clients = keys::CLIENT_KEYS.iter().filter(move |key| key.is_of(file.client())).map(|key| key.name);
    clients.chain(OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_keys_get_their_meaning_of_today() {
        let check = |file, name, meaning: &str| {
            let shown = match super::meaning(file, name) {
                Client(name, ..) => format!("client {name}"),
                Renamed(name, _) => format!("now {name}"),
                Nothing(_) => "nothing".to_owned(),
                Refused(..) => "refused".to_owned(),
                Process(_) => "process".to_owned(),
                Flow(_) => "flow".to_owned(),
                Unknown => "unknown".to_owned(),
            };
            assert_eq!(shown, meaning, "{name}");
        };
        check(File::Consumer, "bootstrap.servers", "client bootstrap.servers");
        check(File::Consumer, "zookeeper.connect", "nothing");
        check(File::Consumer, "fetch.message.max.bytes", "now max.partition.fetch.bytes");
        check(File::Consumer, "group.id", "client group.id");
        check(File::Producer, "group.id", "unknown");
        check(File::Producer, "metadata.broker.list", "now bootstrap.servers");
        check(File::Producer, "request.required.acks", "now acks");
        check(File::Producer, "compression.codec", "now compression.type");
        check(File::Producer, "producer.type", "nothing");
        check(File::Producer, "compressed.topics", "refused");
        check(File::Consumer, "kmirror.admin.listen", "process");
        check(File::Consumer, "kmirror.batching", "flow");
        check(File::Consumer, "kmirror.partitioning", "flow");
        check(File::Consumer, "kmirror.connect.group.id", "refused");
        check(File::Consumer, "bootstrap.server", "unknown");
        let url = "sasl.oauthbearer.token.endpoint.url";
        check(File::Consumer, url, &format!("client {url}"));
        check(File::Consumer, "sasl.oauthbearer.jwks.endpoint.url", "client sasl.oauthbearer.");
    }

    #[test]
    fn what_is_renamed_is_known_by_its_new_name() {
        for (file, table) in [(File::Consumer, CONSUMER), (File::Producer, PRODUCER)] {
            for (name, meaning) in table {
                if let Renamed(new, _) = meaning {
                    assert!(matches!(super::meaning(file, new), Client(..)), "{name} to {new}");
                }
            }
        }
    }
}
