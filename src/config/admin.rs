//! `kmirror.admin.*`: where `/metrics` and its like are served, to whom, and whether over TLS.
//!
//! On loopback everybody is answered. Bound wider, what topics, groups and addresses there are is told to whoever shows a token
//! or a password, and to everybody only if the file says so by name.

use std::path::PathBuf;
use std::sync::Arc;

use super::providers::Outside;
use super::reader::{Fallback, Reader};
use super::scoping::{Scope, Setting};
use super::security::{read_identity, secret, setting_of};
use super::values;
use crate::net::tls::ServerTls;
use crate::observe::{Access, AdminListen, Settings};

const LISTEN: &str = "kmirror.admin.listen";
const PREFIX: &str = "kmirror.admin.";
const EVERYWHERE: &str = "on all addresses of this machine; write 127.0.0.1 in front for this machine alone, or 0.0.0.0 to \
    mean all";

/// Reads the settings of the admin listener.
pub(super) fn read(reader: &mut Reader<'_>, outside: &Outside<'_>) -> Settings {
    let listen = |value: &str| Ok(values::listen(value)?.map_or(AdminListen::Off, AdminListen::Named));
    let shown = AdminListen::DEFAULT.to_string();
    let admin_listen = reader.parse(LISTEN, Fallback::Theirs(&shown), AdminListen::Default, listen);
    let named = reader.scope.get(LISTEN).filter(|setting| setting.value.trim().starts_with(':')).cloned();
    if let Some(setting) = named {
        reader.warning(&setting, format!("{LISTEN}: {} listens {EVERYWHERE}", setting.shown.trim()));
    }
    let access = read_access(reader, outside);
    let tls = read_tls(reader, outside);
    let is_open = setting_of(reader, "kmirror.admin.anonymous")
        .is_some_and(|setting| values::boolean(&setting.value).unwrap_or(false));
    if let (AdminListen::Named(address), Some(setting)) = (admin_listen, reader.scope.get(LISTEN).cloned())
        && !address.ip().is_loopback()
    {
        match (&access, &tls) {
            (Access::Anybody, _) if !is_open => {
                let message = format!(
                    "{LISTEN} = {address} would tell everybody on the network about topics and groups"
                );
                let help = "set kmirror.admin.bearer.token.file or kmirror.admin.basic.users.file, and \
                    kmirror.admin.ssl.keystore.location; or kmirror.admin.anonymous = true if others keep strangers away";
                reader.error(&setting, message, Some(help));
            }
            (Access::Bearer(_) | Access::Basic(_), None) => {
                let message = format!(
                    "{LISTEN} = {address} is without TLS: what lets people in crosses the network in the clear; set \
                     kmirror.admin.ssl.keystore.location"
                );
                reader.warning(&setting, message);
            }
            _ => {}
        }
    }
    Settings { admin_listen, access, tls }
}

fn read_access(reader: &mut Reader<'_>, outside: &Outside<'_>) -> Access {
    let bearer = setting_of(reader, "kmirror.admin.bearer.token.file");
    let basic = setting_of(reader, "kmirror.admin.basic.users.file");
    for (setting, wants) in [(&bearer, "tokens, one a line"), (&basic, "user:password, one a line")] {
        let Some(setting) = setting else { continue };
        let path = PathBuf::from(setting.value.trim());
        if let Err(error) = (outside.read)(&path) {
            let message = format!("{} cannot be read: {error}", path.display());
            reader.error(setting, message, Some(&format!("it holds {wants}")));
        }
    }
    let path = |setting: &Setting| PathBuf::from(setting.value.trim());
    match (&bearer, &basic) {
        (Some(_), Some(basic)) => {
            let message = "kmirror.admin.bearer.token.file and kmirror.admin.basic.users.file are both set";
            reader.error(basic, message.to_owned(), Some("leave one of them out"));
            Access::Anybody
        }
        (Some(bearer), None) => Access::Bearer(path(bearer)),
        (None, Some(basic)) => Access::Basic(path(basic)),
        (None, None) => Access::Anybody,
    }
}

