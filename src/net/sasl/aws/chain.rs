//! The places where keys may be, one after the other. A place that has none says why, and the next is asked; when none has,
//! all their reasons are told.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use zeroize::Zeroizing;

use super::keys::{Keys, of_json, of_xml, refusal_of_xml};
use super::profile::{Profile, Profiles};
use super::sigv4::{self, FORM, Scope};
use super::{AwsSource, Role};
use crate::net::Secret;
use crate::net::http::{self, HttpRequest, HttpResponse, HttpTimeouts, HttpUrl, Scheme};
use crate::seam::Seam;

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Metadata servers are near; where there is none, that is to be known soon.
const NEAR: HttpTimeouts = HttpTimeouts { connect: Duration::from_secs(1), read: Duration::from_secs(2) };
/// The token service is not.
const FAR: HttpTimeouts = HttpTimeouts { connect: Duration::from_secs(10), read: Duration::from_secs(10) };
const CONTAINER: &str = "http://169.254.170.2";
/// Hosts that may be asked without TLS for keys: those of ECS and EKS, and this machine.
const CONTAINER_HOSTS: [&str; 6] =
    ["169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "::1", "localhost"];
const INSTANCE: &str = "http://169.254.169.254";
const INSTANCE_PATH: &str = "/latest/meta-data/iam/security-credentials/";
const SESSION_NAME: &str = "aws-msk-iam-auth";

impl AwsSource {
    /// The first keys that there are.
    pub(super) async fn find(&self, seam: &Seam) -> Result<Keys, Vec<String>> {
        let mut reasons = Vec::new();
        if let Some(name) = &self.options.profile {
            match self.of_profile(seam, name).await {
                Ok(keys) => return Ok(keys),
                Err(reason) => reasons.push(format!("awsProfileName: {reason}")),
            }
        }
        if let Some(role) = &self.options.role {
            let with = match &role.keys {
                Some(keys) => Ok(keys.clone()),
                None => self.by_default(seam).await,
            };
            match with {
                Ok(with) => match self.assume(seam, role, &with).await {
                    Ok(keys) => return Ok(keys),
                    Err(reason) => reasons.push(format!("awsRoleArn: {reason}")),
                },
                Err(more) => {
                    reasons.push("awsRoleArn: there are no keys to take it with".to_owned());
                    reasons.extend(more);
                    return Err(reasons);
                }
            }
        }
        self.by_default(seam).await.map_err(|more| [reasons, more].concat())
    }

    async fn by_default(&self, seam: &Seam) -> Result<Keys, Vec<String>> {
        let mut reasons = Vec::new();
        let mut take = |place: &str, found: Result<Keys, String>| match found {
            Ok(keys) => Some(keys),
            Err(reason) => {
                reasons.push(format!("{place}: {reason}"));
                None
            }
        };
        let profile = self.environment.text("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let found = match take("environment", self.of_environment()) {
            Some(keys) => Some(keys),
            None => match take("web identity", self.of_web_identity(seam).await) {
                Some(keys) => Some(keys),
                None => match take("profile", self.of_profile(seam, &profile).await) {
                    Some(keys) => Some(keys),
                    None => match take("container", self.of_container(seam).await) {
                        Some(keys) => Some(keys),
                        None => take("instance", self.of_instance(seam).await),
                    },
                },
            },
        };
        found.ok_or(reasons)
    }

    fn of_environment(&self) -> Result<Keys, String> {
        let id = self.environment.text("AWS_ACCESS_KEY_ID").ok_or("AWS_ACCESS_KEY_ID is not set")?;
        let secret = self.environment.secret("AWS_SECRET_ACCESS_KEY");
        Ok(Keys {
            access_key_id: id,
            secret_access_key: secret.ok_or("AWS_SECRET_ACCESS_KEY is not set")?,
            session_token: self.environment.secret("AWS_SESSION_TOKEN"),
            ends_ms: None,
        })
    }

    async fn of_web_identity(&self, seam: &Seam) -> Result<Keys, String> {
        let file = self.environment.text("AWS_WEB_IDENTITY_TOKEN_FILE");
        let file = file.ok_or("AWS_WEB_IDENTITY_TOKEN_FILE is not set")?;
        let arn = self.environment.text("AWS_ROLE_ARN").ok_or("AWS_ROLE_ARN is not set")?;
        let name = self.environment.text("AWS_ROLE_SESSION_NAME");
        self.by_web_identity(seam, &file, &arn, name.as_deref()).await
    }

    /// The token is read each time: whoever runs the container replaces it.
    async fn by_web_identity(
        &self,
        seam: &Seam,
        file: &str,
        arn: &str,
        session_name: Option<&str>,
    ) -> Result<Keys, String> {
        let token = read(seam, file).await?;
        let token = String::from_utf8_lossy(&token);
        let body = sigv4::form(&[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("RoleArn", arn),
            ("RoleSessionName", session_name.unwrap_or(SESSION_NAME)),
            ("Version", "2011-06-15"),
            ("WebIdentityToken", token.trim()),
        ]);
        let (url, _) = self.token_service()?;
        let request = HttpRequest { method: Method::POST, body: Secret::new(body), ..HttpRequest::get(url) };
        self.of_token_service(seam, &request.header("content-type", FORM)).await
    }

    async fn assume(&self, seam: &Seam, role: &Role, with: &Keys) -> Result<Keys, String> {
        let mut fields = vec![("Action", "AssumeRole")];
        fields.extend(role.external_id.as_deref().map(|id| ("ExternalId", id)));
        fields.extend([("RoleArn", role.arn.as_str()), ("RoleSessionName", role.session_name.as_str())]);
        fields.push(("Version", "2011-06-15"));
        let body = sigv4::form(&fields);
        let (url, region) = self.token_service()?;
        let scope = Scope { region: &region, service: "sts", now_ms: seam.now_ms() };
        let headers = sigv4::signed_headers(with, scope, &url.authority(), body.as_bytes());
        let request =
            HttpRequest { method: Method::POST, headers, body: Secret::new(body), ..HttpRequest::get(url) };
        self.of_token_service(seam, &request).await
    }

    async fn of_token_service(&self, seam: &Seam, request: &HttpRequest) -> Result<Keys, String> {
        let response = self.ask(seam, FAR, request).await?;
        match response.status {
            200 => of_xml(&response.body),
            status => Err(format!("{} answers {status} {}", request.url, refusal_of_xml(&response.body))),
        }
    }

    /// Where the token service is, and its region.
    fn token_service(&self) -> Result<(HttpUrl, String), String> {
        let named = self.options.sts_region.clone().filter(|region| region != "aws-global");
        let named = named.or_else(|| self.environment.text("AWS_REGION"));
        let url = match (&self.environment.text("AWS_ENDPOINT_URL_STS"), &named) {
            (Some(url), _) => url.clone(),
            (None, Some(region)) if region.starts_with("cn-") => {
                format!("https://sts.{region}.amazonaws.com.cn/")
            }
            (None, Some(region)) => format!("https://sts.{region}.amazonaws.com/"),
            (None, None) => "https://sts.amazonaws.com/".to_owned(),
        };
        let url = HttpUrl::parse(&url).map_err(|error| format!("AWS_ENDPOINT_URL_STS: {error}"))?;
        Ok((url, named.unwrap_or_else(|| "us-east-1".to_owned())))
    }

    async fn of_profile(&self, seam: &Seam, name: &str) -> Result<Keys, String> {
        let profiles = self.profiles(seam).await?;
        match profiles.get(name)? {
            Profile::Keys(keys) => Ok(keys),
            Profile::Role { arn, source, session_name, external_id } => {
                let Profile::Keys(with) = profiles.get(&source)? else {
                    return Err(format!("the profile {source} has no keys of its own"));
                };
                let session_name = session_name.unwrap_or_else(|| SESSION_NAME.to_owned());
                self.assume(seam, &Role { arn, session_name, external_id, keys: None }, &with).await
            }
            Profile::WebIdentity { arn, token_file, session_name } => {
                self.by_web_identity(seam, &token_file, &arn, session_name.as_deref()).await
            }
        }
    }

    pub(super) async fn region_of_profile(&self, seam: &Seam) -> Option<String> {
        let named = self.options.profile.clone().or_else(|| self.environment.text("AWS_PROFILE"));
        let profiles = self.profiles(seam).await.ok()?;
        profiles.region(&named.unwrap_or_else(|| "default".to_owned()))
    }

    async fn profiles(&self, seam: &Seam) -> Result<Profiles, String> {
        let home = self.environment.text("HOME").map(PathBuf::from);
        let mut profiles = Profiles::default();
        let mut reasons = Vec::new();
        for (variable, file) in
            [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")]
        {
            let named = self.environment.text(variable).map(PathBuf::from);
            let Some(path) = named.or_else(|| Some(home.as_ref()?.join(".aws").join(file))) else { continue };
            match read(seam, &path.display().to_string()).await {
                Ok(bytes) => profiles.read(&Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())),
                Err(reason) => reasons.push(reason),
            }
        }
        if profiles == Profiles::default() && !reasons.is_empty() {
            return Err(reasons.join(", "));
        }
        Ok(profiles)
    }

    async fn of_container(&self, seam: &Seam) -> Result<Keys, String> {
        let relative = self.environment.text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = self.environment.text("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let url = match (relative, full) {
            (Some(path), _) => format!("{CONTAINER}{path}"),
            (None, Some(url)) => url,
            (None, None) => return Err("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set".to_owned()),
        };
        let url = HttpUrl::parse(&url).map_err(|error| error.to_string())?;
        if url.scheme() == Scheme::Http && !CONTAINER_HOSTS.contains(&url.host()) {
            return Err(format!("{url} is not asked without TLS"));
        }
        let mut request = HttpRequest::get(url);
        let token = match self.environment.text("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => Some(Secret::new(read(seam, &file).await?.trim_ascii())),
            None => self.environment.secret("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        };
        request.headers.extend(token.map(|token| ("authorization", token)));
        self.ask_for_json(seam, &request).await
    }

    /// IMDSv2: a token first, then the name of the instance's role, then its keys.
    async fn of_instance(&self, seam: &Seam) -> Result<Keys, String> {
        let is_off = self.environment.text("AWS_EC2_METADATA_DISABLED");
        if is_off.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err("AWS_EC2_METADATA_DISABLED is set".to_owned());
        }
        let endpoint = self.environment.text("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let endpoint = HttpUrl::parse(endpoint.as_deref().unwrap_or(INSTANCE))
            .map_err(|error| format!("AWS_EC2_METADATA_SERVICE_ENDPOINT: {error}"))?;
        let request =
            HttpRequest { method: Method::PUT, ..HttpRequest::get(endpoint.at("/latest/api/token")) };
        let request = request.header("x-aws-ec2-metadata-token-ttl-seconds", "21600");
        let token = self.ask_for_ok(seam, &request).await?;
        let with_token = |path: &str| {
            HttpRequest::get(endpoint.at(path)).header("x-aws-ec2-metadata-token", token.trim_ascii())
        };
        let role = self.ask_for_ok(seam, &with_token(INSTANCE_PATH)).await?;
        let role = String::from_utf8_lossy(&role);
        let role = role.lines().next().map(str::trim).filter(|role| !role.is_empty());
        let role = role.ok_or("the instance has no role")?;
        self.ask_for_json(seam, &with_token(&format!("{INSTANCE_PATH}{role}"))).await
    }

    async fn ask_for_json(&self, seam: &Seam, request: &HttpRequest) -> Result<Keys, String> {
        let body = self.ask_for_ok(seam, request).await?;
        of_json(&body).map_err(|reason| format!("{}: {reason}", request.url))
    }

    async fn ask_for_ok(&self, seam: &Seam, request: &HttpRequest) -> Result<Zeroizing<Vec<u8>>, String> {
        let response = self.ask(seam, NEAR, request).await?;
        match response.status {
            200 => Ok(response.body),
            status => Err(format!("{} answers {status}", request.url)),
        }
    }

    async fn ask(
        &self,
        seam: &Seam,
        timeouts: HttpTimeouts,
        request: &HttpRequest,
    ) -> Result<HttpResponse, String> {
        let asked = http::ask(seam, &self.tls, timeouts, request).await;
        asked.map_err(|failure| format!("{}: {failure}", request.url))
    }
}

async fn read(seam: &Seam, path: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let bytes = seam.read_file(path.into(), FILE_BYTES_MAX).await;
    bytes.map(Zeroizing::new).map_err(|error| format!("{path}: {error}"))
}
