//! End to end between real brokers: kmirror and MirrorMaker 2 copy the same topics in one run, interleaved; printed
//! are medians and their ratios. `cargo bench -p protocol-tests --bench macro -- [--runs N] [--mb N] [--only WORDS]`.
//!
//! MB are 10⁶ bytes of batches as stored at the source. Of MirrorMaker 2 the processor time after its first record
//! counts; of kmirror all of it. `latency`, `idle` and `many` are words for `--only`, too.

mod idle;
mod measure;
mod peer;
mod relay;
mod table;

use measure::{Bench, Copier, Copy};
use protocol_tests::kafka::{Codec, Load};
use protocol_tests::{HarnessError, Result};

/// What the command line asks for.
pub(crate) struct Options {
    runs: usize,
    megabytes: u64,
    only: Option<String>,
}

fn main() -> Result<()> {
    if let Some(peer) = peer::wanted() {
        return peer;
    }
    let options = options(std::env::args().skip(1))?;
    let Some(mut bench) = Bench::start()? else { return Ok(()) };
    for load in loads(options.megabytes) {
        if options.only.as_ref().is_some_and(|words| !load.name.contains(words.as_str())) {
            continue;
        }
        let stored = bench.fill(&load)?;
        let mut copies: Vec<(Copier, Vec<Copy>)> = Copier::ALL.map(|mirror| (mirror, Vec::new())).into();
        let mut relays = Vec::new();
        for _ in 0..options.runs {
            for (mirror, copies) in &mut copies {
                copies.push(bench.copy(*mirror, &load, stored)?);
            }
            relays.push(relay::megabytes_per_cpu_second(&bench.files(&load)?)?);
        }
        table::print_load(&load, stored, &copies, &mut relays);
        bench.drop_load(&load)?;
    }
    let wants = |name: &str| options.only.as_ref().is_none_or(|words| name.contains(words.as_str()));
    if wants("latency") {
        idle::print_latency(&bench)?;
    }
    if wants("idle") {
        idle::print_idle(&bench, "Idle", true)?;
        idle::print_idle(&bench, "Silent", false)?;
    }
    if wants("many") {
        idle::print_many(&bench)?;
    }
    Ok(())
}

/// The loads of the table in `benches/README.md`.
fn loads(megabytes: u64) -> Vec<Load<'static>> {
    let load = |name, codec, record_bytes: usize, batch_bytes, share: u64| Load {
        name,
        codec,
        records: megabytes * 1_000_000 / share / record_bytes as u64,
        record_bytes,
        batch_bytes,
        partitions: 4,
    };
    vec![
        load("1 KB records in 256 KB batches", Codec::None, 1000, 256 << 10, 1),
        load("1 KB records in 16 KB batches", Codec::None, 1000, 16 << 10, 1),
        load("100 B records in 16 KB batches", Codec::None, 100, 16 << 10, 2),
        load("1 KB records, one per batch", Codec::None, 1000, 0, 2),
        load("1 KB records in 16 KB batches, lz4", Codec::Lz4, 1000, 16 << 10, 1),
        load("1 KB records, one per batch, lz4", Codec::Lz4, 1000, 0, 2),
    ]
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { runs: 5, megabytes: 600, only: None };
    while let Some(name) = arguments.next() {
        // `cargo bench` itself passes this.
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().unwrap_or_default();
        let wrong = || HarnessError::Malformed {
            what: "the command line".to_owned(),
            detail: format!("{name} {value}"),
        };
        match name.as_str() {
            "--runs" => options.runs = value.parse().map_err(|_| wrong())?,
            "--mb" => options.megabytes = value.parse().map_err(|_| wrong())?,
            "--only" => options.only = Some(value),
            _ => return Err(wrong()),
        }
    }
    Ok(options)
}
