//! JKS, the key store that Java wrote before 9 (`sun.security.provider.JavaKeyStore`, `KeyProtector`).
//!
//! Big-endian throughout: a magic number, a version, a count of entries, the entries, and a SHA-1 over all of it that the
//! password begins. A key is hidden by a stream of SHA-1 digests of the password. Nothing is allocated by a claimed length.

use aws_lc_rs::{constant_time, digest};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::der::tagged;
use super::store::{Identity, StoreProblem};

const MAGIC: u32 = 0xfeed_feed;
const DIGEST_BYTES: usize = 20;
/// What `JavaKeyStore` puts between the password and the content.
const WHITENER: &[u8] = b"Mighty Aphrodite";
/// `KeyProtector`'s object identifier, 1.3.6.1.4.1.42.2.17.1.1, in DER.
const KEY_PROTECTOR: &[u8] = &[0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];
const ENTRIES_MAX: u32 = 100_000;

/// What a store holds.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) trusted: Vec<CertificateDer<'static>>,
    pub(super) keys: Vec<Locked>,
}

/// A key that is still hidden.
#[derive(Debug)]
pub(super) struct Locked {
    alias: String,
    hidden: Vec<u8>,
    chain: Vec<CertificateDer<'static>>,
}

/// Reads a store; with a password, its integrity is checked.
pub(super) fn read(bytes: &[u8], password: Option<&str>) -> Result<Entries, StoreProblem> {
    let end = bytes.len().checked_sub(DIGEST_BYTES).ok_or_else(cut)?;
    let (content, sum) = bytes.split_at(end);
    if let Some(password) = password {
        let password = utf16(password);
        let expected = sha1(&[&password, WHITENER, content]);
        constant_time::verify_slices_are_equal(&expected, sum)
            .map_err(|_| StoreProblem::Locked("its password is wrong, or it is damaged".to_owned()))?;
    }
    let mut cursor = Cursor(content);
    let (magic, version) = (cursor.u32()?, cursor.u32()?);
    if magic != MAGIC || !matches!(version, 1 | 2) {
        return Err(broken("it is no JKS store of version 1 or 2"));
    }
    let count = cursor.u32()?;
    if count > ENTRIES_MAX {
        return Err(broken("it claims too many entries"));
    }
    let mut entries = Entries::default();
    for _ in 0..count {
        let tag = cursor.u32()?;
        let alias = String::from_utf8_lossy(cursor.text()?).into_owned();
        cursor.take(8)?;
        match tag {
            1 => {
                let hidden = cursor.bytes()?.to_vec();
                let mut chain = Vec::new();
                for _ in 0..cursor.u32()? {
                    chain.push(cursor.certificate(version)?);
                }
                // As in Java, a key's own certificate is trusted, too.
                entries.trusted.extend(chain.first().cloned());
                entries.keys.push(Locked { alias, hidden, chain });
            }
            2 => entries.trusted.push(cursor.certificate(version)?),
            _ => return Err(broken("it holds an entry that is neither a key nor a certificate")),
        }
    }
    Ok(entries)
}

impl Locked {
    /// The key in the open.
    pub(super) fn unlock(self, password: &str) -> Result<Identity, StoreProblem> {
        let Locked { alias, hidden, chain } = self;
        let protected = protected(&hidden).ok_or_else(|| broken("a key is hidden in an unknown way"))?;
        let end = protected.len().checked_sub(DIGEST_BYTES).filter(|&end| end >= DIGEST_BYTES);
        let end = end.ok_or_else(cut)?;
        let (salt, rest) = protected.split_at(DIGEST_BYTES);
        let (hidden, sum) = rest.split_at(end - DIGEST_BYTES);
        let password = utf16(password);
        let mut key = Zeroizing::new(Vec::with_capacity(hidden.len()));
        let mut stream = salt.to_vec();
        for chunk in hidden.chunks(DIGEST_BYTES) {
            stream = sha1(&[&password, &stream]);
            key.extend(chunk.iter().zip(&stream).map(|(hidden, stream)| hidden ^ stream));
        }
        constant_time::verify_slices_are_equal(&sha1(&[&password, &key]), sum).map_err(|_| {
            StoreProblem::Locked(format!("the password of the key {alias} is wrong (ssl.key.password)"))
        })?;
        Ok(Identity { alias, chain, key: PrivatePkcs8KeyDer::from(key.to_vec()).into() })
    }
}

/// What is inside `SEQUENCE { SEQUENCE { KeyProtector, NULL }, OCTET STRING }`.
fn protected(der: &[u8]) -> Option<&[u8]> {
    let (outer, _) = tagged(der, 0x30)?;
    let (algorithm, rest) = tagged(outer, 0x30)?;
    if !algorithm.starts_with(KEY_PROTECTOR) {
        return None;
    }
    tagged(rest, 0x04).map(|(content, _)| content)
}

