//! Keys of AWS: what signs. And the forms in which they come: JSON of metadata servers, XML of the token service.

use serde_json::Value;

use super::time::parse_date;
use crate::net::Secret;

/// A pair of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Its public half.
    pub access_key_id: String,
    /// Its secret half.
    pub secret_access_key: Secret,
    /// What goes with keys that end.
    pub session_token: Option<Secret>,
    /// When they end, in milliseconds since the epoch.
    pub ends_ms: Option<i64>,
}

/// Keys as a metadata server of a container or an instance gives them.
pub(super) fn of_json(body: &[u8]) -> Result<Keys, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is no JSON".to_owned())?;
    let word = |key: &str| answer.get(key).and_then(Value::as_str);
    if let Some(code) = word("Code").filter(|code| *code != "Success") {
        let message = word("Message").or_else(|| word("message")).unwrap_or_default();
        return Err(format!("it says {code} {message}"));
    }
    let (Some(id), Some(secret)) = (word("AccessKeyId"), word("SecretAccessKey")) else {
        return Err("its answer holds no keys".to_owned());
    };
    Ok(Keys {
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(secret),
        session_token: word("Token").map(Secret::new),
        ends_ms: word("Expiration").and_then(parse_date),
    })
}

/// Keys as the token service gives them.
pub(super) fn of_xml(body: &[u8]) -> Result<Keys, String> {
    let text = String::from_utf8_lossy(body);
    let (Some(id), Some(secret)) = (element(&text, "AccessKeyId"), element(&text, "SecretAccessKey")) else {
        return Err("its answer holds no keys".to_owned());
    };
    Ok(Keys {
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(secret),
        session_token: element(&text, "SessionToken").map(Secret::new),
        ends_ms: element(&text, "Expiration").and_then(parse_date),
    })
}

/// What the token service says when it gives none.
pub(super) fn refusal_of_xml(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let parts = ["Code", "Message"].into_iter().filter_map(|name| element(&text, name));
    parts.collect::<Vec<_>>().join(": ").chars().filter(|c| !c.is_control()).take(300).collect()
}

/// The text of the first element of a name. Keys and tokens hold nothing that XML would write otherwise.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inside, _)| inside.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_of_json_and_xml_are_read() {
        let json = b"{\"Code\":\"Success\",\"AccessKeyId\":\"ASIA\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":\"2013-05-24T00:00:00Z\"}";
        let xml = b"<AssumeRoleResponse><Credentials><AccessKeyId>ASIA</AccessKeyId>\n<SecretAccessKey>s</SecretAccessKey>\
            <SessionToken>t</SessionToken><Expiration>2013-05-24T00:00:00Z</Expiration></Credentials></AssumeRoleResponse>";
        let keys = of_json(json).unwrap();
        assert_eq!((keys.access_key_id.as_str(), keys.ends_ms), ("ASIA", Some(1_369_353_600_000)));
        assert_eq!(keys.session_token.as_ref().unwrap().reveal(), b"t");
        assert_eq!(of_xml(xml).unwrap(), keys);
        assert_eq!(
            of_json(b"{\"Code\":\"Failed\",\"Message\":\"no role\"}").unwrap_err(),
            "it says Failed no role"
        );
        assert_eq!(of_json(b"{}").unwrap_err(), "its answer holds no keys");
        let refused = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>";
        assert_eq!(refusal_of_xml(refused), "AccessDenied: not you");
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes: Vec<u8>, text in "(<AccessKeyId>|</AccessKeyId>|[a-z]){0,9}") {
            for body in [bytes.as_slice(), text.as_bytes()] {
                let _ = (of_json(body), of_xml(body), refusal_of_xml(body));
            }
        }
    }
}
