//! The demo's records. What a record holds follows from the seed, its topic, its partition and its number alone; only its
//! timestamp is given.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::record::RecordData;

/// What the records of a writer look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Their keys.
    pub(super) keys: Keys,
    /// One in so many values is null; 0 for none.
    pub(super) null_values_one_in: u64,
    /// Bytes of a value, about.
    pub(super) value_bytes: (usize, usize),
    /// Their headers.
    pub(super) headers: HeaderKind,
}

/// The keys of a writer's records.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// All null.
    Null,
    /// One of so many for each partition.
    OneOf(u64),
    /// One of so many, some null, some empty.
    Some(u64),
}

/// The headers of a writer's records.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeaderKind {
    /// None.
    None,
    /// None, plain ones, null and repeated ones, keys that are no UTF-8, in turn.
    All,
}

/// A generator of numbers (splitmix64): the same numbers from the same seed.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64, words: &[u64]) -> Dice {
        let mut dice = Dice(seed);
        for word in words {
            dice.0 ^= word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            dice.0 = dice.next();
        }
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..sides`; 0 for no side.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.next().checked_rem(sides).unwrap_or(0)
    }

    pub(super) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let width = range.end().saturating_sub(*range.start()) as u64 + 1;
        range.start() + self.below(width) as usize
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        sides > 0 && self.below(sides) == 0
    }
}

/// The `number`-th record of a partition.
pub(super) fn record(
    shape: &Shape,
    seed: u64,
    topic: &str,
    partition: i32,
    number: u64,
    timestamp: i64,
) -> RecordData {
    let mut dice = Dice::new(seed, &[hash(topic), partition as u64, number]);
    let key = key(shape.keys, partition, &mut dice);
    let value = (!dice.one_in(shape.null_values_one_in))
        .then(|| value(shape.value_bytes, topic, partition, number, &mut dice));
    RecordData { timestamp, key, value, headers: headers(shape.headers, number, &mut dice) }
}

fn key(keys: Keys, partition: i32, dice: &mut Dice) -> Option<Bytes> {
    let one_of = |sides, dice: &mut Dice| Bytes::from(format!("{partition}-{:04}", dice.below(sides)));
    match keys {
        Keys::Null => None,
        Keys::OneOf(sides) => Some(one_of(sides, dice)),
        Keys::Some(sides) => match dice.below(8) {
            0 => None,
            1 => Some(Bytes::new()),
            _ => Some(one_of(sides, dice)),
        },
    }
}

/// Words to fill values with: as compressible as what people write.
const WORDS: [&str; 16] = [
    "amber", "birch", "coral", "delta", "ember", "fjord", "grove", "heath", "inlet", "joule", "knoll",
    "lunar", "mossy", "north", "ochre", "pearl",
];

fn value((least, most): (usize, usize), topic: &str, partition: i32, number: u64, dice: &mut Dice) -> Bytes {
    let bytes = dice.within(least..=most);
    let mut text = format!(r#"{{"{topic}":{number},"partition":{partition},"note":""#);
    while text.len() < bytes {
        // Four words and a number for each roll.
        let roll = dice.next();
        for nth in 0..4 {
            text.push_str(WORDS[(roll >> (4 * nth)) as usize % WORDS.len()]);
            text.push(' ');
        }
        text.push_str(&format!("{:x} ", roll >> 40));
    }
    text.push_str(r#""}"#);
    Bytes::from(text)
}

fn headers(kind: HeaderKind, number: u64, dice: &mut Dice) -> Vec<(Bytes, Option<Bytes>)> {
    let HeaderKind::All = kind else { return Vec::new() };
    let (text, id) = (Bytes::from_static, Bytes::from(format!("{:016x}", dice.next())));
    match number % 4 {
        0 => vec![],
        1 => vec![(text(b"trace-id"), Some(id))],
        2 => vec![
            (text(b"tag"), None),
            (text(b"tag"), Some(text(b"again"))),
            (text(b"tag"), Some(Bytes::new())),
            (Bytes::new(), Some(id)),
        ],
        _ => vec![
            (text(b"\xff\xfe not UTF-8 \xc3\x28"), Some(text(b"\x00\x01\xff"))),
            (text(b"trace-id"), Some(id)),
        ],
    }
}

/// FNV-1a: a topic's number.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        keys: Keys::Some(50),
        null_values_one_in: 10,
        value_bytes: (20, 200),
        headers: HeaderKind::All,
    };

    #[test]
    fn a_record_follows_from_seed_topic_partition_and_number() {
        let made = |seed, topic, partition, number| record(&SHAPE, seed, topic, partition, number, 5);
        assert_eq!(made(1, "t", 2, 3), made(1, "t", 2, 3));
        for other in [made(2, "t", 2, 3), made(1, "u", 2, 3), made(1, "t", 1, 3), made(1, "t", 2, 4)] {
            assert_ne!(made(1, "t", 2, 3), other);
        }
    }

    #[test]
    fn all_kinds_of_nulls_and_headers_occur() {
        let records: Vec<RecordData> = (0..400).map(|number| record(&SHAPE, 1, "t", 0, number, 5)).collect();
        let any = |holds: &dyn Fn(&RecordData) -> bool| records.iter().any(holds);
        assert!(any(&|r| r.key.is_none()) && any(&|r| r.key.as_deref() == Some(b"")));
        assert!(any(&|r| r.value.is_none()) && any(&|r| r.headers.is_empty()));
        assert!(any(&|r| r.headers.iter().any(|(key, _)| std::str::from_utf8(key).is_err())));
        assert!(any(&|r| r.headers.iter().filter(|(key, _)| key == "tag").count() == 3));
        assert!(any(&|r| r.headers.iter().any(|(_, value)| value.is_none())));
        assert!(records.iter().all(|r| r.value.as_ref().is_none_or(|value| value.len() < 300)));
    }
}
