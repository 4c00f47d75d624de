//! Whether a key of a file is known where it stands, and if not, what the user may have meant.
//!
//! A key that MirrorMaker knows but does not read in that place is the most common mistake in its files, and it makes no
//! word about it; here each says where it would have to stand.

use super::keys::{self, ClientKey, Effect, Home, Kind};
use super::misnamed;

/// What there is to say about a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is known here.
    Known(Kind, Effect),
    /// It is known, but MirrorMaker does not read it here.
    Misplaced(Kind, String),
    /// It would change what is replicated in a way that is not possible here.
    Refused(String),
    /// It names a cluster that is not in `clusters`.
    UnknownCluster(String),
    /// Nobody knows it; the key that is nearest to it.
    Unknown(Option<String>),
}

/// The key that is meant by one that nobody knows, with its prefix.
pub(super) fn meant(key: &str, clusters: &[String]) -> Option<String> {
    let (_, rest) = locate(key, clusters).ok()?;
    let prefix = key.strip_suffix(rest)?;
    let meant = misnamed::meant(rest)?;
    let known = |key: &str| matches!(classify(key, clusters), Verdict::Known(..));
    let whole = format!("{prefix}{meant}");
    (!known(key) && known(&whole)).then_some(whole)
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    Top,
    Cluster(&'a str),
    Flow(&'a str, &'a str),
}

const CLIENTS: [&str; 3] = ["consumer", "producer", "admin"];

/// Judges a key of the file.
pub(super) fn classify(key: &str, clusters: &[String]) -> Verdict {
    match locate(key, clusters) {
        Err(cluster) => Verdict::UnknownCluster(cluster),
        Ok((Place::Top, key)) => at_top(key, clusters),
        Ok((Place::Cluster(alias), key)) => of_cluster(alias, key),
        Ok((Place::Flow(source, target), key)) => of_flow(source, target, key),
    }
}

fn locate<'a>(key: &'a str, clusters: &'a [String]) -> Result<(Place<'a>, &'a str), String> {
    let after = |text: &'a str| {
        let rests = clusters
            .iter()
            .filter_map(|alias| Some((alias, text.strip_prefix(alias.as_str())?.strip_prefix('.')?)));
        rests.max_by_key(|(alias, _)| alias.len())
    };
    if let Some((source, rest)) = key.split_once("->") {
        if !clusters.iter().any(|alias| alias == source) {
            return Err(source.to_owned());
        }
        let Some((target, rest)) = after(rest) else {
            return Err(rest.split('.').next().unwrap_or(rest).to_owned());
        };
        return Ok((Place::Flow(source, target), rest));
    }
    match after(key) {
        Some((alias, rest)) if keys::find(key).is_none() => Ok((Place::Cluster(alias), rest)),
        _ => Ok((Place::Top, key)),
    }
}

fn at_top(key: &str, clusters: &[String]) -> Verdict {
    let example = clusters.first().map_or("A", String::as_str);
    let target = clusters.last().map_or("B", String::as_str);
    if let Some(known) = keys::find(key) {
        return match known.home {
            Home::Top | Home::Connector => Verdict::Known(known.kind, known.effect),
            Home::Worker if keys::reaches_worker(key) => Verdict::Known(known.kind, known.effect),
            Home::Worker => misplaced(known.kind, &format!("{target}.{key}")),
            Home::Flow => misplaced(known.kind, &format!("{example}->{target}.{key}")),
        };
    }
    if let Some(client) = keys::find_client(key) {
        return if keys::is_cluster_wide(key) {
            Verdict::Known(client.kind, client.effect)
        } else {
            let home = home_of(client, key);
            let alias = if home.starts_with("producer.") { target } else { example };
            misplaced_client(client, &format!("{alias}.{home}"))
        };
    }
    if key.starts_with("transforms.") || key.starts_with("predicates.") {
        return misplaced(Kind::Text, &format!("{example}->{target}.{key}"));
    }
    if let Some(verdict) = family(key) {
        return verdict;
    }
    if let Some((client, rest)) = client_prefix(key) {
        return match known_client(client, rest) {
            Some((kind, _)) => {
                let alias = if client == "producer" { target } else { example };
                misplaced(kind, &format!("{alias}.{key}"))
            }
            None => unknown_client_key(client, rest, ""),
        };
    }
    match key.split_once('.').filter(|(_, rest)| rest.ends_with("bootstrap.servers")) {
        Some((alias, _)) => Verdict::UnknownCluster(alias.to_owned()),
        None => {
            let wide = |client: &ClientKey| keys::is_cluster_wide(client.name);
            Verdict::Unknown(nearest(key, "", &[Home::Top, Home::Connector, Home::Worker], wide))
        }
    }
}

