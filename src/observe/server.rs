//! The admin listener: `/metrics`, `/status`, `/healthz`, `/readyz` over HTTP/1.1.
//!
//! Every answer is made from a state asked for on the spot, so a scrape sees what is, and nothing is done between scrapes.
//! Connections and their time are bounded ([`super::guests`]): nobody who can reach the port can hold more than
//! [`CONNECTIONS_MAX`] small buffers, or keep others out by holding them.

use std::collections::BTreeMap;
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
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::access::{self, Verdict};
use super::guests::{GuestId, Guests, Phase};
use super::json;
use super::metrics::{Metrics, Names};
use super::settings::{Access, AdminListen, Settings};
use crate::mirror::status::{ReplicatorStatus, TlsStatus};
use crate::net::tls::ServerTls;
use crate::seam::{Listener, Seam, Socket};

const CONNECTIONS_MAX: usize = 32;
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

/// A port that listens, and whom it answers.
#[derive(Debug)]
pub struct AdminListener {
    listener: Listener,
    door: Arc<Door>,
}

#[derive(Debug)]
struct Door {
    seam: Seam,
    access: Access,
    tls: Option<Arc<ServerTls>>,
}

impl Door {
    /// A state with what the listener itself shows.
    async fn told(&self, status: impl Future<Output = ReplicatorStatus>) -> ReplicatorStatus {
        let mut status = status.await;
        status.tls.extend(
            self.tls.as_ref().map(|tls| TlsStatus::new("kmirror.admin", tls.certificates(), tls.trouble())),
        );
        status
    }
}

impl AdminListener {
    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.door.tls.is_some() { "https" } else { "http" }
    }
}

/// Listens as the settings say; `None` when it is off. A default address that is taken is replaced by a free port, with a
/// warning; one that the user chose is an error.
pub async fn listen(seam: &Seam, settings: &Settings) -> Result<Option<AdminListener>, ListenError> {
    let listener = open(seam, settings).await?;
    let door = Door { seam: seam.clone(), access: settings.access.clone(), tls: settings.tls.clone() };
    Ok(listener.map(|listener| AdminListener { listener, door: Arc::new(door) }))
}

