//! Why a broker and we could not agree on TLS, in the words of whoever must change something.

use std::io;
use std::sync::Arc;

use rustls::AlertDescription as Alert;
use rustls::{CertificateError, InvalidMessage};

use super::store::StoreError;
use super::verifier::Rejection;
use crate::seam::HandshakeError;

/// Why there is no TLS session.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsFailure {
    /// Our own stores cannot be used.
    #[error("{0}")]
    Store(StoreError),
    /// The host's name cannot stand in a certificate.
    #[error("the name cannot stand in a certificate")]
    Name,
    /// The broker's certificate is not believed.
    #[error("{0}")]
    Rejected(Rejection),
    /// The peer answered with something else than TLS.
    #[error(
        "what answers is not TLS: this is no listener of the security protocol SSL or SASL_SSL; look at security.protocol and the port"
    )]
    NotTls,
    /// The peer closed the connection.
    #[error(
        "the peer closed the connection, as a PLAINTEXT or SASL_PLAINTEXT listener does; look at security.protocol and the port"
    )]
    Closed,
    /// No version or cipher suite in common.
    #[error(
        "there is no protocol version, cipher suite or kind of key in common ({0}); look at ssl.enabled.protocols and \
         ssl.cipher.suites on both sides"
    )]
    NothingInCommon(String),
    /// The broker does not believe our certificate, or wants one.
    #[error("the broker refuses us ({alert}): {advice}")]
    Refused {
        /// Its alert.
        alert: String,
        /// What to look at.
        advice: &'static str,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl TlsFailure {
    /// From what the seam says of a handshake; `None` when the connection was lost for another reason.
    pub fn of_handshake(error: HandshakeError) -> Result<TlsFailure, io::Error> {
        match error {
            HandshakeError::Tls(error) => Ok(TlsFailure::of_session(&error)),
            HandshakeError::Io(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    Ok(TlsFailure::Closed)
                }
                _ => Err(error),
            },
        }
    }

    /// From an error of a read or write, when the session is at fault: a broker may refuse our certificate only after the
    /// handshake.
    pub fn of_io(error: &io::Error) -> Option<TlsFailure> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(TlsFailure::of_session(error))
    }

    fn of_session(error: &rustls::Error) -> TlsFailure {
        use rustls::Error as E;
        match error {
            E::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Rejection>() {
                    Some(rejection) => TlsFailure::Rejected(rejection.clone()),
                    None => TlsFailure::Other(error.to_string()),
                }
            }
            E::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => TlsFailure::NotTls,
            E::PeerIncompatible(reason) => TlsFailure::NothingInCommon(format!("{reason:?}")),
            E::AlertReceived(alert) => TlsFailure::of_alert(*alert),
            _ => TlsFailure::Other(error.to_string()),
        }
    }

    fn of_alert(alert: Alert) -> TlsFailure {
        let name = format!("alert {alert:?}");
        let advice = match alert {
            Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity => {
                return TlsFailure::NothingInCommon(name);
            }
            Alert::CertificateRequired => "it wants a certificate; set ssl.keystore",
            Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown => {
                "if ssl.keystore is not set, it wants a certificate; if it is, the broker's trust store must hold who signed it"
            }
            Alert::CertificateExpired => "our certificate in ssl.keystore is not valid now",
            Alert::CertificateRevoked => "our certificate in ssl.keystore is revoked",
            Alert::UnsupportedCertificate => "it takes no certificate of this kind",
            Alert::AccessDenied => "it does not let our certificate in",
            Alert::UnrecognisedName => "it does not know the name that was dialled (SNI)",
            _ => "its log says more",
        };
        TlsFailure::Refused { alert: name, advice }
    }
}

impl From<StoreError> for TlsFailure {
    fn from(error: StoreError) -> TlsFailure {
        TlsFailure::Store(error)
    }
}

impl From<Arc<StoreError>> for TlsFailure {
    fn from(error: Arc<StoreError>) -> TlsFailure {
        TlsFailure::Store(StoreError::clone(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_what_to_look_at() {
        for (error, words) in [
            (rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType), "what answers is not TLS"),
            (rustls::Error::AlertReceived(Alert::CertificateRequired), "set ssl.keystore"),
            (rustls::Error::AlertReceived(Alert::ProtocolVersion), "ssl.enabled.protocols"),
            (rustls::Error::AlertReceived(Alert::UnknownCA), "the broker's trust store"),
        ] {
            let text = TlsFailure::of_session(&error).to_string();
            assert!(text.contains(words), "{text}");
        }
        let closed = TlsFailure::of_handshake(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
        assert!(closed.unwrap().to_string().contains("PLAINTEXT"));
        assert!(TlsFailure::of_handshake(HandshakeError::Io(io::ErrorKind::TimedOut.into())).is_err());
    }

    #[test]
    fn an_alert_after_the_handshake_is_found_in_the_error_of_a_read() {
        let alert = rustls::Error::AlertReceived(Alert::CertificateRequired);
        let error = io::Error::new(io::ErrorKind::InvalidData, alert);
        assert!(matches!(TlsFailure::of_io(&error), Some(TlsFailure::Refused { .. })));
        assert!(TlsFailure::of_io(&io::ErrorKind::ConnectionReset.into()).is_none());
    }
}
