//! SASL towards a listener that has none: refused, and nothing more happens.

use crate::on_both;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use protocol_tests::Result;
use protocol_tests::embedded::TestCluster;
use protocol_tests::raw::RawConnection;

on_both!(a_listener_without_sasl, super::check_refused);

const ILLEGAL_SASL_STATE: i16 = 34;

fn check_refused(cluster: &TestCluster) -> Result<()> {
    let mut connection = RawConnection::open(&cluster.bootstrap())?;
    let handshake = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    let reply = connection.call(1, &handshake)?;
    assert_eq!((reply.error_code, reply.mechanisms.len()), (ILLEGAL_SASL_STATE, 0));
    let reply = connection.call(2, &SaslAuthenticateRequest::default())?;
    let message = reply.error_message.map(|message| message.to_string()).unwrap_or_default();
    assert_eq!(reply.error_code, ILLEGAL_SASL_STATE);
    assert_eq!(message, "SaslAuthenticate request received after successful authentication");
    let versions = connection.call(2, &ApiVersionsRequest::default())?.api_keys;
    let range = |key: ApiKey| {
        let versions = versions.iter().find(|versions| versions.api_key == key as i16);
        versions.map(|versions| (versions.min_version, versions.max_version))
    };
    assert_eq!(range(ApiKey::SaslHandshake), Some((0, 1)));
    assert_eq!(range(ApiKey::SaslAuthenticate), Some((0, 2)));
    Ok(())
}
