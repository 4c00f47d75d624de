//! Single requests on a connection, for what stock clients never send.

use crate::{HarnessError, Result};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
const REPLY_BYTES_MAX: usize = 100 << 20;

/// One connection to one broker, one request at a time.
pub struct RawConnection {
    stream: TcpStream,
    correlation_id: i32,
}

impl RawConnection {
    /// Connects to the first broker of a bootstrap list.
    pub fn open(bootstrap: &str) -> Result<RawConnection> {
        let address = bootstrap.split(',').next().unwrap_or_default();
        let failed = |error| HarnessError::io(format!("connect to {address}"), error);
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(RawConnection { stream, correlation_id: 0 })
    }

    /// Sends a request and gives the reply.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }

    /// Sends a request without waiting for the reply.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<()> {
        self.correlation_id += 1;
        let mut body = BytesMut::new();
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("protocol-tests")));
        header.encode(&mut body, R::header_version(version)).map_err(|error| unencodable::<R>(&error))?;
        request.encode(&mut body, version).map_err(|error| unencodable::<R>(&error))?;
        let length = (body.len() as u32).to_be_bytes();
        let sent = self.stream.write_all(&length).and_then(|()| self.stream.write_all(&body));
        sent.map_err(|error| HarnessError::io(format!("send {}", api::<R>()), error))
    }

    /// Receives the reply to the oldest request that has none yet.
    pub fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response> {
        let failed = |error| HarnessError::io(format!("the reply to {}", api::<R>()), error);
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(failed)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > REPLY_BYTES_MAX {
            return Err(HarnessError::Malformed { what: api::<R>(), detail: format!("{length} bytes") });
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(failed)?;
        let mut body = Bytes::from(body);
        let unreadable = |error| HarnessError::Malformed { what: api::<R>(), detail: format!("{error}") };
        ResponseHeader::decode(&mut body, R::Response::header_version(version)).map_err(unreadable)?;
        let reply = R::Response::decode(&mut body, version).map_err(unreadable)?;
        match body.remaining() {
            0 => Ok(reply),
            rest => {
                Err(HarnessError::Malformed { what: api::<R>(), detail: format!("{rest} bytes are left") })
            }
        }
    }
}

fn api<R: Request>() -> String {
    ApiKey::try_from(R::KEY).map_or_else(|()| R::KEY.to_string(), |key| format!("{key:?}"))
}

fn unencodable<R: Request>(error: &impl std::fmt::Display) -> HarnessError {
    HarnessError::Malformed { what: format!("a request {}", api::<R>()), detail: error.to_string() }
}
