//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84), the client's side.
//!
//! The broker proves that it knows the password too: its signature is checked, in constant time. It also names how many
//! rounds the password is hashed; fewer than Kafka's least would make it easy to guess, many more would keep us busy.
//! As Kafka, the password is taken as it is, without SASLprep (`ScramFormatter.normalize`).

use std::num::NonZeroU32;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{Next, Password, PasswordKind};

/// The fewest rounds that are taken (`ScramMechanism.minIterations`).
pub const ITERATIONS_MIN: u32 = 4_096;
/// The most; a broker stores 16,384 at most.
pub const ITERATIONS_MAX: u32 = 65_536;
/// No message of a broker comes near this.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// `n,,`: no channel binding, no authorization id.
const GS2_HEADER: &str = "n,,";

#[derive(Clone, Copy, Debug)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Scram {
    hash: Hash,
    password: Password,
    nonce: String,
    stage: Stage,
}

enum Stage {
    First,
    /// The signature that the broker must show.
    Final(Vec<u8>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stage::First => "First",
            Stage::Final(_) => "Final",
        })
    }
}

impl Scram {
    pub(super) fn new(hash: Hash, password: Password, random: [u8; 24]) -> Scram {
        Scram { hash, password, nonce: STANDARD.encode(random), stage: Stage::First }
    }

    #[cfg(test)]
    fn with_nonce(hash: Hash, password: Password, nonce: &str) -> Scram {
        Scram { hash, password, nonce: nonce.to_owned(), stage: Stage::First }
    }

    pub(super) fn first(&self) -> String {
        format!("{GS2_HEADER}{}", self.first_bare())
    }

    fn first_bare(&self) -> String {
        let name = self.password.username.replace('=', "=3D").replace(',', "=2C");
        let token = match self.password.kind {
            PasswordKind::User => "",
            PasswordKind::DelegationToken => ",tokenauth=true",
        };
        format!("n={name},r={}{token}", self.nonce)
    }

    pub(super) fn challenge(&mut self, message: &[u8]) -> Result<Next, String> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(format!("its message is longer than {MESSAGE_BYTES_MAX} bytes"));
        }
        let message = str::from_utf8(message).map_err(|_| "its message is no UTF-8".to_owned())?;
        match &self.stage {
            Stage::First => {
                let (answer, signature) = self.prove(message)?;
                self.stage = Stage::Final(signature);
                Ok(Next::Send(answer.into_bytes()))
            }
            Stage::Final(expected) => {
                let fields = Fields::of(message);
                if let Some(error) = fields.get('e') {
                    return Err(format!("it says {error:?}"));
                }
                let signature = fields.base64('v').ok_or("its last message holds no signature")?;
                constant_time::verify_slices_are_equal(&signature, expected)
                    .map_err(|_| "its signature is wrong: it does not know the password itself".to_owned())?;
                Ok(Next::Done)
            }
        }
    }

    /// The answer to the broker's first message, and the signature that the broker owes us for it.
    fn prove(&self, server_first: &str) -> Result<(String, Vec<u8>), String> {
        let fields = Fields::of(server_first);
        if fields.get('m').is_some() {
            return Err("it asks for an extension that nobody has".to_owned());
        }
        let nonce = fields.get('r').ok_or("its first message holds no nonce")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce does not go on from ours".to_owned());
        }
        let salt = fields.base64('s').ok_or("its first message holds no salt")?;
        let iterations = fields.get('i').and_then(|count| count.parse::<u32>().ok());
        let iterations = iterations.ok_or("its first message holds no iteration count")?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(format!(
                "it wants {iterations} iterations, where {ITERATIONS_MIN} to {ITERATIONS_MAX} are taken"
            ));
        }
        let salted = self.hash.salted(self.password.password.reveal(), &salt, iterations);
        let channel = STANDARD.encode(GS2_HEADER);
        let without_proof = format!("c={channel},r={nonce}");
        let message = format!("{},{server_first},{without_proof}", self.first_bare());
        let client_key = Zeroizing::new(self.hash.hmac(&salted, b"Client Key"));
        let stored_key = self.hash.digest(&client_key);
        let client_signature = self.hash.hmac(&stored_key, message.as_bytes());
        let proof: Vec<u8> =
            client_key.iter().zip(&client_signature).map(|(key, signature)| key ^ signature).collect();
        let server_key = Zeroizing::new(self.hash.hmac(&salted, b"Server Key"));
        let server_signature = self.hash.hmac(&server_key, message.as_bytes());
        Ok((format!("{without_proof},p={}", STANDARD.encode(proof)), server_signature))
    }
}

