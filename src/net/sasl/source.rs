//! Where bearer tokens come from: a token endpoint by client credentials (RFC 6749, KIP-768, KIP-1139), a file, or our own
//! pen where brokers ask for no signature.
//!
//! One source serves all connections to a cluster. It is asked at each authentication; a token of an endpoint is kept and
//! replaced ahead of its end, and while one connection asks for the next, the others wait for that answer. A file is read
//! each time. When there is no new token the old one goes on to its end, and the trouble is told once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::Value;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::token::{Refresh, Token, TokenError};
use crate::net::Secret;
use crate::net::http::{self, HttpFailure, HttpRequest, HttpResponse, HttpTimeouts, HttpUrl};
use crate::net::tls::Tls;
use crate::seam::Seam;

/// No token is longer.
const TOKEN_BYTES_MAX: u64 = 128 * 1024;
/// Of what an endpoint says of a refusal, for messages.
const SHOWN_CHARACTERS_MAX: usize = 300;

/// Tokens for the connections to one cluster.
#[derive(Debug)]
pub struct TokenSource {
    settings: TokenSettings,
    kept: Mutex<Option<Kept>>,
}

/// What a source is to be.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// Where tokens come from.
    pub origin: TokenOrigin,
    /// SASL extensions that go with each token (KIP-342).
    pub extensions: BTreeMap<String, String>,
    /// `sasl.login.refresh.*`.
    pub refresh: Refresh,
}

/// Where tokens come from.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenOrigin {
    /// `sasl.oauthbearer.token.endpoint.url` with `http:` or `https:`.
    Endpoint(Box<Endpoint>),
    /// The same with `file:`.
    File(PathBuf),
    /// `unsecuredLogin…` options: tokens without a signature.
    Unsecured {
        /// Claims beside `iat` and `exp`.
        claims: Vec<(String, Value)>,
        /// `unsecuredLoginLifetimeSeconds`, in milliseconds.
        lifetime_ms: i64,
    },
}

/// A token endpoint, and who we are there.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub url: HttpUrl,
    /// `clientId`; perhaps empty where an assertion says it.
    pub client_id: String,
    /// What proves it.
    pub proof: ClientProof,
    /// `scope`.
    pub scope: Option<String>,
    /// `sasl.oauthbearer.header.urlencode`.
    pub encoding: HeaderEncoding,
    /// TLS to it.
    pub tls: Tls,
    /// `sasl.login.connect.timeout.ms` and `sasl.login.read.timeout.ms`.
    pub timeouts: HttpTimeouts,
}

/// What proves to a token endpoint who asks.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientProof {
    /// `clientSecret`.
    Secret(Secret),
    /// `sasl.oauthbearer.assertion.file`: a token that others have signed (RFC 7523), read for each question.
    AssertionFile(PathBuf),
}

/// `sasl.oauthbearer.header.urlencode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderEncoding {
    /// Id and secret as they are, as most endpoints want them.
    Plain,
    /// Id and secret URL-encoded, as RFC 6749 has it.
    Url,
}

/// Why there is no token. Nothing here holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFailure {
    /// The endpoint does not answer.
    #[error("the token endpoint {url}: {failure}")]
    Unreachable {
        /// Which.
        url: String,
        /// Why.
        failure: HttpFailure,
    },
    /// The endpoint gives us none.
    #[error(
        "the token endpoint {url} answers {status}{message}; look at clientId, clientSecret (or the assertion) and scope"
    )]
    Refused {
        /// Which.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The answer holds no token.
    #[error("the answer of the token endpoint {url} holds no access_token")]
    Lacking {
        /// Which.
        url: String,
    },
    /// A file cannot be read.
    #[error("the token file {path} cannot be read: {reason}")]
    Unreadable {
        /// Which.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// What came is no token.
    #[error("the token of {place}: {error}")]
    NoToken {
        /// Where it came from.
        place: String,
        /// What is wrong with it.
        error: TokenError,
    },
    /// Its time is over.
    #[error(
        "the token of {place} ended {} s ago by the clock of this machine; look at that clock, and at who writes tokens",
        ago_ms / 1_000
    )]
    Ended {
        /// Where it came from.
        place: String,
        /// For how long it has been over.
        ago_ms: i64,
    },
}

