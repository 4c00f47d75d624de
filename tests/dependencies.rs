//! What is linked in: every dependency has a licence of the list in `deny.toml` and comes from crates.io, and each that is
//! asked for by name has a line that says why.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

fn text(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The list in `deny.toml`: one quoted name a line.
fn allowed() -> BTreeSet<String> {
    let text = text("deny.toml");
    let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn packages(target: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let resolved: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| resolved.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Whether an SPDX expression (also in the old way, with a slash) can be met by what is allowed.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut rest = &words[..];
    let met = any_of(&mut rest, allowed);
    met && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(rest, allowed);
    while let ["OR", more @ ..] = *rest {
        *rest = more;
        met |= all_of(rest, allowed);
    }
    met
}

fn all_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", more @ ..] = *rest {
        *rest = more;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *rest {
        ["(", more @ ..] => {
            *rest = more;
            let met = any_of(rest, allowed);
            *rest = rest.strip_prefix(&[")"]).unwrap_or(&["("]);
            met
        }
        // An exception only permits more.
        [name, "WITH", _, more @ ..] | [name, more @ ..] => {
            *rest = more;
            allowed.contains(*name)
        }
        [] => false,
    }
}

#[test]
fn licences_and_sources_are_those_of_the_list() {
    let allowed = allowed();
    let mut wrong = BTreeSet::new();
    for target in TARGETS {
        for package in packages(target) {
            let name = format!("{} {}", package["name"], package["version"]);
            let licence = package["license"].as_str().unwrap_or("none");
            if !is_met(licence, &allowed) {
                wrong.insert(format!("{name}: licence {licence}"));
            }
            let source = package["source"].as_str().unwrap_or("path");
            if !["path", "registry+https://github.com/rust-lang/crates.io-index"].contains(&source) {
                wrong.insert(format!("{name}: from {source}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed = ["MIT", "Zlib"].map(str::to_owned).into();
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND Zlib", true),
        ("(MIT OR GPL-3.0-only) AND Zlib", true),
        ("MIT AND (GPL-3.0-only OR ISC)", false),
        ("GPL-3.0-only AND MIT OR Zlib", true),
        ("MIT WITH LLVM-exception", true),
        ("(MIT", false),
        ("MIT Zlib", false),
        ("", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn each_dependency_says_what_it_is_for() {
    let manifest = text("Cargo.toml");
    let mut section = "";
    let mut is_explained = false;
    for line in manifest.lines() {
        match line.trim() {
            header if header.starts_with('[') => (section, is_explained) = (header, false),
            "" => is_explained = false,
            comment if comment.starts_with('#') => is_explained = true,
            entry if section == "[dependencies]" && !entry.contains("workspace = true") => {
                assert!(is_explained, "{entry} has no line that says why");
            }
            _ => {}
        }
    }
}
