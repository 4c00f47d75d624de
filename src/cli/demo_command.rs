//! `kmirror demo` as a command: its arguments, its signals and its exit code. What it does is `demo`'s.

use std::io;
use std::time::Duration;

use tokio::sync::watch;

use super::arguments::{Logging, duration};
use super::demo::{self, Afterwards, Display, Options, Transport};
use super::exit::Exit;
use super::output::nobody_reads;
use super::run::{failed, runtime};
use super::signals::Signals;
use crate::seam::Seam;

/// So many records are some gigabytes, on both sides together.
const RECORDS_MAX: u128 = 5_000_000;

/// `kmirror demo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Demo {
    /// How long there is traffic.
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "TIME")]
    duration: Duration,
    /// Records a second, over all topics.
    #[arg(long, default_value_t = 5_000, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Keep clusters and mirror up afterwards, for kcat or any other client, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Both clusters speak TLS, with a certificate that is made for the run.
    #[arg(long)]
    tls: bool,
    /// Seed of everything that is written; the same seed writes the same.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

pub(crate) fn main(arguments: &Demo, logging: &Logging) -> Exit {
    let records = u128::from(arguments.rate) * arguments.duration.as_millis() / 1_000;
    if records > RECORDS_MAX {
        tracing::error!(
            "--rate {} for --duration {} s would be {records} records; both clusters are in memory, and {RECORDS_MAX} the most",
            arguments.rate,
            arguments.duration.as_secs(),
        );
        return Exit::Usage;
    }
    let options = Options {
        duration: arguments.duration,
        rate: arguments.rate,
        afterwards: if arguments.keep { Afterwards::Keep } else { Afterwards::End },
        seed: arguments.seed,
        transport: if arguments.tls { Transport::Tls } else { Transport::Plaintext },
        display: if logging.quiet { Display::Verdict } else { Display::of_stdout() },
    };
    match runtime() {
        Ok(runtime) => runtime.block_on(play(options)),
        Err(error) => failed(&format!("the runtime cannot start: {error}")),
    }
}

async fn play(options: Options) -> Exit {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return failed(&format!("signals cannot be waited for: {error}")),
    };
    let (interrupt, interrupted) = watch::channel(false);
    let mut out = io::stdout();
    let mut demo = std::pin::pin!(demo::run(Seam::real(), options, interrupted, &mut out));
    let verdict = tokio::select! {
        biased;
        _ = signals.next() => {
            interrupt.send_replace(true);
            tokio::select! {
                biased;
                received = signals.next() => std::process::exit(received.exit_code()),
                verdict = &mut demo => verdict,
            }
        }
        verdict = &mut demo => verdict,
    };
    match verdict {
        Ok(verdict) if verdict.is_equal() => Exit::Done,
        Ok(_) => Exit::Incomplete,
        // Whoever read it has seen enough: there is no verdict, and nobody to tell.
        Err(demo::Error::Output(error)) if nobody_reads(&error) => Exit::Incomplete,
        Err(error) => failed(&error.chain()),
    }
}
