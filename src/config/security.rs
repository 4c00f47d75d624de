//! `security.protocol` and `ssl.*` of one cluster, with the rules of Kafka's own reader (`DefaultSslEngineFactory.java`);
//! `sasl.*` is next door.
//!
//! Stores are read here already, so that one that cannot be used is a problem of the file like others. Secrets go from the
//! file into [`Secret`] and are in no message.

use super::problem::Problem;
use super::providers::Outside;
use super::reader::{Fallback, Reader};
use super::sasl;
use super::scoping::Setting;
use super::values;
use crate::net::tls::{
    CIPHER_SUITES, Identification, Place, Protocol, Role, Store, StoreKind, Tls, TlsSettings,
};
use crate::net::{Secret, Security};

const PROTOCOLS: [(&str, (Wants, Wants)); 4] = [
    ("PLAINTEXT", (Wants::Not, Wants::Not)),
    ("SSL", (Wants::It, Wants::Not)),
    ("SASL_PLAINTEXT", (Wants::Not, Wants::It)),
    ("SASL_SSL", (Wants::It, Wants::It)),
];
const DEFAULT_ENGINE: &str = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory";

/// Whether a protocol has TLS or SASL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    It,
    Not,
}

/// Reads what belongs to the connections of the cluster `alias`.
pub(super) fn read(reader: &mut Reader<'_>, alias: &str, outside: &Outside<'_>) -> Security {
    let wanted =
        reader.choice("security.protocol", &PROTOCOLS.map(|(name, wants)| (name, Some(wants))), "PLAINTEXT");
    if let Some((tls, sasl)) = wanted.flatten() {
        warn_of_idle(reader, alias, tls, sasl);
    }
    let (tls, sasl) = wanted.flatten().unwrap_or((Wants::Not, Wants::Not));
    Security {
        tls: (tls == Wants::It).then(|| read_tls(reader, outside).into()),
        sasl: if sasl == Wants::It { sasl::read(reader, alias, tls, outside).map(Into::into) } else { None },
    }
}

/// Whoever writes credentials or stores for a cluster has forgotten to say that they are to be used; Kafka is silent there.
/// What stands for all clusters is meant for those that use it.
fn warn_of_idle(reader: &mut Reader<'_>, alias: &str, tls: Wants, sasl: Wants) {
    const SASL_KEYS: [&str; 3] = ["sasl.jaas.config", "sasl.username", "sasl.mechanism"];
    const TLS_KEYS: [&str; 4] = [
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.key",
    ];
    let sasl_help = if tls == Wants::It { "SASL_SSL" } else { "SASL_SSL or SASL_PLAINTEXT" };
    let tls_help = if sasl == Wants::It { "SASL_SSL" } else { "SSL (with sasl.*, SASL_SSL)" };
    for (wants, keys, help) in [(sasl, &SASL_KEYS[..], sasl_help), (tls, &TLS_KEYS[..], tls_help)] {
        let own = |key: &&str| {
            let setting = reader.scope.get(*key)?;
            reader.entries[setting.entry].key.starts_with(&format!("{alias}.")).then(|| setting.clone())
        };
        let Some((key, setting)) = keys.iter().find_map(|key| Some((key, own(key)?))) else { continue };
        if wants == Wants::Not {
            let message = format!("{alias}.{key} has no effect under the security.protocol of {alias}");
            let help = format!("write {alias}.security.protocol = {help}");
            reader.problems.push(Problem::warning(message).at(reader.span(&setting)).help(help));
        }
    }
}

/// A part of a flow that asks for another protocol than its cluster has: nothing is dialled without what the file asks for.
pub(super) fn refuse_other(
    reader: &mut Reader<'_>,
    asked: Option<&Setting>,
    cluster: Option<&Setting>,
    alias: &str,
) {
    let Some(asked) = asked else { return };
    let has = cluster.map_or("PLAINTEXT", |setting| setting.value.trim());
    if !asked.value.trim().eq_ignore_ascii_case(has) {
        let message = format!(
            "connections to the cluster {alias} are shared by its flows: they cannot be {} here and {has} elsewhere",
            asked.shown.trim()
        );
        reader.error(asked, message, Some(&format!("write {alias}.security.protocol")));
    }
}

