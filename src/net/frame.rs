//! Frames: a size of four bytes, a header, a body.
//!
//! Requests and replies of the control plane pass here whole. A reply's size is checked before a byte of it is read, and
//! its buffer grows with what really arrives, never by the size that the peer claims.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::address::BrokerAddress;
use super::error::{Error, Step};

/// Bytes of a frame's size field.
pub const SIZE_BYTES: usize = 4;
/// A reply holds at least a correlation id.
const REPLY_BYTES_MIN: usize = 4;
/// Where the correlation id stands in a request, its size field included.
const CORRELATION_AT: usize = 8;
/// What is reserved ahead of the bytes that have come.
const RESERVE_BYTES: usize = 64 * 1024;

/// One request as a whole frame, its size field included.
///
/// # Errors
/// [`Error::Unencodable`] when that version cannot express the request.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) -> Result<Bytes, Error> {
    encode_request_mut(request, version, correlation_id, client_id).map(BytesMut::freeze)
}

pub(super) fn encode_request_mut<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) -> Result<BytesMut, Error> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let unencodable = |reason: String| Error::Unencodable { api: api_key::<R>(), version, reason };
    let header_version = R::header_version(version);
    let head = header.compute_size(header_version).map_err(|error| unencodable(error.to_string()))?;
    let body = request.compute_size(version).map_err(|error| unencodable(error.to_string()))?;
    let size = i32::try_from(head + body).map_err(|error| unencodable(error.to_string()))?;
    let mut frame = BytesMut::with_capacity(SIZE_BYTES + head + body);
    frame.put_i32(size);
    header.encode(&mut frame, header_version).map_err(|error| unencodable(error.to_string()))?;
    request.encode(&mut frame, version).map_err(|error| unencodable(error.to_string()))?;
    if frame.len() != SIZE_BYTES + head + body {
        return Err(unencodable("the computed size is not the encoded size".to_owned()));
    }
    Ok(frame)
}

/// Gives an encoded request its correlation id.
pub(super) fn set_correlation_id(frame: &mut BytesMut, correlation_id: i32) {
    if let Some(place) = frame.get_mut(CORRELATION_AT..CORRELATION_AT + 4) {
        place.copy_from_slice(&correlation_id.to_be_bytes());
    }
}

/// Decodes a reply without its size field. Bytes behind the reply are ignored, as Kafka's own clients do.
///
/// # Errors
/// [`Error::CorrelationId`] or [`Error::Undecodable`].
pub fn decode_response<R: Request>(
    broker: &BrokerAddress,
    mut frame: Bytes,
    version: i16,
    correlation_id: i32,
) -> Result<R::Response, Error> {
    let step = Step::Request(api_key::<R>(), version);
    let undecodable = |reason: String| Error::Undecodable { broker: broker.clone(), step, reason };
    let got = peek_correlation_id(&frame).ok_or_else(|| undecodable("it is too short".to_owned()))?;
    if got != correlation_id {
        return Err(Error::CorrelationId { broker: broker.clone(), step, expected: correlation_id, got });
    }
    let header_version = <R::Response as HeaderVersion>::header_version(version);
    kafka_protocol::messages::ResponseHeader::decode(&mut frame, header_version)
        .map_err(|error| undecodable(error.to_string()))?;
    R::Response::decode(&mut frame, version).map_err(|error| undecodable(error.to_string()))
}

/// The correlation id of a reply without its size field.
pub fn peek_correlation_id(mut frame: &[u8]) -> Option<i32> {
    frame.try_get_i32().ok()
}

/// The API that a request type belongs to.
pub(super) fn api_key<R: Request>() -> ApiKey {
    ApiKey::try_from(R::KEY).unwrap_or(ApiKey::ApiVersions)
}

/// Collects whole replies from a stream. Dropping a read in the middle loses nothing, so it can stand in a `select!`.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    bytes_max: usize,
}

/// A claimed frame size that is outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeOutside(pub i32);

/// Why a frame did not come.
#[derive(Debug)]
pub enum ReadError {
    /// The system's words; the end of the stream is `UnexpectedEof`.
    Io(std::io::Error),
    /// The peer claims a size outside the limits.
    Size(SizeOutside),
}

impl ReadError {
    /// With the broker and the step that it happened at.
    pub fn into_error(self, broker: &BrokerAddress, step: Step, bytes_max: usize) -> Error {
        match self {
            ReadError::Io(error) => Error::broken(broker, step, error),
            ReadError::Size(SizeOutside(bytes)) => {
                Error::FrameSize { broker: broker.clone(), step, bytes, bytes_max }
            }
        }
    }
}