fn of_cluster(alias: &str, key: &str) -> Verdict {
    if let Some(known) = keys::find(key) {
        let converter = key.ends_with(".converter");
        return match known.home {
            Home::Worker => Verdict::Known(known.kind, known.effect),
            Home::Connector if converter => Verdict::Known(known.kind, known.effect),
            Home::Connector | Home::Flow if key == "metric.reporters" => {
                Verdict::Known(known.kind, known.effect)
            }
            Home::Connector | Home::Flow => misplaced(known.kind, &format!("SOURCE->{alias}.{key}")),
            Home::Top => for_process(key),
        };
    }
    if let Some(client) = keys::find_client(key) {
        return if client.connection || keys::is_cluster_wide(key) || client.is_of("admin") {
            Verdict::Known(client.kind, client.effect_of("admin"))
        } else {
            misplaced_client(client, &format!("{alias}.{}", home_of(client, key)))
        };
    }
    if let Some((client, rest)) = client_prefix(key) {
        if rest == "bootstrap.servers" {
            return one_address(alias);
        }
        return match known_client(client, rest) {
            Some((kind, effect)) => Verdict::Known(kind, effect),
            None => unknown_client_key(client, rest, &format!("{alias}.")),
        };
    }
    let taken = |client: &ClientKey| client.connection || keys::is_cluster_wide(client.name);
    family(key)
        .unwrap_or_else(|| Verdict::Unknown(nearest(key, &format!("{alias}."), &[Home::Worker], taken)))
}

fn of_flow(source: &str, target: &str, key: &str) -> Verdict {
    let flow = format!("{source}->{target}.");
    if let Some(known) = keys::find(key) {
        return match known.home {
            Home::Connector | Home::Flow => Verdict::Known(known.kind, known.effect),
            Home::Worker => misplaced(known.kind, &format!("{target}.{key}")),
            Home::Top => for_process(key),
        };
    }
    if let Some(rest) = key.strip_prefix("producer.override.") {
        return match known_client("producer", rest) {
            Some((kind, _)) if is_connection(rest) => shared_connection(kind, target, rest),
            Some((kind, effect)) => Verdict::Known(kind, effect),
            None => unknown_client_key("producer", rest, &format!("{flow}producer.override.")),
        };
    }
    let sides = [("source.", source), ("target.", target)];
    let side = sides.into_iter().find_map(|(side, alias)| Some((side, alias, key.strip_prefix(side)?)));
    if let Some((_, alias, rest)) = side
        && let Some(rest) = rest.strip_prefix("cluster.")
        && let Some(client) = keys::find_client(rest)
    {
        return shared_connection(client.kind, alias, rest);
    }
    if let Some((client, rest)) = client_prefix(side.map_or(key, |(.., rest)| rest)) {
        let alias = side.map_or(source, |(_, alias, _)| alias);
        return match known_client(client, rest) {
            Some((kind, _)) if is_connection(rest) => shared_connection(kind, alias, rest),
            Some((kind, _)) if client == "producer" => Verdict::Misplaced(
                kind,
                format!(
                    "MirrorMaker uses it for offset syncs only; for the data write {target}.producer.{rest} or \
                     {flow}producer.override.{rest}"
                ),
            ),
            Some((kind, effect)) => Verdict::Known(kind, effect),
            None => unknown_client_key(client, rest, &flow),
        };
    }
    if let Some(client) = keys::find_client(key) {
        return match home_of(client, key).split_once('.') {
            _ if is_connection(key) => shared_connection(client.kind, source, key),
            Some(("producer", _)) => misplaced_client(client, &format!("{flow}producer.override.{key}")),
            _ => misplaced_client(client, &format!("{flow}source.consumer.{key}")),
        };
    }
    match family(key) {
        Some(verdict) => verdict,
        None => Verdict::Unknown(nearest(key, &flow, &[Home::Connector, Home::Flow], |_| false)),
    }
}

/// The key as one client of a cluster takes it, or bare when all of them do.
fn home_of(client: &ClientKey, key: &str) -> String {
    let takes = |name: &&str| client.is_of(name) && client.effect_of(name) == client.effect;
    let takers: Vec<&str> = CLIENTS.into_iter().filter(takes).collect();
    match takers[..] {
        [only] => format!("{only}.{key}"),
        _ => key.to_owned(),
    }
}

fn misplaced(kind: Kind, instead: &str) -> Verdict {
    Verdict::Misplaced(kind, format!("MirrorMaker does not read it here; write {instead}"))
}

