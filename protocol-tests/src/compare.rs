//! Whether two topics hold the same records: key, value, headers, timestamp, partition and order.

use crate::kafka::{Client, Isolation};
use crate::records::ReadRecord;
use crate::{HarnessError, Result};
use std::collections::BTreeMap;

/// A topic on a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub bootstrap: &'a str,
    pub topic: &'a str,
}

/// Reads both sides with a stock client and compares them; gives the number of records. The isolation level is the
/// source's; everything on the target is read.
pub fn compare_topics(
    client: &Client,
    source: Side<'_>,
    target: Side<'_>,
    isolation: Isolation,
) -> Result<usize> {
    let wanted = client.read(source.bootstrap, source.topic, isolation)?;
    let found = client.read(target.bootstrap, target.topic, Isolation::ReadUncommitted)?;
    compare_records(&wanted, &found)
        .map_err(|text| HarnessError::Difference(format!("{} -> {}: {text}", source.topic, target.topic)))
}

/// Compares records that were read from a source and a target, each in partition and offset order; gives their
/// number, or the first difference in words. Offsets may differ, nothing else.
pub fn compare_records(wanted: &[ReadRecord], found: &[ReadRecord]) -> std::result::Result<usize, String> {
    let (wanted, found) = (by_partition(wanted), by_partition(found));
    for partition in wanted.keys().chain(found.keys()) {
        let empty = Vec::new();
        let source = wanted.get(partition).unwrap_or(&empty);
        let target = found.get(partition).unwrap_or(&empty);
        for (index, (left, right)) in source.iter().zip(target).enumerate() {
            if let Some(field) = first_difference(left, right) {
                return Err(format!(
                    "partition {partition}, record {index}: {field} differs:\n source {}\n target {}",
                    shown(left),
                    shown(right)
                ));
            }
        }
        if source.len() != target.len() {
            let (longer, side) =
                if source.len() > target.len() { (source, "source") } else { (target, "target") };
            let extra = longer[source.len().min(target.len())];
            return Err(format!(
                "partition {partition}: {} records on the source, {} on the target; the {side} goes on with {}",
                source.len(),
                target.len(),
                shown(extra)
            ));
        }
    }
    Ok(wanted.values().map(Vec::len).sum())
}

fn by_partition(records: &[ReadRecord]) -> BTreeMap<i32, Vec<&ReadRecord>> {
    let mut partitions: BTreeMap<i32, Vec<&ReadRecord>> = BTreeMap::new();
    for record in records {
        partitions.entry(record.partition).or_default().push(record);
    }
    partitions
}

fn first_difference(left: &ReadRecord, right: &ReadRecord) -> Option<&'static str> {
    [
        ("key", left.key != right.key),
        ("value", left.value != right.value),
        ("headers", left.headers != right.headers),
        ("timestamp", left.timestamp != right.timestamp),
    ]
    .into_iter()
    .find_map(|(field, differs)| differs.then_some(field))
}

fn shown(record: &ReadRecord) -> String {
    let bytes = |bytes: &Option<Vec<u8>>| match bytes {
        None => "null".to_owned(),
        Some(bytes) => {
            let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            format!("{text:?} ({} bytes)", bytes.len())
        }
    };
    format!(
        "offset {} timestamp {} key {} value {} headers {:?}",
        record.offset,
        record.timestamp,
        bytes(&record.key),
        bytes(&record.value),
        record.headers
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Header, TimestampType};

    fn record(partition: i32, offset: i64, value: &str) -> ReadRecord {
        ReadRecord {
            partition,
            offset,
            timestamp: 1,
            timestamp_type: TimestampType::CreateTime,
            key: None,
            value: Some(value.as_bytes().to_vec()),
            headers: vec![],
        }
    }

    #[test]
    fn equal_topics_may_differ_in_offsets_only() {
        let source = [record(0, 0, "a"), record(0, 2, "b"), record(1, 0, "c")];
        let target = [record(0, 5, "a"), record(0, 6, "b"), record(1, 9, "c")];
        assert_eq!(compare_records(&source, &target), Ok(3));
    }

    #[test]
    fn the_first_difference_is_named() {
        let source = [record(0, 0, "a"), record(0, 1, "b"), record(1, 0, "c")];
        let mut changed = source.to_vec();
        changed[2].headers.push(Header { key: "h".into(), value: None });
        let cases = [
            (
                vec![record(0, 0, "a"), record(0, 1, "x"), record(1, 0, "c")],
                "partition 0, record 1: value differs",
            ),
            (vec![record(0, 0, "a"), record(1, 0, "c")], "the source goes on with offset 1"),
            ([&source[..], &[record(1, 1, "c")]].concat(), "the target goes on with offset 1"),
            ([&source[..], &[record(2, 0, "z")]].concat(), "partition 2: 0 records on the source"),
            (changed, "partition 1, record 0: headers differs"),
        ];
        for (target, words) in cases {
            let text = compare_records(&source, &target).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }
}
