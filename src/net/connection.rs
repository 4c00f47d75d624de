//! A connection for the control plane: one owner task, one inbox, several requests in flight.
//!
//! Lanes do not use it; they own their socket. Everything that comes here is small and answered whole. A request that is
//! not answered in time closes the connection, because the replies behind it would not come either.
//!
//! When the broker's session comes to its end (KIP-368), new requests are held, the replies of those on their way are read,
//! then the connection authenticates again and goes on.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::error::{CloseReason, Error, Step, reply_bytes_max};
use super::establish::{Established, renew};
use super::frame::{
    FrameReader, ReadError, api_key, decode_response, encode_request_mut, set_correlation_id,
};
use super::pipeline::Pipeline;
use super::settings::Settings;
use super::versions::ApiVersions;
use crate::seam::{Seam, Socket};

/// The most requests on the wire; more wait in the inbox.
const IN_FLIGHT_MAX: usize = 32;
/// The most requests that wait in the inbox; more wait at its door.
const INBOX_MAX: usize = 64;
/// The longest that a broker can make us wait before the next request.
const THROTTLE_MAX: Duration = Duration::from_secs(300);

/// A handle to a connection; cheap to clone. The connection closes when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    inbox: mpsc::Sender<Call>,
    ended: watch::Receiver<Option<Error>>,
    silent_since: watch::Receiver<Option<Instant>>,
    throttled_until: Arc<watch::Sender<Option<Instant>>>,
    versions: Arc<ApiVersions>,
    client_id: Arc<str>,
    request_timeout: Duration,
}

#[derive(Debug)]
struct Call {
    frame: BytesMut,
    step: Step,
    timeout: Duration,
    reply: oneshot::Sender<Result<(Bytes, i32), Error>>,
}

impl Connection {
    /// Puts a pipeline on an established connection.
    pub fn start(seam: &Seam, settings: &Settings, established: Established) -> Connection {
        let (inbox, calls) = mpsc::channel(INBOX_MAX);
        let (end, ended) = watch::channel(None);
        let (silence, silent_since) = watch::channel(None);
        let (reading, writing) = tokio::io::split(established.socket);
        let bytes_max = reply_bytes_max(settings);
        let owner = Owner {
            calls,
            end,
            silence,
            reading,
            writing,
            reader: FrameReader::new(bytes_max),
            bytes_max,
            unwritten: BytesMut::new(),
            pipeline: Pipeline::new(established.peer, established.next_correlation_id),
            idle_max: settings.connections_max_idle,
            used: Instant::now(),
            is_answered: false,
            renew_at: established.renew_at,
            versions: Arc::new(established.versions),
            seam: seam.clone(),
            settings: settings.clone(),
        };
        let versions = owner.versions.clone();
        seam.spawn(owner.run());
        Connection {
            inbox,
            ended,
            silent_since,
            throttled_until: Arc::new(watch::Sender::new(None)),
            versions,
            client_id: Arc::from(settings.client_id.as_str()),
            request_timeout: settings.request_timeout,
        }
    }

    /// What the broker speaks, and who it is.
    pub fn versions(&self) -> &Arc<ApiVersions> {
        &self.versions
    }

    /// Why the connection ended; `None` while it stands.
    pub fn ended(&self) -> Option<Error> {
        self.ended.borrow().clone()
    }

    /// Since when a request waits and nothing is heard; `None` while no request waits.
    pub fn silent_since(&self) -> Option<Instant> {
        *self.silent_since.borrow()
    }

    /// The broker asks for this pause before the next request (`throttle_time_ms`). It would not read one before (KIP-219),
    /// so that the request's time would run out for nothing.
    pub fn throttle(&self, pause: Duration) {
        let until = Instant::now() + pause.min(THROTTLE_MAX);
        self.throttled_until.send_if_modified(|known| {
            let is_later = known.is_none_or(|known| known < until);
            if is_later {
                *known = Some(until);
            }
            is_later
        });
    }

    /// Sends a request in `version` and waits for its reply, at most `request.timeout.ms`.
    ///
    /// # Errors
    /// Everything of [`Error`] but what belongs to dialling.
    pub async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, Error> {
        self.call_within(request, version, self.request_timeout).await
    }

    /// As [`Connection::call`], for requests that the broker may hold longer (JoinGroup).
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, Error> {
        let step = Step::Request(api_key::<R>(), version);
        let frame = encode_request_mut(request, version, 0, &self.client_id)?;
        let throttled_until = *self.throttled_until.borrow();
        if let Some(until) = throttled_until {
            sleep_until(until).await;
        }
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(Call { frame, step, timeout, reply }).await.is_err() {
            return Err(self.lost(step));
        }
        match answer.await {
            Ok(Ok((reply, correlation_id))) => {
                decode_response::<R>(self.versions.broker(), reply, version, correlation_id)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.lost(step)),
        }
    }

    fn lost(&self, step: Step) -> Error {
        let broker = self.versions.broker().clone();
        let cause = self.ended();
        let cause =
            cause.unwrap_or(Error::ClosedByUs { broker: broker.clone(), reason: CloseReason::Dropped });
        Error::Lost { broker, step, source: Box::new(cause) }
    }
}

