//! A long-lived client process that is asked over pipes: one line of JSON per request and per reply.
//!
//! Requests run side by side in the process and are matched by id, so tests in threads share one agent. It ends when
//! its standard input closes, which happens at any end of the test process.

use crate::process::{ScratchFolder, tail};
use crate::{HarnessError, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No ordinary request takes longer; waiting for a condition is the caller's loop.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

type Pending = Arc<Mutex<BTreeMap<u64, Sender<Value>>>>;

/// One client process.
pub(crate) struct Agent {
    name: &'static str,
    child: Child,
    requests: Mutex<Option<ChildStdin>>,
    pending: Pending,
    next_id: AtomicU64,
    /// Holds the log of its standard error; removed last.
    folder: ScratchFolder,
}

impl Agent {
    /// Starts the process.
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Agent> {
        let folder = ScratchFolder::new("client")?;
        let log = log(&folder);
        let errors =
            std::fs::File::create(&log).map_err(|error| HarnessError::path("create", &log, error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| HarnessError::io(name, error))?;
        let requests = Mutex::new(child.stdin.take());
        let pending = Pending::default();
        if let Some(stdout) = child.stdout.take() {
            let pending = Arc::clone(&pending);
            std::thread::spawn(move || deliver(stdout, &pending));
        }
        Ok(Agent { name, child, requests, pending, next_id: AtomicU64::new(1), folder })
    }

    /// Asks and waits for the reply's result.
    pub(crate) fn call(&self, op: &str, arguments: Value) -> Result<Value> {
        self.call_within(op, arguments, REPLY_TIMEOUT)
    }

    /// The same for a request that may take longer.
    pub(crate) fn call_within(&self, op: &str, arguments: Value, timeout: Duration) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        guard(&self.pending).insert(id, sender);
        let line = json!({"id": id, "op": op, "arguments": arguments}).to_string() + "\n";
        let sent = match guard(&self.requests).as_mut() {
            Some(pipe) => pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()),
            None => Ok(()),
        };
        sent.map_err(|error| HarnessError::Process {
            what: format!("{}: {error}", self.name),
            log: self.errors(),
        })?;
        let mut reply = receiver.recv_timeout(timeout).map_err(|_| HarnessError::Process {
            what: format!("{} gave no reply to {op}", self.name),
            log: self.errors(),
        })?;
        match reply.get("error") {
            Some(error) => Err(HarnessError::Client {
                op: format!("{} {op}", self.name),
                detail: error.as_str().unwrap_or_default().to_owned(),
            }),
            None => Ok(reply["result"].take()),
        }
    }

    fn errors(&self) -> String {
        tail(&std::fs::read_to_string(log(&self.folder)).unwrap_or_default(), 30)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        guard(&self.requests).take();
        let _ = self.child.wait();
    }
}

/// Hands every reply to who waits for it. At the end of the stream all waiters see their channel closed.
fn deliver(stdout: ChildStdout, pending: &Pending) {
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { break };
        let Ok(reply) = serde_json::from_str::<Value>(&line) else { continue };
        let waiter = reply["id"].as_u64().and_then(|id| guard(pending).remove(&id));
        if let Some(waiter) = waiter {
            let _ = waiter.send(reply);
        }
    }
    guard(pending).clear();
}

fn log(folder: &ScratchFolder) -> PathBuf {
    folder.path().join("errors.log")
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