pub(super) fn read_tls(reader: &mut Reader<'_>, outside: &Outside<'_>) -> Tls {
    let engine = reader.scope.get("ssl.engine.factory.class").cloned();
    if let Some(engine) = engine.filter(|engine| engine.value.trim() != DEFAULT_ENGINE) {
        let message = format!("the ssl.engine.factory.class {} is Java, which cannot run here", engine.shown);
        reader.error(&engine, message, Some("leave it out"));
    }
    let trust = read_trust(reader);
    let identity = read_identity(reader);
    let key_password = secret(reader, "ssl.key.password");
    let tls = Tls::new(TlsSettings {
        trust,
        identity,
        key_password,
        identification: read_identification(reader),
        protocols: read_protocols(reader),
        cipher_suites: read_cipher_suites(reader),
    });
    if let Err(error) = tls.load(outside.read) {
        let keys = match error.role {
            Role::Trust => ["ssl.truststore.location", "ssl.truststore.certificates"],
            Role::Identity => ["ssl.keystore.location", "ssl.keystore.key"],
        };
        let setting = keys.iter().find_map(|key| reader.scope.get(*key)).cloned();
        let setting = setting.or_else(|| reader.scope.get("security.protocol").cloned());
        if let Some(setting) = setting {
            reader.error(&setting, error.to_string(), None);
        }
    }
    tls
}

fn read_trust(reader: &mut Reader<'_>) -> Option<Store> {
    let kind = store_kind(reader, "ssl.truststore.type");
    let location = reader.get("ssl.truststore.location", Fallback::Theirs("the system's"));
    let password = setting_of(reader, "ssl.truststore.password");
    let certificates = setting_of(reader, "ssl.truststore.certificates");
    let mut refuse = |setting: &Setting, message: &str| reader.error(setting, message.to_owned(), None);
    match (&certificates, &location) {
        (Some(certificates), _) => {
            match (&password, &location) {
                (_, Some(location)) => {
                    refuse(location, "ssl.truststore.location and ssl.truststore.certificates are both set");
                }
                (Some(password), _) => refuse(password, "ssl.truststore.certificates have no password"),
                _ if kind != StoreKind::Pem => {
                    let help = "write ssl.truststore.type = PEM";
                    reader.error(certificates, "ssl.truststore.certificates are PEM".to_owned(), Some(help));
                }
                _ => {}
            }
            Some(inline(&[certificates]))
        }
        (None, Some(location)) => {
            if let (Some(password), StoreKind::Pem) = (&password, kind) {
                refuse(password, "a PEM trust store has no password");
            }
            Some(file(kind, location, password.as_ref()))
        }
        (None, None) => {
            if let Some(password) = &password {
                refuse(password, "ssl.truststore.password is set, but ssl.truststore.location is not");
            }
            None
        }
    }
}

pub(super) fn read_identity(reader: &mut Reader<'_>) -> Option<Store> {
    let kind = store_kind(reader, "ssl.keystore.type");
    let location = reader.get("ssl.keystore.location", Fallback::Theirs("none"));
    let password = setting_of(reader, "ssl.keystore.password");
    let chain = setting_of(reader, "ssl.keystore.certificate.chain");
    let key = setting_of(reader, "ssl.keystore.key");
    let mut refuse = |setting: &Setting, message: &str| reader.error(setting, message.to_owned(), None);
    match (&key, &chain, &location) {
        (Some(key), Some(chain), None) if kind == StoreKind::Pem => {
            if let Some(password) = &password {
                refuse(password, "a PEM key store has no password; ssl.key.password is the key's");
            }
            Some(inline(&[key, chain]))
        }
        (Some(key), _, Some(_)) => {
            refuse(key, "ssl.keystore.location and ssl.keystore.key are both set");
            None
        }
        (Some(key), Some(_), None) => {
            reader.error(key, "ssl.keystore.key is PEM".to_owned(), Some("write ssl.keystore.type = PEM"));
            None
        }
        (Some(key), None, _) => {
            refuse(key, "ssl.keystore.key is set, but ssl.keystore.certificate.chain is not");
            None
        }
        (None, Some(chain), _) => {
            refuse(chain, "ssl.keystore.certificate.chain is set, but ssl.keystore.key is not");
            None
        }
        (None, None, Some(location)) => {
            match (&password, kind) {
                (Some(password), StoreKind::Pem) => {
                    refuse(password, "a PEM key store has no password; ssl.key.password is the key's");
                }
                (None, StoreKind::Java) => {
                    refuse(location, "ssl.keystore.location is set, but ssl.keystore.password is not");
                }
                _ => {}
            }
            Some(file(kind, location, password.as_ref()))
        }
        (None, None, None) => {
            if let Some(password) = &password {
                refuse(password, "ssl.keystore.password is set, but ssl.keystore.location is not");
            }
            None
        }
    }
}

