//! The other side of TLS: what the admin listener shows, from a store as a cluster's, read again for each connection.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::sign::SingleCertAndKey;
use zeroize::Zeroizing;

use super::in_use::InUse;
use super::{
    Place, Raw, Role, Store, StoreError, StoreProblem, StoredCertificate, TlsFailure, TlsSettings, at,
    certified_keys, note, provider, read, sized,
};
use crate::net::Secret;
use crate::seam::Seam;

/// What a listener shows.
pub struct ServerTls {
    identity: Store,
    key_password: Option<Secret>,
    in_use: InUse<Served>,
}

struct Served {
    config: Arc<ServerConfig>,
    certificates: Vec<StoredCertificate>,
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &ServerTls) -> bool {
        self.identity == other.identity && self.key_password == other.key_password
    }
}

impl Eq for ServerTls {}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// The first key of a store; nothing is read yet.
    pub fn new(identity: Store, key_password: Option<Secret>) -> ServerTls {
        ServerTls { identity, key_password, in_use: InUse::default() }
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Vec<StoredCertificate> {
        self.in_use.loaded().map(|served| served.certificates.clone()).unwrap_or_default()
    }

    /// Why the newest store is not in use, if it is not.
    pub fn trouble(&self) -> Option<StoreError> {
        self.in_use.trouble()
    }

    /// Reads the store now, as a check before anybody asks.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be used.
    pub fn load(&self, read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<(), StoreError> {
        let bytes = match &self.identity.place {
            Place::Inline(text) => text.reveal().to_vec(),
            Place::File(path) => sized(Role::Identity, &self.identity, read(path))?,
        };
        let raw = Raw { trust: None, identity: Some(Zeroizing::new(bytes)) };
        let built = served(&self.identity, self.key_password.clone(), &raw);
        let _in_use = self.in_use.take(raw.digest(), built.clone());
        built.map(drop)
    }

    /// A new session, by the store as it is now.
    ///
    /// # Errors
    /// [`TlsFailure::Store`] when there never was a good one.
    pub async fn session(&self, seam: &Seam) -> Result<rustls::Connection, TlsFailure> {
        let served = self.current(seam).await?;
        let session = rustls::ServerConnection::new(served.config.clone());
        session.map(rustls::Connection::Server).map_err(|error| TlsFailure::Other(error.to_string()))
    }

    async fn current(&self, seam: &Seam) -> Result<Arc<Served>, StoreError> {
        let identity = Some(self.identity.clone());
        let raw = match read(seam, Role::Identity, &identity).await {
            Ok(bytes) => Raw { trust: None, identity: bytes.map(Zeroizing::new) },
            Err(error) => return self.in_use.fall_back(error),
        };
        let digest = raw.digest();
        if let Some(served) = self.in_use.unchanged(digest) {
            return Ok(served);
        }
        let (identity, key_password) = (self.identity.clone(), self.key_password.clone());
        let built = seam.blocking(move || served(&identity, key_password, &raw)).await;
        self.in_use.take(digest, built)
    }
}

fn served(identity: &Store, key_password: Option<Secret>, raw: &Raw) -> Result<Arc<Served>, StoreError> {
    let bytes = raw.identity.as_ref().map(|bytes| bytes.as_slice()).unwrap_or_default();
    let (config, chain) = config_of(identity, key_password, bytes)?;
    let mut certificates = Vec::new();
    note(&mut certificates, Role::Identity, &chain);
    Ok(Arc::new(Served { config, certificates }))
}

/// A server that shows the first key of a store, of which these are the bytes.
///
/// # Errors
/// [`StoreError`] when it cannot be used.
pub fn server_config(
    identity: &Store,
    key_password: Option<Secret>,
    bytes: &[u8],
) -> Result<Arc<ServerConfig>, StoreError> {
    config_of(identity, key_password, bytes).map(|(config, _)| config)
}

fn config_of(
    identity: &Store,
    key_password: Option<Secret>,
    bytes: &[u8],
) -> Result<(Arc<ServerConfig>, Vec<CertificateDer<'static>>), StoreError> {
    let settings = TlsSettings { key_password, ..TlsSettings::default() };
    let provider = provider(&settings);
    let failed = |problem| at(Role::Identity, identity, problem);
    let keys = certified_keys(&settings, identity, bytes, &provider).map_err(failed)?;
    let key = keys.into_iter().next().ok_or_else(|| failed(StoreProblem::Lacks("private key")))?;
    let chain = key.cert.clone();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(StoreProblem::Broken(error.to_string())))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    Ok((Arc::new(config), chain))
}
