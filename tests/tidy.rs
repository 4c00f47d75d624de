//! Rules of the house that a compiler does not know: which way the arrows point, how long a file may be.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may use. ARCHITECTURE.md draws the same.
const ROOMS: [(&str, &[&str]); 9] = [
    ("seam", &[]),
    ("record", &[]),
    ("net", &["seam", "record"]),
    ("client", &["seam", "record", "net"]),
    ("mirror", &["seam", "record", "net", "client"]),
    ("broker", &["seam", "record"]),
    ("config", &["seam", "record", "net", "client", "mirror", "observe"]),
    ("observe", &["seam", "net", "mirror"]),
    ("cli", &["seam", "record", "net", "client", "mirror", "broker", "config", "observe"]),
];
const LINES_MAX: usize = 800;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Tests may look upwards; product code stands before them in its file.
fn product_code(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy();
    let only_tests = ["tests.rs", "testing.rs", "scripted.rs", "test_cluster.rs", "vectors.rs"];
    if only_tests.contains(&&*name) || name.ends_with("_tests.rs") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

#[test]
fn arrows_point_down_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = BTreeSet::new();
    for (room, below) in ROOMS {
        for path in sources(&root.join(room)) {
            for (number, line) in product_code(&path).lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    continue;
                }
                for (other, _) in ROOMS {
                    let used = line.contains(&format!("crate::{other}::"))
                        || line.contains(&format!("crate::{other};"));
                    if used && other != room && !below.contains(&other) {
                        wrong.insert(format!("{}:{}: {room} uses {other}", path.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_says_what_it_owns_and_ends_in_time() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["src", "tests", "benches", "protocol-tests/src", "protocol-tests/tests", "protocol-tests/benches"];
    let mut wrong = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(&root.join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        if !text.starts_with("//!") {
            wrong.push(format!("{} does not open with //!", path.display()));
        }
        if text.lines().count() > LINES_MAX {
            wrong.push(format!("{} has more than {LINES_MAX} lines", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
