//! The binary as a user runs it: exit codes, signals, what it says, and loads between embedded clusters.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::log::Isolation;
use kmirror::broker::{Effect, EmbeddedCluster, FaultRule, Settings, When};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::Seam;

/// Nothing here takes nearly so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("mm2.properties");
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn kmirror(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kmirror"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("KMIRROR_LOG");
    command
}

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Running {
        Running(kmirror(arguments).spawn().unwrap())
    }

    /// Twice at once, as `timeout` does: once to the process, once to its group.
    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {0} && kill -{name} {0}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "still running");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line of stderr, and gives what stands behind `part` in it.
    fn line_with(stderr: &mut impl BufRead, part: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "{part:?} did not come: {seen}");
            if let Some((_, rest)) = line.split_once(part) {
                return rest.trim_end().to_owned();
            }
            seen.push_str(&line);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Addresses at which nobody listens.
const DEAD: &str = "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n\
    A->B.enabled = true\n";

/// Called by the name of MirrorMaker's script, it takes that command line.
#[test]
fn it_starts_as_mirror_maker_is_started() {
    let folder = Folder::new();
    let script = folder.0.path().join("connect-mirror-maker.sh");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kmirror"), &script).unwrap();
    let file = folder.file(&format!("{DEAD}kmirror.admin.listen = none\n"));
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&script);
        command.args(arguments).env("LOG_DIR", folder.0.path().join("logs"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for (arguments, code, part) in [
        (&["--help"][..], 0, "mm2.properties"),
        (&[], 2, "mm2.properties"),
        (&[file.to_str().unwrap(), "--clusters", "A"], 2, "no flow that is enabled goes into"),
        (&["gone.properties"], 2, "gone.properties cannot be read"),
    ] {
        let output = start(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    let mut running = Running(start(&[file.to_str().unwrap(), "--clusters", "B"]).spawn().unwrap());
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    Running::line_with(&mut stderr, "flow");
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0));
    // In the background, with its output in a file; what is wrong with the file ends it at once.
    let output = start(&["-daemon", "gone.properties"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = folder.0.path().join("logs/mirrorMaker.out");
    let started = Instant::now();
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("gone.properties cannot be read") {
        assert!(started.elapsed() < PATIENCE, "nothing in {}", log.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn exit_codes_are_as_documented() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (arguments, file, code, part) in [
        (&["check"][..], DEAD, 0, "flow A->B"),
        (
            &["check"],
            "clusters = A\nA.sasl.jaas.config = open-sesame\n",
            2,
            "error: a flow needs two clusters",
        ),
        (&["check", "--quiet"], DEAD, 0, "0 errors, 0 warnings, 1 remark"),
        (
            &["check", "--strict"],
            &format!("{DEAD}A->B.enable = true\n"),
            2,
            "MirrorMaker ignores A->B.enable",
        ),
        (&["check", "--strict"], DEAD, 0, "flow A->B"),
        (&["check", "--clusters", "C"], DEAD, 2, "--clusters names C"),
        (&["run"], "clusters = A, B\n", 2, "error: no source->target replication flow is enabled"),
        (&["run"], &format!("{DEAD}kmirror.admin.listen = 127.0.0.1:{port}\n"), 3, "cannot be listened on"),
        (&["run"], "clusters = A, B\n\0\n", 2, "is no text: there is a zero byte in line 2"),
        (&["run"], "", 2, "error: the key clusters is missing"),
        (
            &["run", "--until-caught-up", "--give-up-after", "1s"],
            &format!("{DEAD}kmirror.admin.listen = none\n"),
            1,
            "A->B: nothing could be copied: cluster A: 127.0.0.1:1: cannot connect",
        ),
        (&["run", "--takeover-timeout", "soon"], DEAD, 2, "is no time"),
        (&["positions", "--to-latest", "--to-earliest"], DEAD, 2, "cannot be used with"),
        (&["positions", "--flow", "B->A"], DEAD, 2, "--flow names none of the flows: A->B"),
        (&["positions", "--topics", "a("], DEAD, 2, "--topics: "),
        (
            &["positions", "--to-latest"],
            &format!("{DEAD}B->A.enabled = true\n"),
            2,
            "say which flow is to be moved with --flow: A->B, B->A",
        ),
        (&["walk"], DEAD, 2, "unrecognized subcommand"),
    ] {
        let path = folder.file(file);
        let (command, options) = arguments.split_first().unwrap();
        let output = kmirror(&[&[*command, path.to_str().unwrap()], options].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
        assert!(!text.contains("open-sesame"));
    }
    let output = kmirror(&["check", "/no/such/file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("/no/such/file cannot be read"));
    for help in ["--help", "--version"] {
        assert_eq!(kmirror(&[help]).status().unwrap().code(), Some(0));
    }
}

#[test]
fn a_run_answers_over_http_and_stops_in_order_at_a_signal() {
    let folder = Folder::new();
    let path = folder.file(&format!("{DEAD}kmirror.admin.listen = 127.0.0.1:0\ncompression.type = zstd\n"));
    // Under nohup a hangup is ignored, and children inherit that.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("1");
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap_or(1);
    for signal in ["TERM", "INT", "HUP"].into_iter().filter(|&name| name != "HUP" || ignored & 1 == 0) {
        let mut run = Running::start(&["run", path.to_str().unwrap(), "--log-format", "json"]);
        let mut stderr = BufReader::new(run.0.stderr.take().unwrap());
        Running::line_with(&mut stderr, "compression.type has no effect");
        let rest = Running::line_with(&mut stderr, "metrics and status are at http://");
        let address: SocketAddr = rest.split('/').next().unwrap().parse().unwrap();
        Running::line_with(&mut stderr, "cluster A: 127.0.0.1:1: cannot connect");
        assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
        assert!(get(address, "/readyz").starts_with("HTTP/1.1 503"));
        assert!(
            get(address, "/metrics")
                .contains("kmirror_flow_state{source=\"A\",target=\"B\",state=\"running\"} 0")
        );
        assert!(get(address, "/status").contains("\"source\":\"A\",\"target\":\"B\""));
        assert!(get(address, "/status").contains("\"last_error\":\"cluster A: 127.0.0.1:1: cannot connect"));
        run.signal(signal);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(run.wait().code(), Some(0), "{rest}");
        for line in rest.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
        }
        assert!(rest.contains("stopped"), "{rest}");
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn batch(values: &[Bytes]) -> Bytes {
    let mut batch = BatchBuilder::new(BatchOptions::new(Codec::None));
    for (index, value) in values.iter().enumerate() {
        let record = RecordData {
            timestamp: 1_767_225_600_000 + index as i64,
            key: None,
            value: Some(value.clone()),
            headers: Vec::new(),
        };
        batch.push(&record).unwrap();
    }
    batch.build().unwrap()
}

async fn cluster(seed: u64) -> EmbeddedCluster {
    let settings = Settings { brokers: 1, replication_factor: 1, seed, ..Settings::default() };
    EmbeddedCluster::start(Seam::real(), settings).await.unwrap()
}

fn mirror(source: &EmbeddedCluster, target: &EmbeddedCluster) -> String {
    format!(
        "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
         A->B.topics = orders, big\nkmirror.admin.listen = none\nsync.topic.configs.enabled = false\n",
        source.bootstrap(),
        target.bootstrap()
    )
}

fn values(cluster: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<Bytes> {
    let records = cluster.read_all(topic, partition, Isolation::ReadUncommitted).unwrap();
    records.into_iter().map(|logged| logged.record.value.unwrap()).collect()
}

/// Runs a load to its end; gives its exit code and what it said.
async fn load(path: &str, options: &[&str]) -> (Option<i32>, String) {
    let arguments: Vec<String> =
        ["run", path, "--until-caught-up"].iter().chain(options).map(|&text| text.to_owned()).collect();
    let wait = move || {
        let mut running = Running::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let mut stderr = running.0.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).map(|_| said)
        });
        let code = running.wait().code();
        (code, said.join().unwrap().unwrap())
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ends_when_everything_is_copied_and_the_next_one_goes_on_there() {
    let (source, target, folder) = (cluster(1).await, cluster(2).await, Folder::new());
    source.create_topic("orders", 2, 1, &[]).unwrap();
    let path = folder.file(&mirror(&source, &target)).to_str().unwrap().to_owned();
    let mut wanted: [Vec<Bytes>; 2] = Default::default();
    for round in 0..2 {
        for partition in 0..2 {
            let added: Vec<Bytes> =
                (0..50).map(|i| Bytes::from(format!("{round}-{partition}-{i}"))).collect();
            source.append("orders", partition, &batch(&added)).unwrap();
            wanted[partition as usize].extend(added);
        }
        let (code, stderr) = load(&path, &[]).await;
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("everything that was there at the start is on the target"), "{stderr}");
        for partition in 0..2 {
            assert_eq!(values(&target, "A.orders", partition), wanted[partition as usize], "round {round}");
        }
    }
}

/// Runs a command to its end; gives its exit code, stdout and stderr.
async fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = kmirror(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_are_shown_and_moved_only_when_that_is_asked_for() {
    let (source, target, folder) = (cluster(7).await, cluster(8).await, Folder::new());
    source.create_topic("orders", 2, 1, &[]).unwrap();
    source.create_topic("mm2-own.internal", 1, 1, &[]).unwrap();
    source.create_topic("other", 1, 1, &[]).unwrap();
    let records: Vec<Bytes> = (0..50).map(|i| Bytes::from(format!("{i}"))).collect();
    for partition in 0..2 {
        source.append("orders", partition, &batch(&records)).unwrap();
    }
    let path = folder.file(&mirror(&source, &target)).to_str().unwrap().to_owned();
    let columns = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with("  "));
        rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let (code, shown, errors) = output(&["positions", &path]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(columns(&shown)[1], ["orders", "0", "-", "0", "50", "-", "nobody"], "{shown}");
    let (code, stderr) = load(&path, &[]).await;
    assert_eq!(code, Some(0), "{stderr}");
    let (_, shown, _) = output(&["positions", &path]).await;
    assert_eq!(columns(&shown)[1], ["orders", "0", "50", "0", "50", "0", "kmirror"], "{shown}");

    // A dry run, and then in earnest.
    let set = ["positions", &path, "--set", "orders:0=20", "--set", "orders:7=1"];
    let (code, shown, errors) = output(&set).await;
    assert_eq!(code, Some(1), "{errors}");
    assert_eq!(columns(&shown)[1], ["orders", "0", "50", "20"], "{shown}");
    assert!(shown.contains("cannot be moved: A has no such partition"), "{shown}");
    assert!(shown.contains("nothing is moved yet: --execute moves this position"), "{shown}");
    let (_, shown, _) = output(&["positions", &path]).await;
    assert_eq!(columns(&shown)[1][2], "50", "{shown}");
    let (code, shown, errors) =
        output(&["positions", &path, "--set", "orders:0=20", "--execute", "--json"]).await;
    assert_eq!(code, Some(0), "{errors}");
    let document: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let flow = &document["flows"][0];
    assert_eq!((&flow["flow"], &flow["executed"]), (&"A->B".into(), &true.into()));
    assert_eq!(flow["moves"][0]["new_position"], 20);
    let (_, shown, _) = output(&["positions", &path, "--topics", "or.*"]).await;
    assert_eq!(columns(&shown)[1], ["orders", "0", "20", "0", "50", "30", "kmirror"], "{shown}");
    for change in [&[][..], &["--to-earliest", "--execute"]] {
        let (code, shown, errors) = output(&[&["positions", &path, "--topics", "or"], change].concat()).await;
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{errors}");
        assert!(errors.contains("--topics or matches no topic of A->B"), "{errors}");
    }
    // What cannot be done as it was asked for is refused, and nothing else is done instead.
    for (set, reason) in [
        ("orders:0=51", "cannot be moved: offset 51 is beyond the end of the partition, which is 50"),
        ("gone:0=1", "cannot be moved: A has no such topic"),
        ("mm2-own.internal:0=1", "cannot be moved: the flow leaves the topic out: it is internal"),
        ("other:0=0", "cannot be moved: the flow leaves the topic out: topics does not name it"),
    ] {
        let (code, shown, errors) = output(&["positions", &path, "--set", set, "--execute"]).await;
        assert_eq!(code, Some(1), "{errors}");
        assert!(shown.contains(reason) && shown.contains("nothing to move"), "{shown}");
    }

    // A flow that runs is not moved.
    let mut run = Running::start(&["run", &path]);
    let mut stderr = BufReader::new(run.0.stderr.take().unwrap());
    // Whoever reads its log goes away then, and it goes on.
    let mut run = tokio::task::spawn_blocking(move || {
        Running::line_with(&mut stderr, "writes this flow");
        run
    })
    .await
    .unwrap();
    let (code, _, errors) = output(&["positions", &path, "--to-earliest", "--execute"]).await;
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("group kmirror-A->B; stop it before its positions are moved"), "{errors}");
    run.signal("TERM");
    let code = tokio::task::spawn_blocking(move || run.wait().code()).await.unwrap();
    assert_eq!(code, Some(0));
    let mut copied = values(&target, "A.orders", 0);
    assert_eq!(copied.drain(..50).collect::<Vec<_>>(), records);
    // The process may have been ended before it had copied all of them again.
    assert_eq!(copied, records[20..20 + copied.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_of_what_a_flow_no_longer_copies_are_shown_and_stay() {
    let (source, target, folder) = (cluster(9).await, cluster(10).await, Folder::new());
    for topic in ["orders", "old", "gone"] {
        source.create_topic(topic, 1, 1, &[]).unwrap();
        source.append(topic, 0, &batch(&[Bytes::from_static(b"one")])).unwrap();
    }
    let file = mirror(&source, &target).replace("orders, big", ".*");
    let path = folder.file(&file).to_str().unwrap().to_owned();
    assert_eq!(load(&path, &[]).await.0, Some(0));
    source.delete_topic("gone").unwrap();
    let _ = folder.file(&format!("{file}A->B.topics.exclude = old\n"));
    let (code, shown, _) = output(&["positions", &path]).await;
    assert_eq!(code, Some(0));
    for line in [
        "gone is not copied now: A has no such topic",
        "old is not copied now: the flow leaves the topic out: topics.exclude names it",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let (code, shown, errors) = output(&["positions", &path, "--to-earliest", "--execute", "--json"]).await;
    assert_eq!(code, Some(0), "{errors}");
    let flow = serde_json::from_str::<serde_json::Value>(&shown).unwrap()["flows"][0].clone();
    let topics = |what: &str| -> Vec<String> {
        flow[what].as_array().unwrap().iter().map(|one| one["topic"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (topics("moves"), topics("skipped")),
        (vec!["orders".to_owned()], vec!["gone".to_owned(), "old".to_owned()])
    );
    let (code, shown, _) =
        output(&["positions", &path, "--topics", "ol.", "--to-earliest", "--execute"]).await;
    assert_eq!(code, Some(1), "nothing was moved: {shown}");
    let (_, shown, _) = output(&["positions", &path, "--json"]).await;
    let flow = serde_json::from_str::<serde_json::Value>(&shown).unwrap()["flows"][0].clone();
    let positions: Vec<_> =
        flow["partitions"].as_array().unwrap().iter().map(|one| one["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, [1, 1, 0], "{flow}");
}

/// A cluster that is down, and one that takes connections and says nothing.
#[test]
fn a_cluster_that_does_not_answer_is_named_within_seconds_and_given_up() {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let path = folder.file(&format!(
        "clusters = A, B, C\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = {address}\n\
         C.bootstrap.servers = 127.0.0.1:1\nA->B.enabled = true\nB->C.enabled = true\n"
    ));
    let path = path.to_str().unwrap();
    for (arguments, code) in [(&["plan"][..], 1), (&["plan", "--json"], 1), (&["positions"], 3)] {
        let started = Instant::now();
        let arguments = [arguments, &[path, "--give-up-after", "4s"]].concat();
        let ended = kmirror(&arguments).output().unwrap();
        let took = started.elapsed();
        let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(took < Duration::from_secs(15), "{took:?}");
        for part in [
            "waits for cluster A (127.0.0.1:1) to answer, 4s at most: cluster A: 127.0.0.1:1: cannot connect"
                .to_owned(),
            format!("waits for cluster B ({address}) to answer, 4s at most"),
            "cluster A (127.0.0.1:1) did not answer within 4s: cluster A: 127.0.0.1:1: cannot connect"
                .to_owned(),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_selects_no_topic_is_no_success() {
    let (source, target, folder) = (cluster(5).await, cluster(6).await, Folder::new());
    source.create_topic("orders", 1, 1, &[]).unwrap();
    let path = folder.file(&format!("{}A->B.topics = ordres\n", mirror(&source, &target)));
    let (code, stderr) = load(path.to_str().unwrap(), &[]).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("not copied: A->B: no topic of A is selected"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_cannot_copy_everything_says_what_is_missing() {
    let (source, target, folder) = (cluster(3).await, cluster(4).await, Folder::new());
    source.create_topic("orders", 1, 1, &[]).unwrap();
    source.append("orders", 0, &batch(&[Bytes::from_static(b"small")])).unwrap();
    source.create_topic("big", 1, 1, &[("max.message.bytes", "4000000")]).unwrap();
    source.append("big", 0, &batch(&[Bytes::from(vec![7; 2_000_000])])).unwrap();
    // The target has the topic already, with Kafka's own limit.
    target.create_topic("A.big", 1, 1, &[]).unwrap();
    let path = folder.file(&mirror(&source, &target)).to_str().unwrap().to_owned();
    let (code, stderr) = load(&path, &["--give-up-after", "2s"]).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("not copied: A->B: big-0: "), "{stderr}");
    assert_eq!(values(&target, "A.orders", 0), [Bytes::from_static(b"small")]);
    assert_eq!(values(&target, "A.big", 0), Vec::<Bytes>::new());
}

/// Whatever keeps a topic from being copied when it is deleted: it is not taken for copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_says_that_a_topic_went_before_it_was_copied() {
    for (case, key) in [ApiKey::ListOffsets, ApiKey::Fetch].into_iter().enumerate() {
        let seed = 20 + 2 * case as u64;
        let (source, target, folder) = (cluster(seed).await, cluster(seed + 1).await, Folder::new());
        source.create_topic("orders", 2, 1, &[]).unwrap();
        source.append("orders", 0, &batch(&[Bytes::from_static(b"lost")])).unwrap();
        let rule = FaultRule {
            key: Some(key),
            broker: None,
            when: When::After(0),
            times: 10_000,
            effect: Effect::Error(6),
        };
        source.fault(rule);
        let path = folder.file(&mirror(&source, &target)).to_str().unwrap().to_owned();
        let load = tokio::spawn(async move { load(&path, &["--give-up-after", "50s"]).await });
        while !target.topics().iter().any(|(topic, _)| topic == "A.orders") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        source.delete_topic("orders").unwrap();
        source.clear_faults();
        let (code, stderr) = load.await.unwrap();
        assert_eq!(code, Some(1), "{key:?}: {stderr}");
        for partition in ["orders-0", "orders-1"] {
            let line = stderr.lines().find(|line| line.contains(&format!("not copied: A->B: {partition}: ")));
            assert!(
                line.is_some_and(|line| line.ends_with("it is no longer there at the source")),
                "{stderr}"
            );
        }
    }
}

/// An answer that cannot be written is none; a reader that has seen enough is no failure.
#[test]
fn an_output_that_is_full_is_a_failure_and_one_that_is_closed_is_none() {
    let folder = Folder::new();
    let timeouts = "A.default.api.timeout.ms = 1000\nB.default.api.timeout.ms = 1000\n\
        A.request.timeout.ms = 1000\nB.request.timeout.ms = 1000\n";
    let file = folder.file(&format!("{DEAD}{timeouts}")).to_str().unwrap().to_owned();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (arguments, code) in [
        (&["check", &file][..], 3),
        (&["plan", &file], 1),
        (&["demo", "--duration", "1s", "--rate", "100"], 3),
        (&["demo", "--quiet", "--duration", "1s", "--rate", "100"], 3),
        (&["--help"], 3),
        (&["--version"], 3),
        (&["run", "--help"], 3),
    ] {
        let ended = kmirror(arguments).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert_eq!(stderr.matches("No space left on device").count(), 1, "{arguments:?}: {stderr}");
    }
    for (arguments, code) in
        [(&["check", &file][..], 0), (&["--help"], 0), (&["demo", "--duration", "1s", "--rate", "100"], 1)]
    {
        let mut child = kmirror(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), stderr.as_str()), (Some(code), ""), "{arguments:?}");
    }
}

/// What is no ordinary file: the shell's pipes are as good as one, and a pipe that nobody writes to is waited for aloud.
#[test]
fn a_file_may_be_a_pipe_and_a_wait_for_it_is_said() {
    let folder = Folder::new();
    let file = folder.file(DEAD).to_str().unwrap().to_owned();
    let bash = |line: &str| {
        let line = line.replace("kmirror", env!("CARGO_BIN_EXE_kmirror")).replace("FILE", &file);
        let ended = Command::new("bash").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
        let text = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8(text).unwrap())
    };
    for line in [
        "kmirror check <(cat FILE)",
        "cat FILE | kmirror check -",
        "kmirror check - < FILE",
        "cat FILE | kmirror check /dev/stdin",
    ] {
        let (code, text) = bash(line);
        assert_eq!(code, Some(0), "{line}: {text}");
        assert!(text.contains("0 errors") && text.contains("127.0.0.1:1"), "{line}: {text}");
    }
    for (line, said) in [
        ("kmirror check /tmp", "/tmp cannot be read: it is a directory"),
        ("kmirror check /dev/zero", "/dev/zero is larger than 1048576 bytes"),
        ("yes | kmirror check -", "stdin is larger than 1048576 bytes"),
        ("kmirror check /dev/null", "the key clusters is missing"),
    ] {
        let (code, text) = bash(line);
        assert_eq!(code, Some(2), "{line}: {text}");
        assert!(text.contains(said), "{line}: {text}");
    }
    let fifo = folder.0.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut waiting = Running::start(&["check", fifo.to_str().unwrap()]);
    let mut stderr = BufReader::new(waiting.0.stderr.take().unwrap());
    let said = Running::line_with(&mut stderr, "waits for ");
    assert!(said.starts_with(fifo.to_str().unwrap()), "{said}");
    std::fs::write(&fifo, DEAD).unwrap();
    assert_eq!(waiting.wait().code(), Some(0));
}
