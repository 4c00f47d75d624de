//! Whether the records of one partition are the same on both sides: a plain machine that is shown both fronts.
//!
//! A compacting source may lose records after they were copied, so there the rule is weaker: what the source still has, the
//! target has in the same order; what only the target has must be followed there by a newer record of its key, or be a
//! tombstone, which compaction removes in the end.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;

use super::committed::SeenRecord;

/// What has to hold between both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The same records.
    Exact,
    /// The source compacts (`cleanup.policy`).
    Compacted,
}

/// What follows from the fronts of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// They are a pair: take both.
    Both,
    /// The target's was superseded: take it alone.
    Target,
    /// Both sides are at their end, and equal.
    End,
    /// They are not equal.
    Differs(Difference),
}

/// Where both sides part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Pairs before it.
    pub after: u64,
    /// In what.
    pub what: What,
    /// The source's record, in words.
    pub source: String,
    /// The target's record, in words.
    pub target: String,
}

/// In what two sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The keys.
    Key,
    /// The values.
    Value,
    /// The headers, or their order.
    Headers,
    /// The timestamps.
    Timestamp,
    /// The target ends before the source does.
    Missing,
    /// The target goes on where the source has ended.
    Extra,
    /// The target has a record that the compacted source has no more, and nothing newer of its key.
    NotSuperseded,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            What::Key => "the keys differ",
            What::Value => "the values differ",
            What::Headers => "the headers differ",
            What::Timestamp => "the timestamps differ",
            What::Missing => "the target has no record here",
            What::Extra => "the source has no record here",
            What::NotSuperseded => "the source has no record of this key",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { after, what, source, target } = self;
        write!(f, "after {after} equal records {}: source {source}, target {target}", what.words())
    }
}

/// The state of comparing one partition.
#[derive(Clone, Debug)]
pub struct Pairing {
    rule: Rule,
    pairs: u64,
    superseded: u64,
    /// Keys whose newest record so far is the target's alone.
    unanswered: BTreeSet<Option<Bytes>>,
}

impl Pairing {
    /// Before the first record.
    pub fn new(rule: Rule) -> Pairing {
        Pairing { rule, pairs: 0, superseded: 0, unanswered: BTreeSet::new() }
    }

    /// Records that both sides have.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Records that the target alone has, rightly.
    pub fn superseded(&self) -> u64 {
        self.superseded
    }

    /// Decides about both fronts; `None` is a side's end. Whoever calls takes what the step says.
    pub fn step(&mut self, source: Option<&SeenRecord>, target: Option<&SeenRecord>) -> Step {
        match (source, target) {
            (Some(left), Some(right)) => match difference(left, right) {
                None => {
                    self.pairs += 1;
                    self.unanswered.remove(&right.data.key);
                    Step::Both
                }
                Some(_) if self.rule == Rule::Compacted => self.target_alone(right),
                Some(what) => self.differs(what, source, target),
            },
            (Some(_), None) => self.differs(What::Missing, source, target),
            (None, Some(right)) if self.rule == Rule::Compacted => self.target_alone(right),
            (None, Some(_)) => self.differs(What::Extra, source, target),
            (None, None) => match self.unanswered.first() {
                None => Step::End,
                Some(key) => Step::Differs(Difference {
                    after: self.pairs,
                    what: What::NotSuperseded,
                    source: "none".to_owned(),
                    target: format!("one of key {}", bytes_shown(key.as_ref())),
                }),
            },
        }
    }

    fn target_alone(&mut self, record: &SeenRecord) -> Step {
        self.superseded += 1;
        if record.data.value.is_some() {
            self.unanswered.insert(record.data.key.clone());
        } else {
            self.unanswered.remove(&record.data.key);
        }
        Step::Target
    }

    fn differs(&self, what: What, source: Option<&SeenRecord>, target: Option<&SeenRecord>) -> Step {
        Step::Differs(Difference { after: self.pairs, what, source: shown(source), target: shown(target) })
    }
}

fn difference(left: &SeenRecord, right: &SeenRecord) -> Option<What> {
    let (left, right) = (&left.data, &right.data);
    [
        (What::Key, left.key != right.key),
        (What::Value, left.value != right.value),
        (What::Headers, left.headers != right.headers),
        (What::Timestamp, left.timestamp != right.timestamp),
    ]
    .into_iter()
    .find_map(|(what, differs)| differs.then_some(what))
}

fn shown(record: Option<&SeenRecord>) -> String {
    let Some(SeenRecord { offset, data }) = record else { return "none".to_owned() };
    let headers: Vec<String> = data
        .headers
        .iter()
        .take(8)
        .map(|(key, value)| format!("{}={}", bytes_shown(Some(key)), bytes_shown(value.as_ref())))
        .collect();
    format!(
        "offset {offset}, timestamp {}, key {}, value {}, headers [{}]",
        data.timestamp,
        bytes_shown(data.key.as_ref()),
        bytes_shown(data.value.as_ref()),
        headers.join(" ")
    )
}