fn utf16(password: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(password.encode_utf16().flat_map(u16::to_be_bytes).collect())
}

fn sha1(parts: &[&[u8]]) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().to_vec()
}

fn broken(words: &str) -> StoreProblem {
    StoreProblem::Broken(words.to_owned())
}

fn cut() -> StoreProblem {
    broken("it is cut off")
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], StoreProblem> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, StoreProblem> {
        let bytes = <[u8; 4]>::try_from(self.take(4)?).map_err(|_| cut())?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn bytes(&mut self) -> Result<&'a [u8], StoreProblem> {
        let count = self.u32()?;
        self.take(usize::try_from(count).map_err(|_| cut())?)
    }

    fn text(&mut self) -> Result<&'a [u8], StoreProblem> {
        let count = <[u8; 2]>::try_from(self.take(2)?).map_err(|_| cut())?;
        self.take(usize::from(u16::from_be_bytes(count)))
    }

    /// Version 2 says of what kind it is; there is only X.509.
    fn certificate(&mut self, version: u32) -> Result<CertificateDer<'static>, StoreProblem> {
        if version == 2 {
            self.text()?;
        }
        Ok(CertificateDer::from(self.bytes()?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A store of one certificate and one key, written by the rules above.
    fn store(password: &str, key_password: &str, key: &[u8]) -> Vec<u8> {
        let secret = utf16(key_password);
        let salt = [7; DIGEST_BYTES];
        let mut stream = salt.to_vec();
        let mut hidden = salt.to_vec();
        for chunk in key.chunks(DIGEST_BYTES) {
            stream = sha1(&[&secret, &stream]);
            hidden.extend(chunk.iter().zip(&stream).map(|(key, stream)| key ^ stream));
        }
        hidden.extend(sha1(&[&secret, key]));
        let mut algorithm = KEY_PROTECTOR.to_vec();
        algorithm.extend([5, 0]);
        let wrap = |tag: u8, content: &[u8]| [&[tag, 0x81, content.len() as u8], content].concat();
        let der = wrap(0x30, &[wrap(0x30, &algorithm), wrap(0x04, &hidden)].concat());
        let mut content = [MAGIC, 2, 2].map(u32::to_be_bytes).concat();
        let counted = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        let certificate = |bytes: &[u8]| [text("X.509"), counted(bytes)].concat();
        content.extend([&2_u32.to_be_bytes()[..], &text("ca"), &[0; 8], &certificate(b"CA")].concat());
        content.extend([&1_u32.to_be_bytes()[..], &text("me"), &[0; 8], &counted(&der)].concat());
        content.extend([&1_u32.to_be_bytes()[..], &certificate(b"ME")].concat());
        let sum = sha1(&[&utf16(password), WHITENER, &content]);
        [content, sum].concat()
    }

    #[test]
    fn certificates_and_keys_come_out_with_their_passwords() {
        let key: Vec<u8> = (0..50).collect();
        let bytes = store("store", "key", &key);
        let entries = read(&bytes, Some("store")).unwrap();
        assert_eq!(entries.trusted, [b"CA", b"ME"].map(|bytes| CertificateDer::from(bytes.to_vec())));
        let locked = entries.keys.into_iter().next().unwrap();
        let identity = locked.unlock("key").unwrap();
        assert_eq!((identity.alias.as_str(), identity.key.secret_der()), ("me", &key[..]));
        assert_eq!(identity.chain, [CertificateDer::from(b"ME".to_vec())]);
        assert_eq!(read(&bytes, None).unwrap().trusted.len(), 2);
    }

    #[test]
    fn wrong_passwords_and_cut_stores_are_told() {
        let bytes = store("store", "key", &[1; 30]);
        let text = |result: Result<Entries, StoreProblem>| result.unwrap_err().to_string();
        assert!(text(read(&bytes, Some("other"))).contains("its password is wrong"));
        assert!(text(read(&bytes[..30], None)).contains("cut off"));
        let locked = read(&bytes, None).unwrap().keys.remove(0);
        assert!(
            locked.unlock("other").unwrap_err().to_string().contains("the password of the key me is wrong")
        );
    }

    proptest! {
        #[test]
        fn damaged_stores_never_panic(at in 0_usize..200, value: u8, cut in 0_usize..200) {
            let mut bytes = store("s", "k", &[1; 30]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            for locked in read(&bytes, None).into_iter().flat_map(|entries| entries.keys) {
                let _ = locked.unlock("k");
            }
        }
    }
}
