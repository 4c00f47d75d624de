//! Whether a broker's certificate is believed: signed by somebody we trust, valid now, and for the name that was dialled.
//!
//! The rules are webpki's, and Java's where users of Kafka rely on them: a certificate that stands itself in the trust store
//! is trusted, whatever it says of itself; one without alternative names is for its common name. A refusal says what the
//! broker offered, because that is what the user has to compare.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use super::certificate::{CertificateText, Moment};
use super::settings::Identification;

/// Why a broker's certificate is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nobody we trust has signed it.
    #[error(
        "the broker's certificate (subject {subject}, issuer {issuer}) is signed by nobody that {trust} holds; put the \
         issuer's certificate into ssl.truststore"
    )]
    Untrusted {
        /// Its subject.
        subject: String,
        /// Who signed it.
        issuer: String,
        /// What was looked into.
        trust: &'static str,
    },
    /// It is for other names.
    #[error(
        "the broker's certificate is for {offered}, and not for {wanted}; dial the broker by a name of its certificate \
         (its advertised.listeners), or set ssl.endpoint.identification.algorithm to nothing, which lets any trusted \
         certificate pass"
    )]
    Name {
        /// What was dialled.
        wanted: String,
        /// What it is for.
        offered: String,
    },
    /// Its time is over, or has not come.
    #[error(
        "the broker's certificate (subject {subject}) is valid from {from} to {until}, and now is {now}; renew it, or set \
         the clock of this machine"
    )]
    Time {
        /// Its subject.
        subject: String,
        /// Its first moment.
        from: String,
        /// Its last moment.
        until: String,
        /// This machine's clock.
        now: String,
    },
    /// Anything else that webpki does not accept.
    #[error("the broker's certificate (subject {subject}, issuer {issuer}) cannot be used: {reason}")]
    Unusable {
        /// Its subject.
        subject: String,
        /// Who signed it.
        issuer: String,
        /// In webpki's words.
        reason: String,
    },
}

/// Judges certificates of brokers.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: RootCertStore,
    trusted: Vec<CertificateDer<'static>>,
    trust: &'static str,
    identification: Identification,
}

impl Verifier {
    /// Trusts what is signed by `trusted`; `trust` is what they are called in messages.
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        trusted: Vec<CertificateDer<'static>>,
        trust: &'static str,
        identification: Identification,
    ) -> Verifier {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        Verifier { provider, roots, trusted, trust, identification }
    }

    fn judge(
        &self,
        offered: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Rejection> {
        let text = CertificateText::read(offered).unwrap_or_default();
        let parsed =
            ParsedCertificate::try_from(offered).map_err(|error| unusable(&text, &error.to_string()))?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if self.trusted.iter().any(|trusted| trusted == offered) {
            if !(text.not_before..=text.not_after).contains(&seconds) {
                return Err(out_of_time(&text, seconds));
            }
        } else {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
                .map_err(|error| self.rejection(&text, seconds, error))?;
        }
        if self.identification == Identification::Off {
            return Ok(());
        }
        let by_common_name =
            matches!(name, ServerName::DnsName(name) if text.is_for_by_common_name(name.as_ref()));
        match verify_server_name(&parsed, name) {
            Err(_) if !by_common_name => {
                Err(Rejection::Name { wanted: name.to_str().into_owned(), offered: text.names() })
            }
            _ => Ok(()),
        }
    }

    fn rejection(&self, text: &CertificateText, now: i64, error: rustls::Error) -> Rejection {
        use CertificateError as E;
        match error {
            rustls::Error::InvalidCertificate(E::UnknownIssuer | E::BadSignature) => Rejection::Untrusted {
                subject: text.subject.clone(),
                issuer: text.issuer.clone(),
                trust: self.trust,
            },
            rustls::Error::InvalidCertificate(_) if !(text.not_before..=text.not_after).contains(&now) => {
                out_of_time(text, now)
            }
            other => unusable(text, &other.to_string()),
        }
    }
}

fn out_of_time(text: &CertificateText, now: i64) -> Rejection {
    Rejection::Time {
        subject: text.subject.clone(),
        from: Moment(text.not_before).to_string(),
        until: Moment(text.not_after).to_string(),
        now: Moment(now).to_string(),
    }
}

fn unusable(text: &CertificateText, reason: &str) -> Rejection {
    Rejection::Unusable {
        subject: text.subject.clone(),
        issuer: text.issuer.clone(),
        reason: reason.to_owned(),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.judge(end_entity, intermediates, server_name, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(rejection) => Err(CertificateError::Other(OtherError(Arc::new(rejection))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