/// A key that is shown only when the file has it.
pub(super) fn setting_of(reader: &mut Reader<'_>, key: &str) -> Option<Setting> {
    reader.scope.contains_key(key).then(|| reader.get(key, Fallback::Theirs(""))).flatten()
}

pub(super) fn secret(reader: &mut Reader<'_>, key: &str) -> Option<Secret> {
    setting_of(reader, key).map(|setting| Secret::new(setting.value.as_bytes()))
}

fn inline(settings: &[&Setting]) -> Store {
    let text = settings.iter().map(|setting| &*setting.value).collect::<Vec<_>>().join("\n");
    Store { kind: StoreKind::Pem, place: Place::Inline(Secret::new(text)), password: None }
}

fn file(kind: StoreKind, location: &Setting, password: Option<&Setting>) -> Store {
    Store {
        kind,
        place: Place::File(location.value.trim().into()),
        password: password.map(|password| Secret::new(password.value.as_bytes())),
    }
}

fn store_kind(reader: &mut Reader<'_>, key: &str) -> StoreKind {
    let kinds = |value: &str| match value.trim() {
        kind if kind.eq_ignore_ascii_case("PEM") => Ok(StoreKind::Pem),
        kind if kind.eq_ignore_ascii_case("JKS") || kind.eq_ignore_ascii_case("PKCS12") => {
            Ok(StoreKind::Java)
        }
        other => Err(format!("{other:?} is none of JKS, PKCS12, PEM")),
    };
    reader.parse(key, Fallback::Theirs("JKS"), StoreKind::Java, kinds)
}

fn read_identification(reader: &mut Reader<'_>) -> Identification {
    let key = "ssl.endpoint.identification.algorithm";
    let Some(setting) = reader.get(key, Fallback::Theirs("https")) else { return Identification::Https };
    match setting.value.trim() {
        "" => {
            let message = format!(
                "{key} is empty: whoever holds a certificate that is trusted can pretend to be a broker"
            );
            reader.warning(&setting, message);
            Identification::Off
        }
        https if https.eq_ignore_ascii_case("https") => Identification::Https,
        other => {
            let message = format!("{key}: {other:?} is neither https nor empty");
            reader.error(&setting, message, None);
            Identification::Https
        }
    }
}

fn read_protocols(reader: &mut Reader<'_>) -> Vec<Protocol> {
    let all = vec![Protocol::Tls12, Protocol::Tls13];
    let key = "ssl.enabled.protocols";
    let Some(setting) = reader.get(key, Fallback::Theirs("TLSv1.2, TLSv1.3")) else { return all };
    let mut protocols = Vec::new();
    for name in values::list(&setting.value) {
        match name {
            "TLSv1.2" => protocols.push(Protocol::Tls12),
            "TLSv1.3" => protocols.push(Protocol::Tls13),
            other => reader
                .warning(&setting, format!("{key}: {other} is not spoken here: TLSv1.2 and TLSv1.3 are")),
        }
    }
    if protocols.is_empty() {
        reader.error(
            &setting,
            format!("{key} has nothing that is spoken here"),
            Some("TLSv1.2, TLSv1.3 are"),
        );
        return all;
    }
    protocols
}

fn read_cipher_suites(reader: &mut Reader<'_>) -> Vec<rustls::CipherSuite> {
    let key = "ssl.cipher.suites";
    let Some(setting) = setting_of(reader, key) else { return Vec::new() };
    let names = values::list(&setting.value);
    let (known, unknown): (Vec<_>, Vec<_>) = names
        .iter()
        .map(|name| CIPHER_SUITES.iter().find(|(known, _)| known == name).ok_or(name))
        .partition(Result::is_ok);
    let known: Vec<_> = known.into_iter().flatten().map(|&(_, suite)| suite).collect();
    for name in unknown.into_iter().filter_map(Result::err) {
        reader.warning(&setting, format!("{key}: {name} is not spoken here"));
    }
    if known.is_empty() && !names.is_empty() {
        let all = CIPHER_SUITES.map(|(name, _)| name).join(", ");
        reader.error(
            &setting,
            format!("{key} has nothing that is spoken here"),
            Some(&format!("these are: {all}")),
        );
    }
    known
}
