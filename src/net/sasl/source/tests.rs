//! Sources against an endpoint in the simulated network, and files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::*;
use crate::net::tls::TlsSettings;
use crate::seam::Simulation;

const ADDRESS: &str = "10.0.0.9:80";

/// An endpoint whose tokens say how often it was asked, and live for a quarter of an hour.
struct Idp {
    asked: Arc<AtomicU64>,
    seam: Seam,
}

impl Idp {
    async fn start() -> Idp {
        let seam = Seam::Simulated(Simulation::new(3));
        let mut listener = seam.listen(ADDRESS.parse().unwrap()).await.unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let (count, clock) = (asked.clone(), seam.clone());
        seam.spawn(async move {
            loop {
                let mut socket = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let _ = socket.read(&mut head).await;
                let nth = count.fetch_add(1, Ordering::Relaxed);
                let claims = [("sub".to_owned(), Value::from(format!("user{nth}")))];
                let token = Token::unsecured(&claims, clock.now_ms(), 900_000);
                let body = format!("{{\"access_token\":\"{}\"}}", *token.text.reveal_text());
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                sleep(Duration::from_millis(50)).await;
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Idp { asked, seam }
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        url: HttpUrl::parse(&format!("http://{ADDRESS}/token")).unwrap(),
        client_id: "id".to_owned(),
        proof: ClientProof::Secret(Secret::new("s3:cret&")),
        scope: None,
        encoding: HeaderEncoding::Plain,
        tls: Tls::new(TlsSettings::default()),
        timeouts: HttpTimeouts { connect: Duration::from_secs(1), read: Duration::from_secs(1) },
    }
}

fn source() -> TokenSource {
    let origin = TokenOrigin::Endpoint(Box::new(endpoint()));
    TokenSource::new(TokenSettings { origin, extensions: BTreeMap::new(), refresh: Refresh::default() })
}

#[tokio::test(start_paused = true)]
async fn a_token_serves_all_connections_and_is_replaced_ahead_of_its_end() {
    let idp = Idp::start().await;
    let source = source();
    let (first, second) = tokio::join!(source.token(&idp.seam), source.token(&idp.seam));
    assert_eq!((&first, idp.asked.load(Ordering::Relaxed)), (&second, 1));
    // Ten minutes of fifteen: five before the end.
    sleep(Duration::from_secs(590)).await;
    assert_eq!(source.token(&idp.seam).await.unwrap().subject, "user0");
    sleep(Duration::from_secs(15)).await;
    assert_eq!(source.token(&idp.seam).await.unwrap().subject, "user1");
    // A token that a broker refuses is not shown again.
    source.refused().await;
    assert_eq!(source.token(&idp.seam).await.unwrap().subject, "user2");
    assert_eq!(idp.asked.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn while_the_endpoint_is_gone_the_old_token_serves_to_its_end() {
    let simulation = Simulation::new(3);
    let seam = Seam::Simulated(simulation.clone());
    let source = source();
    let claims = [("sub".to_owned(), Value::from("old"))];
    let token = Token::unsecured(&claims, seam.now_ms(), 60_000);
    *source.kept.lock().await = Some(Kept { token, refresh_at_ms: seam.now_ms(), is_trouble_told: false });
    assert_eq!(source.token(&seam).await.unwrap().subject, "old");
    sleep(Duration::from_secs(61)).await;
    let failure = source.token(&seam).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Unreachable { .. }), "{failure}");
    assert!(failure.to_string().starts_with("the token endpoint http://10.0.0.9/token: cannot connect"));
}

#[test]
fn credentials_are_asked_for_as_java_does() {
    for (encoding, pair) in [(HeaderEncoding::Plain, "id:s3:cret&"), (HeaderEncoding::Url, "id:s3%3Acret%26")]
    {
        let endpoint = Endpoint { encoding, scope: Some(" a b ".to_owned()), ..endpoint() };
        let request = request(&endpoint, &Proof::Secret(Secret::new("s3:cret&")));
        let header = request.headers.iter().find(|(name, _)| *name == "authorization").unwrap();
        assert_eq!(*header.1.reveal_text(), format!("Basic {}", STANDARD.encode(pair)));
        assert_eq!(request.body.reveal(), b"grant_type=client_credentials&scope=a+b");
        assert!(!format!("{request:?}").contains("s3"));
    }
}

/// RFC 7523: the assertion stands in the body, and there is no header with a secret.
#[tokio::test(start_paused = true)]
async fn an_assertion_is_shown_in_place_of_a_secret() {
    let assertion = Proof::Assertion(Secret::new("eyJ.e30.c2ln\n"));
    for (id, shown) in [("id", "&client_id=id"), ("", "")] {
        let request = request(&Endpoint { client_id: id.to_owned(), ..endpoint() }, &assertion);
        let body = format!(
            "grant_type=client_credentials&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
             &client_assertion=eyJ.e30.c2ln{shown}"
        );
        assert_eq!(*request.body.reveal_text(), body);
        assert!(request.headers.iter().all(|(name, _)| *name != "authorization"));
    }
    let idp = Idp::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("assertion");
    let proof = ClientProof::AssertionFile(path.clone());
    let origin = TokenOrigin::Endpoint(Box::new(Endpoint { proof, ..endpoint() }));
    let source =
        TokenSource::new(TokenSettings { origin, extensions: BTreeMap::new(), refresh: Refresh::default() });
    let failure = source.token(&idp.seam).await.unwrap_err().to_string();
    assert!(failure.contains("assertion cannot be read"), "{failure}");
    assert_eq!(idp.asked.load(Ordering::Relaxed), 0, "nobody is asked without it");
}

#[test]
fn answers_are_read_and_refusals_told() {
    let url = HttpUrl::parse("https://idp/token?x=s3cret").unwrap();
    let told = |status, body: &str| {
        let response = HttpResponse { status, body: Zeroizing::new(body.as_bytes().to_vec()) };
        read(&url, &response, 1_000)
    };
    let token = told(200, "{\"access_token\":\"opaque\",\"expires_in\":60}").unwrap();
    assert_eq!((token.text.reveal(), token.ends_ms), (&b"opaque"[..], Some(61_000)));
    assert_eq!(told(201, "{\"id_token\":\"x\"}").unwrap().ends_ms, None);
    let says = |status, body: &str, words: &str| {
        let failure = told(status, body).unwrap_err().to_string();
        assert!(failure.contains(words) && !failure.contains("s3cret"), "{failure}");
    };
    says(
        401,
        "{\"error\":\"invalid_client\",\"error_description\":\"Unknown client\"}",
        "https://idp/token answers 401: invalid_client (Unknown client); look at clientId",
    );
    says(400, "{\"errorCode\":\"E1\",\"errorSummary\":\"no\"}", "400: E1 (no)");
    says(502, "<html>bad\ngateway</html>", "502: <html>badgateway</html>");
    says(500, "", "answers 500; look");
    says(200, "{\"token\":\"s3cret\"}", "holds no access_token");
    says(200, "{\"access_token\":\"s3cret \\u0001\"}", "it holds characters that none has");
}

/// Whoever writes the file may write a new one at any time.
#[tokio::test]
async fn a_file_is_read_again_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let seam = Seam::real();
    let source = TokenSource::new(TokenSettings {
        origin: TokenOrigin::File(path.clone()),
        extensions: BTreeMap::new(),
        refresh: Refresh::default(),
    });
    let failure = source.token(&seam).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Unreadable { .. }), "{failure}");
    for subject in ["one", "two"] {
        let claims = [("sub".to_owned(), Value::from(subject))];
        std::fs::write(&path, Token::unsecured(&claims, seam.now_ms(), 60_000).text.reveal()).unwrap();
        assert_eq!(source.token(&seam).await.unwrap().subject, subject);
    }
    std::fs::write(&path, Token::unsecured(&[], seam.now_ms() - 90_000, 60_000).text.reveal()).unwrap();
    let failure = source.token(&seam).await.unwrap_err().to_string();
    assert!(failure.contains("ended 30 s ago by the clock of this machine"), "{failure}");
}
