//! SCRAM (RFC 5802) from the broker's side: it keeps what a broker stores of a password, and proves that it does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Step;
use crate::broker::settings::SaslMechanism;

/// Kafka's least.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("it is not zero");

/// A conversation after its first messages.
#[derive(Debug)]
pub(super) struct Scram {
    mechanism: SaslMechanism,
    user: String,
    /// `r=…` of the messages to come.
    nonce: String,
    /// What both sides sign, but for the client's last message.
    signed: String,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Scram {
    /// Takes the client's first message.
    pub(super) fn begin(
        mechanism: SaslMechanism,
        users: &BTreeMap<String, String>,
        message: &[u8],
        random: [u8; 24],
    ) -> Step {
        let Some(first) = str::from_utf8(message).ok().and_then(|text| text.strip_prefix("n,,")) else {
            return Step::Refused;
        };
        let (Some(name), Some(nonce)) = (field(first, "n="), field(first, "r=")) else {
            return Step::Refused;
        };
        let user = name.replace("=2C", ",").replace("=3D", "=");
        let Some(password) = users.get(&user) else { return Step::Refused };
        let (salt, ours) = random.split_at(12);
        let (nonce, salt_text) = (format!("{nonce}{}", STANDARD.encode(ours)), STANDARD.encode(salt));
        let challenge = format!("r={nonce},s={salt_text},i={ITERATIONS}");
        let hash = Hash::of(mechanism);
        let salted = hash.salted(password.as_bytes(), salt);
        let scram = Scram {
            mechanism,
            user,
            signed: format!("{first},{challenge}"),
            nonce,
            stored_key: hash.digest(&hash.hmac(&salted, b"Client Key")),
            server_key: hash.hmac(&salted, b"Server Key"),
        };
        Step::GoesOn(scram, challenge.into_bytes())
    }

    pub(super) fn mechanism(&self) -> SaslMechanism {
        self.mechanism
    }

    /// Takes the client's last message.
    pub(super) fn finish(self, message: &[u8]) -> Step {
        let Some((without_proof, proof)) =
            str::from_utf8(message).ok().and_then(|text| text.rsplit_once(",p="))
        else {
            return Step::Refused;
        };
        let proof = STANDARD.decode(proof).unwrap_or_default();
        let hash = Hash::of(self.mechanism);
        let signed = format!("{},{without_proof}", self.signed);
        let signature = hash.hmac(&self.stored_key, signed.as_bytes());
        let client_key: Vec<u8> =
            proof.iter().zip(&signature).map(|(proof, signature)| proof ^ signature).collect();
        let is_right = proof.len() == signature.len() && hash.digest(&client_key) == self.stored_key;
        if !is_right || field(without_proof, "r=") != Some(&self.nonce) {
            return Step::Refused;
        }
        let last = format!("v={}", STANDARD.encode(hash.hmac(&self.server_key, signed.as_bytes())));
        Step::Done(self.user, last.into_bytes())
    }
}

fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message.split(',').find_map(|field| field.strip_prefix(name))
}

struct Hash {
    derive: pbkdf2::Algorithm,
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
}

impl Hash {
    fn of(mechanism: SaslMechanism) -> Hash {
        match mechanism {
            SaslMechanism::ScramSha512 => {
                Hash { derive: pbkdf2::PBKDF2_HMAC_SHA512, hmac: hmac::HMAC_SHA512, digest: &digest::SHA512 }
            }
            _ => {
                Hash { derive: pbkdf2::PBKDF2_HMAC_SHA256, hmac: hmac::HMAC_SHA256, digest: &digest::SHA256 }
            }
        }
    }

    fn salted(&self, password: &[u8], salt: &[u8]) -> Vec<u8> {
        let mut salted = vec![0; self.digest.output_len()];
        pbkdf2::derive(self.derive, ITERATIONS, salt, password, &mut salted);
        salted
    }

    fn hmac(&self, key: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac, key), message).as_ref().to_vec()
    }

    fn digest(&self, message: &[u8]) -> Vec<u8> {
        digest::digest(self.digest, message).as_ref().to_vec()
    }
}
