//! TLS to brokers: what Kafka's `ssl.*` keys ask for, as rustls sessions.
//!
//! The stores are read again for each connection, so that whatever rotates certificates needs no restart. When a new file
//! cannot be used, the last good one goes on and the trouble is told; only at the first connection it is an error.
//! Everything but [`Tls`] is pure.

mod certificate;
mod der;
mod failure;
mod in_use;
mod iterations;
mod jks;
mod pem;
mod pkcs12;
mod server;
mod settings;
mod store;
mod verifier;

use std::io;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::{ClientConnection, ResolvesClientCert};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme, SupportedProtocolVersion, version};
use zeroize::Zeroizing;

pub use certificate::CertificateText;
pub(in crate::net) use certificate::civil;
pub use failure::TlsFailure;
pub use pem::PemError;
pub use server::{ServerTls, server_config};
pub use settings::{CIPHER_SUITES, Identification, Place, Protocol, Store, StoreKind, TlsSettings};
pub use store::{Role, STORE_BYTES_MAX, StoreError, StoreProblem};
pub use verifier::Rejection;

use crate::seam::Seam;
use in_use::InUse;
use store::Identity;
use verifier::Verifier;

/// TLS for the connections to one cluster.
pub struct Tls {
    settings: TlsSettings,
    in_use: InUse<Loaded>,
}

/// Stores that are in use.
struct Loaded {
    config: Arc<ClientConfig>,
    certificates: Vec<StoredCertificate>,
}

/// A certificate of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// Which store.
    pub role: Role,
    /// What it says.
    pub text: CertificateText,
}

/// The bytes of the stores.
struct Raw {
    trust: Option<Vec<u8>>,
    identity: Option<Zeroizing<Vec<u8>>>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Tls {}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tls {
    /// TLS by these settings; nothing is read yet.
    pub fn new(settings: TlsSettings) -> Tls {
        Tls { settings, in_use: InUse::default() }
    }

    /// What was asked for.
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// The certificates in use: those of the trust store's file, and our own.
    pub fn certificates(&self) -> Vec<StoredCertificate> {
        self.in_use.loaded().map(|loaded| loaded.certificates.clone()).unwrap_or_default()
    }

    /// Why the newest stores are not in use, if they are not.
    pub fn trouble(&self) -> Option<StoreError> {
        self.in_use.trouble()
    }

    /// Reads the stores now, as a check before anything is dialled.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be used.
    pub fn load(&self, read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<(), StoreError> {
        let bytes_of =
            |role: Role, store: &Option<Store>| match store.as_ref().map(|store| (&store.place, store)) {
                None => Ok(None),
                Some((Place::Inline(text), _)) => Ok(Some(text.reveal().to_vec())),
                Some((Place::File(path), store)) => sized(role, store, read(path)).map(Some),
            };
        let trust = bytes_of(Role::Trust, &self.settings.trust)?;
        let identity = bytes_of(Role::Identity, &self.settings.identity)?.map(Zeroizing::new);
        let raw = Raw { trust, identity };
        let digest = raw.digest();
        let built = build(&self.settings, &raw);
        let _in_use = self.in_use.take(digest, built.clone());
        built.map(drop)
    }

    /// A new session to `host`, by the stores as they are now.
    ///
    /// # Errors
    /// [`TlsFailure::Store`] when there never were good ones, [`TlsFailure::Name`].
    pub(super) async fn session(&self, seam: &Seam, host: &str) -> Result<rustls::Connection, TlsFailure> {
        let loaded = self.current(seam).await?;
        let bare = host.split_once('%').map_or(host, |(address, _)| address);
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| TlsFailure::Name)?;
        let session = ClientConnection::new(loaded.config.clone(), name);
        session.map(rustls::Connection::Client).map_err(|error| TlsFailure::Other(error.to_string()))
    }

    async fn current(&self, seam: &Seam) -> Result<Arc<Loaded>, StoreError> {
        let trust = read(seam, Role::Trust, &self.settings.trust).await;
        let identity = read(seam, Role::Identity, &self.settings.identity).await;
        let raw = match (trust, identity) {
            (Ok(trust), Ok(identity)) => Raw { trust, identity: identity.map(Zeroizing::new) },
            (Err(error), _) | (_, Err(error)) => return self.in_use.fall_back(error),
        };
        let digest = raw.digest();
        if let Some(loaded) = self.in_use.unchanged(digest) {
            return Ok(loaded);
        }
        let settings = self.settings.clone();
        let built = seam.blocking(move || build(&settings, &raw)).await;
        self.in_use.take(digest, built)
    }
}

async fn read(seam: &Seam, role: Role, store: &Option<Store>) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(store) = store else { return Ok(None) };
    match &store.place {
        Place::Inline(text) => Ok(Some(text.reveal().to_vec())),
        Place::File(path) => {
            sized(role, store, seam.read_file(path.clone(), STORE_BYTES_MAX + 1).await).map(Some)
        }
    }
}

