//! A broker that a test plays by hand, over the simulated network: it negotiates, then the test reads each request and
//! writes each reply, as slowly, late or broken as it likes. Its codec is not ours.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, decode_request_header_from_buffer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::HostPort;
use crate::seam::{Listener, Seam, Simulation, Socket};

/// A listening broker.
pub(super) struct Broker {
    pub(super) simulation: Simulation,
    pub(super) address: SocketAddr,
    listener: Listener,
    ranges: Vec<(i16, i16, i16)>,
}

/// A connection that has negotiated.
pub(super) struct Accepted {
    pub(super) socket: Socket,
}

impl Broker {
    /// Offers versions of `R` up to `version_max`.
    pub(super) async fn offering<R: Request>(version_max: i16) -> Broker {
        let simulation = Simulation::new(1);
        let address = "10.0.0.1:9092".parse().unwrap();
        let listener = Seam::Simulated(simulation.clone()).listen(address).await.unwrap();
        Broker { simulation, address, listener, ranges: vec![(18, 0, 4), (R::KEY, 0, version_max)] }
    }

    pub(super) fn seam(&self) -> Seam {
        Seam::Simulated(self.simulation.clone())
    }

    pub(super) fn host_port(&self) -> HostPort {
        HostPort::new(self.address.ip().to_string(), self.address.port())
    }

    /// The next connection, negotiated.
    pub(super) async fn accept(&mut self) -> Accepted {
        let mut accepted = Accepted { socket: self.listener.accept().await.unwrap() };
        let (header, _) = accepted.request::<ApiVersionsRequest>().await;
        let keys = self.ranges.iter().map(|&(key, min, max)| {
            ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
        });
        accepted
            .reply::<ApiVersionsRequest>(
                &header,
                &ApiVersionsResponse::default().with_api_keys(keys.collect()),
            )
            .await;
        accepted
    }
}

impl Accepted {
    /// The next request, which must be an `R`.
    pub(super) async fn request<R: Request>(&mut self) -> (RequestHeader, R) {
        let (header, mut body) = self.frame().await.expect("a request");
        assert_eq!(header.request_api_key, R::KEY);
        let request = R::decode(&mut body, header.request_api_version).unwrap();
        assert!(body.is_empty());
        (header, request)
    }

    /// The next frame, or `None` when the client has closed.
    pub(super) async fn frame(&mut self) -> Option<(RequestHeader, Bytes)> {
        let size = self.socket.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(size).unwrap()];
        self.socket.read_exact(&mut frame).await.ok()?;
        let mut frame = Bytes::from(frame);
        let header = decode_request_header_from_buffer(&mut frame).unwrap();
        Some((header, frame))
    }

    /// Answers a request.
    pub(super) async fn reply<R: Request>(&mut self, header: &RequestHeader, response: &R::Response) {
        self.write(&encode_reply::<R>(header, response)).await;
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }
}

/// A whole reply frame, its size field included.
pub(super) fn encode_reply<R: Request>(header: &RequestHeader, response: &R::Response) -> Bytes {
    let version = header.request_api_version;
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    ResponseHeader::default()
        .with_correlation_id(header.correlation_id)
        .encode(&mut frame, <R::Response as HeaderVersion>::header_version(version))
        .unwrap();
    response.encode(&mut frame, version).unwrap();
    let size = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame.freeze()
}
