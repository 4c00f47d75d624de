//! Certificates and keys out of the bytes of a store.
//!
//! Pure: whoever calls has read the bytes. What a Java store really is, its first bytes say.

use std::fmt;

use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use zeroize::Zeroizing;

use super::iterations::check_key;
use super::pem::{self, Block, PemError};
use super::settings::{Place, Store, StoreKind};
use super::{jks, pkcs12};
use crate::net::Secret;

/// The largest store that is read.
pub const STORE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Which store a problem is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Whom we trust.
    Trust,
    /// Who we are.
    Identity,
}

impl Role {
    /// What its settings begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Role::Trust => "ssl.truststore",
            Role::Identity => "ssl.keystore",
        }
    }
}

/// A store that cannot be used, with its place; never with its content.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} ({place}): {problem}{}", role.prefix(), help(*role, problem))]
pub struct StoreError {
    /// Which store.
    pub role: Role,
    /// The file, or that it stands in the settings.
    pub place: String,
    /// What is wrong.
    pub problem: StoreProblem,
}

/// What is wrong with a store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreProblem {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The file is too large to be a store.
    #[error("it is larger than {STORE_BYTES_MAX} bytes")]
    TooLarge,
    /// A PEM store is no PEM.
    #[error("{0}")]
    Pem(#[from] PemError),
    /// A PEM store has no block of this kind.
    #[error("it holds no {0}")]
    Lacks(&'static str),
    /// It is of another type than the settings say.
    #[error("it is no {expected} store but {found}")]
    OtherType {
        /// What the settings say.
        expected: &'static str,
        /// What the bytes say.
        found: &'static str,
    },
    /// The key is encrypted in a way that is not read here, or the password is wrong.
    #[error("{0}")]
    Locked(String),
    /// What a library said.
    #[error("{0}")]
    Broken(String),
}

fn help(role: Role, problem: &StoreProblem) -> &'static str {
    match (role, problem) {
        (Role::Trust, StoreProblem::OtherType { found: "PEM", .. }) => "; write ssl.truststore.type = PEM",
        (Role::Identity, StoreProblem::OtherType { found: "PEM", .. }) => "; write ssl.keystore.type = PEM",
        _ => "",
    }
}

/// Who we are: a key and its certificates, its own first.
pub(super) struct Identity {
    pub(super) alias: String,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("alias", &self.alias).finish_non_exhaustive()
    }
}

impl Store {
    /// Where it is, in words.
    pub(super) fn place_text(&self) -> String {
        match &self.place {
            Place::File(path) => path.display().to_string(),
            Place::Inline(_) => "in the settings".to_owned(),
        }
    }
}

/// The certificates that are trusted.
pub(super) fn trusted(store: &Store, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, StoreProblem> {
    let certificates = match store.kind {
        StoreKind::Pem => {
            let blocks = pem_blocks(bytes)?;
            blocks.into_iter().filter(is_certificate).map(certificate).collect()
        }
        StoreKind::Java => match java(store, bytes)? {
            Java::Jks(entries) => entries.trusted,
            Java::Pkcs12(entries) => entries.trusted,
        },
    };
    if certificates.is_empty() { Err(StoreProblem::Lacks("certificate")) } else { Ok(certificates) }
}

/// The keys that we may show, with their certificates.
pub(super) fn identities(
    store: &Store,
    bytes: &[u8],
    key_password: Option<&Secret>,
) -> Result<Vec<Identity>, StoreProblem> {
    match store.kind {
        StoreKind::Pem => pem_identity(bytes, key_password).map(|identity| vec![identity]),
        StoreKind::Java => java_identities(store, bytes, key_password),
    }
}

enum Java {
    Jks(jks::Entries),
    Pkcs12(pkcs12::Entries),
}

fn java(store: &Store, bytes: &[u8]) -> Result<Java, StoreProblem> {
    let password = store.password.as_ref().map(Secret::reveal_text);
    let password = password.as_ref().map(|password| password.as_str());
    match bytes {
        [0xfe, 0xed, 0xfe, 0xed, ..] => jks::read(bytes, password).map(Java::Jks),
        [0x30, ..] => pkcs12::read(bytes, password).map(Java::Pkcs12),
        _ => Err(StoreProblem::OtherType { expected: "JKS or PKCS12", found: kind_of(bytes) }),
    }
}

fn java_identities(
    store: &Store,
    bytes: &[u8],
    key_password: Option<&Secret>,
) -> Result<Vec<Identity>, StoreProblem> {
    match java(store, bytes)? {
        // A key of a PKCS12 store has the store's password, whatever keytool was told.
        Java::Pkcs12(entries) => Ok(entries.keys),
        Java::Jks(entries) => {
            let password =
                key_password.or(store.password.as_ref()).map(Secret::reveal_text).unwrap_or_default();
            entries.keys.into_iter().map(|locked| locked.unlock(&password)).collect()
        }
    }
}

fn kind_of(bytes: &[u8]) -> &'static str {
    let is_pem = bytes.windows(11).any(|window| window == b"-----BEGIN ");
    match bytes {
        _ if is_pem => "PEM",
        [] => "empty",
        [0xfe, 0xed, 0xfe, 0xed, ..] => "JKS",
        [0xce, 0xce, 0xce, 0xce, ..] => "JCEKS",
        [0x30, ..] => "PKCS12 or DER",
        _ => "something unknown",
    }
}

