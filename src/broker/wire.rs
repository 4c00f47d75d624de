//! Frames as values: a request whose header is read, a reply as the pieces that go out in one vectored write.
//!
//! A reply is a list of pieces so that the batches of a Fetch go from the log to the socket without a copy.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

/// Identity of a connection, unique within a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Id of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokerId(pub i32);

/// A request whose header has been read.
#[derive(Clone, Debug)]
pub struct Request {
    /// Broker that got it.
    pub broker: BrokerId,
    /// Connection that it came on.
    pub connection: ConnectionId,
    /// API.
    pub key: ApiKey,
    /// Version of the API.
    pub version: i16,
    /// Comes back in the reply.
    pub correlation_id: i32,
    /// `client.id`.
    pub client_id: StrBytes,
    /// What follows the header.
    pub body: Bytes,
    /// Error code that a fault wants instead of the effect.
    pub refuse_with: Option<i16>,
}

/// A frame that is no request of Kafka's protocol; its connection is closed, as a broker does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("the frame ends within its header")]
    Short,
    /// No such API.
    #[error("API key {0} is unknown")]
    ApiKey(i16),
    /// The header or the body is not what its version demands.
    #[error("{api:?} v{version} cannot be read: {reason}")]
    Body {
        /// API.
        api: ApiKey,
        /// Version.
        version: i16,
        /// The decoder's words.
        reason: String,
    },
}

impl Request {
    /// Reads the header of a frame, without its length prefix.
    pub fn parse(broker: BrokerId, connection: ConnectionId, mut frame: Bytes) -> Result<Request, Malformed> {
        let Some(&[k0, k1, v0, v1]) = frame.first_chunk::<4>() else { return Err(Malformed::Short) };
        let (number, version) = (i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1]));
        let key = ApiKey::try_from(number).map_err(|()| Malformed::ApiKey(number))?;
        // A version that the codecs do not know has a header all the same: ApiVersions answers it, in its lowest
        // version, and for that needs the correlation id only.
        let known = key.valid_versions();
        let is_known = (known.min..=known.max).contains(&version);
        let header_version = if is_known { key.request_header_version(version) } else { 1 };
        let header = RequestHeader::decode(&mut frame, header_version).map_err(|error| Malformed::Body {
            api: key,
            version,
            reason: error.to_string(),
        })?;
        Ok(Request {
            broker,
            connection,
            key,
            version,
            correlation_id: header.correlation_id,
            client_id: header.client_id.unwrap_or_default(),
            body: frame,
            refuse_with: None,
        })
    }

    /// Decodes the body; slices of it share the frame.
    pub fn decode<T: Decodable>(&self) -> Result<T, Malformed> {
        T::decode(&mut self.body.clone(), self.version).map_err(|error| Malformed::Body {
            api: self.key,
            version: self.version,
            reason: error.to_string(),
        })
    }

    /// The reply with `message` as its body.
    pub fn reply<T: Encodable>(&self, message: &T) -> Outcome {
        self.reply_in_version(self.version, message)
    }

    /// The reply in another version than the request's, as ApiVersions needs it.
    pub fn reply_in_version<T: Encodable>(&self, version: i16, message: &T) -> Outcome {
        let mut body = BytesMut::with_capacity(message.compute_size(version).unwrap_or_default() + 16);
        self.put_header(&mut body, version);
        match message.encode(&mut body, version) {
            Ok(()) => Outcome::Reply(Reply { pieces: vec![body.freeze()] }),
            Err(error) => {
                tracing::error!(api = ?self.key, version, %error, "embedded broker cannot encode its reply");
                Outcome::Close
            }
        }
    }

    /// Writes the header that stands in front of every reply's body: the correlation id, and from version 1 of the
    /// header on an empty list of tagged fields.
    pub fn put_header(&self, buffer: &mut BytesMut, version: i16) {
        buffer.put_i32(self.correlation_id);
        if self.key.response_header_version(version) >= 1 {
            buffer.put_u8(0);
        }
    }
}

/// A reply, header included, length prefix not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes, in order.
    pub pieces: Vec<Bytes>,
}

impl Reply {
    /// Bytes of the frame without its length prefix.
    pub fn size_bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// The length prefix.
    pub fn prefix(&self) -> Bytes {
        let mut prefix = BytesMut::with_capacity(4);
        prefix.put_i32(i32::try_from(self.size_bytes()).unwrap_or(i32::MAX));
        prefix.freeze()
    }
}

/// A reply that waits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitId(pub u64);

/// What is to be done about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send this.
    Reply(Reply),
    /// Send nothing and go on, as after a Produce with `acks=0`.
    Nothing,
    /// The reply comes when the wait is woken, or at the deadline.
    Wait {
        /// To be given back to `resume`.
        id: WaitId,
        /// When to resume at the latest, in milliseconds since the epoch.
        deadline_ms: i64,
    },
    /// Close the connection.
    Close,
}
