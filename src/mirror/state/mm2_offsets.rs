//! MirrorMaker's own positions: the records of `mm2-offsets.<S>.internal`, byte for byte.
//!
//! They are Kafka Connect's source offsets (`OffsetStorageWriter.java`, `JsonConverter` without schemas). MirrorMaker looks
//! a key up by its exact bytes, so [`key`] writes the one form that it writes: compact JSON, fields in the order of a Java
//! `HashMap` (cluster, partition, topic), strings escaped as Jackson does. Reading is tolerant of other field orders,
//! which tools write; of several records for one partition the newest counts.
//!
//! The value is the offset of the last source record that is on the target: replication goes on at the next one.
//! Everything here is plain bytes; [`super::store`] reads and writes the topic.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::TopicPartition;

/// The name of the connector whose offsets these are, in a dedicated MirrorMaker.
pub const SOURCE_CONNECTOR: &str = "MirrorSourceConnector";

/// The key of a source partition's record, exactly as the connector of this name writes it.
pub fn key(connector: &str, cluster: &str, source: &TopicPartition) -> Bytes {
    let mut json = String::with_capacity(64 + connector.len() + cluster.len() + source.topic.len());
    json.push('[');
    push_string(&mut json, connector);
    json.push_str(",{\"cluster\":");
    push_string(&mut json, cluster);
    json.push_str(",\"partition\":");
    json.push_str(&source.partition.to_string());
    json.push_str(",\"topic\":");
    push_string(&mut json, &source.topic);
    json.push_str("}]");
    Bytes::from(json)
}

/// The value for the offset of the last source record that is on the target.
pub fn value(last_offset: i64) -> Bytes {
    Bytes::from(format!("{{\"offset\":{last_offset}}}"))
}

/// What the records of the topic say, partition by partition.
#[derive(Clone, Debug, Default)]
pub struct Mm2Offsets {
    connector: Arc<str>,
    cluster: Arc<str>,
    records: BTreeMap<TopicPartition, Vec<Mm2Record>>,
    unreadable: u64,
}

/// The last word of MirrorMaker's topic on one source partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mm2Offset {
    /// The offset of the last record that was replicated; negative for none.
    Last(i64),
    /// The position was taken back: a tombstone, or a value without an offset.
    Reset,
}

/// The last record of one spelling of the key in one partition of the topic.
#[derive(Clone, Debug)]
struct Mm2Record {
    key: Bytes,
    log_partition: i32,
    timestamp_ms: i64,
    offset: Mm2Offset,
}

impl Mm2Offsets {
    /// For the flows from `cluster` that the connector of this name copied; records of others are passed over.
    pub fn new(connector: Arc<str>, cluster: Arc<str>) -> Mm2Offsets {
        Mm2Offsets { connector, cluster, records: BTreeMap::new(), unreadable: 0 }
    }

    /// Takes in one record; those of one partition of the topic come in the order of their offsets.
    pub fn apply(&mut self, log_partition: i32, timestamp_ms: i64, key: &Bytes, value: Option<&[u8]>) {
        let Some(parsed) = parse_key(&self.connector, key) else {
            self.unreadable += 1;
            return;
        };
        let KeyOf::Source { cluster, source } = parsed else { return };
        if cluster != *self.cluster {
            return;
        }
        let Some(offset) = parse_value(value) else {
            self.unreadable += 1;
            return;
        };
        let record = Mm2Record { key: key.clone(), log_partition, timestamp_ms, offset };
        let records = self.records.entry(source).or_default();
        match records.iter_mut().find(|old| old.key == record.key && old.log_partition == log_partition) {
            Some(old) => *old = record,
            None => records.push(record),
        }
    }

    /// What stands for each source partition that the topic speaks of.
    pub fn newest(&self) -> impl Iterator<Item = (&TopicPartition, Mm2Offset)> {
        self.records.iter().filter_map(|(source, records)| {
            let own = key(&self.connector, &self.cluster, source);
            let newest = records.iter().max_by_key(|record| (record.timestamp_ms, record.key == own))?;
            Some((source, newest.offset))
        })
    }

