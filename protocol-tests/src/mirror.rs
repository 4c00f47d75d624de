//! The `kmirror` binary under test, as a user runs it: a written `.properties` file and a child process.

use crate::kafka::free_ports;
use crate::process::{Program, ScratchFolder, Signal, Supervised, Usage};
use crate::wait::{Look, wait_for};
use crate::{HarnessError, Result, workspace};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The binary of this build, built on the first call if the test run did not need it.
pub fn kmirror_binary() -> Result<&'static Path> {
    static BINARY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| build().map_err(|error| error.to_string()));
    built.as_deref().map_err(|detail| HarnessError::Missing {
        what: "the kmirror binary".to_owned(),
        detail: detail.clone(),
    })
}

/// A running `kmirror`; killed on drop. Its file and log are kept as long as the value.
pub struct Kmirror {
    process: Supervised,
    admin_port: Option<u16>,
    /// Removed after the process has ended.
    _folder: ScratchFolder,
}

impl Kmirror {
    /// Starts `kmirror ARGUMENTS FILE` with this file text.
    pub fn start(arguments: &[&str], properties: &str) -> Result<Kmirror> {
        let folder = ScratchFolder::new("run")?;
        let file = folder.path().join("mm2.properties");
        std::fs::write(&file, properties).map_err(|error| HarnessError::path("write", &file, error))?;
        let program = Program::new(kmirror_binary()?).args(arguments.iter().copied()).arg(&file);
        let process = Supervised::start("kmirror", program, &folder.path().join("log"))?;
        Ok(Kmirror { process, admin_port: None, _folder: folder })
    }

    /// Starts the binary under another name, with files of these names and texts; an argument `@NAME` is the path of one.
    pub fn start_as(program: &str, arguments: &[&str], files: &[(&str, &str)]) -> Result<Kmirror> {
        let folder = ScratchFolder::new("run")?;
        let path = |name: &str| folder.path().join(name);
        for (name, text) in files {
            std::fs::write(path(name), text)
                .map_err(|error| HarnessError::path("write", path(name), error))?;
        }
        let binary = path(program);
        std::os::unix::fs::symlink(kmirror_binary()?, &binary)
            .map_err(|error| HarnessError::path("link", &binary, error))?;
        let mut command = Program::new(&binary);
        for argument in arguments {
            command = match argument.strip_prefix('@') {
                Some(name) => command.arg(path(name)),
                None => command.arg(*argument),
            };
        }
        let process = Supervised::start(program, command, &path("log"))?;
        Ok(Kmirror { process, admin_port: None, _folder: folder })
    }

    /// The same with the admin listener on a free port.
    pub fn start_with_admin(arguments: &[&str], properties: &str) -> Result<Kmirror> {
        let port = free_ports(1)?;
        let properties = format!("{properties}kmirror.admin.listen = 127.0.0.1:{port}\n");
        let mut started = Kmirror::start(arguments, &properties)?;
        started.admin_port = Some(port);
        Ok(started)
    }

    /// Status and text of what the admin listener answers at a path; waits until it listens.
    pub fn get(&mut self, path: &str) -> Result<(u16, String)> {
        let port = self.admin_port.ok_or_else(|| HarnessError::Missing {
            what: "the admin listener".to_owned(),
            detail: "start_with_admin starts it".to_owned(),
        })?;
        let mut socket = wait_for("the admin listener", LISTEN_TIMEOUT, || {
            self.expect_running()?;
            Ok(match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(socket) => Look::Done(socket),
                Err(error) => Look::Pending(error.to_string()),
            })
        })?;
        let mut answer = String::new();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .and_then(|()| socket.read_to_string(&mut answer))
            .map_err(|error| HarnessError::io("the admin listener", error))?;
        let malformed = || HarnessError::Malformed { what: path.to_owned(), detail: answer.clone() };
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
        Ok((status, body.to_owned()))
    }

    /// The document at `/status`.
    pub fn status(&mut self) -> Result<serde_json::Value> {
        let (_, body) = self.get("/status")?;
        serde_json::from_str(&body).map_err(|error| HarnessError::Malformed {
            what: "/status".to_owned(),
            detail: format!("{error}: {body}"),
        })
    }

    /// Runs `kmirror run --until-caught-up` to its end; any exit status but 0 is an error with the log.
    pub fn run_until_caught_up(properties: &str, timeout: Duration) -> Result<String> {
        let mut run = Kmirror::start(&["run", "--until-caught-up"], properties)?;
        let code = run.wait(timeout)?;
        if code == 0 {
            return Ok(run.output());
        }
        Err(HarnessError::Process {
            what: format!("kmirror run --until-caught-up ended with {code}"),
            log: crate::process::tail(&run.output(), 60),
        })
    }

    /// Waits for its end and gives the exit status.
    pub fn wait(&mut self, timeout: Duration) -> Result<i32> {
        self.process.wait(timeout)
    }

    /// The exit status if it has ended.
    pub fn exit_code(&mut self) -> Result<Option<i32>> {
        self.process.exit_code()
    }

    /// An error with the log when it has ended.
    pub fn expect_running(&mut self) -> Result<()> {
        match self.exit_code()? {
            None => Ok(()),
            Some(code) => Err(HarnessError::Process {
                what: format!("kmirror ended with {code}"),
                log: crate::process::tail(&self.output(), 60),
            }),
        }
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Asks it to end (SIGTERM), waits, and gives the exit status.
    pub fn stop(&mut self, timeout: Duration) -> Result<i32> {
        self.signal(Signal::Terminate)?;
        self.wait(timeout)
    }

    /// Process id, for measurements.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has used.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid())
    }

    /// Everything it has written.
    pub fn output(&self) -> String {
        self.process.output()
    }
}

fn build() -> Result<PathBuf> {
    let test = std::env::current_exe().map_err(|error| HarnessError::io("the test's own path", error))?;
    let optimized = test.components().any(|part| part.as_os_str() == "release").then_some("--release");
    // The same profile and features as the test run, so that no dependency is built twice.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Program::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "kmirror"])
        .args(optimized)
        .arg("--manifest-path")
        .arg(workspace().join("Cargo.toml"))
        .run("cargo build --bin kmirror")?;
    // target/debug/deps/TEST -> target/debug/kmirror
    let binary = test.ancestors().nth(2).map(|folder| folder.join("kmirror"));
    binary.filter(|path| path.exists()).ok_or_else(|| HarnessError::Missing {
        what: "the kmirror binary".to_owned(),
        detail: format!("it is not beside {}", test.display()),
    })
}
