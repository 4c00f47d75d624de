//! Values: comments cut off behind them, and text made into numbers, words, lists and addresses.
//!
//! In a `.properties` file a `#` behind a value belongs to the value, yet users copy files from tutorials that have
//! comments there. They are cut off, before any splitting, where the kind of value makes the meaning certain: at white
//! space and `#` in lists of patterns, and at any `#` where none can be part of the value. Free text and secrets are never
//! cut.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use super::keys::Kind;
use crate::client::HostPort;

/// The most items in a list.
const ITEMS_MAX: usize = 10_000;

/// Where a comment starts behind a value, if the kind of the value allows one.
pub(super) fn comment_start(kind: Kind, value: &str) -> Option<usize> {
    match kind {
        Kind::Text | Kind::Secret => None,
        Kind::List => spaced_hash(value),
        _ => value.find('#'),
    }
}

/// The first `#` that starts the value or follows white space.
pub(super) fn spaced_hash(value: &str) -> Option<usize> {
    let follows_space = |at: usize| value[..at].chars().next_back().is_none_or(char::is_whitespace);
    value.match_indices('#').map(|(at, _)| at).find(|&at| follows_space(at))
}

/// Checks a value of a kind; the error says in words what is wrong.
pub(super) fn check(kind: Kind, value: &str) -> Result<(), String> {
    match kind {
        Kind::Boolean => boolean(value).map(drop),
        Kind::Integer(least, most) => integer(value, least, most).map(drop),
        Kind::Float => {
            value.trim().parse::<f64>().map(drop).map_err(|_| format!("{value:?} is not a number"))
        }
        Kind::Choice(words) => choice(value, words).map(drop),
        Kind::HostPorts => host_ports(value).map(drop),
        Kind::Address => listen(value).map(drop),
        Kind::Size => size(value).map(drop),
        Kind::List | Kind::Aliases if list(value).len() > ITEMS_MAX => {
            Err(format!("more than {ITEMS_MAX} items"))
        }
        Kind::List | Kind::Aliases | Kind::Class | Kind::Text | Kind::Secret => Ok(()),
    }
}

/// `ConfigDef.Type.BOOLEAN`.
pub(super) fn boolean(value: &str) -> Result<bool, String> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{value:?} is neither true nor false")),
    }
}

/// A whole number within limits.
pub(super) fn integer(value: &str, least: i64, most: i64) -> Result<i64, String> {
    let number: i64 = value.trim().parse().map_err(|_| format!("{value:?} is not a whole number"))?;
    if number < least {
        Err(format!("{number} is less than {least}"))
    } else if number > most {
        Err(format!("{number} is more than {most}"))
    } else {
        Ok(number)
    }
}

/// One of some words, in any case.
pub(super) fn choice<'w>(value: &str, words: &[&'w str]) -> Result<&'w str, String> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(value.trim()));
    found.copied().ok_or_else(|| format!("{:?} is not one of {}", value.trim(), words.join(", ")))
}

/// `ConfigDef.Type.LIST`: an empty value is an empty list, and a comma always splits.
pub(super) fn list(value: &str) -> Vec<&str> {
    match value.trim() {
        "" => Vec::new(),
        value => value.split(',').map(str::trim).collect(),
    }
}

/// `bootstrap.servers` (`ClientUtils.parseAndValidateAddresses`): at least one.
pub(super) fn host_ports(value: &str) -> Result<Vec<HostPort>, String> {
    let servers: Vec<HostPort> = list(value)
        .into_iter()
        .filter(|server| !server.is_empty())
        .map(|server| host_port(server).ok_or_else(|| format!("{server:?} is no host:port")))
        .collect::<Result<_, _>>()?;
    if servers.is_empty() { Err("it names no server".to_owned()) } else { Ok(servers) }
}

fn host_port(server: &str) -> Option<HostPort> {
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    let (host, bracketed) = match host.strip_prefix('[') {
        Some(host) => (host.strip_suffix(']')?, true),
        None => (host, false),
    };
    let known =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '%') || (c == ':' && bracketed);
    (!host.is_empty() && host.chars().all(known)).then(|| HostPort { host: host.to_owned(), port })
}

/// The part of a value that is a user and a password in front of an address, with its `@`. In a list of `addresses` nothing
/// else can hold an `@`, and the password may have a comma or a `#`; elsewhere an item must look like such an address.
pub(super) fn login_in(value: &str, addresses: bool) -> Option<Range<usize>> {
    let mut start = 0;
    for item in value.split(',') {
        if addresses {
            let address = item[..item.find('#').unwrap_or(item.len())].trim();
            if !address.is_empty() && host_port(address).is_none() {
                let at = value.rfind('@').filter(|&at| at > start)?;
                return value[start..at].contains(':').then_some(0..at + 1);
            }
            if item.contains('#') {
                return None;
            }
        } else if let Some((login, address)) = item.rsplit_once('@') {
            let name = login.split_once("://").map_or(login, |(_, login)| login);
            if name.contains(':') && host_port(address.trim()).is_some() {
                return Some(start..start + login.len() + 1);
            }
        }
        start += item.len() + 1;
    }
    None
}