    /// Records that could not be read and were passed over.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

/// Whose position a record is.
enum KeyOf {
    Source { cluster: String, source: TopicPartition },
    Other,
}

fn parse_key(own: &str, key: &[u8]) -> Option<KeyOf> {
    let Value::Array(parts) = serde_json::from_slice(key).ok()? else { return None };
    let [Value::String(connector), Value::Object(fields)] = parts.as_slice() else { return None };
    if connector != own {
        return Some(KeyOf::Other);
    }
    if fields.len() != 3 {
        return None;
    }
    let cluster = fields.get("cluster")?.as_str()?.to_owned();
    let topic = Arc::from(fields.get("topic")?.as_str()?);
    let partition = i32::try_from(fields.get("partition")?.as_i64()?).ok().filter(|&index| index >= 0)?;
    Some(KeyOf::Source { cluster, source: TopicPartition { topic, partition } })
}

/// A missing or null offset counts as none (`MirrorUtils.unwrapOffset`), and so does a negative one
/// (`MirrorSourceTask.isUncommitted`).
fn parse_value(value: Option<&[u8]>) -> Option<Mm2Offset> {
    let Some(value) = value else { return Some(Mm2Offset::Reset) };
    match serde_json::from_slice(value).ok()? {
        Value::Null => Some(Mm2Offset::Reset),
        Value::Object(fields) => match fields.get("offset") {
            None | Some(Value::Null) => Some(Mm2Offset::Reset),
            Some(offset) => Some(Mm2Offset::Last(offset.as_i64()?.max(-1))),
        },
        _ => None,
    }
}

/// A JSON string as Jackson's UTF-8 generator writes it by default: quotes, backslashes and control characters are
/// escaped, with upper-case digits; characters beyond the basic plane become two escapes; all else stays UTF-8.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\t' => json.push_str("\\t"),
            '\n' => json.push_str("\\n"),
            '\u{c}' => json.push_str("\\f"),
            '\r' => json.push_str("\\r"),
            '\0'..'\u{20}' | '\u{10000}'.. => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(json, "\\u{unit:04X}");
                }
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::partition_for_key;

    fn of(cluster: &str) -> Mm2Offsets {
        Mm2Offsets::new(Arc::from(SOURCE_CONNECTOR), Arc::from(cluster))
    }

    fn source(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: Arc::from(topic), partition }
    }

    /// Written by Kafka's own JsonConverter and partitioners (4.3.1): alias, topic, partition, key, murmur2, partition
    /// of 25, partition of 7.
    const VECTORS: [(&str, &str, i32, &str, i32, i32, i32); 9] = [
        (
            "A",
            "foo",
            0,
            r#"["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]"#,
            381_650_641,
            16,
            1,
        ),
        (
            "A",
            "foo",
            i32::MAX,
            r#"["MirrorSourceConnector",{"cluster":"A","partition":2147483647,"topic":"foo"}]"#,
            -68_972_402,
            21,
            0,
        ),
        (
            "A",
            "a.b_c-D9",
            7,
            r#"["MirrorSourceConnector",{"cluster":"A","partition":7,"topic":"a.b_c-D9"}]"#,
            -903_564_708,
            15,
            5,
        ),
        (
            "us-east",
            "orders",
            0,
            r#"["MirrorSourceConnector",{"cluster":"us-east","partition":0,"topic":"orders"}]"#,
            -1_510_387_865,
            8,
            2,
        ),
        (
            "ä",
            "foo",
            7,
            r#"["MirrorSourceConnector",{"cluster":"ä","partition":7,"topic":"foo"}]"#,
            -2_137_712_363,
            10,
            6,
        ),
        (
            "q\"b\\s/",
            "t\0\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f}\u{7f}",
            0,
            "[\"MirrorSourceConnector\",{\"cluster\":\"q\\\"b\\\\s/\",\"partition\":0,\"topic\":\"t\\u0000\\u0001\\b\\t\\n\\u000B\\f\\r\\u001F\u{7f}\"}]",
            1_195_205_740,
            15,
            1,
        ),
        (
            "\u{85}\u{2028}\u{2029}",
            "日本語😀",
            0,
            "[\"MirrorSourceConnector\",{\"cluster\":\"\u{85}\u{2028}\u{2029}\",\"partition\":0,\"topic\":\"日本語\\uD83D\\uDE00\"}]",
            -1_608_301_125,
            23,
            5,
        ),
        (
            "\u{85}\u{2028}\u{2029}",
            "日本語😀",
            7,
            "[\"MirrorSourceConnector\",{\"cluster\":\"\u{85}\u{2028}\u{2029}\",\"partition\":7,\"topic\":\"日本語\\uD83D\\uDE00\"}]",
            -1_168_172_704,
            19,
            3,
        ),
        (
            "us-east",
            "orders",
            7,
            r#"["MirrorSourceConnector",{"cluster":"us-east","partition":7,"topic":"orders"}]"#,
            1_213_142_304,
            4,
            3,
        ),
    ];

    #[test]
    fn keys_values_and_partitions_are_those_of_connect() {
        for (cluster, topic, partition, expected, hash, of_25, of_7) in VECTORS {
            let key = key(SOURCE_CONNECTOR, cluster, &source(topic, partition));
            assert_eq!(std::str::from_utf8(&key), Ok(expected));
            assert_eq!(partition_for_key(&key, i32::MAX), (hash & i32::MAX) % i32::MAX, "{expected}");
            assert_eq!(partition_for_key(&key, 25), of_25, "{expected}");
            assert_eq!(partition_for_key(&key, 7), of_7, "{expected}");
        }
        assert_eq!(value(123), "{\"offset\":123}");
        assert_eq!(value(i64::MAX), "{\"offset\":9223372036854775807}");
    }

    /// `mm2-offsets.A.internal` with 25 partitions after MirrorMaker 4.3.1 had copied two topics: partition of the topic,
    /// key, value; ten heartbeat records are left out.
    const DUMP: [(i32, &str, &str); 6] = [
        (
            0,
            r#"["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]"#,
            r#"{"offset":0}"#,
        ),
        (
            16,
            r#"["MirrorSourceConnector",{"cluster":"A","partition":1,"topic":"a.b_c-D9"}]"#,
            r#"{"offset":2}"#,
        ),
        (16, r#"["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]"#, r#"{"offset":4}"#),
        (19, r#"["MirrorSourceConnector",{"cluster":"A","partition":2,"topic":"foo"}]"#, r#"{"offset":5}"#),
        (17, r#"["MirrorSourceConnector",{"cluster":"A","partition":1,"topic":"foo"}]"#, r#"{"offset":8}"#),
        (
            9,
            r#"["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"a.b_c-D9"}]"#,
            r#"{"offset":6}"#,
        ),
    ];

    #[test]
    fn what_mirror_maker_wrote_is_read_and_written_again_byte_for_byte() {
        let mut offsets = of("A");
        for (partition, key, value) in DUMP {
            offsets.apply(partition, 0, &Bytes::from_static(key.as_bytes()), Some(value.as_bytes()));
        }
        let mut written: Vec<(i32, Bytes, Bytes)> = Vec::new();
        for (source, offset) in offsets.newest() {
            let Mm2Offset::Last(last) = offset else { panic!("{source} has no offset") };
            let key = key(SOURCE_CONNECTOR, "A", source);
            written.push((partition_for_key(&key, 25), key, value(last)));
        }
        let mut expected: Vec<(i32, Bytes, Bytes)> =
            DUMP[1..].iter().map(|&(partition, key, value)| (partition, key.into(), value.into())).collect();
        written.sort();
        expected.sort();
        assert_eq!(written, expected);
        assert_eq!(offsets.unreadable(), 0);
    }

    fn read(records: &[(i32, i64, &str, Option<&str>)]) -> (Vec<(TopicPartition, Mm2Offset)>, u64) {
        let mut offsets = of("A");
        for &(partition, timestamp, key, value) in records {
            offsets.apply(partition, timestamp, &Bytes::from(key.to_owned()), value.map(str::as_bytes));
        }
        (offsets.newest().map(|(source, offset)| (source.clone(), offset)).collect(), offsets.unreadable())
    }

    const OWN: &str = r#"["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]"#;
    const OTHER_ORDER: &str = r#"[ "MirrorSourceConnector", {"topic":"t","partition":0,"cluster":"A"} ]"#;

    #[test]
    fn of_several_records_the_newest_counts() {
        let at = |offset: &'static str| Some(offset);
        let t0 = |offset| vec![(source("t", 0), offset)];
        // In one partition of the topic the order of the log counts, whatever the clocks say.
        let log = [(3, 9, OWN, at(r#"{"offset":5}"#)), (3, 1, OWN, at(r#"{"offset":4}"#))];
        assert_eq!(read(&log), (t0(Mm2Offset::Last(4)), 0));
        // Another spelling of the key lies in another partition: the younger record counts, read in either order.
        let mut log = [(3, 10, OWN, at(r#"{"offset":5}"#)), (4, 11, OTHER_ORDER, at(r#"{"offset":7}"#))];
        assert_eq!(read(&log).0, t0(Mm2Offset::Last(7)));
        log.reverse();
        assert_eq!(read(&log).0, t0(Mm2Offset::Last(7)));
        log[0].1 = 10;
        assert_eq!(read(&log).0, t0(Mm2Offset::Last(5)), "of the same age, the one that MirrorMaker finds");
    }

    #[test]
    fn tombstones_and_empty_offsets_take_a_position_back() {
        for (value, expected) in [
            (None, Mm2Offset::Reset),
            (Some("null"), Mm2Offset::Reset),
            (Some("{}"), Mm2Offset::Reset),
            (Some(r#"{"offset":null}"#), Mm2Offset::Reset),
            (Some(r#"{"offset":-1}"#), Mm2Offset::Last(-1)),
            (Some(r#"{"offset":-7}"#), Mm2Offset::Last(-1)),
        ] {
            let log = [(3, 1, OWN, Some(r#"{"offset":5}"#)), (3, 2, OWN, value)];
            assert_eq!(read(&log), (vec![(source("t", 0), expected)], 0), "{value:?}");
        }
    }

    #[test]
    fn records_of_others_are_passed_over() {
        let value = Some(r#"{"offset":5}"#);
        for (key, unreadable) in [
            (r#"["MirrorSourceConnector",{"cluster":"C","partition":0,"topic":"t"}]"#, 0),
            (r#"["MirrorCheckpointConnector",{"partition":0,"topic":"A.foo","group":"g"}]"#, 0),
            (r#"["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]"#, 0),
            (r#"["MirrorSourceConnector",{"cluster":"A","partition":"0","topic":"t"}]"#, 1),
            (r#"["MirrorSourceConnector",{"cluster":"A","partition":-1,"topic":"t"}]"#, 1),
            (r#"["MirrorSourceConnector",{"cluster":"A","partition":4294967296,"topic":"t"}]"#, 1),
            (r#"["MirrorSourceConnector",{"cluster":"A","partition":0}]"#, 1),
            (r#"{"MirrorSourceConnector":1}"#, 1),
            ("", 1),
        ] {
            assert_eq!(read(&[(0, 0, key, value)]), (vec![], unreadable), "{key}");
        }
        assert_eq!(read(&[(0, 0, OWN, Some(r#"{"offset":"5"}"#))]), (vec![], 1));
        assert_eq!(read(&[(0, 0, OWN, Some("{"))]), (vec![], 1));
    }

    /// In a Connect cluster the user names the connector, and its offsets lie beside those of all others.
    #[test]
    fn a_connector_of_another_name_has_its_own_records() {
        let mut offsets = Mm2Offsets::new(Arc::from("my mirror"), Arc::from("A"));
        let own = key("my mirror", "A", &source("t", 0));
        assert_eq!(own, r#"["my mirror",{"cluster":"A","partition":0,"topic":"t"}]"#);
        offsets.apply(3, 1, &own, Some(&value(7)));
        offsets.apply(4, 2, &Bytes::from_static(OWN.as_bytes()), Some(&value(9)));
        offsets.apply(5, 3, &Bytes::from_static(br#"["jdbc",{"table":"x"}]"#), Some(b"{}"));
        assert_eq!(offsets.newest().collect::<Vec<_>>(), [(&source("t", 0), Mm2Offset::Last(7))]);
        assert_eq!(offsets.unreadable(), 0);
    }

    proptest! {
        #[test]
        fn every_key_is_read_back(cluster in ".*", topic in ".*", partition in 0..=i32::MAX, offset in 0..=i64::MAX) {
            let mut offsets = of(&cluster);
            let source = source(&topic, partition);
            offsets.apply(0, 0, &key(SOURCE_CONNECTOR, &cluster, &source), Some(&value(offset)));
            let read: Vec<_> = offsets.newest().collect();
            prop_assert_eq!(read, vec![(&source, Mm2Offset::Last(offset))]);
        }

        #[test]
        fn damaged_records_are_counted_and_nothing_more(
            cut in 0_usize..80, at in 0_usize..80, byte: u8, value in prop::collection::vec(any::<u8>(), 0..32),
        ) {
            let mut key = key(SOURCE_CONNECTOR, "A", &source("topic", 3)).to_vec();
            let at = at % key.len();
            key[at] = byte;
            key.truncate(cut);
            let mut offsets = of("A");
            offsets.apply(0, 0, &Bytes::from(key), Some(&value));
            prop_assert!(offsets.newest().count() <= 1);
        }
    }
}
