//! `sasl.*` of one cluster, with the rules of Kafka's own reader (`SaslConfigs.java`, `JaasContext.java`, `LoginManager.java`).
//!
//! Java classes that do what is done here anyway are taken for what they mean; others are refused by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use zeroize::Zeroizing;

use super::lint::Linted;
use super::providers::Outside;
use super::reader::{Fallback, Reader};
use super::scoping::{self, Scope, Setting};
use super::security::{Wants, read_tls, secret, setting_of};
use super::{Options, load};
use crate::client;
use crate::net::http::{HttpTimeouts, HttpUrl, Scheme};
use crate::net::sasl::aws::{AwsEnvironment, AwsOptions, AwsSource, Keys, Role};
use crate::net::sasl::{
    ClientProof, Credentials, Endpoint, HeaderEncoding, JaasEntry, Mechanism, Password, PasswordKind,
    PasswordSource, Refresh, SaslSettings, TokenOrigin, TokenSettings, TokenSource, is_extension, parse_jaas,
};
use crate::net::{Secret, tls};

const GSSAPI_HELP: &str = "Kerberos is not spoken here: let the brokers have another listener or mechanism for kmirror \
    (SCRAM-SHA-512 for a user of its own, or SSL with a certificate), or leave this cluster to MirrorMaker";
const CLIENT_HANDLER: &str = "sasl.client.callback.handler.class";
const LOGIN_HANDLER: &str = "sasl.login.callback.handler.class";
const UNSECURED: &str = "unsecuredLogin";
/// Tokens without a signature live for an hour (`OAuthBearerUnsecuredLoginCallbackHandler.java`).
const UNSECURED_SECONDS: i64 = 3_600;

/// Reads who we are; problems are noted.
pub(super) fn read(
    reader: &mut Reader<'_>,
    alias: &str,
    tls: Wants,
    outside: &Outside<'_>,
) -> Option<SaslSettings> {
    let setting = reader.get("sasl.mechanism", Fallback::Theirs("GSSAPI"));
    let protocol = reader.scope.get("security.protocol").cloned()?;
    let name = setting.as_ref().map_or("GSSAPI", |setting| setting.value.trim()).to_owned();
    let place = setting.as_ref().unwrap_or(&protocol);
    let mechanism = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name);
    refuse_classes(reader, mechanism);
    let Some(mechanism) = mechanism else {
        refuse_mechanism(reader, place, setting.is_some(), &name);
        return None;
    };
    let crosses = match mechanism {
        Mechanism::Plain => Some("password"),
        Mechanism::OauthBearer => Some("token"),
        _ => None,
    };
    if let (Some(what), Wants::Not) = (crosses, tls) {
        let message =
            format!("the {what} of {alias} crosses the network in the clear: {mechanism} without TLS");
        reader.warning(place, message);
    }
    let place = place.clone();
    let entry = read_entry(reader, alias, mechanism)?;
    let credentials = match mechanism {
        Mechanism::OauthBearer => read_token(reader, &place, alias, entry, outside)?,
        Mechanism::AwsMskIam => {
            let environment = AwsEnvironment::read(outside.env);
            Credentials::Aws(AwsSource::new(aws_options(&entry), environment).into())
        }
        _ => Credentials::Password(read_password(reader, &place, alias, entry)?),
    };
    Some(SaslSettings { mechanism, credentials })
}

/// Passwords that a config provider gives are read anew for each authentication, by reading the whole file anew: that is how
/// they were found.
pub(super) fn renew(
    linted: &Linted,
    clusters: &mut BTreeMap<Arc<str>, client::Settings>,
    name: &str,
    file: &[u8],
) {
    let file = Arc::new(Zeroizing::new(file.to_vec()));
    for (alias, cluster) in clusters.iter_mut().filter(|(alias, _)| is_provided(linted, alias)) {
        let security = &mut cluster.net.security;
        let Some(sasl) = security.sasl.as_deref() else { continue };
        let Credentials::Password(password) = &sasl.credentials else { continue };
        let (file, name, alias) = (file.clone(), name.to_owned(), alias.clone());
        let read = Box::new(move || read_again(&name, &file, &alias));
        let source = PasswordSource::new(password.clone(), read);
        let credentials = Credentials::Provided(Arc::new(source));
        security.sasl = Some(Arc::new(SaslSettings { mechanism: sasl.mechanism, credentials }));
    }
}