impl Hash {
    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<Vec<u8>> {
        let (algorithm, bytes) = match self {
            Hash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, digest::SHA256_OUTPUT_LEN),
            Hash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, digest::SHA512_OUTPUT_LEN),
        };
        let mut salted = Zeroizing::new(vec![0; bytes]);
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }

    fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), message).as_ref().to_vec()
    }

    fn digest(self, message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, message).as_ref().to_vec()
    }
}

/// `a=value` between commas.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn of(message: &'a str) -> Fields<'a> {
        Fields(message.split(',').filter_map(|field| field.split_once('=')).collect())
    }

    fn get(&self, name: char) -> Option<&'a str> {
        let is_it = |field: &&(&str, &str)| field.0.len() == 1 && field.0.starts_with(name);
        self.0.iter().find(is_it).map(|(_, value)| *value)
    }

    fn base64(&self, name: char) -> Option<Vec<u8>> {
        STANDARD.decode(self.get(name)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::Secret;

    fn user(name: &str, password: &str) -> Password {
        Password { username: name.to_owned(), password: Secret::new(password), kind: PasswordKind::User }
    }

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_is_reproduced() {
        let mut scram = Scram::with_nonce(Hash::Sha256, user("user", "pencil"), "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server_first =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let answer = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(scram.challenge(server_first.as_bytes()), Ok(Next::Send(answer.into())));
        let server_final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(scram.challenge(server_final), Ok(Next::Done));
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let mut scram = Scram::with_nonce(Hash::Sha512, user("user", "pencil"), "abc");
        let Ok(Next::Send(_)) = scram.challenge(b"r=abcdef,s=AAAA,i=4096") else { panic!() };
        for (message, words) in [
            (&b"v=AAAA"[..], "its signature is wrong"),
            (b"e=other-error", "it says \"other-error\""),
            (b"x", "its last message holds no signature"),
        ] {
            let error = scram.challenge(message).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn names_are_escaped_and_tokens_marked() {
        let token = Password { kind: PasswordKind::DelegationToken, ..user("a=b,c", "x") };
        assert_eq!(Scram::with_nonce(Hash::Sha256, token, "N").first(), "n,,n=a=3Db=2Cc,r=N,tokenauth=true");
    }

    #[test]
    fn what_a_broker_may_not_ask_for_is_refused() {
        for (message, words) in [
            ("r=abcdef,s=AAAA,i=4095", "4095 iterations"),
            ("r=abcdef,s=AAAA,i=65537", "65537 iterations"),
            ("r=abcdef,s=AAAA,i=99999999999", "no iteration count"),
            ("r=abcdef,s=AAAA", "no iteration count"),
            ("r=abcdef,i=4096", "no salt"),
            ("r=abcdef,s=!,i=4096", "no salt"),
            ("r=xbcdef,s=AAAA,i=4096", "nonce does not go on"),
            ("r=abc,s=AAAA,i=4096", "nonce does not go on"),
            ("s=AAAA,i=4096", "no nonce"),
            ("m=x,r=abcdef,s=AAAA,i=4096", "extension"),
        ] {
            let mut scram = Scram::with_nonce(Hash::Sha256, user("u", "p"), "abc");
            let error = scram.challenge(message.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{message}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(message in "([rsimve]=[a-z0-9=/+]{0,9},?){0,5}", bytes: Vec<u8>) {
            for message in [message.into_bytes(), bytes] {
                let mut scram = Scram::with_nonce(Hash::Sha256, user("u", "p"), "");
                let _ = scram.challenge(&message);
                let _ = scram.challenge(&message);
            }
        }
    }
}