async fn open(seam: &Seam, settings: &Settings) -> Result<Option<Listener>, ListenError> {
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
pub async fn serve<F, S>(seam: Seam, listener: AdminListener, status: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ReplicatorStatus> + Send + 'static,
{
    let AdminListener { mut listener, door } = listener;
    let (news, mut heard) = mpsc::unbounded_channel();
    let mut house = House::new();
    loop {
        let (deadline, room_at) = (house.next_deadline(), house.room_at());
        tokio::select! {
            biased;
            Some(one) = heard.recv() => house.hear(one),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => house.close_overdue(),
            () = sleep_until(room_at.unwrap_or_else(Instant::now)), if room_at.is_some() => {}
            accepted = listener.accept(), if room_at.is_none() => match accepted {
                Ok(socket) => {
                    let note = Note { id: house.enter(), news: news.clone() };
                    let (id, status) = (note.id, status.clone());
                    let entered = enter(door.clone(), socket, note, status);
                    house.tasks.insert(id, seam.spawn(entered));
                }
                Err(error) => {
                    tracing::debug!(%error, "the admin listener could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// The connections and their tasks.
struct House {
    started: Instant,
    guests: Guests,
    tasks: BTreeMap<GuestId, JoinHandle<()>>,
}

impl House {
    fn new() -> House {
        House { started: Instant::now(), guests: Guests::new(CONNECTIONS_MAX), tasks: BTreeMap::new() }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.guests.next_deadline().map(|at| self.started + at)
    }

    /// When the next connection may be accepted; `None` for now.
    fn room_at(&self) -> Option<Instant> {
        self.guests.room_at(self.started.elapsed()).map(|at| self.started + at)
    }

    fn enter(&mut self) -> GuestId {
        let (id, leaves) = self.guests.enter(self.started.elapsed());
        leaves.into_iter().for_each(|id| self.close(id));
        id
    }

    fn hear(&mut self, (id, phase): News) {
        match phase {
            Some(phase) => self.guests.turn(id, phase, self.started.elapsed()),
            None => {
                self.guests.leave(id);
                self.tasks.remove(&id);
            }
        }
    }

    fn close_overdue(&mut self) {
        for id in self.guests.overdue(self.started.elapsed()) {
            self.close(id);
        }
    }

    fn close(&mut self, id: GuestId) {
        if let Some(task) = self.tasks.remove(&id) {
            task.abort();
        }
    }
}

/// What a connection does now; `None` when it has ended.
type News = (GuestId, Option<Phase>);

/// Says what one connection does.
#[derive(Clone)]
struct Note {
    id: GuestId,
    news: mpsc::UnboundedSender<News>,
}

impl Note {
    fn tell(&self, phase: Option<Phase>) {
        // A server that is gone serves nobody.
        let _ = self.news.send((self.id, phase));
    }
}

/// Puts TLS on a connection where that is wanted; how long it may take, the house says.
async fn enter<F, S>(door: Arc<Door>, socket: Socket, note: Note, status: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ReplicatorStatus> + Send + 'static,
{
    let socket = match &door.tls {
        None => Some(socket),
        Some(tls) => match tls.session(&door.seam).await {
            Ok(session) => door.seam.secure(socket, session).await.ok(),
            Err(error) => {
                tracing::debug!(%error, "the admin listener has nothing to show");
                None
            }
        },
    };
    match socket {
        Some(socket) => connection(door, socket, note, status).await,
        None => note.tell(None),
    }
}

async fn connection<F, S>(door: Arc<Door>, socket: Socket, note: Note, status: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ReplicatorStatus> + Send + 'static,
{
    let gone = note.clone();
    let socket = Watched { socket, note: note.clone() };
    let service = service_fn(move |request: Request<Incoming>| {
        note.tell(Some(Phase::Answered));
        let (status, note, door) = (status.clone(), note.clone(), door.clone());
        async move {
            let answer = match refusal(&door, request.uri(), request.headers()).await {
                Some(refusal) => refusal,
                None => answer(request.method(), request.uri(), || door.told(status())).await,
            };
            Ok::<_, Infallible>(answer.map(|body| Told { body, note }))
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the admin listener ended");
    }
    gone.tell(None);
}

/// The answer to whoever is not answered.
async fn refusal(door: &Door, uri: &Uri, headers: &HeaderMap) -> Option<Response<Answer>> {
    if uri.path() == "/healthz" {
        return None;
    }
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let Verdict::Refused(challenge) = access::judge(&door.seam, &door.access, shown).await else {
        return None;
    };
    let mut response = text(StatusCode::UNAUTHORIZED, "kmirror.admin.* says who is answered\n");
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    Some(response)
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
    let Ok(status) = timeout(STATUS_TIMEOUT, status()).await else {
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

/// A body that says when it has been taken.
struct Told {
    body: Answer,
    note: Note,
}

impl Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.note.tell(Some(Phase::Idle));
    }
}

/// A socket that says when something comes.
struct Watched {
    socket: Socket,
    note: Note,
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.note.tell(Some(Phase::Asking));
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::example;
    use super::super::guests::{ANSWER_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT};
    use super::*;
    use crate::seam::{Simulation, SocketOptions};

    async fn start(seam: &Seam) -> SocketAddr {
        let admin_listen = AdminListen::Named("10.0.0.1:80".parse().unwrap());
        let settings = Settings { admin_listen, ..Settings::default() };
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

    /// A machine without the file lets nobody in but whoever asks whether the process lives.
    #[tokio::test(start_paused = true)]
    async fn whoever_shows_nothing_is_told_what_is_wanted() {
        let seam = Seam::Simulated(Simulation::new(1));
        let admin_listen = AdminListen::Named("10.0.0.1:80".parse().unwrap());
        for (access, wanted) in [
            (Access::Bearer("/tokens".into()), "www-authenticate: Bearer realm=\"kmirror\""),
            (Access::Basic("/users".into()), "www-authenticate: Basic realm=\"kmirror\", charset"),
        ] {
            let listener =
                listen(&seam, &Settings { admin_listen, access, tls: None }).await.unwrap().unwrap();
            let address = listener.local_address().unwrap();
            let server = seam.spawn(serve(seam.clone(), listener, || std::future::ready(example::status())));
            for path in ["/metrics", "/status", "/readyz", "/"] {
                let answer = ask(&seam, address, &format!("GET {path}")).await;
                assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains(wanted), "{path}: {answer}");
                assert!(!answer.contains("orders"), "{answer}");
            }
            let answer = ask(&seam, address, "GET /healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            server.abort();
            let _ = server.await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_taken_default_is_replaced_and_a_taken_choice_is_an_error() {
        let seam = Seam::Simulated(Simulation::new(1));
        let default = Settings { admin_listen: AdminListen::Default, ..Settings::default() };
        let first = listen(&seam, &default).await.unwrap().unwrap();
        assert_eq!(first.local_address().unwrap(), AdminListen::DEFAULT);
        let second = listen(&seam, &default).await.unwrap().unwrap();
        assert_ne!(second.local_address().unwrap(), AdminListen::DEFAULT);
        let named =
            Settings { admin_listen: AdminListen::Named(AdminListen::DEFAULT), ..Settings::default() };
        let error = listen(&seam, &named).await.unwrap_err();
        assert!(
            error.to_string().starts_with("kmirror.admin.listen=127.0.0.1:9464 cannot be listened on"),
            "{error}"
        );
        let off = Settings { admin_listen: AdminListen::Off, ..Settings::default() };
        assert!(listen(&seam, &off).await.unwrap().is_none());
    }

    async fn open(seam: &Seam, address: SocketAddr, said: &str) -> Socket {
        let mut socket = seam.dial(address, SocketOptions::default()).await.unwrap();
        socket.write_all(said.as_bytes()).await.unwrap();
        socket
    }

    /// When the server closes a connection, and what it said until then.
    async fn until_closed(mut socket: Socket) -> (Duration, String) {
        let (since, mut said) = (Instant::now(), Vec::new());
        let _ = socket.read_to_end(&mut said).await;
        (since.elapsed(), String::from_utf8(said).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_are_held_keep_nobody_out() {
        let keep_alive = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
        for held in ["", "GET /metr", keep_alive] {
            let seam = Seam::Simulated(Simulation::new(1));
            let address = start(&seam).await;
            let mut sockets = Vec::new();
            for _ in 0..10 * CONNECTIONS_MAX {
                sockets.push(open(&seam, address, held).await);
            }
            let since = Instant::now();
            let answer = ask(&seam, address, "GET /healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{held:?}: {answer:?}");
            assert!(since.elapsed() < Duration::from_secs(1), "{held:?}: {:?}", since.elapsed());
            // The new one and those of the old ones that are left have the places; the oldest went.
            for (index, socket) in sockets.into_iter().enumerate() {
                let (after, said) = until_closed(socket).await;
                let went_at_once = after < Duration::from_millis(100);
                let is_left = index > 9 * CONNECTIONS_MAX;
                assert!(went_at_once || is_left, "{held:?} {index}: {after:?}");
                assert_eq!(said.starts_with("HTTP/1.1 200 OK"), held == keep_alive, "{said}");
                if is_left {
                    break;
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_requests_is_answered_to_the_last() {
        let seam = Seam::Simulated(Simulation::new(1));
        let address = start(&seam).await;
        let burst = (0..10 * CONNECTIONS_MAX).map(|_| {
            let seam = seam.clone();
            tokio::spawn(async move { ask(&seam, address, "GET /status").await })
        });
        for one in burst.collect::<Vec<_>>() {
            assert!(one.await.unwrap().starts_with("HTTP/1.1 200 OK"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_its_time() {
        let seam = Seam::Simulated(Simulation::new(1));
        let address = start(&seam).await;
        let near = |after: Duration, wanted: Duration| after.abs_diff(wanted) < Duration::from_millis(100);
        for (said, wanted) in [("", IDLE_TIMEOUT), ("GET /metr", HEAD_TIMEOUT)] {
            let (after, _) = until_closed(open(&seam, address, said).await).await;
            assert!(near(after, wanted), "{said:?}: {after:?}");
        }
        // Whoever comes back every minute is still known.
        let mut socket = open(&seam, address, "").await;
        for _ in 0..5 {
            sleep(Duration::from_secs(60)).await;
            socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            socket.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            let mut rest = [0; 1_024];
            timeout(Duration::from_millis(50), socket.read(&mut rest)).await.unwrap().unwrap();
        }
        let (after, _) = until_closed(socket).await;
        assert!(near(after, IDLE_TIMEOUT), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_takes_have_their_time() {
        let seam = Seam::Simulated(Simulation::new(1));
        let address = start(&seam).await;
        let mut socket = open(&seam, address, "").await;
        let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
        let since = Instant::now();
        while socket.write_all(request).await.is_ok() {}
        // The last one counts as taken once hyper has it.
        let after = since.elapsed();
        let near = |wanted: Duration| after.abs_diff(wanted) < Duration::from_millis(100);
        assert!(near(ANSWER_TIMEOUT) || near(IDLE_TIMEOUT), "{after:?}");
    }
}
