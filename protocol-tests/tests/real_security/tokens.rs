//! OAUTHBEARER: tokens of an endpoint and of a file, replaced while records flow, and what is said of those that are refused.
//! The brokers take tokens without a signature, which is all that differs from those of an identity provider.

use crate::{TIMEOUT, lines, secured};
use kmirror::net::sasl::Token;
use protocol_tests::Result;
use protocol_tests::kafka::{Isolation, Listener, TOKEN_CLAIMS};
use protocol_tests::mirror::Kmirror;
use protocol_tests::process::ScratchFolder;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

const MODULE: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";
/// `me:s3cret` in base64.
const BASIC: &str = "Basic bWU6czNjcmV0";

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}

/// A token of alice for so long; `late_ms` sets its beginning into the future.
fn token(lives_ms: i64, late_ms: i64) -> String {
    let claims = [("sub".to_owned(), Value::from("alice"))];
    Token::unsecured(&claims, now_ms() + late_ms, lives_ms).text.reveal_text().to_string()
}

/// A token endpoint: gives short tokens to `me`, and 401 to everybody else.
struct Endpoint {
    url: String,
    asked: Arc<AtomicUsize>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    fn start(lives_ms: i64) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/token", listener.local_addr().expect("an address"));
        let endpoint = Endpoint { url, asked: Arc::default(), bodies: Arc::default() };
        let (asked, bodies) = (endpoint.asked.clone(), endpoint.bodies.clone());
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::SeqCst);
                if let Ok(body) = answer(stream, lives_ms) {
                    bodies.lock().expect("no test panics in it").push(body);
                }
            }
        });
        endpoint
    }
}

fn answer(mut stream: TcpStream, lives_ms: i64) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut is_known) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        length =
            line.strip_prefix("content-length: ").and_then(|length| length.parse().ok()).unwrap_or(length);
        is_known |= line.strip_prefix("authorization: ") == Some(BASIC);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (status, text) = if is_known {
        ("200 OK", format!("{{\"access_token\":\"{}\",\"token_type\":\"Bearer\"}}", token(lives_ms, 0)))
    } else {
        (
            "401 Unauthorized",
            "{\"error\":\"invalid_client\",\"error_description\":\"who is that\"}".to_owned(),
        )
    };
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// The source by tokens of an endpoint, the target by tokens of a file; both live for 8 s, sessions for 3 s.
#[test]
fn tokens_are_replaced_while_records_flow() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("tokens", 2, &[])?;
    let endpoint = Endpoint::start(8_000);
    let folder = ScratchFolder::new("token")?;
    let file = folder.path().join("token");
    let put = || {
        // As whoever replaces such files does: a new one takes the name of the old one.
        let new = folder.path().join("new");
        std::fs::write(&new, token(8_000, 0))
            .and_then(|()| std::fs::rename(&new, &file))
            .expect("a folder of ours");
    };
    put();
    let (source_way, target_way) = (Listener::Sasl, Listener::SaslSsl);
    let bearer = "OAUTHBEARER";
    let source = lines("Tokens", &pair.a.bootstrap_of(source_way), certificates, source_way, bearer);
    let target = lines("B", &pair.b.bootstrap_of(target_way), certificates, target_way, bearer);
    let flow = pair.flow("Tokens").topics("tokens");
    let handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler";
    let text = format!(
        "{}{source}{target}\
         Tokens.sasl.oauthbearer.token.endpoint.url = {}\n\
         Tokens.sasl.login.callback.handler.class = {handler}\n\
         Tokens.sasl.jaas.config = {MODULE} clientId=\"me\" clientSecret=\"s3cret\" scope=\"kafka\" extension_traceId=\"7\";\n\
         B.sasl.oauthbearer.token.endpoint.url = file://{}\n\
         B.sasl.jaas.config = {MODULE};\n",
        flow.text(),
        endpoint.url,
        file.display()
    );
    let text = text.replace("kmirror.admin.listen = none\n", "");
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(20) {
        put();
        pair.java().produce(&pair.a.bootstrap(), "tokens", &[TestRecord::new(format!("k{sent}"), "x")])?;
        sent += 1;
        pair.wait_mirrored(&mut mirror, &flow, "tokens", Isolation::ReadUncommitted, TIMEOUT)?;
    }
    assert_eq!(pair.compare(&flow, "tokens", Isolation::ReadUncommitted)?, sent);
    let status = mirror.status()?;
    for broker in status["flows"][0]["brokers"].as_array().expect("brokers of the flow") {
        assert_eq!(broker["disconnects"], 0, "a session was not renewed in time: {broker}");
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    // A token serves several connections, and is replaced before its end.
    let asked = endpoint.asked.load(Ordering::SeqCst);
    assert!((3..=8).contains(&asked), "{asked} questions in {:?}", begun.elapsed());
    let bodies = endpoint.bodies.lock().expect("no test panics in it");
    assert!(bodies.iter().all(|body| body == "grant_type=client_credentials&scope=kafka"), "{bodies:?}");
    let output = mirror.output();
    assert!(!output.contains("s3cret") && !output.contains("eyJ"), "{output}");
    Ok(())
}

