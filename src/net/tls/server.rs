//! The other side of TLS: what the admin listener shows, from a store as a cluster's.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;

use super::{Role, Store, StoreError, StoreProblem, TlsSettings, at, certified_keys, provider};
use crate::net::Secret;

/// A server that shows the first key of a store, of which these are the bytes.
///
/// # Errors
/// [`StoreError`] when it cannot be used.
pub fn server_config(
    identity: &Store,
    key_password: Option<Secret>,
    bytes: &[u8],
) -> Result<Arc<ServerConfig>, StoreError> {
    let settings = TlsSettings { key_password, ..TlsSettings::default() };
    let provider = provider(&settings);
    let failed = |problem| at(Role::Identity, identity, problem);
    let keys = certified_keys(&settings, identity, bytes, &provider).map_err(failed)?;
    let key = keys.into_iter().next().ok_or_else(|| failed(StoreProblem::Lacks("private key")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(StoreProblem::Broken(error.to_string())))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    Ok(Arc::new(config))
}