#[derive(Debug)]
struct Kept {
    token: Token,
    refresh_at_ms: i64,
    /// Whether the trouble of replacing it has been told.
    is_trouble_told: bool,
}

impl PartialEq for TokenSource {
    fn eq(&self, other: &TokenSource) -> bool {
        self.settings == other.settings
    }
}

impl Eq for TokenSource {}

impl TokenSource {
    /// A source by these settings; nothing is asked yet.
    pub fn new(settings: TokenSettings) -> TokenSource {
        TokenSource { settings, kept: Mutex::new(None) }
    }

    /// What was asked for.
    pub fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// A token that is valid now.
    ///
    /// # Errors
    /// [`TokenFailure`] when there is none, and the last one has ended.
    pub async fn token(&self, seam: &Seam) -> Result<Token, TokenFailure> {
        let now_ms = seam.now_ms();
        let token = match &self.settings.origin {
            TokenOrigin::Endpoint(endpoint) => return self.of_endpoint(seam, endpoint).await,
            TokenOrigin::File(path) => of_file(seam, path).await?,
            TokenOrigin::Unsecured { claims, lifetime_ms } => Token::unsecured(claims, now_ms, *lifetime_ms),
        };
        self.living(token, now_ms)
    }

    /// The broker refused the token: the next one is asked for anew, not sooner than the broker may be asked again.
    pub async fn refused(&self) {
        *self.kept.lock().await = None;
    }

    async fn of_endpoint(&self, seam: &Seam, endpoint: &Endpoint) -> Result<Token, TokenFailure> {
        // Held while the endpoint is asked, so that it is asked once for all.
        let mut kept = self.kept.lock().await;
        let now_ms = seam.now_ms();
        if let Some(kept) = kept.as_ref().filter(|kept| now_ms < kept.refresh_at_ms) {
            return Ok(kept.token.clone());
        }
        let asked = match ask(seam, endpoint).await {
            Ok(token) => self.living(token, seam.now_ms()),
            Err(failure) => Err(failure),
        };
        let now_ms = seam.now_ms();
        match (asked, kept.as_mut()) {
            (Ok(token), _) => {
                let ends_ms = token.ends_ms.unwrap_or(now_ms);
                let refresh_at_ms = self.settings.refresh.at_ms(now_ms, ends_ms, seam.random());
                *kept = Some(Kept { token: token.clone(), refresh_at_ms, is_trouble_told: false });
                Ok(token)
            }
            (Err(failure), Some(old)) if old.token.ends_ms.is_some_and(|ends_ms| now_ms < ends_ms) => {
                if !std::mem::replace(&mut old.is_trouble_told, true) {
                    tracing::warn!(target: "kmirror::net", "the token obtained before stays in use: {failure}");
                }
                Ok(old.token.clone())
            }
            (Err(failure), _) => Err(failure),
        }
    }

    fn living(&self, token: Token, now_ms: i64) -> Result<Token, TokenFailure> {
        match token.ends_ms {
            Some(ends_ms) if ends_ms <= now_ms => {
                Err(TokenFailure::Ended { place: self.settings.origin.place(), ago_ms: now_ms - ends_ms })
            }
            _ => Ok(token),
        }
    }
}

impl TokenOrigin {
    fn place(&self) -> String {
        match self {
            TokenOrigin::Endpoint(endpoint) => endpoint.url.to_string(),
            TokenOrigin::File(path) => path.display().to_string(),
            TokenOrigin::Unsecured { .. } => "our own making".to_owned(),
        }
    }
}

async fn of_file(seam: &Seam, path: &std::path::Path) -> Result<Token, TokenFailure> {
    let place = path.display().to_string();
    match seam.read_file(path.to_path_buf(), TOKEN_BYTES_MAX).await.map(Zeroizing::new) {
        Ok(bytes) => Token::read(&bytes).map_err(|error| TokenFailure::NoToken { place, error }),
        Err(error) => Err(TokenFailure::Unreadable { path: place, reason: error.to_string() }),
    }
}

