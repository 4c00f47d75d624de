//! Drives the connection machine: resolve, dial, exchange. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::address::{BrokerAddress, HostPort};
use super::error::{Error, Step, reply_bytes_max};
use super::frame::FrameReader;
use super::machine::{Dialing, Machine, Purpose};
use super::sasl::{Identity, Login, Progress, SaslFailure};
use super::settings::Settings;
use super::tls::TlsFailure;
use super::versions::ApiVersions;
use crate::seam::{Seam, Socket};

/// No broker's list of versions, nor its part of a login, comes near this.
const REPLY_BYTES_MAX: usize = 256 * 1024;
/// After which part of its time a session is renewed, so that it does not end while a request is on its way
/// (`SaslClientAuthenticator.java`); a part by chance, so that not all connections do it at once.
const RENEW_AFTER: f64 = 0.85;
const RENEW_JITTER: f64 = 0.10;

/// A connection that is ready for requests. Its owner reads and writes the socket itself.
#[derive(Debug)]
pub struct Established {
    /// The socket; nothing is left unread in it.
    pub socket: Socket,
    /// What the broker speaks.
    pub versions: ApiVersions,
    /// Who it is.
    pub peer: BrokerAddress,
    /// The first correlation id that is free.
    pub next_correlation_id: i32,
    /// When we must say again who we are ([`renew`]); `None` for never.
    pub renew_at: Option<Instant>,
}

/// An authentication that was done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The first correlation id that is free.
    pub next_correlation_id: i32,
    /// When it must be done next.
    pub renew_at: Option<Instant>,
}

/// Connects to a broker by name: all its addresses are tried, then the versions are asked for.
///
/// # Errors
/// The error of the last address that was tried.
pub async fn establish(
    seam: &Seam,
    settings: &Settings,
    host: &str,
    port: u16,
) -> Result<Established, Error> {
    establish_after(seam, settings, host, port, 0).await
}

/// As [`establish`], after `failures` failed ones in a row: the connection may take longer each time
/// (`socket.connection.setup.timeout.max.ms`, KIP-601).
///
/// # Errors
/// The error of the last address that was tried.
pub async fn establish_after(
    seam: &Seam,
    settings: &Settings,
    host: &str,
    port: u16,
    mut failures: u32,
) -> Result<Established, Error> {
    let broker = HostPort::new(host, port);
    let addresses = resolve(seam, settings, &broker).await?;
    let client_id = settings.client_id.clone();
    let identity = match addresses.first() {
        Some(&address) => {
            identity(seam, settings, &BrokerAddress { host: broker.host.clone(), port, address }).await?
        }
        None => None,
    };
    // Only a login needs it, and the generator takes 20 ms to begin.
    let random = if identity.is_some() { random(seam) } else { [0; 24] };
    let purpose = Purpose { broker, client_id, identity, random };
    let mut machine = Machine::Dialing(Dialing::start(purpose, addresses)?);
    loop {
        machine = match machine {
            Machine::Dialing(dialing) => {
                let broker = dialing.broker();
                let limit = settings.connection_setup_timeout.delay(failures, seam.random());
                match dial(seam, settings, &broker, limit).await {
                    Ok(socket) => Machine::ApiVersions(dialing.connected(socket)),
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        Machine::Dialing(dialing.failed(error)?)
                    }
                }
            }
            Machine::ApiVersions(mut negotiating) => {
                let (request, broker) = (negotiating.request()?, negotiating.broker().clone());
                let step = Step::ApiVersions;
                match exchange(settings, negotiating.connection(), &broker, step, &request).await {
                    Ok(reply) => negotiating.received(reply)?,
                    Err(Error::Closed { broker, step }) if settings.security.tls.is_none() => {
                        negotiating.failed(Error::ClosedAtFirst { broker, step })?
                    }
                    Err(error) => negotiating.failed(error)?,
                }
            }
            Machine::Authenticating(mut authenticating) => {
                let (request, broker) = (authenticating.request()?, authenticating.broker().clone());
                let Some(request) = request else {
                    machine = authenticating.advance();
                    continue;
                };
                let step = Step::Authenticating;
                match exchange(settings, authenticating.connection(), &broker, step, &request).await {
                    Ok(reply) => match authenticating.received(reply) {
                        Ok(machine) => machine,
                        Err(error) => return Err(refused(settings, error).await),
                    },
                    Err(error) => authenticating.failed(error)?,
                }
            }
            Machine::Ready(ready) => {
                return Ok(Established {
                    peer: ready.versions.broker().clone(),
                    socket: ready.connection,
                    versions: ready.versions,
                    next_correlation_id: ready.next_correlation_id,
                    renew_at: ready.session_lifetime.map(|lifetime| renew_at(seam, lifetime)),
                });
            }
        }
    }
}

/// Who we are now, where the broker asks for it.
async fn identity(
    seam: &Seam,
    settings: &Settings,
    broker: &BrokerAddress,
) -> Result<Option<Identity>, Error> {
    let Some(sasl) = &settings.security.sasl else { return Ok(None) };
    match sasl.identity(seam, &broker.host).await {
        Ok(identity) => Ok(Some(identity)),
        Err(failure) => Err(Error::Authentication { broker: broker.clone(), failure: Box::new(failure) }),
    }
}

/// A token that a broker has refused is not shown again.
async fn refused(settings: &Settings, error: Error) -> Error {
    let is_refusal = matches!(&error, Error::Authentication { failure, .. } if matches!(**failure, SaslFailure::Refused { .. }));
    if let (true, Some(sasl)) = (is_refusal, &settings.security.sasl) {
        sasl.refused().await;
    }
    error
}

