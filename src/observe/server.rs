//! The admin listener: `/metrics`, `/status`, `/healthz`, `/readyz` over HTTP/1.1.
//!
//! Every answer is made from a state asked for on the spot, so a scrape sees what is, and nothing is done between scrapes.
//! Connections, time for a request's head and time for the state are bounded: nobody who can reach the port can hold more
//! than [`CONNECTIONS_MAX`] small buffers.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::json;
use super::metrics::{Metrics, Names};
use super::settings::{AdminListen, Settings};
use crate::mirror::status::ReplicatorStatus;
use crate::seam::{Listener, Seam, Socket};

const CONNECTIONS_MAX: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The port cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("kmirror.admin.listen={address} cannot be listened on: {source}")]
pub struct ListenError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

/// Listens as the settings say; `None` when it is off. A default address that is taken is replaced by a free port, with a
/// warning; one that the user chose is an error.
pub async fn listen(seam: &Seam, settings: &Settings) -> Result<Option<Listener>, ListenError> {
    let at_fault = |address| move |source| ListenError { address, source };
    match settings.admin_listen {
        AdminListen::Off => Ok(None),
        AdminListen::Named(address) => seam.listen(address).await.map(Some).map_err(at_fault(address)),
        AdminListen::Default => {
            let address = AdminListen::DEFAULT;
            let error = match seam.listen(address).await {
                Ok(listener) => return Ok(Some(listener)),
                Err(error) => error,
            };
            let free = SocketAddr::new(address.ip(), 0);
            let listener = seam.listen(free).await.map_err(at_fault(free))?;
            let instead = listener.local_address().map_err(at_fault(free))?;
            tracing::warn!(%address, %error, %instead, "the default admin address is taken: a free port is used");
            Ok(Some(listener))
        }
    }
}

/// Serves until it is dropped; `status` gives the state of the moment.
pub async fn serve<F, S>(seam: Seam, mut listener: Listener, status: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ReplicatorStatus> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(socket) => {
                let status = status.clone();
                seam.spawn(async move {
                    connection(socket, status).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the admin listener could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection<F, S>(socket: Socket, status: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ReplicatorStatus> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let status = status.clone();
        async move { Ok::<_, Infallible>(answer(request.method(), request.uri(), status).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the admin listener ended");
    }
}

async fn answer<F, S>(method: &Method, uri: &Uri, status: F) -> Response<Answer>
where
    F: Fn() -> S,
    S: Future<Output = ReplicatorStatus>,
{
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET is all there is\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = uri.path();
    match path {
        "/" => return text(StatusCode::OK, "kmirror: /metrics /status /healthz /readyz\n"),
        "/healthz" => return text(StatusCode::OK, "ok\n"),
        "/metrics" | "/status" | "/readyz" => {}
        _ => return text(StatusCode::NOT_FOUND, "not here: /metrics /status /healthz /readyz\n"),
    }
    let Ok(status) = tokio::time::timeout(STATUS_TIMEOUT, status()).await else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the replicator does not answer\n");
    };
    match path {
        "/metrics" => {
            let body = Answer::Metrics(Metrics::new(Arc::new(status), names(uri)));
            response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", body)
        }
        "/status" => {
            let body = Answer::Text(Some(Bytes::from(json::status(&status).to_string() + "\n")));
            response(StatusCode::OK, "application/json", body)
        }
        _ => match json::unready(&status) {
            lines if lines.is_empty() => text(StatusCode::OK, "ready\n"),
            lines => response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, Answer::Text(Some(Bytes::from(lines)))),
        },
    }
}

/// `/metrics?names=source_connector` asks for the second set of MirrorMaker's names, too.
fn names(uri: &Uri) -> Names {
    let asked = uri.query().unwrap_or_default().split('&').any(|part| part == "names=source_connector");
    if asked { Names::AlsoSourceConnector } else { Names::Standard }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn text(code: StatusCode, text: &'static str) -> Response<Answer> {
    response(code, PLAIN, Answer::Text(Some(Bytes::from_static(text.as_bytes()))))
}

fn response(code: StatusCode, content_type: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The body of an answer: whole, or piece by piece.
enum Answer {
    Text(Option<Bytes>),
    Metrics(Metrics),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Answer::Text(text) => text.take(),
            Answer::Metrics(metrics) => metrics.next().map(Bytes::from),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Answer::Text(Some(text)) => hyper::body::SizeHint::with_exact(text.len() as u64),
            _ => hyper::body::SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::example;
    use super::*;
    use crate::seam::{Simulation, SocketOptions};

    async fn start(seam: &Seam) -> SocketAddr {
        let settings = Settings { admin_listen: AdminListen::Named("10.0.0.1:80".parse().unwrap()) };
        let listener = listen(seam, &settings).await.unwrap().unwrap();
        let address = listener.local_address().unwrap();
        seam.spawn(serve(seam.clone(), listener, || std::future::ready(example::status())));
        address
    }

    async fn ask(seam: &Seam, address: SocketAddr, request: &str) -> String {
        let mut socket = seam.dial(address, SocketOptions::default()).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn each_path_answers() {
        let seam = Seam::Simulated(Simulation::new(1));
        let address = start(&seam).await;
        for (request, code, part) in [
            ("GET /healthz", "200 OK", "\r\n\r\nok\n"),
            ("GET /readyz", "503 Service Unavailable", "B->A is waiting_for_mirrormaker"),
            (
                "GET /metrics",
                "200 OK",
                "kmirror_records_total{source=\"A\",target=\"B\",topic=\"orders\",partition=\"0\"} 70",
            ),
            (
                "GET /metrics?x=y&names=source_connector",
                "200 OK",
                "kafka_connect_mirror_source_connector_record_count{source=\"A\",target=\"B\",destination=\"B\",topic=\"A.orders\",partition=\"0\"} 70",
            ),
            ("GET /metrics", "200 OK", "content-type: text/plain; version=0.0.4; charset=utf-8"),
            ("GET /status", "200 OK", "\"position\":90"),
            ("GET /status?x=y", "200 OK", "content-type: application/json"),
            ("GET /", "200 OK", "/metrics"),
            ("GET /nothing", "404 Not Found", "not here"),
            ("POST /metrics", "405 Method Not Allowed", "allow: GET, HEAD"),
            ("HEAD /healthz", "200 OK", "content-length: 3"),
        ] {
            let answer = ask(&seam, address, request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {answer}");
            assert!(answer.contains(part), "{request}: {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_taken_default_is_replaced_and_a_taken_choice_is_an_error() {
        let seam = Seam::Simulated(Simulation::new(1));
        let default = Settings { admin_listen: AdminListen::Default };
        let first = listen(&seam, &default).await.unwrap().unwrap();
        assert_eq!(first.local_address().unwrap(), AdminListen::DEFAULT);
        let second = listen(&seam, &default).await.unwrap().unwrap();
        assert_ne!(second.local_address().unwrap(), AdminListen::DEFAULT);
        let named = Settings { admin_listen: AdminListen::Named(AdminListen::DEFAULT) };
        let error = listen(&seam, &named).await.unwrap_err();
        assert!(
            error.to_string().starts_with("kmirror.admin.listen=127.0.0.1:9464 cannot be listened on"),
            "{error}"
        );
        assert!(listen(&seam, &Settings { admin_listen: AdminListen::Off }).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_are_closed_and_do_not_keep_others_out() {
        let seam = Seam::Simulated(Simulation::new(1));
        let address = start(&seam).await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(seam.dial(address, SocketOptions::default()).await.unwrap());
        }
        let answer = ask(&seam, address, "GET /healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"));
        drop(silent);
    }
}
