//! Signature Version 4 of AWS: the presigned payload of AWS_MSK_IAM, and the signed headers that its token service (STS)
//! wants. Pure; the time is an argument.
//!
//! The payload is that of `AWS4SignedPayloadGenerator.java` in aws-msk-iam-auth: a GET of `kafka-cluster:Connect` at the
//! broker's host, presigned for a quarter of an hour, with its query as JSON.

use std::fmt::Write;

use aws_lc_rs::{digest, hmac};
use serde_json::json;
use zeroize::Zeroizing;

use super::keys::Keys;
use super::time::amz_date;
use crate::net::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const EXPIRES_SECONDS: &str = "900";

/// What a signature is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// Now, in milliseconds since the epoch.
    pub(super) now_ms: i64,
}

impl Scope<'_> {
    fn credential_scope(&self) -> String {
        let date = amz_date(self.now_ms);
        format!("{}/{}/{}/aws4_request", &date[..8], self.region, self.service)
    }

    /// The signature of a canonical request, as hexadecimal digits.
    fn signature(&self, keys: &Keys, canonical_request: &str) -> String {
        let scope = self.credential_scope();
        let to_sign = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            amz_date(self.now_ms),
            hex(&sha256(canonical_request.as_bytes()))
        );
        let mut key = Zeroizing::new([b"AWS4", keys.secret_access_key.reveal()].concat());
        for part in scope.split('/') {
            key = Zeroizing::new(hmac_sha256(&key, part.as_bytes()));
        }
        hex(&hmac_sha256(&key, to_sign.as_bytes()))
    }
}

/// What a client says in SASL's AWS_MSK_IAM.
pub(super) fn payload(keys: &Keys, host: &str, region: &str, now_ms: i64) -> Secret {
    let scope = Scope { region, service: "kafka-cluster", now_ms };
    let credential = format!("{}/{}", keys.access_key_id, scope.credential_scope());
    let date = amz_date(now_ms);
    let token = keys.session_token.as_ref().map(Secret::reveal_text);
    let mut query = vec![
        ("Action", "kafka-cluster:Connect"),
        ("X-Amz-Algorithm", ALGORITHM),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &date),
        ("X-Amz-Expires", EXPIRES_SECONDS),
    ];
    query.extend(token.as_ref().map(|token| ("X-Amz-Security-Token", token.as_str())));
    query.push(("X-Amz-SignedHeaders", "host"));
    let canonical = format!("GET\n/\n{}\nhost:{host}\n\nhost\n{}", form(&query), hex(&sha256(b"")));
    let signature = scope.signature(keys, &canonical);
    let mut fields = serde_json::Map::new();
    let own = [("version", "2020_10_22"), ("host", host), ("user-agent", AGENT)];
    for (name, value) in own.iter().chain(&query).chain(&[("X-Amz-Signature", signature.as_str())]) {
        fields.insert(name.to_ascii_lowercase(), json!(value));
    }
    Secret::new(serde_json::Value::Object(fields).to_string())
}

const AGENT: &str = concat!("kmirror/", env!("CARGO_PKG_VERSION"));

/// The headers that sign a POST of a form to `/`: name and value.
pub(super) fn signed_headers(
    keys: &Keys,
    scope: Scope<'_>,
    host: &str,
    body: &[u8],
) -> Vec<(&'static str, Secret)> {
    let date = amz_date(scope.now_ms);
    let token = keys.session_token.as_ref().map(Secret::reveal_text);
    let mut headers: Vec<(&'static str, &str)> =
        vec![("content-type", FORM), ("host", host), ("x-amz-date", &date)];
    headers.extend(token.as_ref().map(|token| ("x-amz-security-token", token.as_str())));
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hex(&sha256(body)));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{}, SignedHeaders={names}, Signature={}",
        keys.access_key_id,
        scope.credential_scope(),
        scope.signature(keys, &canonical)
    );
    headers.push(("authorization", &authorization));
    // The client writes the host itself.
    let sent = headers.into_iter().filter(|(name, _)| *name != "host");
    sent.map(|(name, value)| (name, Secret::new(value))).collect()
}