/// The keys of a key store behind a prefix of their own, read as those of a cluster are.
fn read_tls(reader: &mut Reader<'_>, outside: &Outside<'_>) -> Option<Arc<ServerTls>> {
    let keys = reader.scope.iter().filter_map(|(key, setting)| Some((key.strip_prefix(PREFIX)?, setting)));
    let scope: Scope = keys
        .filter(|(key, _)| key.starts_with("ssl."))
        .map(|(key, setting)| (key.to_owned(), setting.clone()))
        .collect();
    let place = scope.get("ssl.keystore.location").cloned()?;
    let mut inner = reader.on(&scope, PREFIX);
    let identity = read_identity(&mut inner)?;
    let key_password = secret(&mut inner, "ssl.key.password");
    let tls = ServerTls::new(identity, key_password);
    if let Err(error) = tls.load(outside.read) {
        reader.error(&place, error.to_string(), None);
        return None;
    }
    Some(Arc::new(tls))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::config::{Options, Report, Severity, load};

    const FILE: &str =
        "clusters=A,B\nA.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\nA->B.enabled=true\n";

    fn loaded(lines: &str, pem: &str) -> Report {
        let read = |path: &Path| match path.to_str() {
            Some("/users") => Ok(b"prometheus:s3cret\n".to_vec()),
            Some("/tokens") => Ok(b"s3cret\n".to_vec()),
            Some("/k.pem") => Ok(pem.as_bytes().to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let outside = Outside { env: &|_| None, read: &read };
        let options = Options { clusters: &[], takeover_timeout: Duration::ZERO, outside };
        load("f", format!("{FILE}{lines}").as_bytes(), &options)
    }

    #[test]
    fn a_wide_bind_wants_to_know_who_asks() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
        let wide = "kmirror.admin.listen=0.0.0.0:9464\n";
        let tls = "kmirror.admin.ssl.keystore.type=PEM\nkmirror.admin.ssl.keystore.location=/k.pem\n";
        let tokens = "kmirror.admin.bearer.token.file=/tokens\n";
        for (lines, error, warning) in [
            (String::new(), None, None),
            ("kmirror.admin.listen=127.0.0.1:1".to_owned(), None, None),
            (wide.to_owned(), Some("would tell everybody on the network"), None),
            (format!("{wide}{tls}"), Some("would tell everybody on the network"), None),
            (format!("{wide}kmirror.admin.anonymous=true"), None, None),
            (format!("{wide}{tokens}"), None, Some("is without TLS")),
            (format!("{wide}{tls}{tokens}"), None, None),
            (format!("{wide}{tls}kmirror.admin.basic.users.file=/users"), None, None),
            (format!("{tokens}kmirror.admin.basic.users.file=/users"), Some("are both set"), None),
            ("kmirror.admin.bearer.token.file=/none".to_owned(), Some("/none cannot be read"), None),
            (
                "kmirror.admin.ssl.keystore.type=PEM\nkmirror.admin.ssl.keystore.location=/none".to_owned(),
                Some("/none): it cannot be read"),
                None,
            ),
        ] {
            let report = loaded(&lines, &pem);
            let of = |severity| {
                let problems = report.problems.iter().filter(|problem| problem.severity == severity);
                problems.map(|problem| problem.message.clone()).collect::<Vec<_>>()
            };
            for (severity, wanted) in [(Severity::Error, error), (Severity::Warning, warning)] {
                let found = of(severity);
                let is_as_wanted = match wanted {
                    Some(words) => found.iter().any(|message| message.contains(words)),
                    None => found.is_empty(),
                };
                assert!(is_as_wanted, "{lines}: {found:?}");
            }
            assert!(!format!("{report:?}").contains("s3cret"));
            if let Some(settings) = report.settings {
                assert_eq!(settings.observe.tls.is_some(), lines.contains("ssl"), "{lines}");
                assert_eq!(settings.observe.access != Access::Anybody, lines.contains("file="), "{lines}");
            }
        }
    }
}