struct Owner {
    calls: mpsc::Receiver<Call>,
    end: watch::Sender<Option<Error>>,
    silence: watch::Sender<Option<Instant>>,
    reading: ReadHalf<Socket>,
    writing: WriteHalf<Socket>,
    reader: FrameReader,
    bytes_max: usize,
    unwritten: BytesMut,
    pipeline: Pipeline<oneshot::Sender<Result<(Bytes, i32), Error>>>,
    idle_max: Option<Duration>,
    used: Instant,
    /// Whether a request was ever answered.
    is_answered: bool,
    renew_at: Option<Instant>,
    versions: Arc<ApiVersions>,
    seam: Seam,
    settings: Settings,
}

impl Owner {
    async fn run(mut self) {
        let cause = loop {
            if let Err(cause) = self.turn().await {
                break cause;
            }
        };
        // The reason stands before anybody can find the connection gone.
        self.end.send_replace(Some(cause.clone()));
        self.calls.close();
        for (waiting, error) in self.pipeline.fail(&cause) {
            let _ = waiting.send(Err(error));
        }
    }

    /// One thing that happens to the connection; an error ends it.
    async fn turn(&mut self) -> Result<(), Error> {
        let is_due = self.renew_at.is_some_and(|at| at <= Instant::now());
        let has_output = !self.unwritten.is_empty();
        if is_due && self.pipeline.len() == 0 && !has_output && self.reader.is_empty() {
            return self.renew().await;
        }
        let wake = self.wake_at(is_due);
        let has_room = self.pipeline.len() < IN_FLIGHT_MAX && !is_due;
        tokio::select! {
            biased;
            frame = self.reader.read(&mut self.reading) => self.received(frame),
            written = self.writing.write_buf(&mut self.unwritten), if has_output => self.written(written),
            call = self.calls.recv(), if has_room => self.called(call),
            () = sleep_or_never(wake) => self.overdue(),
        }
    }

    fn wake_at(&self, is_due: bool) -> Option<Instant> {
        let idle_or_late = self.pipeline.deadline().or_else(|| self.idle_max.map(|idle| self.used + idle));
        [idle_or_late, self.renew_at.filter(|_| !is_due)].into_iter().flatten().min()
    }

    /// Authenticates again; nothing is on its way.
    async fn renew(&mut self) -> Result<(), Error> {
        let next = self.pipeline.next_correlation_id();
        let mut stream = tokio::io::join(&mut self.reading, &mut self.writing);
        let renewed = renew(&self.seam, &self.settings, &mut stream, &self.versions, next).await?;
        self.pipeline.set_next_correlation_id(renewed.next_correlation_id);
        self.renew_at = renewed.renew_at;
        Ok(())
    }

    fn received(&mut self, frame: Result<Bytes, ReadError>) -> Result<(), Error> {
        let broker = self.broker();
        let frame =
            frame.map_err(|error| match error.into_error(&broker, self.pipeline.step(), self.bytes_max) {
                Error::Closed { broker, step: step @ Step::Request(..) } if self.is_dropped_at_first() => {
                    Error::ClosedAtFirst { broker, step }
                }
                error => error,
            })?;
        self.is_answered = true;
        let (waiting, correlation_id) = self.pipeline.received(&frame)?;
        self.used = Instant::now();
        self.silence.send_replace((self.pipeline.len() > 0).then_some(self.used));
        // Who gave up waiting does not read it; the order of replies is kept all the same.
        let _ = waiting.send(Ok((frame, correlation_id)));
        Ok(())
    }

    fn written(&mut self, written: std::io::Result<usize>) -> Result<(), Error> {
        let step = self.pipeline.step();
        match written {
            Ok(0) => Err(Error::Closed { broker: self.broker(), step }),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::broken(&self.broker(), step, error)),
        }
    }

    fn called(&mut self, call: Option<Call>) -> Result<(), Error> {
        let Some(mut call) = call else {
            return Err(Error::ClosedByUs { broker: self.broker(), reason: CloseReason::Dropped });
        };
        let now = Instant::now();
        self.used = now;
        self.silence.send_if_modified(|since| since.is_none() && since.replace(now).is_none());
        let correlation_id = self.pipeline.push(call.step, call.timeout, now, call.reply);
        set_correlation_id(&mut call.frame, correlation_id);
        if self.unwritten.is_empty() {
            self.unwritten = call.frame;
        } else {
            self.unwritten.extend_from_slice(&call.frame);
        }
        Ok(())
    }

    fn overdue(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if let Some(error) = self.pipeline.overdue(now) {
            return Err(error);
        }
        let idle = self.idle_max.is_some_and(|idle| self.pipeline.len() == 0 && self.used + idle <= now);
        if idle {
            return Err(Error::ClosedByUs { broker: self.broker(), reason: CloseReason::Idle });
        }
        Ok(())
    }

    /// As a listener with SASL does to a client without it.
    fn is_dropped_at_first(&self) -> bool {
        !self.is_answered && self.settings.security.sasl.is_none()
    }

    fn broker(&self) -> super::BrokerAddress {
        self.pipeline.broker().clone()
    }
}

async fn sleep_or_never(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
