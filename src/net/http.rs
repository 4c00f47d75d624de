//! One question over HTTP/1.1, and its answer: what token endpoints and metadata servers are asked.
//!
//! hyper reads and writes; this file dials, puts TLS on it, and bounds time and size. A connection serves one question: they
//! come once in minutes. No redirect is followed, since a secret would follow it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::address::HostPort;
use super::tls::{Tls, TlsFailure};
use super::{Secret, chain};
use crate::seam::{Seam, Socket, SocketOptions};

/// No token, and no set of keys, comes near this.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Path and query.
    target: String,
}

/// How the connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Anybody on the way can read it.
    Http,
    /// TLS.
    Https,
}

/// A text that is no URL of `http` or `https`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no URL that begins with http:// or https://")]
pub struct HttpUrlError;

impl HttpUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// When it is none, or has another scheme.
    pub fn parse(text: &str) -> Result<HttpUrl, HttpUrlError> {
        let uri: Uri = text.trim().parse().map_err(|_| HttpUrlError)?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err(HttpUrlError),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(HttpUrlError)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if scheme == Scheme::Https { 443 } else { 80 });
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(HttpUrl { scheme, host, port, target: target.to_owned() })
    }

    /// How the connection is made.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host alone.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same host with another path and query.
    #[must_use]
    pub fn at(&self, target: &str) -> HttpUrl {
        HttpUrl { target: target.to_owned(), ..self.clone() }
    }

    /// Host and port, as the header `host` has them.
    pub fn authority(&self) -> String {
        let host = HostPort::new(self.host.clone(), self.port).to_string();
        let default = if self.scheme == Scheme::Https { ":443" } else { ":80" };
        host.strip_suffix(default).map(str::to_owned).unwrap_or(host)
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority())
    }
}

/// A question.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// `GET`, `PUT`, `POST`.
    pub method: Method,
    /// Whom.
    pub url: HttpUrl,
    /// Its headers beside those of every request; each value may be a secret.
    pub headers: Vec<(&'static str, Secret)>,
    /// Its body.
    pub body: Secret,
}

impl HttpRequest {
    /// `GET` without headers.
    pub fn get(url: HttpUrl) -> HttpRequest {
        HttpRequest { method: Method::GET, url, headers: Vec::new(), body: Secret::new("") }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> HttpRequest {
        self.headers.push((name, Secret::new(value)));
        self
    }
}

/// An answer.
pub struct HttpResponse {
    /// Its status.
    pub status: u16,
    /// Its body, which may be a secret.
    pub body: Zeroizing<Vec<u8>>,
}

/// How long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// Until a connection stands, TLS included.
    pub connect: Duration,
    /// From then on.
    pub read: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpFailure {
    /// The name has no address.
    #[error("the name cannot be resolved: {0}")]
    Resolve(String),
    /// Nobody accepts connections there.
    #[error("cannot connect: {0}")]
    Dial(String),
    /// There is no TLS session.
    #[error("TLS: {0}")]
    Tls(String),
    /// It took too long.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// What came is no answer, or a very long one.
    #[error("{0}")]
    Broken(String),
}

/// Asks once.
///
/// # Errors
/// [`HttpFailure`]; an answer of any status is none.
pub async fn ask(
    seam: &Seam,
    tls: &Tls,
    timeouts: HttpTimeouts,
    request: &HttpRequest,
) -> Result<HttpResponse, HttpFailure> {
    let within = timeouts.connect;
    let connected = timeout(within, connect(seam, tls, &request.url)).await;
    let socket = connected.unwrap_or(Err(HttpFailure::Timeout(within)))?;
    let within = timeouts.read;
    timeout(within, exchange(socket, request)).await.unwrap_or(Err(HttpFailure::Timeout(within)))
}

/// All addresses are tried, one after the other.
async fn connect(seam: &Seam, tls: &Tls, url: &HttpUrl) -> Result<Socket, HttpFailure> {
    let addresses = seam.resolve(&url.host, url.port).await;
    let addresses = addresses.map_err(|error| HttpFailure::Resolve(error.to_string()))?;
    let mut failure = HttpFailure::Resolve("it has no address".to_owned());
    for address in addresses {
        match seam.dial(address, SocketOptions::default()).await {
            Ok(socket) if url.scheme == Scheme::Http => return Ok(socket),
            Ok(socket) => return secure(seam, tls, url, socket).await,
            Err(error) => failure = HttpFailure::Dial(format!("{address}: {error}")),
        }
    }
    Err(failure)
}

async fn secure(seam: &Seam, tls: &Tls, url: &HttpUrl, socket: Socket) -> Result<Socket, HttpFailure> {
    let failed = |failure: TlsFailure| HttpFailure::Tls(failure.to_string());
    let session = tls.session(seam, &url.host).await.map_err(failed)?;
    seam.secure(socket, session).await.map_err(|error| match TlsFailure::of_handshake(error) {
        Ok(failure) => failed(failure),
        Err(error) => HttpFailure::Broken(error.to_string()),
    })
}

async fn exchange(socket: Socket, request: &HttpRequest) -> Result<HttpResponse, HttpFailure> {
    let broken = |error: hyper::Error| HttpFailure::Broken(chain(&error));
    let request = built(request)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| HttpFailure::Broken(error.to_string()))?;
        Ok(HttpResponse { status, body: Zeroizing::new(body.to_bytes().to_vec()) })
    };
    // The connection moves the bytes; when it has ended, what came of them is still to be read.
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        _ = &mut connection => {}
    }
    answer.await
}