fn sized(role: Role, store: &Store, bytes: io::Result<Vec<u8>>) -> Result<Vec<u8>, StoreError> {
    let problem = match bytes {
        Ok(bytes) if bytes.len() as u64 <= STORE_BYTES_MAX => return Ok(bytes),
        Ok(_) => StoreProblem::TooLarge,
        Err(error) => StoreProblem::Unreadable(error.to_string()),
    };
    Err(StoreError { role, place: store.place_text(), problem })
}

impl Raw {
    fn digest(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        for bytes in [self.trust.as_deref(), self.identity.as_ref().map(|bytes| bytes.as_slice())] {
            let bytes = bytes.unwrap_or_default();
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        }
        let mut out = [0; 32];
        out.copy_from_slice(context.finish().as_ref());
        out
    }
}

/// Settings and stores as what rustls takes.
fn build(settings: &TlsSettings, raw: &Raw) -> Result<Arc<Loaded>, StoreError> {
    let provider = Arc::new(provider(settings));
    let mut certificates = Vec::new();
    let (trusted, trust) = match (&settings.trust, &raw.trust) {
        (Some(store), Some(bytes)) => {
            let trusted = store::trusted(store, bytes).map_err(|problem| at(Role::Trust, store, problem))?;
            note(&mut certificates, Role::Trust, &trusted);
            (trusted, "ssl.truststore")
        }
        _ => (system_roots()?, "the system's trust store"),
    };
    let verifier = Verifier::new(provider.clone(), trusted, trust, settings.identification);
    let versions: Vec<&'static SupportedProtocolVersion> = settings
        .protocols
        .iter()
        .map(|protocol| match protocol {
            Protocol::Tls12 => &version::TLS12,
            Protocol::Tls13 => &version::TLS13,
        })
        .collect();
    let broken = |problem: String| StoreError {
        role: Role::Trust,
        place: "ssl.enabled.protocols and ssl.cipher.suites".to_owned(),
        problem: StoreProblem::Broken(problem),
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| broken(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match (&settings.identity, &raw.identity) {
        (Some(store), Some(bytes)) => {
            let keys = certified_keys(settings, store, bytes, &provider)
                .map_err(|problem| at(Role::Identity, store, problem))?;
            keys.iter().for_each(|key| note(&mut certificates, Role::Identity, &key.cert));
            builder.with_client_cert_resolver(Arc::new(Identities(keys)))
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(Loaded { config: Arc::new(config), certificates }))
}

fn provider(settings: &TlsSettings) -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if !settings.cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| settings.cipher_suites.contains(&suite.suite()));
    }
    provider
}

fn at(role: Role, store: &Store, problem: StoreProblem) -> StoreError {
    StoreError { role, place: store.place_text(), problem }
}

fn note(
    certificates: &mut Vec<StoredCertificate>,
    role: Role,
    ders: &[rustls::pki_types::CertificateDer<'_>],
) {
    let texts = ders.iter().filter_map(|der| CertificateText::read(der));
    certificates.extend(texts.map(|text| StoredCertificate { role, text }));
}

fn system_roots() -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, StoreError> {
    let roots = rustls_native_certs::load_native_certs();
    if !roots.certs.is_empty() {
        return Ok(roots.certs);
    }
    let problem = match roots.errors.first() {
        Some(error) => StoreProblem::Broken(error.to_string()),
        None => StoreProblem::Lacks("certificate"),
    };
    Err(StoreError { role: Role::Trust, place: "the system's".to_owned(), problem })
}

fn certified_keys(
    settings: &TlsSettings,
    store: &Store,
    bytes: &[u8],
    provider: &CryptoProvider,
) -> Result<Vec<Arc<CertifiedKey>>, StoreProblem> {
    let identities = store::identities(store, bytes, settings.key_password.as_ref())?;
    let keys = identities.into_iter().map(|identity| certified(identity, provider));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(StoreProblem::Lacks("private key")) } else { Ok(keys) }
}

/// A certificate that webpki cannot read (version 1, as `openssl x509 -req` makes it without extensions) is shown all the
/// same: whether it is believed is the broker's matter.
fn certified(identity: Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, StoreProblem> {
    let Identity { alias, chain, key } = identity;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| StoreProblem::Broken(format!("the key {alias} cannot be used: {error}")))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(StoreProblem::Broken(format!("the key {alias} is not the key of the first certificate")))
        }
        _ => Ok(Arc::new(certified)),
    }
}

/// Our keys. A broker says whose signatures it believes and which kinds of keys it takes; the first that fits is shown, as
/// Java does, and for want of one the first of a fitting kind, so that the broker says why it does not do.
#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identities {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let is_believed = |key: &&Arc<CertifiedKey>| {
            key.cert.iter().any(|certificate| {
                let issuer = certificate::issuer_der(certificate);
                issuer.is_some_and(|issuer| issuers.contains(&issuer))
            })
        };
        let fitting = || self.0.iter().filter(fits);
        fitting().find(is_believed).or_else(|| fitting().next()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
