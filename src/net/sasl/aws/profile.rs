//! `~/.aws/credentials` and `~/.aws/config`: sections of keys and values. Pure.

use std::collections::BTreeMap;

use super::keys::Keys;
use crate::net::Secret;

/// Sections by name; the word `profile` before a name, as `config` has it, is left out.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profiles(BTreeMap<String, BTreeMap<String, Secret>>);

/// What a profile says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// Keys that stand there.
    Keys(Keys),
    /// A role, taken with the keys of another profile.
    Role { arn: String, source: String, session_name: Option<String>, external_id: Option<String> },
    /// A role, taken with a token of a file.
    WebIdentity { arn: String, token_file: String, session_name: Option<String> },
}

impl Profiles {
    /// Adds what a file says; what is said already stays.
    pub(super) fn read(&mut self, text: &str) {
        let mut section = None;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let name = name.0.trim();
                let name = name.strip_prefix("profile ").unwrap_or(name).trim();
                section = Some(self.0.entry(name.to_owned()).or_default());
            } else if let (Some(section), Some((key, value))) = (section.as_mut(), line.split_once('=')) {
                let key = key.trim().to_ascii_lowercase();
                section.entry(key).or_insert_with(|| Secret::new(value.trim()));
            }
        }
    }

    /// What a profile says.
    ///
    /// # Errors
    /// In words: that there is none, or that it asks for what is not done here.
    pub(super) fn get(&self, name: &str) -> Result<Profile, String> {
        let section = self.0.get(name).ok_or_else(|| format!("there is no profile {name}"))?;
        let word = |key: &str| section.get(key).map(|value| value.reveal_text().to_string());
        let session_name = word("role_session_name");
        match (word("role_arn"), word("source_profile"), word("web_identity_token_file")) {
            (Some(arn), _, Some(token_file)) => {
                return Ok(Profile::WebIdentity { arn, token_file, session_name });
            }
            (Some(arn), Some(source), _) => {
                let external_id = word("external_id");
                return Ok(Profile::Role { arn, source, session_name, external_id });
            }
            _ => {}
        }
        let keys = (word("aws_access_key_id"), section.get("aws_secret_access_key"));
        if let (Some(access_key_id), Some(secret)) = keys {
            return Ok(Profile::Keys(Keys {
                access_key_id,
                secret_access_key: secret.clone(),
                session_token: section.get("aws_session_token").cloned(),
                ends_ms: None,
            }));
        }
        let other = ["credential_process", "sso_session", "sso_start_url", "credential_source", "role_arn"];
        Err(match other.into_iter().find(|key| section.contains_key(*key)) {
            Some(key) => format!("the profile {name} has {key}, which is not followed here"),
            None => format!("the profile {name} has no aws_access_key_id and aws_secret_access_key"),
        })
    }

    /// `region` of a profile.
    pub(super) fn region(&self, name: &str) -> Option<String> {
        self.0.get(name)?.get("region").map(|region| region.reveal_text().to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=s=1\n\n[ other ]\nAWS_ACCESS_KEY_ID=AKIA2\n\
        aws_secret_access_key = s2\naws_session_token = t\n[empty]\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\naws_access_key_id = AKIA9\n[profile role]\nrole_arn = arn:r\nsource_profile = other\n\
        external_id = e\n[profile web]\nrole_arn = arn:w\nweb_identity_token_file = /t\n[profile sso]\nsso_session = s\n";

    fn profiles() -> Profiles {
        let mut profiles = Profiles::default();
        profiles.read(CREDENTIALS);
        profiles.read(CONFIG);
        profiles
    }

    #[test]
    fn both_files_together_make_the_profiles() {
        let profiles = profiles();
        let Ok(Profile::Keys(keys)) = profiles.get("default") else { panic!() };
        assert_eq!((keys.access_key_id.as_str(), keys.secret_access_key.reveal()), ("AKIA1", &b"s=1"[..]));
        let Ok(Profile::Keys(keys)) = profiles.get("other") else { panic!() };
        assert_eq!((keys.access_key_id.as_str(), keys.session_token.unwrap().reveal()), ("AKIA2", &b"t"[..]));
        let Ok(Profile::Role { arn, source, external_id, .. }) = profiles.get("role") else { panic!() };
        assert_eq!((arn.as_str(), source.as_str(), external_id.as_deref()), ("arn:r", "other", Some("e")));
        let Ok(Profile::WebIdentity { arn, token_file, .. }) = profiles.get("web") else { panic!() };
        assert_eq!((arn.as_str(), token_file.as_str()), ("arn:w", "/t"));
        assert_eq!(profiles.region("default").as_deref(), Some("eu-west-1"));
    }

    #[test]
    fn what_a_profile_lacks_is_told() {
        for (name, words) in [
            ("none", "there is no profile none"),
            ("empty", "has no aws_access_key_id"),
            ("sso", "has sso_session, which is not followed here"),
        ] {
            let error = profiles().get(name).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "([a-z\\[\\]= #\n]|profile ){0,60}") {
            let mut profiles = Profiles::default();
            profiles.read(&text);
            let _ = profiles.get("a");
        }
    }
}