fn is_provided(linted: &Linted, alias: &str) -> bool {
    const KEYS: [&str; 3] = ["sasl.jaas.config", "sasl.username", "sasl.password"];
    let scope = scoping::cluster(&linted.raw, alias);
    let mut settings = scope.iter().filter(|(key, _)| KEYS.iter().any(|known| key.ends_with(known)));
    settings.any(|(_, setting)| linted.entries[setting.entry].value.contains("${"))
}

fn read_again(name: &str, file: &[u8], alias: &str) -> Option<Password> {
    let options = Options { clusters: &[], takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let cluster = load(name, file, &options).settings?.process.clusters.remove(alias)?;
    match &cluster.net.security.sasl.as_deref()?.credentials {
        Credentials::Password(password) => Some(password.clone()),
        Credentials::Provided(source) => Some(source.last()),
        Credentials::Token(_) | Credentials::Aws(_) => None,
    }
}

/// Classes that may stand there because we do what they do.
fn is_ours(key: &str, class: &str, mechanism: Option<Mechanism>) -> bool {
    let name = class.trim().rsplit('.').next().unwrap_or_default();
    match (key, mechanism) {
        (LOGIN_HANDLER, Some(Mechanism::OauthBearer)) => {
            matches!(name, "OAuthBearerLoginCallbackHandler" | "OAuthBearerUnsecuredLoginCallbackHandler")
        }
        (CLIENT_HANDLER, Some(Mechanism::OauthBearer)) => name == "OAuthBearerSaslClientCallbackHandler",
        (CLIENT_HANDLER, Some(Mechanism::AwsMskIam)) => name == "IAMClientCallbackHandler",
        ("sasl.login.class", Some(Mechanism::OauthBearer)) => name == "OAuthBearerRefreshingLogin",
        ("sasl.oauthbearer.jwt.retriever.class", _) => {
            matches!(name, "DefaultJwtRetriever" | "ClientCredentialsJwtRetriever" | "FileJwtRetriever")
        }
        _ => false,
    }
}

fn refuse_classes(reader: &mut Reader<'_>, mechanism: Option<Mechanism>) {
    for key in [CLIENT_HANDLER, LOGIN_HANDLER, "sasl.login.class", "sasl.oauthbearer.jwt.retriever.class"] {
        let Some(setting) = reader.scope.get(key).cloned() else { continue };
        if is_ours(key, &setting.value, mechanism) {
            continue;
        }
        let message = format!("the {key} {} is Java, which cannot run here", setting.shown);
        let help = match setting.value.rsplit('.').next() {
            Some("IAMOAuthBearerLoginCallbackHandler") => {
                "leave it out, and write sasl.mechanism = AWS_MSK_IAM"
            }
            _ => "leave it out",
        };
        reader.error(&setting, message, Some(help));
    }
}

fn refuse_mechanism(reader: &mut Reader<'_>, place: &Setting, is_set: bool, name: &str) {
    let known = Mechanism::ALL.map(Mechanism::name).join(", ");
    match name {
        "GSSAPI" if is_set => {
            reader.error(place, "sasl.mechanism GSSAPI is not spoken here".to_owned(), Some(GSSAPI_HELP));
        }
        "GSSAPI" => {
            let message = "sasl.mechanism is not set, which means GSSAPI, and that is not spoken here";
            let help = format!("write sasl.mechanism = one of {known}; {GSSAPI_HELP}");
            reader.error(place, message.to_owned(), Some(&help));
        }
        other => {
            let message = format!("sasl.mechanism {other} is not spoken here");
            reader.error(place, message, Some(&format!("these are: {known}")));
        }
    }
}

/// The login module with its options, and where it stands.
struct Entry {
    setting: Option<Setting>,
    options: BTreeMap<String, Secret>,
}

impl Entry {
    fn text(&self, key: &str) -> Option<String> {
        self.options.get(key).map(|value| value.reveal_text().to_string())
    }
}

/// Reads `sasl.jaas.config`; without it the options are empty.
fn read_entry(reader: &mut Reader<'_>, alias: &str, mechanism: Mechanism) -> Option<Entry> {
    let Some(jaas) = setting_of(reader, "sasl.jaas.config") else {
        return Some(Entry { setting: None, options: BTreeMap::new() });
    };
    let entries = match parse_jaas(&jaas.value) {
        Ok(entries) => entries,
        Err(error) => {
            let is_quoted = jaas.value.trim_start().starts_with(['"', '\'']);
            let help = is_quoted.then_some("leave out the quotes around the whole of it");
            reader.error(&jaas, format!("{alias}: sasl.jaas.config: {error}"), help);
            return None;
        }
    };
    let [JaasEntry { module, options }] = &entries[..] else {
        let message = format!("{alias}: sasl.jaas.config holds more than one login module");
        reader.error(&jaas, message, None);
        return None;
    };
    let expected = match mechanism {
        Mechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
        Mechanism::ScramSha256 | Mechanism::ScramSha512 => {
            "org.apache.kafka.common.security.scram.ScramLoginModule"
        }
        Mechanism::OauthBearer => "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        Mechanism::AwsMskIam => "software.amazon.msk.auth.iam.IAMLoginModule",
    };
    if module.rsplit('.').next() != expected.rsplit('.').next() {
        let message = format!("{alias}: the login module in sasl.jaas.config does not belong to {mechanism}");
        reader.error(&jaas, message, Some(&format!("write {expected} required …")));
        return None;
    }
    Some(Entry { setting: Some(jaas), options: options.clone() })
}

fn read_password(reader: &mut Reader<'_>, place: &Setting, alias: &str, entry: Entry) -> Option<Password> {
    let Some(jaas) = &entry.setting else { return read_explicit(reader, place, alias) };
    let (Some(username), Some(password)) = (entry.text("username"), entry.options.get("password").cloned())
    else {
        let message = format!("{alias}: sasl.jaas.config needs username and password");
        reader.error(jaas, message, None);
        return None;
    };
    let is_token = entry.text("tokenauth").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let kind = if is_token { PasswordKind::DelegationToken } else { PasswordKind::User };
    Some(Password { username, password, kind })
}

/// `sasl.username` and `sasl.password`, as librdkafka has them.
fn read_explicit(reader: &mut Reader<'_>, place: &Setting, alias: &str) -> Option<Password> {
    let username = setting_of(reader, "sasl.username");
    let password = secret(reader, "sasl.password");
    if let (Some(username), Some(password)) = (username, password) {
        let username = username.value.to_string();
        return Some(Password { username, password, kind: PasswordKind::User });
    }
    let message = format!("{alias}: sasl.jaas.config is missing");
    let help = "the file of java.security.auth.login.config is not read here; write its entry KafkaClient into \
        sasl.jaas.config, or set sasl.username and sasl.password";
    reader.error(place, message, Some(help));
    None
}

fn read_token(
    reader: &mut Reader<'_>,
    place: &Setting,
    alias: &str,
    entry: Entry,
    outside: &Outside<'_>,
) -> Option<Credentials> {
    let refresh = read_refresh(reader);
    let is_unsecured = entry.options.keys().any(|key| key.starts_with(UNSECURED));
    let endpoint = setting_of(reader, "sasl.oauthbearer.token.endpoint.url");
    let prefixes: &[&str] = if endpoint.is_some() { &["extension_"] } else { &["unsecuredLoginExtension_"] };
    let extensions = read_extensions(reader, place, alias, &entry, prefixes)?;
    let origin = match endpoint {
        Some(endpoint) => read_origin(reader, &endpoint, alias, &entry, outside)?,
        None if is_unsecured => {
            let message = format!("the token of {alias} has no signature: anybody could write it");
            reader.warning(place, message);
            unsecured(&entry)
        }
        None => {
            let message = format!("{alias}: sasl.oauthbearer.token.endpoint.url is missing");
            let help = "write the URL of the token endpoint, or file:///path of a file with a token";
            reader.error(place, message, Some(help));
            return None;
        }
    };
    Some(Credentials::Token(TokenSource::new(TokenSettings { origin, extensions, refresh }).into()))
}

fn read_refresh(reader: &mut Reader<'_>) -> Refresh {
    let mut part = |key: &str, default: f64, range: std::ops::RangeInclusive<f64>| {
        let parse = |value: &str| match value.trim().parse::<f64>() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => Err(format!("{value:?} is no number from {} to {}", range.start(), range.end())),
        };
        reader.parse(key, Fallback::Theirs(&default.to_string()), default, parse)
    };
    let window_factor = part("sasl.login.refresh.window.factor", 0.8, 0.5..=1.0);
    let window_jitter = part("sasl.login.refresh.window.jitter", 0.05, 0.0..=0.25);
    Refresh {
        window_factor,
        window_jitter,
        period_ms_min: reader.integer("sasl.login.refresh.min.period.seconds", 60, 0, 900) * 1_000,
        buffer_ms: reader.integer("sasl.login.refresh.buffer.seconds", 300, 0, 3_600) * 1_000,
    }
}