/// As with an identity provider: brokers know its keys, whom its tokens are for and who makes them. A token that is not so is
/// refused, and what the broker says of it is told.
#[test]
fn signed_tokens_are_checked_by_the_brokers() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    pair.source().create_topic("signed", 1, &[])?;
    pair.java().produce(&pair.a.bootstrap(), "signed", &[TestRecord::new("k", "x")])?;
    let folder = ScratchFolder::new("token")?;
    let file = folder.path().join("token");
    let token = |key: &str, claims: &str| -> Result<()> {
        let now_s = now_ms() / 1_000;
        let claims = format!("{{\"sub\":\"alice\",\"iat\":{now_s},\"exp\":{},{claims}}}", now_s + 600);
        std::fs::write(&file, certificates.token(key, &claims)?).expect("a folder of ours");
        Ok(())
    };
    let way = Listener::Jwks;
    let text = |alias: &str| {
        let source = lines(alias, &pair.a.bootstrap_of(way), certificates, way, "OAUTHBEARER");
        let flow = pair.flow(alias).topics("signed");
        let text = format!(
            "{}{source}{alias}.sasl.oauthbearer.token.endpoint.url = file://{}\n{alias}.sasl.jaas.config = {MODULE};\n",
            flow.text(),
            file.display()
        );
        (flow, text)
    };
    token("jwks.key", TOKEN_CLAIMS)?;
    let (flow, good) = text("Signed");
    Kmirror::run_until_caught_up(&good, TIMEOUT)?;
    assert_eq!(pair.compare(&flow, "signed", Isolation::ReadUncommitted)?, 1);
    for (alias, key, claims) in [
        ("OtherKey", "stranger.key", TOKEN_CLAIMS.to_owned()),
        ("OtherAudience", "jwks.key", TOKEN_CLAIMS.replace("brokers", "others")),
    ] {
        token(key, &claims)?;
        let mut mirror = Kmirror::start(&["run"], &text(alias).1)?;
        wait_for(alias, Duration::from_secs(40), || {
            mirror.expect_running()?;
            let output = mirror.output();
            let is_said = output.contains("the broker refuses the token of \"alice\" with OAUTHBEARER");
            Ok(if is_said { Look::Done(()) } else { Look::Pending(output) })
        })?;
        assert_eq!(mirror.stop(TIMEOUT)?, 0);
        assert!(!mirror.output().contains("eyJ"), "{}", mirror.output());
    }
    Ok(())
}

#[test]
fn tokens_that_cannot_be_had_or_are_refused_are_told() -> Result<()> {
    let Some((pair, certificates)) = secured()? else { return Ok(()) };
    let endpoint = Endpoint::start(60_000);
    let folder = ScratchFolder::new("token")?;
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a folder of ours");
        format!("sasl.oauthbearer.token.endpoint.url = file:{}\n", path.display())
    };
    let nobody = format!(
        "sasl.oauthbearer.token.endpoint.url = {}\nsasl.jaas.config = {MODULE} clientId=\"me\" clientSecret=\"hunter2\";\n",
        endpoint.url
    );
    let (url, gone) = (&endpoint.url, "http://127.0.0.1:1/token");
    for (name, more, says) in [
        (
            "BadSecret",
            nobody.clone(),
            vec![format!("{url} answers 401: invalid_client (who is that)"), "clientSecret".into()],
        ),
        (
            "Gone",
            nobody.replace(url.as_str(), gone),
            vec![format!("the token endpoint {gone}: cannot connect")],
        ),
        ("Ended", file("ended", token(1, -5_000)), vec!["by the clock of this machine".into()]),
        (
            "Early",
            file("early", token(600_000, 300_000)),
            vec![
                "the broker refuses the token of \"alice\" with OAUTHBEARER".into(),
                "status \"invalid_token\"".into(),
            ],
        ),
    ] {
        let way = Listener::Sasl;
        let source = lines(name, &pair.a.bootstrap_of(way), certificates, way, "OAUTHBEARER");
        let more: String = more.lines().map(|line| format!("{name}.{line}\n")).collect();
        let text = format!("{}{source}{more}", pair.flow(name).topics("none").text());
        let mut mirror = Kmirror::start(&["run"], &text)?;
        wait_for(name, Duration::from_secs(40), || {
            mirror.expect_running()?;
            let output = mirror.output();
            let is_said = says.iter().all(|words| output.contains(words.as_str()));
            Ok(if is_said { Look::Done(()) } else { Look::Pending(output) })
        })?;
        assert_eq!(mirror.stop(TIMEOUT)?, 0);
        let output = mirror.output();
        assert!(!output.contains("hunter2") && !output.contains("eyJ"), "{output}");
    }
    Ok(())
}