fn bytes_shown(bytes: Option<&Bytes>) -> String {
    const SHOWN_MAX: usize = 40;
    match bytes {
        None => "null".to_owned(),
        Some(bytes) if bytes.len() <= SHOWN_MAX => format!("\"{}\"", bytes.escape_ascii()),
        Some(bytes) => {
            format!("\"{}…\" ({} bytes)", bytes[..SHOWN_MAX].escape_ascii(), bytes.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordData;

    fn record(offset: i64, key: &str, value: Option<&str>) -> SeenRecord {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let data = RecordData {
            timestamp: 1,
            key: Some(bytes(key)),
            value: value.map(bytes),
            headers: vec![(bytes("h"), None), (bytes("h"), Some(bytes("")))],
        };
        SeenRecord { offset, data }
    }

    /// Records as `key=value`; `key=` is a tombstone.
    fn records(text: &str) -> Vec<SeenRecord> {
        (0..)
            .zip(text.split_whitespace())
            .map(|(offset, word)| {
                let (key, value) = word.split_once('=').unwrap();
                record(offset, key, Some(value).filter(|value| !value.is_empty()))
            })
            .collect()
    }

    fn paired(rule: Rule, source: &[SeenRecord], target: &[SeenRecord]) -> Result<(u64, u64), (u64, What)> {
        let mut pairing = Pairing::new(rule);
        let (mut source, mut target) = (source.iter(), target.iter());
        let (mut left, mut right) = (source.next(), target.next());
        loop {
            match pairing.step(left, right) {
                Step::Both => (left, right) = (source.next(), target.next()),
                Step::Target => right = target.next(),
                Step::End => return Ok((pairing.pairs(), pairing.superseded())),
                Step::Differs(difference) => return Err((difference.after, difference.what)),
            }
        }
    }

    #[test]
    fn sides_are_equal_or_part_where_they_part() {
        let (exact, compacted) = (Rule::Exact, Rule::Compacted);
        let cases = [
            (exact, "a=1 b=2 a=", "a=1 b=2 a=", Ok((3, 0))),
            (exact, "", "", Ok((0, 0))),
            (exact, "a=1 b=2", "a=1", Err((1, What::Missing))),
            (exact, "a=1", "a=1 a=1", Err((1, What::Extra))),
            (exact, "a=1 b=2", "b=2 a=1", Err((0, What::Key))),
            (exact, "a=1", "a=2", Err((0, What::Value))),
            (exact, "a=1", "a=", Err((0, What::Value))),
            (compacted, "b=2 a=3", "a=1 b=2 a=3", Ok((2, 1))),
            (compacted, "a=3", "a=1 b=2 b= a=3", Ok((1, 3))),
            (compacted, "a=3", "a=1 b=2 a=3", Err((1, What::NotSuperseded))),
            (compacted, "a=3", "a=3 a=4", Err((1, What::NotSuperseded))),
            (compacted, "a=3 b=4", "a=3", Err((1, What::Missing))),
            (compacted, "a=3 b=4", "b=4 a=3", Err((1, What::Missing))),
        ];
        for (rule, source, target, wanted) in cases {
            assert_eq!(paired(rule, &records(source), &records(target)), wanted, "{source} -> {target}");
        }
    }

    #[test]
    fn order_and_nulls_of_headers_and_timestamps_count() {
        let source = record(0, "k", Some("v"));
        let mut swapped = source.clone();
        swapped.data.headers.swap(0, 1);
        let mut later = source.clone();
        later.data.timestamp += 1;
        for (target, what) in [(swapped, What::Headers), (later, What::Timestamp)] {
            assert_eq!(paired(Rule::Exact, std::slice::from_ref(&source), &[target]), Err((0, what)));
        }
    }

    #[test]
    fn a_difference_shows_both_records_but_not_a_megabyte() {
        let mut target = record(9, "k\u{e9}", Some("w"));
        target.data.value = Some(Bytes::from(vec![b'x'; 1 << 20]));
        let source = record(3, "k\u{e9}", None);
        let Step::Differs(difference) = Pairing::new(Rule::Exact).step(Some(&source), Some(&target)) else {
            panic!("they differ")
        };
        let text = difference.to_string();
        assert!(text.starts_with("after 0 equal records the values differ: source offset 3,"), "{text}");
        assert!(text.contains(r#"key "k\xc3\xa9", value null, headers ["h"=null "h"=""]"#), "{text}");
        assert!(text.contains("(1048576 bytes)") && text.len() < 500, "{text}");
    }
}