fn read_extensions(
    reader: &mut Reader<'_>,
    place: &Setting,
    alias: &str,
    entry: &Entry,
    prefixes: &[&str],
) -> Option<BTreeMap<String, String>> {
    let mut extensions = BTreeMap::new();
    for (key, value) in &entry.options {
        let Some(name) = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix)) else { continue };
        let value = value.reveal_text().to_string();
        if !is_extension(name, &value) {
            let place = entry.setting.as_ref().unwrap_or(place);
            let message = format!("{alias}: an extension in sasl.jaas.config cannot be sent");
            let help = "names are of ASCII letters and not auth, values are of printable ASCII characters";
            reader.error(place, message, Some(help));
            return None;
        }
        extensions.insert(name.to_owned(), value);
    }
    Some(extensions)
}

fn read_origin(
    reader: &mut Reader<'_>,
    endpoint: &Setting,
    alias: &str,
    entry: &Entry,
    outside: &Outside<'_>,
) -> Option<TokenOrigin> {
    let text = endpoint.value.trim();
    if let Some(path) = text.strip_prefix("file:") {
        // file:/path, file:///path and file://localhost/path are the same.
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.strip_prefix("localhost").unwrap_or(path);
        return Some(TokenOrigin::File(PathBuf::from(path)));
    }
    let url = match HttpUrl::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let message = format!("{alias}: sasl.oauthbearer.token.endpoint.url: {error}, or with file:");
            reader.error(endpoint, message, None);
            return None;
        }
    };
    if url.scheme() == Scheme::Http {
        let message =
            format!("the client secret of {alias} crosses the network in the clear: {url} is without TLS");
        reader.warning(endpoint, message);
    }
    let client_id = setting_of(reader, "sasl.oauthbearer.client.credentials.client.id");
    let client_id = client_id.map(|id| id.value.to_string()).or_else(|| entry.text("clientId"));
    let client_secret = secret(reader, "sasl.oauthbearer.client.credentials.client.secret");
    let client_secret = client_secret.or_else(|| entry.options.get("clientSecret").cloned());
    let scope = setting_of(reader, "sasl.oauthbearer.scope");
    let scope = scope.map(|scope| scope.value.to_string()).or_else(|| entry.text("scope"));
    let is_encoded = reader.boolean("sasl.oauthbearer.header.urlencode", false);
    let timeouts = HttpTimeouts {
        connect: reader.millis("sasl.login.connect.timeout.ms", Duration::from_secs(10)),
        read: reader.millis("sasl.login.read.timeout.ms", Duration::from_secs(10)),
    };
    let assertion = setting_of(reader, "sasl.oauthbearer.assertion.file");
    if let (None, Some(issuer)) = (&assertion, setting_of(reader, "sasl.oauthbearer.assertion.claim.iss")) {
        let message = format!("{alias}: a client assertion is asked for, and none is signed here");
        let help = "let others sign it, and name the file in sasl.oauthbearer.assertion.file: it is read for each question; or \
            leave sasl.oauthbearer.assertion.* out, and set the client's secret";
        reader.error(&issuer, message, Some(help));
        return None;
    }
    let (client_id, proof) = match (assertion, client_id, client_secret) {
        // As Kafka: an assertion goes before a secret.
        (Some(assertion), client_id, _) => {
            let path = PathBuf::from(assertion.value.trim());
            (client_id.unwrap_or_default(), ClientProof::AssertionFile(path))
        }
        (None, Some(client_id), Some(client_secret)) => (client_id, ClientProof::Secret(client_secret)),
        _ => {
            let message = format!("{alias}: the token endpoint wants to know who asks");
            let help = "set sasl.oauthbearer.client.credentials.client.id and .client.secret, or clientId and clientSecret in \
                sasl.jaas.config, or sasl.oauthbearer.assertion.file";
            reader.error(endpoint, message, Some(help));
            return None;
        }
    };
    let tls = endpoint_tls(reader, endpoint, entry, outside);
    let encoding = if is_encoded { HeaderEncoding::Url } else { HeaderEncoding::Plain };
    let endpoint = Endpoint { url, client_id, proof, scope, encoding, tls, timeouts };
    Some(TokenOrigin::Endpoint(Box::new(endpoint)))
}

