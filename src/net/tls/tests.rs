//! TLS between our client and a server of the test, on the simulated network, with certificates made here.

use std::net::SocketAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::net::{Error, Secret, Security, Settings, Step, establish};
use crate::seam::{Simulation, Socket};

/// An authority and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

struct Signed {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, common_name: &str, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Signed {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = named(common_name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Signed { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    fn trusted(&self) -> TlsSettings {
        TlsSettings { trust: Some(pem(&self.certificate.pem())), ..TlsSettings::default() }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn pem(text: &str) -> Store {
    Store { kind: StoreKind::Pem, place: Place::Inline(Secret::new(text)), password: None }
}

fn server(signed: &Signed, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.certificate.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::try_from(signed.key.serialize_der()).unwrap();
    Arc::new(builder.with_single_cert(vec![signed.certificate.der().clone()], key).unwrap())
}

use rustls::pki_types::PrivateKeyDer;

struct World {
    seam: Seam,
    address: SocketAddr,
    listener: crate::seam::Listener,
}

async fn world() -> World {
    let simulation = Simulation::new(1);
    let seam = Seam::Simulated(simulation.clone());
    let listener = seam.listen("10.0.0.1:9093".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    simulation.host("kafka", address.ip());
    World { seam, address, listener }
}

async fn accept(world: &mut World, config: Arc<ServerConfig>) -> Option<Socket> {
    let socket = world.listener.accept().await.unwrap();
    let session = ServerConnection::new(config).unwrap();
    world.seam.secure(socket, session.into()).await.ok()
}

/// What dialling `host` gives.
async fn dial(
    settings: TlsSettings,
    host: &str,
    config: Arc<ServerConfig>,
) -> Result<(Socket, Option<Socket>), TlsFailure> {
    let mut world = world().await;
    let tls = Tls::new(settings);
    let (seam, address) = (world.seam.clone(), world.address);
    let client = async {
        let socket = seam.dial(address, Default::default()).await.unwrap();
        let session = tls.session(&seam, host).await?;
        let socket = seam.secure(socket, session).await;
        socket.map_err(|error| TlsFailure::of_handshake(error).unwrap())
    };
    let (client, server) = tokio::join!(client, accept(&mut world, config));
    Ok((client?, server))
}

/// What a dial says; empty when it succeeds.
async fn said(settings: TlsSettings, host: &str, config: Arc<ServerConfig>) -> String {
    dial(settings, host, config).await.err().map(|failure| failure.to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn certificates_are_believed_or_refused_with_what_was_offered() {
    let (ours, stranger) = (Authority::new("ours"), Authority::new("stranger"));
    let broker = ours.sign("broker", &["kafka", "*.example.com", "10.0.0.1"], |_| ());
    let by_common_name = ours.sign("kafka", &[], |_| ());
    let expired = ours.sign("old", &["kafka"], |params| params.not_after = date_time_ymd(2001, 2, 3));
    let foreign = stranger.sign("broker", &["kafka"], |_| ());
    let off = TlsSettings { identification: Identification::Off, ..ours.trusted() };
    let only_12 = TlsSettings { protocols: vec![Protocol::Tls12], ..ours.trusted() };
    let pinned = TlsSettings { trust: Some(pem(&foreign.certificate.pem())), ..TlsSettings::default() };
    for (settings, host, signed, words) in [
        (ours.trusted(), "kafka", &broker, ""),
        (ours.trusted(), "b7.example.com", &broker, ""),
        (ours.trusted(), "10.0.0.1", &broker, ""),
        (only_12, "kafka", &broker, ""),
        (ours.trusted(), "kafka", &by_common_name, ""),
        (off.clone(), "whatever", &broker, ""),
        (pinned, "kafka", &foreign, ""),
        (ours.trusted(), "other", &broker, "is for kafka, *.example.com, 10.0.0.1, and not for other"),
        (ours.trusted(), "10.0.0.2", &broker, "and not for 10.0.0.2"),
        (ours.trusted(), "other", &by_common_name, "is for kafka (its common name), and not for other"),
        (ours.trusted(), "kafka", &expired, "to 2001-02-03 00:00 UTC, and now is"),
        (
            ours.trusted(),
            "kafka",
            &foreign,
            "(subject CN=broker, issuer CN=stranger) is signed by nobody that ssl.truststore holds",
        ),
        (off, "kafka", &foreign, "is signed by nobody"),
    ] {
        let text = said(settings, host, server(signed, None)).await;
        assert!(text.contains(words) && text.is_empty() == words.is_empty(), "{host}, {words:?}: {text}");
    }
}

/// As `openssl req -x509` makes it: an authority that stands for itself. Java takes it from a trust store, webpki would not.
#[tokio::test(start_paused = true)]
async fn a_certificate_of_the_trust_store_is_trusted_itself() {
    let mut params = CertificateParams::new(vec!["kafka".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let signed = Signed { certificate: params.self_signed(&key).unwrap(), key };
    let settings = TlsSettings { trust: Some(pem(&signed.certificate.pem())), ..TlsSettings::default() };
    let config = server(&signed, None);
    assert_eq!(said(settings.clone(), "kafka", config.clone()).await, "");
    assert!(said(settings, "other", config).await.contains("and not for other"));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_a_certificate_gets_ours_and_says_what_is_wrong_with_it() {
    let (ours, stranger) = (Authority::new("ours"), Authority::new("stranger"));
    let broker = ours.sign("broker", &["kafka"], |_| ());
    let config = server(&broker, Some(&ours));
    let identity =
        |signed: &Signed| Some(pem(&format!("{}{}", signed.certificate.pem(), signed.key.serialize_pem())));
    for (identity, words) in [
        (identity(&ours.sign("me", &["me"], |_| ())), ""),
        (identity(&stranger.sign("me", &["me"], |_| ())), "the broker refuses us (alert"),
        (None, "set ssl.keystore"),
    ] {
        for protocol in [Protocol::Tls12, Protocol::Tls13] {
            let protocols = vec![protocol];
            let settings = TlsSettings { identity: identity.clone(), protocols, ..ours.trusted() };
            let text = match dial(settings, "kafka", config.clone()).await {
                Err(failure) => failure.to_string(),
                // In 1.3 the broker says no only after the client is content.
                Ok((mut socket, _)) if !words.is_empty() => {
                    let error = socket.read_u8().await.unwrap_err();
                    TlsFailure::of_io(&error).unwrap().to_string()
                }
                Ok((mut socket, server)) => {
                    server.unwrap().write_u8(7).await.unwrap();
                    assert_eq!(socket.read_u8().await.unwrap(), 7);
                    String::new()
                }
            };
            assert!(
                text.contains(words) && text.is_empty() == words.is_empty(),
                "{protocol:?} {words:?}: {text}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn megabytes_pass_both_ways_in_large_pieces() {
    let ours = Authority::new("ours");
    let broker = ours.sign("broker", &["kafka"], |_| ());
    let (client, server) = dial(ours.trusted(), "kafka", server(&broker, None)).await.unwrap();
    let server = server.unwrap();
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let (mut reading, mut writing) = tokio::io::split(client);
    let (mut server_reading, mut server_writing) = tokio::io::split(server);
    let receive = async {
        let mut received = bytes::BytesMut::with_capacity(6_000_000);
        let mut reads = 0;
        while received.len() < bytes.len() {
            reads += 1;
            assert_ne!(reading.read_buf(&mut received).await.unwrap(), 0);
        }
        (received, reads)
    };
    let echo = async {
        let mut buffer = vec![0; 100_000];
        let mut left = bytes.len();
        while left > 0 {
            let count = server_reading.read(&mut buffer).await.unwrap();
            server_writing.write_all(&buffer[..count]).await.unwrap();
            left -= count;
        }
        server_writing.flush().await.unwrap();
    };
    let send = async {
        writing.write_all(&bytes).await.unwrap();
        writing.flush().await.unwrap();
    };
    let (((received, reads), ()), ()) = tokio::join!(async { tokio::join!(receive, echo) }, send);
    assert!(received == bytes);
    assert!(reads < 5_000_000 / 16_384, "{reads} reads, one for each record or more");
}

/// Case 56.
#[tokio::test(start_paused = true)]
async fn a_new_file_is_used_by_the_next_connection_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let store = Store { kind: StoreKind::Pem, place: Place::File(path.clone()), password: None };
    let tls = Tls::new(TlsSettings { trust: Some(store), ..TlsSettings::default() });
    let load = || tls.load(&|path| std::fs::read(path));
    let trusted = || tls.certificates().into_iter().map(|stored| stored.text.subject).collect::<Vec<_>>();
    assert!(load().unwrap_err().to_string().contains("cannot be read"));
    std::fs::write(&path, old.certificate.pem()).unwrap();
    load().unwrap();
    assert_eq!((trusted(), tls.trouble().is_none()), (vec!["CN=old".to_owned()], true));
    let seam = Seam::real();
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n!").unwrap();
    tls.session(&seam, "kafka").await.unwrap();
    assert_eq!(trusted(), ["CN=old"]);
    assert!(tls.trouble().unwrap().to_string().contains("has no end"));
    std::fs::write(&path, new.certificate.pem()).unwrap();
    tls.session(&seam, "kafka").await.unwrap();
    assert_eq!((trusted(), tls.trouble().is_none()), (vec!["CN=new".to_owned()], true));
    std::fs::remove_file(&path).unwrap();
    tls.session(&seam, "kafka").await.unwrap();
    assert!(tls.trouble().unwrap().to_string().contains("cannot be read"));
}

/// What a listener shows, likewise; half of a file, as whoever writes it in place leaves it for a moment, is not shown.
#[tokio::test(start_paused = true)]
async fn a_listener_shows_the_newest_certificate_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.pem");
    let ours = Authority::new("ours");
    let text = |name: &str| {
        let signed = ours.sign(name, &[name], |_| ());
        format!("{}{}", signed.key.serialize_pem(), signed.certificate.pem())
    };
    let (old, new) = (text("old"), text("new"));
    let store = Store { kind: StoreKind::Pem, place: Place::File(path.clone()), password: None };
    let tls = ServerTls::new(store, None);
    let load = || tls.load(&|path| std::fs::read(path)).map_err(|error| error.to_string());
    assert!(load().unwrap_err().contains("cannot be read"));
    std::fs::write(&path, &old).unwrap();
    load().unwrap();
    let seam = Seam::real();
    for (written, shown, is_well) in [
        (&new[..new.len() / 2], "CN=old", false),
        (&new[..], "CN=new", true),
        ("", "CN=new", false),
        (&old[..], "CN=old", true),
    ] {
        std::fs::write(&path, written).unwrap();
        tls.session(&seam).await.unwrap();
        let subjects: Vec<String> =
            tls.certificates().into_iter().map(|stored| stored.text.subject).collect();
        assert_eq!((subjects, tls.trouble().is_none()), (vec![shown.to_owned()], is_well), "{written:.40}");
    }
}

/// A key that does not belong to its certificate, and a key store that is a trust store.
#[test]
fn identities_that_cannot_be_used_are_refused_at_once() {
    let ours = Authority::new("ours");
    let (one, other) = (ours.sign("a", &["a"], |_| ()), ours.sign("b", &["b"], |_| ()));
    for (text, words) in [
        (
            format!("{}{}", one.certificate.pem(), other.key.serialize_pem()),
            "is not the key of the first certificate",
        ),
        (one.certificate.pem(), "it holds no private key"),
    ] {
        let settings = TlsSettings { identity: Some(pem(&text)), ..ours.trusted() };
        let error = Tls::new(settings).load(&|path| std::fs::read(path)).unwrap_err().to_string();
        assert!(error.starts_with("ssl.keystore (in the settings): ") && error.contains(words), "{error}");
    }
}

/// A listener without TLS that closes at once, as Kafka's does when it reads a ClientHello as a size.
#[tokio::test(start_paused = true)]
async fn a_listener_without_tls_is_told_from_one_with_it() {
    let ours = Authority::new("ours");
    for (answer, words) in [
        (&b""[..], "as a PLAINTEXT or SASL_PLAINTEXT listener does"),
        (b"HTTP/1.1 400 Bad Request\r\n", "what answers is not TLS"),
    ] {
        let mut world = world().await;
        let tls = Some(Arc::new(Tls::new(ours.trusted())));
        let settings = Settings {
            security: Security { tls, sasl: None },
            connection_setup_timeout: crate::net::Backoff::millis(5_000, 5_000),
            ..Settings::default()
        };
        let serve = async {
            let mut socket = world.listener.accept().await.unwrap();
            let mut byte = [0];
            socket.read_exact(&mut byte).await.unwrap();
            socket.write_all(answer).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let seam = world.seam.clone();
        let (result, ()) = tokio::join!(establish(&seam, &settings, "kafka", 9093), serve);
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }) && error.step() != Some(Step::Idle), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}
