//! What a certificate says of itself, for messages, for metrics and for what webpki does not look at: whether it is for a
//! name that stands in its subject alone, and until when it is valid.

use std::fmt;
use std::net::IpAddr;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateText {
    /// Its subject.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// The DNS names of its subject alternative name.
    pub dns_names: Vec<String>,
    /// The addresses of its subject alternative name.
    pub addresses: Vec<IpAddr>,
    /// The last common name of its subject.
    pub common_name: Option<String>,
    /// Seconds since the epoch from which it is valid.
    pub not_before: i64,
    /// Seconds since the epoch until which it is valid.
    pub not_after: i64,
}

impl CertificateText {
    /// Reads a certificate; `None` when it is none.
    pub fn read(der: &[u8]) -> Option<CertificateText> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut text = CertificateText {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            common_name: certificate
                .subject()
                .iter_common_name()
                .last()
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            ..CertificateText::default()
        };
        let alternative = certificate.subject_alternative_name().ok().flatten();
        for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => text.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => text.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Some(text)
    }

    /// Whether a certificate without DNS names is for the host by its common name, as Java takes it
    /// (`sun.security.util.HostnameChecker`): `*` stands for the first label.
    pub(super) fn is_for_by_common_name(&self, host: &str) -> bool {
        let Some(name) = self.common_name.as_deref().filter(|_| self.dns_names.is_empty()) else {
            return false;
        };
        let host = host.trim_end_matches('.');
        if name.eq_ignore_ascii_case(host) {
            return true;
        }
        let wildcard = name.strip_prefix("*.").filter(|domain| domain.contains('.'));
        wildcard
            .zip(host.split_once('.'))
            .is_some_and(|(domain, (label, rest))| !label.is_empty() && domain.eq_ignore_ascii_case(rest))
    }

    /// The names that it is for, in words.
    pub(super) fn names(&self) -> String {
        let names = self.dns_names.iter().cloned();
        let all: Vec<String> = names.chain(self.addresses.iter().map(ToString::to_string)).collect();
        match (all.is_empty(), &self.common_name) {
            (false, _) => all.join(", "),
            (true, Some(name)) => format!("{name} (its common name)"),
            (true, None) => "no name".to_owned(),
        }
    }
}

/// Who signed a certificate, as it stands in it.
pub(super) fn issuer_der(der: &[u8]) -> Option<&[u8]> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate.issuer.as_raw())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// A moment of a certificate, in UTC.
pub(super) struct Moment(pub(super) i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute) = (seconds / 3_600, seconds / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
    }
}

/// Year, month and day of a number of days since 1970-01-01, by counting 400-year cycles from a March.
pub(in crate::net) fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59 UTC"),
            (4_102_444_800, "2100-01-01 00:00 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(Moment(seconds).to_string(), text);
        }
    }

    #[test]
    fn common_names_count_as_in_java() {
        let named =
            |name: &str| CertificateText { common_name: Some(name.to_owned()), ..CertificateText::default() };
        for (name, host, is_for) in [
            ("broker", "broker", true),
            ("Broker.Example.com", "broker.example.com.", true),
            ("*.example.com", "b.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.com", "example.com", false),
            ("broker", "other", false),
        ] {
            assert_eq!(named(name).is_for_by_common_name(host), is_for, "{name} {host}");
        }
        let both = CertificateText { dns_names: vec!["other".to_owned()], ..named("broker") };
        assert!(!both.is_for_by_common_name("broker"));
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        assert_eq!(CertificateText::read(b"\x30\x03abc"), None);
    }
}
