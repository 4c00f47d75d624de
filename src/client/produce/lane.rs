//! A produce lane: the owner of one connection to a broker that batches are written to.
//!
//! It writes requests in the order that they come and pipelines them; a flow decides what to send and what an answer
//! means. When the connection ends, everything that is not answered is reported as lost and the lane dials again; it
//! never resends by itself, because only the flow knows what else has been appended in between.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, ProduceRequest as ProduceApi};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::answer::Awaited;
use super::envelope::{
    PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN, ProduceHead, encode_produce, produce_version,
};
use super::permit::Permit;
use super::pipeline::{InFlight, Pipeline};
use super::wire::Wire;
use crate::client::dial::{Dialler, while_serving};
use crate::client::{LaneId, ProduceCommand, ProduceEvent, ProduceRequest, ProduceSettings};
use crate::net::{
    self, ApiVersions, BrokerAddress, Established, Fault, HostPort, Step, decode_response, negotiate,
};
use crate::seam::Seam;

/// A running produce lane. It ends when `commands` is dropped.
#[derive(Debug)]
pub struct ProduceLane {
    /// The lane's inbox.
    pub commands: mpsc::UnboundedSender<ProduceCommand>,
    /// The lane's task.
    pub task: JoinHandle<()>,
}

/// Starts a lane to the broker at `broker`; it dials at once. It writes while `permit` holds; what is taken in when it does not
/// waits.
pub fn spawn_produce_lane(
    seam: Seam,
    net: net::Settings,
    broker: HostPort,
    settings: ProduceSettings,
    permit: Permit,
    id: LaneId,
    events: mpsc::UnboundedSender<(LaneId, ProduceEvent)>,
) -> ProduceLane {
    let (commands, inbox) = mpsc::unbounded_channel();
    let pipeline = Pipeline::new(settings.max_in_flight_requests, settings.ack_timeout + net.request_timeout);
    let dialler = Dialler::new(seam.clone(), net, broker);
    let lane = Lane { inbox, pipeline, dialler, voice: Voice { id, events }, settings, permit };
    ProduceLane { commands, task: seam.spawn(lane.run()) }
}

struct Lane {
    dialler: Dialler,
    settings: ProduceSettings,
    inbox: mpsc::UnboundedReceiver<ProduceCommand>,
    pipeline: Pipeline,
    permit: Permit,
    voice: Voice,
}

/// How a lane speaks to its flow. A flow that is gone shows at the inbox.
struct Voice {
    id: LaneId,
    events: mpsc::UnboundedSender<(LaneId, ProduceEvent)>,
}

impl Voice {
    fn say(&self, event: ProduceEvent) {
        let _flow_is_gone = self.events.send((self.id, event)).is_err();
    }

    /// Without a connection, a request can only be meant for an earlier one.
    fn refuse(&self, command: ProduceCommand) {
        if let ProduceCommand::Send(request) = command {
            self.say(ProduceEvent::Dropped { id: request.id });
        }
    }
}

/// Why a connection ended.
enum Ended {
    /// The flow is gone.
    Closed,
    /// What the flow is told.
    Lost(String, Fault),
}

impl From<net::Error> for Ended {
    fn from(error: net::Error) -> Ended {
        Ended::Lost(error.chain(), error.fault())
    }
}

impl Lane {
    async fn run(mut self) {
        loop {
            let Lane { dialler, inbox, voice, .. } = &mut self;
            let dialled = while_serving(inbox, |command| voice.refuse(command), dialler.dial()).await;
            let Some(dialled) = dialled else { return };
            let ended = match dialled {
                Ok(established) => self.serve(established).await,
                Err(error) => error.into(),
            };
            let Ended::Lost(reason, fault) = ended else { return };
            self.disconnected(reason);
            let Lane { dialler, inbox, voice, .. } = &mut self;
            let pause = tokio::time::sleep(dialler.failed(fault));
            if while_serving(inbox, |command| voice.refuse(command), pause).await.is_none() {
                return;
            }
        }
    }

    fn disconnected(&mut self, reason: String) {
        // What the flow had sent by now is lost in its order; what crosses the news is dropped by its number.
        while let Ok(command) = self.inbox.try_recv() {
            if let ProduceCommand::Send(request) = command {
                self.accept(request);
            }
        }
        self.voice.say(ProduceEvent::Disconnected { lost: self.pipeline.disconnected(), reason });
    }

    fn accept(&mut self, request: ProduceRequest) {
        if let Err(request) = self.pipeline.accept(request) {
            self.voice.say(ProduceEvent::Dropped { id: request.id });
        }
    }

    async fn serve(&mut self, established: Established) -> Ended {
        match self.exchange(established).await {
            Ok(()) => Ended::Closed,
            Err(ended) => ended,
        }
    }

