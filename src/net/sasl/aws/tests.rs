//! Each place of keys, with local servers for metadata and tokens.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::seam::Simulation;

const SERVER: &str = "10.0.0.9:80";
const HOST: &str = "b-1.demo.x1.c2.kafka.eu-west-1.amazonaws.com";

/// What a server was asked, heads with bodies.
type Heard = Arc<StdMutex<Vec<String>>>;

/// A server that answers by the first line of a question, and 404 else.
async fn serve(seam: &Seam, answers: &'static [(&'static str, &'static str)]) -> Heard {
    let heard = Heard::default();
    let mut listener = seam.listen(SERVER.parse().unwrap()).await.unwrap();
    let notes = heard.clone();
    seam.spawn(async move {
        loop {
            let mut socket = listener.accept().await.unwrap();
            let mut bytes = vec![0; 8192];
            let mut count = 0;
            // Head and body may come apart.
            while let Ok(more @ 1..) = socket.read(&mut bytes[count..]).await {
                count += more;
                if is_whole(&bytes[..count]) {
                    break;
                }
            }
            let asked = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let answer = answers.iter().find(|(line, _)| asked.starts_with(line));
            let (status, body) = answer.map_or(("404 Not Found", ""), |(_, body)| ("200 OK", body));
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            notes.lock().unwrap().push(asked);
            let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    heard
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.parse().unwrap())
}

fn source(options: AwsOptions, variables: &[(&str, &str)]) -> AwsSource {
    let found =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    AwsSource::new(options, AwsEnvironment::read(&found))
}

fn simulated() -> Seam {
    Seam::Simulated(Simulation::new(5))
}

async fn key_of(seam: &Seam, source: &AwsSource) -> String {
    let (payload, id) = source.payload(seam, HOST).await.unwrap_or_else(|failure| panic!("{failure}"));
    let text = payload.reveal_text();
    assert!(text.contains(&format!("\"x-amz-credential\":\"{id}/")), "{id}");
    assert!(text.contains("/eu-west-1/kafka-cluster/aws4_request"), "region");
    id
}

const OF_JSON: &str = "{\"Code\":\"Success\",\"AccessKeyId\":\"ASIAJSON\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":\"2999-01-01T00:00:00Z\"}";
const OF_XML: &str =
    "<AccessKeyId>ASIAXML</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>";

#[tokio::test(start_paused = true)]
async fn keys_of_the_environment_come_first() {
    let variables = [("AWS_ACCESS_KEY_ID", "AKIAENV"), ("AWS_SECRET_ACCESS_KEY", "s3cret")];
    let source = source(AwsOptions::default(), &variables);
    assert_eq!(key_of(&simulated(), &source).await, "AKIAENV");
    assert!(!format!("{source:?}").contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_asked_by_its_second_protocol() {
    let seam = simulated();
    let heard = serve(
        &seam,
        &[
            ("PUT /latest/api/token ", "imds-token"),
            ("GET /latest/meta-data/iam/security-credentials/ ", "my-role\n"),
            ("GET /latest/meta-data/iam/security-credentials/my-role ", OF_JSON),
        ],
    )
    .await;
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://10.0.0.9")];
    let source = source(AwsOptions::default(), &variables);
    assert_eq!(key_of(&seam, &source).await, "ASIAJSON");
    // Keys that live on are kept.
    assert_eq!(key_of(&seam, &source).await, "ASIAJSON");
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[0].contains("x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"), "{}", heard[0]);
    assert!(heard[1..].iter().all(|asked| asked.contains("x-aws-ec2-metadata-token: imds-token\r\n")));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_asked_with_its_token_and_never_a_stranger() {
    let seam = Seam::real();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let Ok(listener) = listener else { return };
    let url = format!("http://{}/role", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let count = socket.read(&mut head).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{OF_JSON}", OF_JSON.len());
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head[..count]).into_owned()
    });
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token"),
    ];
    assert_eq!(key_of(&seam, &source(AwsOptions::default(), &variables)).await, "ASIAJSON");
    assert!(server.await.unwrap().contains("authorization: pod-token\r\n"));
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://10.0.0.9/role"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let failure = source(AwsOptions::default(), &variables).payload(&simulated(), HOST).await.unwrap_err();
    assert!(failure.to_string().contains("http://10.0.0.9/role is not asked without TLS"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_role_is_taken_with_signed_words() {
    let seam = simulated();
    let heard = serve(&seam, &[("POST / ", OF_XML)]).await;
    let role = Role {
        arn: "arn:aws:iam::1:role/r".to_owned(),
        session_name: "me".to_owned(),
        external_id: Some("ext".to_owned()),
        keys: None,
    };
    let options =
        AwsOptions { role: Some(role), sts_region: Some("eu-west-1".to_owned()), ..AwsOptions::default() };
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIAENV"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_ENDPOINT_URL_STS", "http://10.0.0.9/"),
    ];
    assert_eq!(key_of(&seam, &source(options, &variables)).await, "ASIAXML");
    let heard = heard.lock().unwrap();
    let asked = &heard[0];
    assert!(
        asked.contains("Credential=AKIAENV/") && asked.contains("/eu-west-1/sts/aws4_request"),
        "{asked}"
    );
    assert!(asked.ends_with(
        "Action=AssumeRole&ExternalId=ext&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me&Version=2011-06-15"
    ), "{asked}");
}

/// Files of a real folder: profiles, and the token of a web identity.
#[tokio::test]
async fn files_give_profiles_and_the_token_of_a_web_identity() {
    let seam = Seam::real();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("credentials"), "[default]\naws_access_key_id=AKIAD\naws_secret_access_key=s\n[p]\naws_access_key_id=AKIAP\naws_secret_access_key=s\n").unwrap();
    std::fs::write(path("token"), "web-token\n").unwrap();
    let (credentials, token) = (path("credentials"), path("token"));
    let files = [("AWS_SHARED_CREDENTIALS_FILE", credentials.as_str())];
    assert_eq!(key_of(&seam, &source(AwsOptions::default(), &files)).await, "AKIAD");
    let named = AwsOptions { profile: Some("p".to_owned()), ..AwsOptions::default() };
    assert_eq!(key_of(&seam, &source(named, &files)).await, "AKIAP");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !is_whole(&bytes) {
            socket.read_buf(&mut bytes).await.unwrap();
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{OF_XML}", OF_XML.len());
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str()),
        ("AWS_ROLE_ARN", "arn:r"),
        ("AWS_ENDPOINT_URL_STS", url.as_str()),
    ];
    assert_eq!(key_of(&seam, &source(AwsOptions::default(), &variables)).await, "ASIAXML");
    let asked = server.await.unwrap();
    assert!(asked.contains("Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Ar&"), "{asked}");
    assert!(asked.ends_with("WebIdentityToken=web-token") && !asked.contains("authorization"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn when_no_place_has_keys_each_says_why() {
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://10.0.0.8")];
    let begun = tokio::time::Instant::now();
    let failure = source(AwsOptions::default(), &variables).payload(&simulated(), HOST).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let failure = failure.to_string();
    for words in [
        "environment: AWS_ACCESS_KEY_ID is not set",
        "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set",
        "profile: there is no profile default",
        "container: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set",
        "instance: http://10.0.0.8/latest/api/token: cannot connect",
    ] {
        assert!(failure.contains(words), "{words} in {failure}");
    }
}

#[test]
fn regions_are_read_from_names_of_brokers() {
    for (host, region) in [
        ("b-1.demo.x1.c2.kafka.us-east-1.amazonaws.com", Some("us-east-1")),
        ("boot-x.c1.kafka-serverless.ap-southeast-2.amazonaws.com", Some("ap-southeast-2")),
        ("b-2.demo.kafka.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
        ("b-1.demo.kafka.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
        ("broker-1.internal", None),
        ("my-kafka-1.internal", None),
        ("10.0.0.1", None),
    ] {
        assert_eq!(region_of(host), region, "{host}");
    }
}
