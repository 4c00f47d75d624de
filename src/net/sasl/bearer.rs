//! OAUTHBEARER from the client's side (RFC 7628, KIP-255, KIP-342): one message with the token and the extensions. A broker
//! that does not take it says why in JSON, wants one more byte, and only then refuses.

use std::collections::BTreeMap;

use super::Next;
use crate::net::Secret;

/// No broker says more about a token.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// A conversation.
#[derive(Debug)]
pub(super) struct Bearer {
    token: Secret,
    extensions: BTreeMap<String, String>,
    /// Why the broker does not take the token.
    refusal: Option<String>,
}

impl Bearer {
    pub(super) fn new(token: Secret, extensions: BTreeMap<String, String>) -> Bearer {
        Bearer { token, extensions, refusal: None }
    }

    pub(super) fn first(&self) -> Vec<u8> {
        let mut message = [b"n,,\x01auth=Bearer ", self.token.reveal(), b"\x01"].concat();
        for (key, value) in &self.extensions {
            message.extend_from_slice(format!("{key}={value}\x01").as_bytes());
        }
        message.push(1);
        message
    }

    pub(super) fn challenge(&mut self, message: &[u8]) -> Next {
        if message.is_empty() {
            return Next::Done;
        }
        self.refusal = Some(told(message));
        Next::Send(vec![1])
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

/// The fields that the RFC knows, or the text as it is.
fn told(message: &[u8]) -> String {
    let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_slice(message) else {
        return String::from_utf8_lossy(message).into_owned();
    };
    let known = ["status", "scope", "openid-configuration"];
    let parts = known.iter().filter_map(|key| Some(format!("{key} {}", fields.get(*key)?)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Whether the name and the value of an extension may be sent (`OAuthBearerClientInitialResponse.java`).
pub fn is_extension(key: &str, value: &str) -> bool {
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic()) && key != "auth";
    let is_value = |byte: u8| matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~');
    is_key && !value.is_empty() && value.bytes().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(extensions: &[(&str, &str)]) -> Bearer {
        let extensions = extensions.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        Bearer::new(Secret::new("a.b.c"), extensions.collect())
    }

    #[test]
    fn the_first_message_is_that_of_the_rfc() {
        assert_eq!(bearer(&[]).first(), b"n,,\x01auth=Bearer a.b.c\x01\x01");
        let more = bearer(&[("logicalCluster", "lkc-1"), ("identityPoolId", "pool-2")]);
        assert_eq!(
            more.first(),
            b"n,,\x01auth=Bearer a.b.c\x01identityPoolId=pool-2\x01logicalCluster=lkc-1\x01\x01"
        );
    }

    #[test]
    fn a_refusal_is_kept_until_the_broker_has_said_all() {
        let mut bearer = bearer(&[]);
        assert_eq!(
            bearer.challenge(b"{\"status\":\"invalid_token\",\"scope\":\"kafka\",\"x\":1}"),
            Next::Send(vec![1])
        );
        assert_eq!(bearer.refusal(), Some("status \"invalid_token\", scope \"kafka\""));
        assert_eq!(bearer.challenge(b""), Next::Done);
        let mut other = self::bearer(&[]);
        other.challenge(b"\xffno json");
        assert_eq!(other.refusal(), Some("\u{fffd}no json"));
    }

    #[test]
    fn extensions_are_kept_to_what_the_rfc_lets_through() {
        for (key, value, is_one) in [
            ("traceId", "123", true),
            ("a", "x y", true),
            ("auth", "x", false),
            ("trace_id", "x", false),
            ("", "x", false),
            ("a", "", false),
            ("a", "x\u{1}y", false),
            ("a", "ü", false),
        ] {
            assert_eq!(is_extension(key, value), is_one, "{key}={value}");
        }
    }
}
