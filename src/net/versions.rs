//! The versions that a broker speaks, and the one that a request takes.
//!
//! The rule is Kafka's (`NodeApiVersions.java`): the newest version that both sides know, or a clear error.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::Request;

use super::address::BrokerAddress;
use super::error::Error;

/// What a broker answered to ApiVersions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiVersions {
    broker: BrokerAddress,
    ranges: BTreeMap<i16, (i16, i16)>,
}

impl ApiVersions {
    /// From (API key, lowest, highest version) as the broker sent them. A range that is empty is left out; of a key that
    /// stands twice, the last counts.
    pub fn new(broker: BrokerAddress, ranges: impl IntoIterator<Item = (i16, i16, i16)>) -> ApiVersions {
        let ranges = ranges.into_iter().filter(|&(_, min, max)| min <= max && max >= 0);
        ApiVersions { broker, ranges: ranges.map(|(key, min, max)| (key, (min, max))).collect() }
    }

    /// The broker that these are the versions of.
    pub fn broker(&self) -> &BrokerAddress {
        &self.broker
    }

    /// Lowest and highest version of an API; `None` when the broker does not know it.
    pub fn range(&self, api: ApiKey) -> Option<(i16, i16)> {
        self.ranges.get(&(api as i16)).copied()
    }
}

/// The newest version of `R` that the broker, `ours` and the codec have in common.
///
/// # Errors
/// [`Error::Incompatible`] with both ranges when there is none.
pub fn negotiate<R: Request>(versions: &ApiVersions, ours: RangeInclusive<i16>) -> Result<i16, Error> {
    let api = ApiKey::try_from(R::KEY).map_err(|()| Error::Unencodable {
        api: ApiKey::ApiVersions,
        version: *ours.end(),
        reason: format!("the codec has no API {}", R::KEY),
    })?;
    let floor = (*ours.start()).max(R::VERSIONS.min);
    let ceiling = (*ours.end()).min(R::VERSIONS.max);
    let theirs = versions.range(api);
    let common = theirs.map(|(min, max)| (floor.max(min), ceiling.min(max)));
    match common {
        Some((min, max)) if min <= max => Ok(max),
        _ => Err(Error::Incompatible { broker: versions.broker.clone(), api, ours: floor..=ceiling, theirs }),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::MetadataRequest;

    use super::*;

    #[test]
    fn the_newest_common_version_is_taken_or_both_ranges_are_named() {
        let broker = BrokerAddress { host: "b".into(), port: 1, address: "10.0.0.1:1".parse().unwrap() };
        for (theirs, ours, expected) in [
            (Some((0, 12)), 1..=13, Some(12)),
            (Some((0, 99)), 1..=9, Some(9)),
            (Some((0, 99)), 0..=99, Some(13)),
            (Some((5, 5)), 5..=9, Some(5)),
            (Some((0, 3)), 4..=9, None),
            (Some((10, 12)), 4..=9, None),
            (None, 4..=9, None),
            (Some((5, 4)), 0..=9, None),
        ] {
            let ranges = theirs.map(|(min, max)| (ApiKey::Metadata as i16, min, max));
            let versions = ApiVersions::new(broker.clone(), ranges);
            match (negotiate::<MetadataRequest>(&versions, ours.clone()), expected) {
                (Ok(version), Some(expected)) => assert_eq!(version, expected),
                (Err(Error::Incompatible { api, ours: named, .. }), None) => {
                    assert_eq!((api, named), (ApiKey::Metadata, ours));
                }
                (got, expected) => panic!("{theirs:?} and {ours:?}: {got:?}, not {expected:?}"),
            }
        }
    }
}