/// What has no effect in any place is not worth moving.
fn misplaced_client(client: &ClientKey, instead: &str) -> Verdict {
    match client.effect {
        Effect::Used => misplaced(client.kind, instead),
        effect => Verdict::Known(client.kind, effect),
    }
}

fn for_process(key: &str) -> Verdict {
    Verdict::Refused(format!("{key} holds for the whole process: write it without a prefix"))
}

fn one_address(alias: &str) -> Verdict {
    Verdict::Refused(format!("all connections to a cluster go by one list: write {alias}.bootstrap.servers"))
}

fn is_connection(key: &str) -> bool {
    keys::find_client(key).is_some_and(|client| client.connection)
}

fn shared_connection(kind: Kind, alias: &str, key: &str) -> Verdict {
    match key {
        "bootstrap.servers" => one_address(alias),
        _ if !is_connection(key) => {
            Verdict::Known(kind, keys::find_client(key).map_or(Effect::Used, |key| key.effect))
        }
        _ => Verdict::Misplaced(
            kind,
            format!("connections to a cluster are shared by its flows; write {alias}.{key}"),
        ),
    }
}

fn client_prefix(key: &str) -> Option<(&str, &str)> {
    key.split_once('.').filter(|(client, _)| CLIENTS.contains(client))
}

fn known_client(client: &str, key: &str) -> Option<(Kind, Effect)> {
    let named = keys::find_client(key).filter(|known| known.is_of(client));
    let named = named.map(|known| (known.kind, known.effect_of(client)));
    let by_family = || keys::CLIENT_FAMILIES.iter().find(|(prefix, _)| key.starts_with(prefix));
    named.or_else(|| by_family().map(|&(_, effect)| (Kind::Text, effect)))
}

fn family(key: &str) -> Option<Verdict> {
    let client =
        keys::CLIENT_FAMILIES.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|&(_, effect)| effect);
    let effect = keys::family(key).map(|(_, effect)| effect).or(client)?;
    let kind = if keys::is_secret(key) { Kind::Secret } else { Kind::Text };
    Some(Verdict::Known(kind, effect))
}

fn unknown_client_key(client: &str, key: &str, prefix: &str) -> Verdict {
    let names = keys::CLIENT_KEYS.iter().filter(|known| known.is_of(client)).map(|known| known.name);
    let dotted = if prefix.ends_with("override.") { String::new() } else { format!("{client}.") };
    Verdict::Unknown(closest(key, names).map(|name| format!("{prefix}{dotted}{name}")))
}

/// Among the keys of these homes, and those of Kafka's clients that are `taken` bare.
fn nearest(key: &str, prefix: &str, homes: &[Home], taken: fn(&ClientKey) -> bool) -> Option<String> {
    let names = keys::KEYS.iter().filter(|known| homes.contains(&known.home)).map(|known| known.name);
    let clients = keys::CLIENT_KEYS.iter().filter(move |known| taken(known)).map(|known| known.name);
    closest(key, names.chain(clients)).map(|name| format!("{prefix}{name}"))
}

/// The name with a letter to change, or else the shortest that goes on where `key` ends, or else one with a few changes.
pub(super) fn closest<'n>(key: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    let dotted = format!("{key}.");
    let continued = names.clone().filter(|name| name.starts_with(&dotted)).min_by_key(|name| name.len());
    let limit = (key.len() / 4).clamp(1, 4);
    let (changes, near) = names.map(|name| (distance(key, name), name)).min()?;
    match continued {
        Some(continued) if changes > 1 => Some(continued),
        _ => (changes <= limit).then_some(near),
    }
}