/// `kmirror.admin.listen`: an address with its port; `None` for `none`.
pub(super) fn listen(value: &str) -> Result<Option<SocketAddr>, String> {
    let value = value.trim();
    if value.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let local = |host: &str| match host {
        "" => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => None,
    };
    let named = value
        .rsplit_once(':')
        .and_then(|(host, port)| Some(SocketAddr::new(local(host)?, port.parse().ok()?)));
    let address = value.parse().ok().or(named);
    address
        .map(Some)
        .ok_or_else(|| format!("{value:?} is neither an address with its port, as 127.0.0.1:9464, nor none"))
}

/// A number of bytes: plain, or with KB, MB, GB (thousands) or KiB, MiB, GiB.
pub(super) fn size(value: &str) -> Result<usize, String> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let unit: usize = match value[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err(format!("{value:?} is no number of bytes, as 134217728 or 128MiB")),
    };
    let number: Option<usize> = value[..digits].parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("{value:?} is no number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_cut_where_the_kind_allows_it() {
        for (kind, value, kept) in [
            (Kind::Aliases, "A, B# cluster A follows", "A, B"),
            (Kind::HostPorts, "b1:9092,b2:9092# one way: A -> B", "b1:9092,b2:9092"),
            (Kind::Boolean, "true # on", "true "),
            (Kind::Integer(0, 9), "5#five", "5"),
            (Kind::Choice(&["all"]), "all# safe", "all"),
            (Kind::Class, "a.B # x", "a.B "),
            (Kind::List, "orders, payments   # topics, or a pattern", "orders, payments   "),
            (Kind::List, "a#b, c#d", "a#b, c#d"),
            (Kind::List, "# nothing", ""),
            (Kind::Secret, "pass # word", "pass # word"),
            (Kind::Text, "text # more", "text # more"),
        ] {
            let end = comment_start(kind, value).unwrap_or(value.len());
            assert_eq!(&value[..end], kept, "{kind:?}");
        }
    }

    #[test]
    fn values_are_checked_by_kind() {
        for (kind, good, bad) in [
            (Kind::Boolean, &["true", " FALSE "][..], &["", "yes", "1"][..]),
            (Kind::Integer(-1, 5), &["-1", " 5 "], &["-2", "6", "1.0", "", "x"]),
            (Kind::Choice(&["a", "b"]), &["a", " B"], &["c", ""]),
            (
                Kind::HostPorts,
                &["a:1", "a:1, [::1]:2", "PLAINTEXT://a_b.c:9092", "a:1,"],
                &["", "a", "a:0", "a:70000", "::1:9", "a b:1", ":9"],
            ),
            (
                Kind::Address,
                &["none", "127.0.0.1:0", "[::1]:9464", "localhost:1", ":9464"],
                &["9464", "host:1", ""],
            ),
            (Kind::Size, &["1", "128MiB", "64 mb", "1g"], &["", "-1", "1.5g", "1tb", "99999999999999999999"]),
            (Kind::Float, &["0.8"], &["x"]),
        ] {
            for value in good {
                assert_eq!(check(kind, value), Ok(()), "{kind:?} {value:?}");
            }
            for value in bad {
                assert!(check(kind, value).is_err(), "{kind:?} {value:?}");
            }
        }
    }

    #[test]
    fn logins_in_addresses_are_found() {
        for (value, addresses, login) in [
            ("u:p@h:1", true, "u:p@"),
            ("SASL_SSL://u:p@h:1", true, "SASL_SSL://u:p@"),
            ("a:1, u:p,w#x@y@h:1", true, "a:1, u:p,w#x@y@"),
            ("u:p@h", true, "u:p@"),
            ("a:1, b:2", true, ""),
            ("a:1 # ask me: x@y.z", true, ""),
            ("u@h:1", true, ""),
            ("u:p", true, ""),
            ("http://u:p@proxy:3128", false, "http://u:p@"),
            ("x,u:p@h:1", false, "u:p@"),
            ("User:a@EXAMPLE.COM", false, ""),
            ("a@b:1", false, ""),
        ] {
            let found = login_in(value, addresses).map_or("", |range| &value[range]);
            assert_eq!(found, login, "{value}");
        }
    }

    #[test]
    fn lists_split_at_every_comma() {
        assert_eq!(list(" a ,b{1, 2},"), ["a", "b{1", "2}", ""]);
        assert_eq!(list("  "), [""; 0]);
    }

    #[test]
    fn servers_keep_their_order_and_brackets_go() {
        let servers = host_ports("SSL://a:1,[::1]:2").unwrap();
        assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "[::1]:2"]);
        assert_eq!(servers[1].host, "::1");
        assert_eq!(listen(":7").unwrap().unwrap().to_string(), "0.0.0.0:7");
        assert_eq!(size("128MiB"), Ok(134_217_728));
    }
}