/// The type of a form.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// A form, or a query, encoded as AWS signs it (RFC 3986).
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'~' | b'_' => encoded.push(byte.into()),
            other => drop(write!(encoded, "%{other:02X}")),
        }
    }
    encoded
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, bytes).as_ref().to_vec()
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::sasl::aws::time::parse_date;

    fn keys(id: &str, secret: &str, token: Option<&str>) -> Keys {
        Keys {
            access_key_id: id.to_owned(),
            secret_access_key: Secret::new(secret),
            session_token: token.map(Secret::new),
            ends_ms: None,
        }
    }

    /// The examples of AWS's own documentation and test suite.
    #[test]
    fn published_signatures_come_out() {
        let iam = "GET\n/\nAction=ListUsers&Version=2010-05-08\n\
            content-type:application/x-www-form-urlencoded; charset=utf-8\nhost:iam.amazonaws.com\n\
            x-amz-date:20150830T123600Z\n\ncontent-type;host;x-amz-date\n\
            e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let vanilla = "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n\
            e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let s3 = "GET\n/test.txt\nX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F\
            us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\n\
            host:examplebucket.s3.amazonaws.com\n\nhost\nUNSIGNED-PAYLOAD";
        let example = keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
        let of_s3 = keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None);
        for (keys, service, date, canonical, signature) in [
            (
                &example,
                "iam",
                "2015-08-30T12:36:00Z",
                iam,
                "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            ),
            (
                &example,
                "service",
                "2015-08-30T12:36:00Z",
                vanilla,
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                &of_s3,
                "s3",
                "2013-05-24T00:00:00Z",
                s3,
                "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
            ),
        ] {
            let scope = Scope { region: "us-east-1", service, now_ms: parse_date(date).unwrap() };
            assert_eq!(scope.signature(keys, canonical), signature, "{service}");
        }
    }

    /// Signed by another implementation, written from the specification.
    #[test]
    fn a_payload_is_what_the_broker_checks() {
        let keys = keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Some("tok/en+=="));
        let now_ms = parse_date("2020-10-22T08:05:09Z").unwrap();
        let host = "b-1.demo.abcde.c2.kafka.us-east-1.amazonaws.com";
        let text = payload(&keys, host, "us-east-1", now_ms).reveal_text().to_string();
        let fields: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, value) in [
            ("version", "2020_10_22"),
            ("host", host),
            ("action", "kafka-cluster:Connect"),
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", "AKIDEXAMPLE/20201022/us-east-1/kafka-cluster/aws4_request"),
            ("x-amz-date", "20201022T080509Z"),
            ("x-amz-expires", "900"),
            ("x-amz-security-token", "tok/en+=="),
            ("x-amz-signedheaders", "host"),
            ("x-amz-signature", "7bd5546ab1fb371e1e28bcbbf7aaa157a541fb86891c3a2b1fb869fafdcdd5bf"),
        ] {
            assert_eq!(fields[name], value, "{name} in {text}");
        }
        assert!(fields["user-agent"].as_str().unwrap().starts_with("kmirror/"));
        assert_eq!(fields.as_object().unwrap().len(), 11);
    }

    #[test]
    fn headers_sign_a_form() {
        let keys = keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
        let scope = Scope {
            region: "us-east-1",
            service: "sts",
            now_ms: parse_date("2020-10-22T08:05:09Z").unwrap(),
        };
        let body = form(&[("Action", "AssumeRole"), ("RoleArn", "arn:aws:iam::1:role/r x")]);
        assert_eq!(body, "Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr%20x");
        let headers = signed_headers(&keys, scope, "sts.us-east-1.amazonaws.com", body.as_bytes());
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["content-type", "x-amz-date", "authorization"]);
        let wanted = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20201022/us-east-1/sts/aws4_request, \
            SignedHeaders=content-type;host;x-amz-date, Signature=ed2377db99ce568e85a86afed259f463edac61fd815840f999c5f2c9b31b07ec";
        assert_eq!(*headers[2].1.reveal_text(), wanted);
    }
}