async fn resolve(
    seam: &Seam,
    settings: &Settings,
    broker: &HostPort,
) -> Result<Vec<std::net::SocketAddr>, Error> {
    let limit = settings.connection_setup_timeout.max;
    let lookup = timeout(limit, seam.resolve(&broker.host, broker.port)).await;
    let answer = lookup.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    answer.map_err(|source| Error::Resolve { broker: broker.clone(), source: Arc::new(source) })
}

async fn dial(
    seam: &Seam,
    settings: &Settings,
    broker: &BrokerAddress,
    limit: Duration,
) -> Result<Socket, Error> {
    let work = async {
        let dialled = seam.dial(broker.address, settings.socket).await;
        let socket =
            dialled.map_err(|source| Error::Dial { broker: broker.clone(), source: Arc::new(source) })?;
        match &settings.security.tls {
            None => Ok(socket),
            Some(tls) => {
                let failed = |failure| Error::Tls { broker: broker.clone(), failure: Box::new(failure) };
                let session = tls.session(seam, &broker.host).await.map_err(failed)?;
                seam.secure(socket, session).await.map_err(|error| match TlsFailure::of_handshake(error) {
                    Ok(failure) => failed(failure),
                    Err(source) => Error::Dial { broker: broker.clone(), source: Arc::new(source) },
                })
            }
        }
    };
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::DialTimeout { broker: broker.clone(), after: limit }),
    }
}

/// Says again who we are, on a connection with nothing on its way (KIP-368). Whoever owns it holds its requests meanwhile.
///
/// # Errors
/// Those of an authentication; the connection cannot be used further.
pub async fn renew(
    seam: &Seam,
    settings: &Settings,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    versions: &ApiVersions,
    next_correlation_id: i32,
) -> Result<Renewed, Error> {
    let Some(identity) = identity(seam, settings, versions.broker()).await? else {
        return Ok(Renewed { next_correlation_id, renew_at: None });
    };
    let mut login = Login::new(&identity, versions, &settings.client_id, next_correlation_id, random(seam));
    loop {
        let request = login.request()?;
        let reply = exchange(settings, stream, versions.broker(), Step::Authenticating, &request).await?;
        let progress = match login.received(reply) {
            Ok(progress) => progress,
            Err(error) => return Err(refused(settings, error).await),
        };
        if let Progress::Done(lifetime) = progress {
            let renew_at = lifetime.map(|lifetime| renew_at(seam, lifetime));
            return Ok(Renewed { next_correlation_id: login.next_correlation_id(), renew_at });
        }
    }
}

fn random(seam: &Seam) -> [u8; 24] {
    let mut random = [0; 24];
    seam.random_secret(&mut random);
    random
}

fn renew_at(seam: &Seam, lifetime: Duration) -> Instant {
    let chance = (seam.random() >> 11) as f64 / (1_u64 << 53) as f64;
    Instant::now() + lifetime.mul_f64(RENEW_AFTER + RENEW_JITTER * chance)
}

/// One request and its reply; nothing else may be on the wire.
async fn exchange(
    settings: &Settings,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    broker: &BrokerAddress,
    step: Step,
    request: &Bytes,
) -> Result<Bytes, Error> {
    let bytes_max = reply_bytes_max(settings).min(REPLY_BYTES_MAX);
    let after = settings.request_timeout;
    let work = async {
        socket.write_all(request).await.map_err(|error| Error::broken(broker, step, error))?;
        let mut reader = FrameReader::new(bytes_max);
        let reply = reader.read(socket).await.map_err(|error| error.into_error(broker, step, bytes_max))?;
        if !reader.is_empty() {
            let reason = "more than one reply came".to_owned();
            return Err(Error::Undecodable { broker: broker.clone(), step, reason });
        }
        Ok(reply)
    };
    match timeout(after, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::RequestTimeout { broker: broker.clone(), step, after }),
    }
}

/// `client.dns.lookup=resolve_canonical_bootstrap_servers_only` (KIP-235): each name becomes the canonical names of its
/// addresses. A name that cannot be resolved is kept as it is, so that dialling it tells why.
pub async fn canonical_bootstrap(seam: &Seam, servers: &[HostPort]) -> Vec<HostPort> {
    let mut canonical = Vec::new();
    for server in servers {
        let Ok(addresses) = seam.resolve(&server.host, server.port).await else {
            canonical.push(server.clone());
            continue;
        };
        for address in addresses {
            let name = seam.canonical_name(address.ip()).await;
            let host = name.unwrap_or_else(|_| address.ip().to_string());
            canonical.push(HostPort::new(host, address.port()));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    canonical.retain(|server| seen.insert(server.clone()));
    canonical
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::Simulation;

    #[tokio::test(start_paused = true)]
    async fn bootstrap_servers_become_canonical_names() {
        let simulation = Simulation::new(1);
        for (name, address) in [("kafka", "10.0.0.1"), ("b1.kafka", "10.0.0.1"), ("b3.kafka", "fe80::3")] {
            simulation.host(name, address.parse().unwrap());
        }
        let servers = [("kafka", 1), ("b1.kafka", 1), ("10.0.0.2", 2), ("fe80::3", 3), ("unknown", 4)];
        let servers = servers.map(|(host, port)| HostPort::new(host, port));
        let canonical = canonical_bootstrap(&Seam::Simulated(simulation), &servers).await;
        let canonical: Vec<String> = canonical.iter().map(HostPort::to_string).collect();
        assert_eq!(canonical, ["b1.kafka:1", "10.0.0.2:2", "b3.kafka:3", "unknown:4"]);
    }
}