fn built(request: &HttpRequest) -> Result<hyper::Request<Full<Bytes>>, HttpFailure> {
    let mut built = hyper::Request::new(Full::new(Bytes::copy_from_slice(request.body.reveal())));
    *built.method_mut() = request.method.clone();
    let unsendable = |what: &str| HttpFailure::Broken(format!("{what} cannot be sent"));
    *built.uri_mut() = request.url.target.parse().map_err(|_| unsendable("the path"))?;
    let headers = built.headers_mut();
    let fixed = [("host", request.url.authority()), ("user-agent", AGENT.to_owned())];
    let fixed = fixed.map(|(name, value)| (name, Secret::new(value.into_bytes())));
    let close = ("connection", Secret::new("close"));
    for (name, value) in fixed.iter().chain([&close]).chain(&request.headers) {
        let mut value = HeaderValue::from_bytes(value.reveal()).map_err(|_| unsendable(name))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(built)
}

const AGENT: &str = concat!("kmirror/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::net::tls::{Place, Store, StoreKind, TlsSettings, server_config};
    use crate::seam::Simulation;

    const TIMEOUTS: HttpTimeouts =
        HttpTimeouts { connect: Duration::from_secs(2), read: Duration::from_secs(5) };

    #[test]
    fn urls_are_read_and_shown_without_their_query() {
        for (text, shown) in [
            ("https://idp.example.com/oauth2/token", Some("https://idp.example.com/oauth2/token")),
            ("http://127.0.0.1:8080/t?x=s3cret", Some("http://127.0.0.1:8080/t")),
            ("http://[::1]:80/", Some("http://[::1]/")),
            ("https://h", Some("https://h/")),
            ("ftp://h/", None),
            ("/token", None),
            ("https:///x", None),
            ("", None),
        ] {
            let url = HttpUrl::parse(text).ok();
            assert_eq!(url.map(|url| url.to_string()).as_deref(), shown, "{text}");
        }
    }

    /// What a server that says `answer`, and closes, is asked, and what comes of it.
    async fn asked(answer: Vec<u8>) -> (String, Result<HttpResponse, HttpFailure>) {
        let seam = Seam::Simulated(Simulation::new(1));
        let mut listener = seam.listen("10.0.0.1:80".parse().unwrap()).await.unwrap();
        let server = seam.spawn(async move {
            let mut socket = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let count = socket.read(&mut head).await.unwrap();
            let _ = socket.write_all(&answer).await;
            let _ = socket.shutdown().await;
            String::from_utf8_lossy(&head[..count]).into_owned()
        });
        let url = HttpUrl::parse("http://10.0.0.1/token?a=b").unwrap();
        let request = HttpRequest {
            method: Method::POST,
            body: Secret::new("grant_type=x"),
            ..HttpRequest::get(url).header("authorization", "Basic s3cret")
        };
        let tls = Tls::new(TlsSettings::default());
        let response = ask(&seam, &tls, TIMEOUTS, &request).await;
        (server.await.unwrap(), response)
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_and_its_answer_read_in_each_form() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhi",
            "HTTP/1.0 200 OK\r\n\r\nhi",
        ] {
            let (head, response) = asked(answer.into()).await;
            let response = response.unwrap_or_else(|failure| panic!("{answer:?}: {failure}"));
            assert_eq!((response.status, response.body.as_slice()), (200, &b"hi"[..]), "{answer:?}");
            assert!(head.starts_with("POST /token?a=b HTTP/1.1\r\n"), "{head}");
            for line in ["host: 10.0.0.1\r\n", "authorization: Basic s3cret\r\n", "content-length: 12\r\n"] {
                assert!(head.contains(line), "{line:?} in {head}");
            }
        }
        let (_, response) = asked(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec()).await;
        assert_eq!(response.unwrap().status, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_answer_is_a_failure_and_long_ones_are_not_taken() {
        let long = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; BODY_BYTES_MAX + 1]].concat();
        for answer in [
            b"".to_vec(),
            b"SSH-2.0-x\r\n".to_vec(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi".to_vec(),
            long,
        ] {
            let (_, response) = asked(answer).await;
            assert!(matches!(response, Err(HttpFailure::Broken(_))), "{:?}", response.err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn https_is_spoken_with_whom_the_store_believes() {
        let made = rcgen::generate_simple_self_signed(["10.0.0.1".to_owned()]).unwrap();
        let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
        let store = |text: &str| Store {
            kind: StoreKind::Pem,
            place: Place::Inline(Secret::new(text)),
            password: None,
        };
        let config = server_config(&store(&pem), None, pem.as_bytes()).unwrap();
        let seam = Seam::Simulated(Simulation::new(1));
        let mut listener = seam.listen("10.0.0.1:443".parse().unwrap()).await.unwrap();
        let server = seam.clone();
        seam.spawn(async move {
            while let Ok(socket) = listener.accept().await {
                let session = rustls::ServerConnection::new(config.clone()).unwrap();
                let Ok(mut socket) = server.secure(socket, session.into()).await else { continue };
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
                let _ = socket.flush().await;
            }
        });
        let request = HttpRequest::get(HttpUrl::parse("https://10.0.0.1/").unwrap());
        let believing = TlsSettings { trust: Some(store(&made.cert.pem())), ..TlsSettings::default() };
        let response = ask(&seam, &Tls::new(believing), TIMEOUTS, &request).await.unwrap();
        assert_eq!((response.status, response.body.as_slice()), (200, &b"hi"[..]));
        let other = rcgen::generate_simple_self_signed(["10.0.0.1".to_owned()]).unwrap();
        let doubting = TlsSettings { trust: Some(store(&other.cert.pem())), ..TlsSettings::default() };
        let failure = ask(&seam, &Tls::new(doubting), TIMEOUTS, &request).await.err().unwrap();
        assert!(matches!(failure, HttpFailure::Tls(_)), "{failure}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_there_and_nobody_who_answers_are_told_apart() {
        let seam = Seam::Simulated(Simulation::new(1));
        let tls = Tls::new(TlsSettings::default());
        let request = HttpRequest::get(HttpUrl::parse("http://10.0.0.1/").unwrap());
        let failure = ask(&seam, &tls, TIMEOUTS, &request).await.err().unwrap();
        assert!(matches!(failure, HttpFailure::Dial(_)), "{failure}");
        let _listener = seam.listen("10.0.0.1:80".parse().unwrap()).await.unwrap();
        let failure = ask(&seam, &tls, TIMEOUTS, &request).await.err().unwrap();
        assert_eq!(failure, HttpFailure::Timeout(TIMEOUTS.read));
    }
}