    /// Sends and hears answers until the inbox is closed.
    async fn exchange(&mut self, established: Established) -> Result<(), Ended> {
        let Established { socket, versions, peer, next_correlation_id, renew_at } = established;
        let version_max = negotiate::<ProduceApi>(&versions, PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX)?;
        let arena = BytesMut::new();
        let mut connection = Connection { peer, versions, version_max, next_correlation_id, renew_at, arena };
        let mut wire = Wire::new(socket, self.dialler.net.reply_bytes_max);
        self.voice.say(ProduceEvent::Connected { connection: self.pipeline.connected() });
        let permit = self.permit.clone();
        loop {
            let now = Instant::now();
            if connection.is_renewal_due(now) && self.pipeline.is_between_requests() {
                self.renew(&mut connection, &mut wire).await?;
                continue;
            }
            let is_permitted = self.permit.holds(now);
            while is_permitted && let Some(request) = self.next_to_send(&connection, now) {
                self.send(&mut connection, &mut wire, request, now);
            }
            let wake_at = self.pipeline.wake_at(now);
            tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    None => return Ok(()),
                    Some(ProduceCommand::Send(request)) => self.accept(request),
                    Some(ProduceCommand::Reconnect) => {
                        let reason = format!("{}: asked to connect again", connection.peer);
                        return Err(Ended::Lost(reason, Fault::Lost));
                    }
                },
                () = self.permit.held(), if !is_permitted && self.pipeline.has_waiting() => {}
                reply = poll_fn(|cx| poll_while_permitted(&mut wire, &permit, cx)) => {
                    let Some(reply) = reply else {
                        let reason = format!("{}: the right to write has run out", connection.peer);
                        return Err(Ended::Lost(reason, Fault::Lost));
                    };
                    let step = self.step();
                    let frame = reply.map_err(|error| {
                        error.into_error(&connection.peer, step, self.dialler.net.reply_bytes_max)
                    })?;
                    self.answered(&connection, frame)?;
                }
                () = sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => self.check_time(&connection)?,
            }
        }
    }

    /// Requests are held when the broker's session ends, until what is in flight is answered.
    fn next_to_send(&mut self, connection: &Connection, now: Instant) -> Option<ProduceRequest> {
        if connection.is_renewal_due(now) { None } else { self.pipeline.next_to_send(now) }
    }

    /// Says again who we are; nothing is in flight (KIP-368).
    async fn renew(&self, connection: &mut Connection, wire: &mut Wire) -> Result<(), Ended> {
        let Dialler { seam, net, .. } = &self.dialler;
        let (versions, next) = (&connection.versions, connection.next_correlation_id);
        let renewed = net::renew(seam, net, wire.socket(), versions, next).await?;
        connection.next_correlation_id = renewed.next_correlation_id;
        connection.renew_at = renewed.renew_at;
        Ok(())
    }

    fn send(&mut self, connection: &mut Connection, wire: &mut Wire, request: ProduceRequest, now: Instant) {
        let head = ProduceHead {
            version: produce_version(connection.version_max, &request),
            correlation_id: connection.next_correlation_id,
            client_id: &self.dialler.net.client_id,
            ack_timeout_ms: i32::try_from(self.settings.ack_timeout.as_millis()).unwrap_or(i32::MAX),
        };
        let awaited = Awaited::of(&request);
        match encode_produce(&head, &request, &mut connection.arena) {
            Ok(envelope) => {
                wire.push(envelope);
                let (version, correlation_id) = (head.version, head.correlation_id);
                self.pipeline.sent(InFlight { id: request.id, version, correlation_id, awaited }, now);
                connection.next_correlation_id = connection.next_correlation_id.wrapping_add(1);
            }
            // No broker takes such a request; it is answered as a broker answers what it finds too large.
            Err(_) => {
                let answers = awaited.all_refused(ResponseError::MessageTooLarge);
                self.voice.say(ProduceEvent::Answered { id: request.id, answers, throttle: Duration::ZERO });
            }
        }
    }

    fn answered(&mut self, connection: &Connection, frame: Bytes) -> Result<(), Ended> {
        let now = Instant::now();
        let Some(request) = self.pipeline.oldest() else {
            let got = net::peek_correlation_id(&frame).unwrap_or(0);
            return Err(net::Error::Unasked { broker: connection.peer.clone(), got }.into());
        };
        let response =
            decode_response::<ProduceApi>(&connection.peer, frame, request.version, request.correlation_id)?;
        let Some(request) = self.pipeline.answered(now) else { return Ok(()) };
        let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
        self.pipeline.throttled(throttle, now);
        self.dialler.worked();
        let answers = request.awaited.answers(response);
        self.voice.say(ProduceEvent::Answered { id: request.id, answers, throttle });
        Ok(())
    }

    fn check_time(&mut self, connection: &Connection) -> Result<(), Ended> {
        let now = Instant::now();
        if !self.pipeline.is_overdue(now) {
            if self.pipeline.falls_silent(now) {
                self.voice.say(ProduceEvent::Silent);
            }
            return Ok(());
        }
        let after = self.settings.ack_timeout + self.dialler.net.request_timeout;
        Err(net::Error::RequestTimeout { broker: connection.peer.clone(), step: self.step(), after }.into())
    }

    fn step(&self) -> Step {
        match self.pipeline.oldest() {
            Some(request) => Step::Request(ApiKey::Produce, request.version),
            None => Step::Idle,
        }
    }
}

/// Writes and reads; `None` when what is still to be written may not be any more. Half of a request that is never ended is
/// nothing to a broker.
fn poll_while_permitted(
    wire: &mut Wire,
    permit: &Permit,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, net::ReadError>>> {
    if wire.is_writing() && !permit.holds(Instant::now()) {
        return Poll::Ready(None);
    }
    wire.poll_reply(cx).map(Some)
}

/// What a connection is, beside its socket.
struct Connection {
    peer: BrokerAddress,
    versions: ApiVersions,
    version_max: i16,
    next_correlation_id: i32,
    /// When the broker's session ends.
    renew_at: Option<Instant>,
    /// Where envelopes are written.
    arena: BytesMut,
}

impl Connection {
    fn is_renewal_due(&self, now: Instant) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }
}