impl FrameReader {
    /// For replies of up to `bytes_max`.
    pub fn new(bytes_max: usize) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), bytes_max }
    }

    /// A whole frame out of what has come so far, without its size field.
    pub(super) fn take_frame(&mut self) -> Result<Option<Bytes>, SizeOutside> {
        let Ok(claimed) = self.buffer.as_ref().try_get_i32() else { return Ok(None) };
        let size = usize::try_from(claimed).map_err(|_| SizeOutside(claimed))?;
        if !(REPLY_BYTES_MIN..=self.bytes_max).contains(&size) {
            return Err(SizeOutside(claimed));
        }
        if self.buffer.len() < SIZE_BYTES + size {
            return Ok(None);
        }
        self.buffer.advance(SIZE_BYTES);
        Ok(Some(self.buffer.split_to(size).freeze()))
    }

    /// The next whole frame, without its size field; the end of the stream is `UnexpectedEof`.
    ///
    /// # Errors
    /// [`ReadError`]; the stream cannot be used further.
    pub async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<Bytes, ReadError> {
        loop {
            if let Some(frame) = self.take_frame().map_err(ReadError::Size)? {
                return Ok(frame);
            }
            self.buffer.reserve(RESERVE_BYTES.min(self.buffer.len().max(4096)));
            if stream.read_buf(&mut self.buffer).await.map_err(ReadError::Io)? == 0 {
                return Err(ReadError::Io(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether bytes have come that belong to no frame yet.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{
        ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse, ResponseHeader,
    };
    use kafka_protocol::protocol::decode_request_header_from_buffer;
    use proptest::prelude::*;

    use super::*;

    fn broker() -> BrokerAddress {
        BrokerAddress { host: "b".to_owned(), port: 9092, address: "10.0.0.1:9092".parse().unwrap() }
    }

    fn reply<R: Request>(response: &R::Response, version: i16, correlation_id: i32) -> Bytes {
        let mut frame = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(correlation_id)
            .encode(&mut frame, <R::Response as HeaderVersion>::header_version(version))
            .unwrap();
        response.encode(&mut frame, version).unwrap();
        frame.freeze()
    }

    #[test]
    fn a_request_decodes_to_itself_with_its_header() {
        for version in [0, 2, 3, 4] {
            let request = match version {
                0..=2 => ApiVersionsRequest::default(),
                _ => ApiVersionsRequest::default()
                    .with_client_software_name("kmirror".into())
                    .with_client_software_version("1".into()),
            };
            let mut frame = encode_request(&request, version, 7, "me").unwrap();
            assert_eq!(frame.get_i32() as usize, frame.len());
            let header = decode_request_header_from_buffer(&mut frame).unwrap();
            assert_eq!((header.request_api_key, header.request_api_version), (18, version));
            assert_eq!((header.correlation_id, header.client_id.as_deref()), (7, Some("me")));
            assert_eq!(ApiVersionsRequest::decode(&mut frame, version).unwrap(), request);
            assert!(frame.is_empty());
        }
    }

    #[test]
    fn the_correlation_id_can_be_set_afterwards() {
        let mut frame = encode_request_mut(&MetadataRequest::default(), 12, 0, "me").unwrap();
        set_correlation_id(&mut frame, 77);
        assert_eq!(frame.freeze(), encode_request(&MetadataRequest::default(), 12, 77, "me").unwrap());
    }

    /// ApiVersions replies have header version 0 in every version, so that a client that knows no version yet can read
    /// them (KIP-511).
    #[test]
    fn a_flexible_api_versions_reply_has_the_old_header() {
        let frame = reply::<ApiVersionsRequest>(&ApiVersionsResponse::default(), 3, 9);
        assert_eq!(&frame[4..6], &[0, 0], "the error code follows the correlation id at once");
        assert!(decode_response::<ApiVersionsRequest>(&broker(), frame, 3, 9).is_ok());
    }

    #[test]
    fn another_correlation_id_is_an_error_that_names_both() {
        let frame = reply::<MetadataRequest>(&MetadataResponse::default(), 12, 9);
        match decode_response::<MetadataRequest>(&broker(), frame, 12, 8) {
            Err(Error::CorrelationId { expected: 8, got: 9, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn frames_come_out_whole_and_sizes_outside_the_limits_are_refused() {
        let mut reader = FrameReader::new(10);
        reader.buffer.extend_from_slice(&[0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(reader.take_frame(), Ok(None));
        reader.buffer.extend_from_slice(&[5, 0, 0]);
        assert_eq!(reader.take_frame(), Ok(Some(Bytes::from_static(&[1, 2, 3, 4, 5]))));
        assert_eq!(reader.take_frame(), Ok(None));
        for claimed in [-1, 0, 3, 11, i32::MAX] {
            let mut reader = FrameReader::new(10);
            reader.buffer.put_i32(claimed);
            assert_eq!(reader.take_frame(), Err(SizeOutside(claimed)));
        }
    }

    proptest! {
        #[test]
        fn damaged_metadata_replies_never_panic(at in 0_usize..120, value: u8, cut in 0_usize..120, version in 0_i16..=13) {
            let topic = kafka_protocol::messages::metadata_response::MetadataResponseTopic::default()
                .with_name(Some(kafka_protocol::messages::TopicName("topic".into())))
                .with_partitions(vec![Default::default(); 2]);
            let response = MetadataResponse::default().with_brokers(vec![Default::default(); 2]).with_topics(vec![topic]);
            let mut bytes = reply::<MetadataRequest>(&response, version, 1).to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _ = decode_response::<MetadataRequest>(&broker(), bytes.into(), version, 1);
        }
    }
}