/// Letters to insert, delete, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    const LENGTH_MAX: usize = 128;
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().max(right.len()) > LENGTH_MAX || left.len().abs_diff(right.len()) > 4 {
        return usize::MAX;
    }
    let width = right.len() + 1;
    let mut table: Vec<usize> = (0..width).collect();
    for i in 1..=left.len() {
        table.push(i);
        for j in 1..=right.len() {
            let at = i * width + j;
            let same = usize::from(left[i - 1] != right[j - 1]);
            let mut best = (table[at - width] + 1).min(table[at - 1] + 1).min(table[at - width - 1] + same);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                best = best.min(table[at - 2 * width - 2] + 1);
            }
            table.push(best);
        }
    }
    table[left.len() * width + right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(key: &str) -> Verdict {
        classify(key, &["A".to_owned(), "B".to_owned(), "eu.west".to_owned()])
    }

    #[test]
    fn keys_are_known_where_mirrormaker_reads_them() {
        for key in [
            "clusters",
            "topics",
            "A->B.topics",
            "A->eu.west.topics",
            "eu.west.bootstrap.servers",
            "security.protocol",
            "A.ssl.truststore.location",
            "A.consumer.fetch.min.bytes",
            "A->B.consumer.isolation.level",
            "A->B.source.consumer.isolation.level",
            "B.producer.acks",
            "A->B.producer.override.acks",
            "tasks.max",
            "B.offset.flush.interval.ms",
            "offset.storage.replication.factor",
            "B.offset.storage.segment.bytes",
            "A.client.dns.lookup",
            "A.group.id",
            "A->B.kmirror.batching",
            "kmirror.batching",
            "kmirror.admin.listen",
            "config.providers.file.class",
            "A->B.transforms.x.type",
            "A.sasl.oauthbearer.scope",
            "A.retries",
            "B.key.converter",
            "A->B.use.defaults.from",
            "admin.timeout.ms",
            "consumer.poll.timeout.ms",
        ] {
            assert!(matches!(verdict(key), Verdict::Known(..)), "{key}: {:?}", verdict(key));
        }
    }

    #[test]
    fn keys_in_the_wrong_place_are_shown_the_right_one() {
        for (key, instead) in [
            ("client.dns.lookup", "A.client.dns.lookup"),
            ("acks", "eu.west.producer.acks"),
            ("compression.type", "eu.west.producer.compression.type"),
            ("fetch.min.bytes", "A.consumer.fetch.min.bytes"),
            ("consumer.fetch.min.bytes", "A.consumer.fetch.min.bytes"),
            ("A.fetch.min.bytes", "A.consumer.fetch.min.bytes"),
            ("offset.flush.interval.ms", "eu.west.offset.flush.interval.ms"),
            ("A->B.offset.flush.interval.ms", "B.offset.flush.interval.ms"),
            ("use.defaults.from", "A->eu.west.use.defaults.from"),
            ("A.topics", "SOURCE->A.topics"),
            ("A->B.producer.max.request.size", "B.producer.max.request.size"),
            ("A->B.target.producer.linger.ms", "B.producer.linger.ms"),
            ("A->B.source.consumer.request.timeout.ms", "A.request.timeout.ms"),
            ("A->B.isolation.level", "A->B.source.consumer.isolation.level"),
        ] {
            let Verdict::Misplaced(_, message) = verdict(key) else { panic!("{key}: {:?}", verdict(key)) };
            assert!(message.contains(&format!("write {instead}")), "{key}: {message}");
        }
    }

    #[test]
    fn unknown_keys_get_the_nearest_known_one() {
        for (key, nearest) in [
            ("A->B.sync.topic.configs", Some("A->B.sync.topic.configs.enabled")),
            ("A->B.enable", Some("A->B.enabled")),
            ("A->B.topic", Some("A->B.topics")),
            ("emit.heartbeats", Some("emit.heartbeats.enabled")),
            ("tpoics", Some("topics")),
            ("A.consumer.fetch.min.byte", Some("A.consumer.fetch.min.bytes")),
            ("A->B.producer.override.ack", Some("A->B.producer.override.acks")),
            ("kmirror.memory.budgt", Some("kmirror.memory.budget")),
            ("A.ssl.truststore.locaton", Some("A.ssl.truststore.location")),
            ("ssl.keystore.pasword", Some("ssl.keystore.password")),
            ("A.sasl.mechansim", Some("A.sasl.mechanism")),
            ("B.sasl.jaas.conf", Some("B.sasl.jaas.config")),
            ("eu.west.securty.protocol", Some("eu.west.security.protocol")),
            ("A.boostrap.servers", Some("A.bootstrap.servers")),
            ("A.consumer.ssl.truststore.pasword", Some("A.consumer.ssl.truststore.password")),
            ("something.else.entirely", None),
            ("A->B.rewrite.topics", None),
        ] {
            assert_eq!(verdict(key), Verdict::Unknown(nearest.map(str::to_owned)), "{key}");
        }
    }

    #[test]
    fn clusters_that_are_not_listed_are_named() {
        for (key, cluster) in [("C.bootstrap.servers", "C"), ("A->C.enabled", "C"), ("C->B.topics", "C")] {
            assert_eq!(verdict(key), Verdict::UnknownCluster(cluster.to_owned()));
        }
    }

    #[test]
    fn what_cannot_differ_is_refused() {
        for key in [
            "A->B.kmirror.admin.listen",
            "A.kmirror.memory.budget",
            "A.consumer.bootstrap.servers",
            "A->B.source.cluster.bootstrap.servers",
        ] {
            assert!(matches!(verdict(key), Verdict::Refused(_)), "{key}");
        }
    }
}