async fn ask(seam: &Seam, endpoint: &Endpoint) -> Result<Token, TokenFailure> {
    let url = || endpoint.url.to_string();
    let proof = match &endpoint.proof {
        ClientProof::Secret(secret) => Proof::Secret(secret.clone()),
        ClientProof::AssertionFile(path) => Proof::Assertion(of_file(seam, path).await?.text),
    };
    let response = http::ask(seam, &endpoint.tls, endpoint.timeouts, &request(endpoint, &proof)).await;
    let response = response.map_err(|failure| TokenFailure::Unreachable { url: url(), failure })?;
    read(&endpoint.url, &response, seam.now_ms())
}

/// What is shown this time.
enum Proof {
    Secret(Secret),
    Assertion(Secret),
}

/// As `ClientSecretRequestFormatter.java` and `ClientAssertionRequestFormatter.java`.
fn request(endpoint: &Endpoint, proof: &Proof) -> HttpRequest {
    let client_id = endpoint.client_id.trim();
    let mut body = Zeroizing::new("grant_type=client_credentials".to_owned());
    if let Proof::Assertion(assertion) = proof {
        body.push_str(
            "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer",
        );
        body.push_str("&client_assertion=");
        body.push_str(&Zeroizing::new(form_encoded(assertion.reveal_text().trim())));
        if !client_id.is_empty() {
            body.push_str("&client_id=");
            body.push_str(&form_encoded(client_id));
        }
    }
    if let Some(scope) = endpoint.scope.as_deref().map(str::trim).filter(|scope| !scope.is_empty()) {
        // Java sends the scope as it is unless the headers are encoded; a blank must be, in any case.
        body.push_str("&scope=");
        body.push_str(&form_encoded(scope));
    }
    let request = HttpRequest {
        method: Method::POST,
        body: Secret::new(body.as_str()),
        ..HttpRequest::get(endpoint.url.clone())
    };
    let request = request
        .header("accept", "application/json")
        .header("cache-control", "no-cache")
        .header("content-type", "application/x-www-form-urlencoded");
    let Proof::Secret(secret) = proof else { return request };
    let encoded = |text: &str| match endpoint.encoding {
        HeaderEncoding::Plain => text.to_owned(),
        HeaderEncoding::Url => form_encoded(text),
    };
    let pair = Zeroizing::new(format!("{}:{}", encoded(client_id), encoded(secret.reveal_text().trim())));
    request.header("authorization", format!("Basic {}", STANDARD.encode(pair.as_bytes())))
}

/// The token of an answer; `expires_in` counts where the token does not say itself when it ends.
fn read(url: &HttpUrl, response: &HttpResponse, now_ms: i64) -> Result<Token, TokenFailure> {
    let url = || url.to_string();
    let parsed = serde_json::from_slice::<Value>(&response.body).ok();
    if !matches!(response.status, 200 | 201) {
        let message = refusal(parsed.as_ref(), &response.body);
        return Err(TokenFailure::Refused { url: url(), status: response.status, message });
    }
    let answer = parsed.unwrap_or_default();
    let text = ["access_token", "id_token"].iter().find_map(|key| answer.get(*key)?.as_str());
    let text = text.ok_or_else(|| TokenFailure::Lacking { url: url() })?;
    let mut token =
        Token::read(text.as_bytes()).map_err(|error| TokenFailure::NoToken { place: url(), error })?;
    if token.ends_ms.is_none() {
        let seconds = answer.get("expires_in").and_then(Value::as_i64);
        token.ends_ms = seconds.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1_000)));
    }
    Ok(token)
}

/// RFC 6749, section 5.2, and what Okta says instead; none of it is secret.
fn refusal(parsed: Option<&Value>, body: &[u8]) -> String {
    let word = |key: &str| parsed.and_then(|answer| answer.get(key)?.as_str());
    let pair = [("error", "error_description"), ("errorCode", "errorSummary")];
    let told = pair.iter().find_map(|(code, text)| {
        let text = word(text).map(|text| format!(" ({text})")).unwrap_or_default();
        Some(format!("{}{text}", word(code)?))
    });
    let told = told.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let shown: String = told.chars().filter(|c| !c.is_control()).take(SHOWN_CHARACTERS_MAX).collect();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

/// As `URLEncoder.java`.
fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => encoded.push(byte.into()),
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