fn pem_blocks(bytes: &[u8]) -> Result<Vec<Block>, StoreProblem> {
    let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
    let blocks = pem::blocks(&text)?;
    if blocks.is_empty() {
        return Err(StoreProblem::OtherType { expected: "PEM", found: kind_of(bytes) });
    }
    Ok(blocks)
}

fn is_certificate(block: &Block) -> bool {
    block.label.ends_with("CERTIFICATE")
}

fn certificate(block: Block) -> CertificateDer<'static> {
    CertificateDer::from(block.der.to_vec())
}

fn pem_identity(bytes: &[u8], password: Option<&Secret>) -> Result<Identity, StoreProblem> {
    let blocks = pem_blocks(bytes)?;
    let key = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY"));
    let key = pem_key(key.ok_or(StoreProblem::Lacks("private key"))?, password)?;
    let chain: Vec<_> = blocks.into_iter().filter(is_certificate).map(certificate).collect();
    if chain.is_empty() {
        return Err(StoreProblem::Lacks("certificate"));
    }
    Ok(Identity { alias: "PEM".to_owned(), chain, key })
}

fn pem_key(block: &Block, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, StoreProblem> {
    let der = block.der.to_vec();
    match block.label.as_str() {
        "PRIVATE KEY" => Ok(PrivatePkcs8KeyDer::from(der).into()),
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(der).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(der).into()),
        "ENCRYPTED PRIVATE KEY" => decrypted(&der, password),
        other => Err(StoreProblem::Locked(format!("a key in the form {other} is not read"))),
    }
}

/// PKCS8 with PBES2, as openssl and keytool write it.
fn decrypted(der: &[u8], password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, StoreProblem> {
    let Some(password) = password else {
        return Err(StoreProblem::Locked("its key is encrypted, and ssl.key.password is not set".to_owned()));
    };
    let info = EncryptedPrivateKeyInfoRef::try_from(der).map_err(|_| {
        let advice = "its key is encrypted in a way that is not read here; openssl pkcs8 -topk8 -v2 aes-256-cbc changes that";
        StoreProblem::Locked(advice.to_owned())
    })?;
    check_key(&info.encryption_algorithm)?;
    let key = info.decrypt(password.reveal()).map_err(|_| {
        StoreProblem::Locked("its key cannot be decrypted: ssl.key.password is wrong".to_owned())
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(kind: StoreKind) -> Store {
        Store { kind, place: Place::File("/x/s".into()), password: None }
    }

    #[test]
    fn a_store_of_another_type_is_named() {
        for (kind, bytes, words) in [
            (StoreKind::Java, &b"-----BEGIN CERTIFICATE-----"[..], "it is no JKS or PKCS12 store but PEM"),
            (StoreKind::Java, b"", "it is no JKS or PKCS12 store but empty"),
            (StoreKind::Pem, b"\xfe\xed\xfe\xed\0\0\0\x02", "it is no PEM store but JKS"),
            (StoreKind::Pem, b"hello", "it is no PEM store but something unknown"),
            (StoreKind::Pem, b"-----BEGIN X-----AAAA-----END X-----", "it holds no certificate"),
        ] {
            let problem = trusted(&store(kind), bytes).unwrap_err();
            assert_eq!(problem.to_string(), words);
        }
        let problem = trusted(&store(StoreKind::Java), b"-----BEGIN CERTIFICATE-----").unwrap_err();
        let error = StoreError { role: Role::Trust, place: "/x/s".to_owned(), problem };
        let words =
            "ssl.truststore (/x/s): it is no JKS or PKCS12 store but PEM; write ssl.truststore.type = PEM";
        assert_eq!(error.to_string(), words);
    }

    #[test]
    fn a_pem_identity_needs_both_halves() {
        for (bytes, words) in [
            (&b"-----BEGIN CERTIFICATE-----AAAA-----END CERTIFICATE-----"[..], "it holds no private key"),
            (b"-----BEGIN PRIVATE KEY-----AAAA-----END PRIVATE KEY-----", "it holds no certificate"),
        ] {
            let problem = identities(&store(StoreKind::Pem), bytes, None).unwrap_err();
            assert_eq!(problem.to_string(), words);
        }
    }
}