/// TLS to the endpoint goes by `ssl.*` among the options of the login module (`JaasOptionsUtils.java`), else by the system's
/// roots; the cluster's own stores have nothing to do with it.
fn endpoint_tls(
    reader: &mut Reader<'_>,
    endpoint: &Setting,
    entry: &Entry,
    outside: &Outside<'_>,
) -> tls::Tls {
    let place = entry.setting.as_ref().unwrap_or(endpoint);
    let options = entry.options.iter().filter(|(key, _)| key.starts_with("ssl."));
    let scope: Scope = options
        .map(|(key, value)| {
            let value = value.reveal_text().as_str().into();
            (key.clone(), Setting { value, shown: "[hidden]".into(), entry: place.entry })
        })
        .collect();
    if scope.is_empty() {
        return tls::Tls::new(tls::TlsSettings::default());
    }
    read_tls(&mut reader.on(&scope, "sasl.jaas.config "), outside)
}

/// The claims that `unsecuredLogin…` options ask for.
fn unsecured(entry: &Entry) -> TokenOrigin {
    let mut claims = Vec::new();
    for (key, value) in &entry.options {
        let text = value.reveal_text();
        let name = |kind: &str| key.strip_prefix(UNSECURED)?.strip_prefix(kind).map(str::to_owned);
        if let Some(name) = name("StringClaim_") {
            claims.push((name, Value::from(text.as_str())));
        } else if let Some(name) = name("NumberClaim_") {
            claims.push((name, text.trim().parse::<f64>().map_or(Value::Null, Value::from)));
        } else if let Some(name) = name("ListClaim_") {
            // The first character says what stands between the items.
            let mut characters = text.chars();
            let between = characters.next().unwrap_or(',');
            let items = characters.as_str().split(between).filter(|item| !item.is_empty());
            claims.push((name, items.map(Value::from).collect()));
        }
    }
    let seconds =
        entry.text("unsecuredLoginLifetimeSeconds").and_then(|text| text.trim().parse::<i64>().ok());
    let lifetime_ms = seconds.unwrap_or(UNSECURED_SECONDS).clamp(1, i64::MAX / 1_000) * 1_000;
    TokenOrigin::Unsecured { claims, lifetime_ms }
}

fn aws_options(entry: &Entry) -> AwsOptions {
    let keys = entry.text("awsRoleAccessKeyId").zip(entry.options.get("awsRoleSecretAccessKey").cloned());
    let keys = keys.map(|(access_key_id, secret_access_key)| Keys {
        access_key_id,
        secret_access_key,
        session_token: entry.options.get("awsRoleSessionToken").cloned(),
        ends_ms: None,
    });
    let session_name = entry.text("awsRoleSessionName").unwrap_or_else(|| "aws-msk-iam-auth".to_owned());
    let role = entry.text("awsRoleArn").map(|arn| Role {
        arn,
        session_name,
        external_id: entry.text("awsRoleExternalId"),
        keys,
    });
    AwsOptions { profile: entry.text("awsProfileName"), role, sts_region: entry.text("awsStsRegion") }
}
