//! AWS_MSK_IAM: keys of AWS from wherever this machine has them, and the payload that they sign (`sigv4`).
//!
//! The places and their order are those of `MSKCredentialProvider.java`: the profile and the role that the login module
//! names, then environment, web identity, profile files, container, instance. Keys that end are taken anew five minutes
//! before; the variables of the environment are those of the start.

mod chain;
mod keys;
mod profile;
mod sigv4;
mod time;

use std::collections::BTreeMap;

use tokio::sync::Mutex;

pub use keys::Keys;

use crate::net::Secret;
use crate::net::tls::{Tls, TlsSettings};
use crate::seam::Seam;

/// How long before their end keys are taken anew.
const RENEW_BEFORE_MS: i64 = 300_000;

/// The variables that are looked at.
const VARIABLES: [&str; 18] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "HOME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL_STS",
];

/// What the login module says: options of `IAMLoginModule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsOptions {
    /// `awsProfileName`.
    pub profile: Option<String>,
    /// `awsRoleArn`.
    pub role: Option<Role>,
    /// `awsStsRegion`.
    pub sts_region: Option<String>,
}

/// A role to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub arn: String,
    /// `awsRoleSessionName`.
    pub session_name: String,
    /// `awsRoleExternalId`.
    pub external_id: Option<String>,
    /// `awsRoleAccessKeyId`, `awsRoleSecretAccessKey`, `awsRoleSessionToken`: the keys to take it with.
    pub keys: Option<Keys>,
}

/// The variables of the environment that belong to AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsEnvironment(BTreeMap<&'static str, Secret>);

impl AwsEnvironment {
    /// Reads them.
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> AwsEnvironment {
        let found = |name: &&'static str| Some((*name, Secret::new(variable(name)?.into_bytes())));
        AwsEnvironment(VARIABLES.iter().filter_map(found).collect())
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        self.0.get(name).filter(|value| !value.reveal().is_empty()).cloned()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.secret(name).map(|value| value.reveal_text().trim().to_owned())
    }
}

/// Keys for the connections to one cluster.
#[derive(Debug)]
pub struct AwsSource {
    options: AwsOptions,
    environment: AwsEnvironment,
    /// TLS to the token service: the system's roots.
    tls: Tls,
    kept: Mutex<Option<Keys>>,
}

/// Why there are no keys, or nothing can be signed. Nothing here holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsFailure {
    /// No place has any.
    #[error("no place has AWS credentials: {}", .0.join("; "))]
    NoKeys(Vec<String>),
    /// The broker's name holds no region, and nothing else tells it.
    #[error("the broker's name {0} holds no AWS region; set AWS_REGION")]
    NoRegion(String),
}

impl PartialEq for AwsSource {
    fn eq(&self, other: &AwsSource) -> bool {
        self.options == other.options && self.environment == other.environment
    }
}

impl Eq for AwsSource {}

impl AwsSource {
    /// A source by these options; nothing is looked for yet.
    pub fn new(options: AwsOptions, environment: AwsEnvironment) -> AwsSource {
        AwsSource { options, environment, tls: Tls::new(TlsSettings::default()), kept: Mutex::new(None) }
    }

    /// What the login module says.
    pub fn options(&self) -> &AwsOptions {
        &self.options
    }

    /// What is to be said to the broker `host`, and the public half of the keys that signed it.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub async fn payload(&self, seam: &Seam, host: &str) -> Result<(Secret, String), AwsFailure> {
        let region = match region_of(host).map(str::to_owned).or_else(|| self.environment.text("AWS_REGION"))
        {
            Some(region) => region,
            None => {
                self.region_of_profile(seam).await.ok_or_else(|| AwsFailure::NoRegion(host.to_owned()))?
            }
        };
        let keys = self.keys(seam).await?;
        let payload = sigv4::payload(&keys, host, &region, seam.now_ms());
        Ok((payload, keys.access_key_id))
    }

    /// The broker refused what the keys signed: they are looked for anew.
    pub async fn refused(&self) {
        *self.kept.lock().await = None;
    }

    async fn keys(&self, seam: &Seam) -> Result<Keys, AwsFailure> {
        // Held while keys are looked for, so that it is done once for all.
        let mut kept = self.kept.lock().await;
        let lives = |keys: &&Keys, before_ms: i64| {
            keys.ends_ms.is_none_or(|ends_ms| seam.now_ms() < ends_ms.saturating_sub(before_ms))
        };
        if let Some(keys) = kept.as_ref().filter(|keys| lives(keys, RENEW_BEFORE_MS)) {
            return Ok(keys.clone());
        }
        match (self.find(seam).await, kept.as_ref().filter(|keys| lives(keys, 0))) {
            (Ok(keys), _) => Ok(kept.insert(keys).clone()),
            (Err(_), Some(old)) => Ok(old.clone()),
            (Err(reasons), None) => Err(AwsFailure::NoKeys(reasons)),
        }
    }
}

/// What the names of regions begin with.
const AREAS: [&str; 11] = ["af", "ap", "ca", "cn", "eu", "eusc", "il", "me", "mx", "sa", "us"];

/// The region in the name of a broker of MSK, as in `b-1.demo.x1.c2.kafka.us-east-1.amazonaws.com`.
fn region_of(host: &str) -> Option<&str> {
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    host.split('.').find(|label| match label.split('-').collect::<Vec<_>>()[..] {
        [area, word, number] => AREAS.contains(&area) && is_word(word) && is_number(number),
        [area, kind, word, number] => {
            AREAS.contains(&area) && is_word(kind) && is_word(word) && is_number(number)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests;
