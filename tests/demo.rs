//! `kmirror demo` as a user runs it: exit code, output without a terminal, and Ctrl-C.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

fn demo(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kmirror"))
        .arg("demo")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end; gives the exit code and what is left of both outputs.
fn ended(mut child: Child, mut stdout: impl Read) -> (Option<i32>, String) {
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

#[test]
fn it_ends_with_0_when_both_sides_are_equal() {
    let mut child = demo(&["--duration", "1s", "--rate", "1000"]);
    let stdout = child.stdout.take().unwrap();
    let (code, text) = ended(child, stdout);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\nEQUAL: "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn it_ends_with_0_over_tls() {
    let mut child = demo(&["--tls", "--duration", "1s", "--rate", "1000"]);
    let stdout = child.stdout.take().unwrap();
    let (code, text) = ended(child, stdout);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("security.protocol = SSL") && text.contains("\nEQUAL: "), "{text}");
}

#[test]
fn a_quiet_one_says_the_verdict_alone() {
    let mut child = demo(&["--quiet", "--duration", "1s", "--rate", "500"]);
    let stdout = child.stdout.take().unwrap();
    let (code, text) = ended(child, stdout);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("Both sides, read over the wire"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("EQUAL: ")), "{text}");
}

#[test]
fn ctrl_c_ends_it_in_order() {
    let mut child = demo(&["--duration", "10m", "--rate", "500"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(" of 600 s: ") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let (code, text) = ended(child, stdout);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\nEQUAL: "), "{text}");
}

#[test]
fn more_than_memory_holds_is_refused() {
    let mut child = demo(&["--duration", "1h", "--rate", "100000"]);
    let stdout = child.stdout.take().unwrap();
    let (code, text) = ended(child, stdout);
    assert_eq!(code, Some(2));
    assert!(text.contains("360000000 records"), "{text}");
}
