//! What a user writes into `sasl.jaas.config`, what stands in stores of keys, and what a broker or a token endpoint says
//! while we authenticate.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kmirror::net::sasl::{Identity, Login, Mechanism, Password, PasswordKind, Progress, Token, parse_jaas};
use kmirror::net::tls::{Place, Store, StoreKind, Tls, TlsSettings};
use kmirror::net::{ApiVersions, BrokerAddress, Secret};

/// A login module with its options: whatever is read, no error and no value shows what may be a password.
pub fn jaas(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(entries) = parse_jaas(text) {
        assert!(!entries.is_empty());
        for value in entries.iter().flat_map(|entry| entry.options.values()) {
            assert_eq!(format!("{value:?}"), "[hidden]");
        }
    }
}

/// A store behind its kind and its role: it is taken or refused, and nothing else.
pub fn stores(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let store = Store {
        kind: if kind & 1 == 0 { StoreKind::Pem } else { StoreKind::Java },
        place: Place::File("store".into()),
        password: (kind & 1 == 1).then(|| Secret::new("storepass")),
    };
    let mut settings = TlsSettings { key_password: Some(Secret::new("keypass")), ..TlsSettings::default() };
    if kind & 2 == 0 {
        settings.trust = Some(store);
    } else {
        settings.identity = Some(store);
    }
    let tls = Tls::new(settings);
    if tls.load(&|_| Ok(bytes.to_vec())).is_err() {
        assert!(tls.certificates().is_empty());
    }
}

/// The replies of a login behind its mechanism, each behind its length: it ends, and never lets a broker in that proves
/// nothing.
pub fn login(data: &[u8]) {
    let Some((&mechanism, mut rest)) = data.split_first() else { return };
    let versions = ApiVersions::new(
        BrokerAddress { host: "b".to_owned(), port: 1, address: ([127, 0, 0, 1], 1).into() },
        [(ApiKey::SaslHandshake as i16, 0, 1), (ApiKey::SaslAuthenticate as i16, 0, 2)],
    );
    let mut login = Login::new(&identity(mechanism), &versions, "fuzz", 0, [7; 24]);
    let mut rounds = 0;
    while let Some((&length, more)) = rest.split_first() {
        let (reply, more) = more.split_at(usize::from(length).min(more.len()));
        rest = more;
        if login.request().is_err() {
            return;
        }
        // The right correlation id: what is behind it is under test.
        let mut frame = BytesMut::new();
        frame.put_i32(login.next_correlation_id());
        frame.put_slice(reply);
        match login.received(Bytes::from(frame)) {
            Ok(Progress::GoesOn) => rounds += 1,
            Ok(Progress::Done(_)) => {
                // A broker that does not know the password cannot sign for it.
                assert!(!matches!(mechanism % 4, 1 | 2), "SCRAM let in a stranger");
                return;
            }
            Err(error) => {
                assert!(!error.to_string().contains("pencil"), "{error}");
                return;
            }
        }
        assert!(rounds < 20, "it never ends");
    }
}

fn identity(mechanism: u8) -> Identity {
    let password = || Password {
        username: "user".to_owned(),
        password: Secret::new("pencil"),
        kind: PasswordKind::User,
    };
    match mechanism % 4 {
        0 => Identity::of_password(Mechanism::Plain, password()),
        1 => Identity::of_password(Mechanism::ScramSha256, password()),
        2 => Identity::of_password(Mechanism::ScramSha512, password()),
        _ => {
            let token = Token::unsecured(&[], 0, 1);
            Identity::of_token(token, [("traceId".to_owned(), "1".to_owned())].into())
        }
    }
}

/// A token, as a file or an endpoint gives it.
pub fn token(data: &[u8]) {
    if let Ok(token) = Token::read(data) {
        assert_eq!(Token::read(token.text.reveal()), Ok(token.clone()));
        assert!(!token.text.reveal().is_empty());
    }
}
