//! PKCS12, the key store that Java writes since 9, and openssl.
//!
//! What is trusted: Java marks such certificates (`2.16.840.1.113894.746875.1.1`), openssl does not; where none is marked, all
//! that belong to no key are meant. As in Java, a key's own certificate is trusted, too.

use p12_keystore::error::Error;
use p12_keystore::{Certificate, Pkcs12Archive};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::iterations::check_pkcs12;
use super::store::{Identity, StoreProblem};

/// No chain is longer.
const CHAIN_MAX: usize = 10;

/// What a store holds.
pub(super) struct Entries {
    pub(super) trusted: Vec<CertificateDer<'static>>,
    pub(super) keys: Vec<Identity>,
}

/// Reads a store.
pub(super) fn read(bytes: &[u8], password: Option<&str>) -> Result<Entries, StoreProblem> {
    check_pkcs12(bytes)?;
    let archive = Pkcs12Archive::from_pkcs12(bytes, password.unwrap_or_default()).map_err(problem)?;
    let mut keys = Vec::new();
    for bag in &archive.keys {
        let own =
            archive.certs.iter().find(|certificate| match (&bag.local_key_id, &certificate.local_key_id) {
                (Some(key), Some(certificate)) => key.as_ref() == certificate.as_slice(),
                _ => false,
            });
        let Some(own) = own else { continue };
        keys.push(Identity {
            alias: bag.friendly_name.clone().unwrap_or_else(|| own.cert.subject().to_owned()),
            chain: chain(&own.cert, archive.certs.iter().map(|bag| &bag.cert)),
            key: PrivatePkcs8KeyDer::from(bag.key.as_der().to_vec()).into(),
        });
    }
    let is_marked = archive.certs.iter().any(|bag| bag.trusted);
    let trusted = archive.certs.iter().filter(|bag| match is_marked {
        true => bag.trusted || bag.local_key_id.is_some(),
        false => bag.local_key_id.is_none() || archive.keys.is_empty() || archive.certs.len() == keys.len(),
    });
    let trusted = trusted.map(|bag| der(&bag.cert)).collect();
    Ok(Entries { trusted, keys })
}

/// A certificate and those who signed it, as far as they are there.
fn chain<'c>(
    own: &'c Certificate,
    all: impl Iterator<Item = &'c Certificate> + Clone,
) -> Vec<CertificateDer<'static>> {
    let mut links = vec![own];
    while let Some(last) =
        links.last().filter(|last| links.len() < CHAIN_MAX && last.issuer() != last.subject())
    {
        let Some(issuer) = all.clone().find(|candidate| candidate.subject() == last.issuer()) else { break };
        links.push(issuer);
    }
    links.into_iter().map(der).collect()
}

fn der(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from(certificate.as_der().to_vec())
}

fn problem(error: Error) -> StoreProblem {
    match error {
        Error::MacError(_) => StoreProblem::Locked("its password is wrong, or it is damaged".to_owned()),
        Error::Pkcs5Error(_) | Error::UnpadError => {
            StoreProblem::Locked("it cannot be decrypted: its password is wrong, or it is damaged".to_owned())
        }
        Error::UnsupportedEncryptionScheme | Error::UnsupportedMacAlgorithm => {
            StoreProblem::Broken("it is encrypted in a way that is not read here".to_owned())
        }
        Error::InvalidParameters => StoreProblem::Broken(
            "its password would be hashed more than 1000000 times for one entry; make it anew with fewer iterations".to_owned(),
        ),
        error => StoreProblem::Broken(format!("it is no PKCS12 store that can be read: {error}")),
    }
}
