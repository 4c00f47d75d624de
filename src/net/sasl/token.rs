//! A bearer token as far as a client must understand it: whose it is, when it ends, when to ask for the next one.
//!
//! Pure. Nothing is verified: that is the broker's part. The times of refreshing are those of
//! `ExpiringCredentialRefreshingLogin.java`, cut where they would come too late for a connection.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value;

use crate::net::Secret;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its text.
    pub text: Secret,
    /// `sub`, or another claim that names who it is; empty if none does.
    pub subject: String,
    /// When it ends (`exp`), in milliseconds since the epoch.
    pub ends_ms: Option<i64>,
}

/// Why a text is no token that could be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("it is empty")]
    Empty,
    /// It holds characters that no token has.
    #[error("it is no token: it holds characters that none has")]
    Characters,
}

impl Token {
    /// Reads the claims of a token; one that is no JWT has none.
    ///
    /// # Errors
    /// [`TokenError`] for what cannot be sent.
    pub fn read(text: &[u8]) -> Result<Token, TokenError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        let is_one = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_~+/.=".contains(&byte);
        if !text.iter().all(is_one) {
            return Err(TokenError::Characters);
        }
        let claims = claims(text).unwrap_or_default();
        let word = |key: &str| claims.get(key).and_then(Value::as_str);
        let subject = ["sub", "client_id", "azp"].into_iter().find_map(word).unwrap_or_default();
        let ends_ms = claims.get("exp").and_then(Value::as_f64).map(|seconds| (seconds * 1_000.0) as i64);
        Ok(Token { text: Secret::new(text), subject: subject.to_owned(), ends_ms })
    }

    /// A token without a signature, for brokers that ask for none (`OAuthBearerUnsecuredLoginCallbackHandler.java`).
    pub fn unsecured(claims: &[(String, Value)], now_ms: i64, lifetime_ms: i64) -> Token {
        let (begins, ends_ms) = (now_ms as f64 / 1_000.0, now_ms.saturating_add(lifetime_ms));
        let mut body = serde_json::Map::new();
        body.insert("iat".to_owned(), begins.into());
        body.insert("exp".to_owned(), (ends_ms as f64 / 1_000.0).into());
        body.extend(claims.iter().cloned());
        let body = Value::Object(body);
        let subject = body["sub"].as_str().unwrap_or_default().to_owned();
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let text = format!("{}.{}.", part("{\"alg\":\"none\"}"), part(&body.to_string()));
        Token { text: Secret::new(text), subject, ends_ms: Some(ends_ms) }
    }
}

fn claims(text: &[u8]) -> Option<serde_json::Map<String, Value>> {
    let body = text.split(|&byte| byte == b'.').nth(1)?;
    let body = URL_SAFE_NO_PAD.decode(body).or_else(|_| URL_SAFE.decode(body)).ok()?;
    match serde_json::from_slice(&body).ok()? {
        Value::Object(claims) => Some(claims),
        _ => None,
    }
}

/// `sasl.login.refresh.*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refresh {
    /// `window.factor`: after which part of its time a token is replaced.
    pub window_factor: f64,
    /// `window.jitter`: by how much of it more, at the most.
    pub window_jitter: f64,
    /// `min.period.seconds`, in milliseconds: no sooner than this after the last one.
    pub period_ms_min: i64,
    /// `buffer.seconds`, in milliseconds: no later than this before its end.
    pub buffer_ms: i64,
}

impl Eq for Refresh {}

impl Default for Refresh {
    fn default() -> Refresh {
        Refresh { window_factor: 0.8, window_jitter: 0.05, period_ms_min: 60_000, buffer_ms: 300_000 }
    }
}

impl Refresh {
    /// When a token that came at `now_ms` and ends at `ends_ms` is to be replaced; `random` are random bits for the jitter.
    /// Both margins are ignored where the token does not live as long as they are together.
    pub fn at_ms(&self, now_ms: i64, ends_ms: i64, random: u64) -> i64 {
        let chance = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let part = self.window_factor + self.window_jitter * chance;
        let lives_ms = ends_ms.saturating_sub(now_ms);
        let proposed_ms = now_ms.saturating_add((lives_ms as f64 * part) as i64);
        if self.period_ms_min.saturating_add(self.buffer_ms) > lives_ms {
            return proposed_ms;
        }
        proposed_ms.min(ends_ms - self.buffer_ms).max(now_ms + self.period_ms_min)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn claims_are_read_where_there_are_any() {
        let jwt = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        for (text, subject, ends_ms) in [
            (jwt("{\"sub\":\"alice\",\"exp\":1700000000}"), "alice", Some(1_700_000_000_000)),
            (jwt("{\"azp\":\"app\",\"exp\":1700000000.25}"), "app", Some(1_700_000_000_250)),
            (jwt("{\"sub\":7}"), "", None),
            (jwt("[]"), "", None),
            ("opaque".to_owned(), "", None),
            ("a.!b.c".replace('!', "-"), "", None),
        ] {
            let token = Token::read(format!(" {text}\n").as_bytes()).unwrap();
            assert_eq!((token.subject.as_str(), token.ends_ms), (subject, ends_ms), "{text}");
            assert_eq!(token.text.reveal(), text.as_bytes());
        }
        assert_eq!(Token::read(b" \n"), Err(TokenError::Empty));
        assert_eq!(Token::read(b"a\x01b"), Err(TokenError::Characters));
    }

    #[test]
    fn a_token_without_a_signature_reads_back() {
        let claims = [("sub".to_owned(), Value::from("bob"))];
        let token = Token::unsecured(&claims, 1_700_000_000_000, 3_600_000);
        assert_eq!(Token::read(token.text.reveal()).unwrap(), token);
        assert_eq!((token.subject.as_str(), token.ends_ms), ("bob", Some(1_700_003_600_000)));
        assert!(token.text.reveal().ends_with(b"."));
    }

    #[test]
    fn a_token_is_replaced_in_the_window_and_within_the_margins() {
        let refresh = Refresh::default();
        let minute = 60_000;
        for (lives_ms, random, at_ms) in [
            // An hour: after 48 to 51 minutes.
            (60 * minute, 0, 48 * minute),
            (60 * minute, u64::MAX, 51 * minute),
            // Ten minutes: the end's margin comes before the window.
            (10 * minute, 0, 5 * minute),
            // Two minutes: shorter than both margins.
            (2 * minute, 0, 96_000),
            (0, 0, 0),
        ] {
            assert_eq!(refresh.at_ms(0, lives_ms, random), at_ms, "{lives_ms} {random}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(bytes: Vec<u8>, text in "[a-zA-Z0-9._-]{0,60}") {
            let _ = Token::read(&bytes);
            let _ = Token::read(text.as_bytes());
        }

        /// A connection made with a token renews its session when 85 % of it are over at the earliest.
        #[test]
        fn the_next_token_is_there_when_a_session_is_renewed(now in 0_i64..1 << 41, lives_ms in 1_i64..1 << 41, random: u64) {
            let at_ms = Refresh::default().at_ms(now, now + lives_ms, random);
            prop_assert!(at_ms >= now && at_ms <= now + (lives_ms as f64 * 0.85) as i64 + 1);
        }
    }
}
