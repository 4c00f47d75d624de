//! What is checked of each parser of untrusted bytes. Fuzz targets call these with what the fuzzer makes up, and a test of
//! the workspace with what is kept in `corpus/`; so nothing here needs a fuzzer.
//!
//! A check ends quietly when the bytes are refused, and panics when something that was taken breaks a promise.

mod peers;
mod records;
mod secrets;

pub use peers::{fetch_walker, lease, metadata, produce_response, replies};
pub use records::{broker_append, record_entries};
pub use secrets::{jaas, login, stores, token};

use bytes::Bytes;
use kmirror::config;
use kmirror::mirror::PatternList;
use kmirror::mirror::mm2::formats::{Checkpoint, Heartbeat, OffsetSync};
use kmirror::mirror::state::mm2_offsets::Mm2Offsets;
use kmirror::mirror::state::records::{Decoded, decode};
use kmirror::mirror::takeover::WorkerConfig;

/// A check by the name of its target.
pub type Check = fn(&[u8]);

/// All checks.
pub const CHECKS: [(&str, Check); 15] = [
    ("broker_append", broker_append),
    ("fetch_walker", fetch_walker),
    ("jaas", jaas),
    ("lease", lease),
    ("login", login),
    ("metadata", metadata),
    ("mirror_maker", mirror_maker),
    ("patterns", patterns),
    ("produce_response", produce_response),
    ("properties", properties),
    ("record_entries", record_entries),
    ("replies", replies),
    ("state_records", state_records),
    ("stores", stores),
    ("token", token),
];

/// A `.properties` file: read, judged, and every problem has a place inside it.
pub fn properties(data: &[u8]) {
    let parsed = config::properties::parse(data);
    for entry in &parsed.entries {
        let span = entry.span();
        assert!(span.start <= span.end && span.end <= data.len(), "{span:?}");
    }
    // Config providers are the user's: nothing outside is looked at here.
    if data.windows(2).any(|pair| pair == b"${") {
        return;
    }
    let report = config::load("fuzz.properties", data, &config::Options::default());
    for span in report.problems.iter().filter_map(|problem| problem.span) {
        assert!(report.source.text.get(span.start..span.end).is_some(), "{span:?}");
    }
    let has_error = report.count(config::Severity::Error) > 0;
    assert_eq!(report.settings.is_none(), has_error);
}

/// A record of `mm2-kmirror.<S>.internal`: a key, and behind it a value. What is read is written as it was.
pub fn state_records(data: &[u8]) {
    let Some((&key_bytes, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(key_bytes).min(rest.len()));
    for value in [Some(value), None] {
        match decode(key, value) {
            Ok(Decoded::Known(owner, record)) => {
                let (key, value) = (record.key().encode(&owner), record.encode_value());
                assert_eq!(decode(&key, Some(&value)), Ok(Decoded::Known(owner, record)));
            }
            Ok(Decoded::Removed(owner, key)) => {
                assert_eq!(decode(&key.encode(&owner), None), Ok(Decoded::Removed(owner, key)));
            }
            Ok(Decoded::Unknown(_)) | Err(_) => {}
        }
    }
    let mut offsets = Mm2Offsets::new("MirrorSourceConnector".into(), "A".into());
    offsets.apply(0, 1, &Bytes::copy_from_slice(key), Some(value));
    offsets.apply(0, 2, &Bytes::copy_from_slice(key), None);
    assert!(offsets.newest().count() <= 1);
}

/// A record of MirrorMaker's topics: a key, and behind it a value. What is read is written as it was.
pub fn mirror_maker(data: &[u8]) {
    let Some((&key_bytes, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(key_bytes).min(rest.len()));
    if let Ok(sync) = OffsetSync::decode(key, value) {
        assert_eq!(OffsetSync::decode(&sync.key(), &sync.value()), Ok(sync));
    }
    if let Ok(checkpoint) = Checkpoint::decode(key, value) {
        assert_eq!(Checkpoint::decode(&checkpoint.key(), &checkpoint.value()), Ok(checkpoint));
    }
    if let Ok(heartbeat) = Heartbeat::decode(key, value) {
        assert_eq!(Heartbeat::decode(&heartbeat.key(), &heartbeat.value()), Ok(heartbeat));
    }
    let mut worker_config = WorkerConfig::default();
    worker_config.apply(key, Some(value));
    worker_config.apply(key, None);
}

/// Patterns of `topics`, one on each line, and a name on the last: a match ends, whatever the pattern.
pub fn patterns(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines: Vec<&str> = text.lines().collect();
    let name = lines.pop().unwrap_or_default();
    if let Ok(list) = PatternList::new(&lines) {
        let matched = list.try_matches(name);
        assert_eq!(list.matches(name), matched.unwrap_or(false));
    }
}
