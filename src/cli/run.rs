//! `kmirror run`: replicates until a signal, or until everything is there.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::arguments::{Logging, Run};
use super::exit::Exit;
use super::finish::{self, Outcome, Patience};
use super::logging;
use super::program_text;
use super::render;
use super::signals::{Received, Signals};
use crate::config::{self, Options, Outside, Report, Settings, Severity};
use crate::mirror::Replicator;
use crate::mirror::status::ReplicatorStatus;
use crate::observe::{self, Meter, Totals};
use crate::seam::Seam;

/// How often a run is looked at that goes on until it is stopped.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often the progress of a load is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// How often the progress of a load is logged where there is no terminal.
const PROGRESS_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Pause while an answer about the state still holds the replicator.
const STOP_PAUSE: Duration = Duration::from_millis(10);
/// When what only a start needs is no longer needed.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Signals that come together are one wish to stop.
const SAME_STOP: Duration = Duration::from_millis(500);

pub(crate) fn main(arguments: &Run, logging: &Logging) -> Exit {
    let options = Options {
        clusters: &arguments.clusters,
        takeover_timeout: arguments.takeover_timeout,
        outside: Outside::real(),
    };
    let report = config::load_file(&arguments.file, &options);
    let Some(settings) = report.settings.clone() else {
        render::say_why_not(&report);
        return Exit::Usage;
    };
    start(&report, settings, arguments, logging)
}

/// Replicates as settings say that are without an error.
pub(crate) fn start(report: &Report, settings: Settings, arguments: &Run, logging: &Logging) -> Exit {
    log_problems(report);
    match runtime() {
        Ok(runtime) => runtime.block_on(run(settings, arguments, logging)),
        Err(error) => failed(&format!("the runtime cannot start: {error}")),
    }
}

/// One thread for all lanes; compression and the resolver have threads of their own, which end when they are idle.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(threads.max(2)).build()
}

fn log_problems(report: &Report) {
    for problem in report.problems.iter().filter(|problem| problem.severity == Severity::Warning) {
        let help = problem.help.as_deref().map_or(String::new(), |help| format!(" ({help})"));
        tracing::warn!("{}: {}{help}", render::place(problem, &report.source), problem.message);
    }
}

pub(crate) fn failed(message: &str) -> Exit {
    tracing::error!("{message}");
    Exit::Failed
}

async fn run(settings: Settings, arguments: &Run, logging: &Logging) -> Exit {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return failed(&format!("signals cannot be waited for: {error}")),
    };
    let seam = Seam::real();
    let listener = match observe::listen(&seam, &settings.observe).await {
        Ok(listener) => listener,
        Err(error) => return failed(&error.to_string()),
    };
    for flow in &settings.process.flows {
        tracing::info!(source = %flow.source, target = %flow.target, topics = %flow.topics.patterns().join(", "), "flow");
    }
    let replicator = Arc::new(Replicator::start(seam.clone(), settings.process));
    let server = listener.map(|listener| {
        if let Ok(address) = listener.local_address() {
            tracing::info!("metrics and status are at {}://{address}/", listener.scheme());
        }
        let replicator = Arc::downgrade(&replicator);
        let status = move || {
            let replicator = replicator.upgrade();
            async move {
                match replicator {
                    Some(replicator) => replicator.status().await,
                    None => ReplicatorStatus::default(),
                }
            }
        };
        seam.spawn(observe::serve(seam.clone(), listener, status))
    });
    let settled = seam.spawn(async {
        tokio::time::sleep(SETTLED_AFTER).await;
        program_text::give_back();
    });
    let mut watch = Watch::new(arguments, logging);
    let ended = tokio::select! {
        biased;
        received = signals.next() => Ended::Signal(received),
        outcome = watch.until_over(&replicator) => Ended::Outcome(outcome),
    };
    watch.clear();
    settled.abort();
    let exit = tell(ended);
    tokio::select! {
        biased;
        received = signals.next_after(SAME_STOP) => {
            tracing::warn!("{} again: ended at once, without waiting for what is in flight", received.name());
            std::process::exit(received.exit_code());
        }
        () = stop(replicator) => {}
    }
    // Until here it could be asked how far the stop is.
    if let Some(server) = server {
        server.abort();
    }
    tracing::info!("stopped");
    exit
}

/// Stops in order. An answer about the state that is being made holds the replicator for a moment longer.
async fn stop(mut replicator: Arc<Replicator>) {
    loop {
        replicator = match Arc::try_unwrap(replicator) {
            Ok(replicator) => return replicator.stop().await,
            Err(shared) => shared,
        };
        tokio::time::sleep(STOP_PAUSE).await;
    }
}

enum Ended {
    Signal(Received),
    Outcome(Outcome),
}

/// Says how it ended, and gives the exit code.
fn tell(ended: Ended) -> Exit {
    match ended {
        Ended::Signal(received) => {
            tracing::info!(
                "{}: no more is fetched, what is in flight is brought to its end",
                received.name()
            );
            Exit::Done
        }
        Ended::Outcome(Outcome::CaughtUp | Outcome::Running) => {
            tracing::info!("everything that was there at the start is on the target");
            Exit::Done
        }
        Ended::Outcome(Outcome::Missing(lines)) => {
            lines.iter().for_each(|line| tracing::error!("not copied: {line}"));
            Exit::Incomplete
        }
        Ended::Outcome(Outcome::Failed(reasons)) => {
            reasons.iter().for_each(|reason| tracing::error!("{reason}"));
            Exit::Failed
        }
    }
}

/// Looks at a run from time to time, and shows its progress.
struct Watch {
    until_caught_up: bool,
    output: Output,
    meter: Meter,
    logged: Instant,
    give_up_after: Duration,
    /// What remained when it last changed, and since when.
    moved: Option<(u64, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Bar,
    Lines,
    Nothing,
}

impl Watch {
    fn new(arguments: &Run, logging: &Logging) -> Watch {
        let output = match (arguments.until_caught_up && !logging.quiet, io::stderr().is_terminal()) {
            (false, _) => Output::Nothing,
            (true, true) => Output::Bar,
            (true, false) => Output::Lines,
        };
        let until_caught_up = arguments.until_caught_up;
        Watch {
            until_caught_up,
            output,
            meter: Meter::default(),
            logged: Instant::now(),
            give_up_after: arguments.give_up_after,
            moved: None,
        }
    }

    async fn until_over(&mut self, replicator: &Replicator) -> Outcome {
        let mut ticks = interval(if self.until_caught_up { PROGRESS_INTERVAL } else { WATCH_INTERVAL });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let status = replicator.status().await;
            let outcome = if self.until_caught_up {
                self.show(&status);
                self.caught_up(&status)
            } else {
                finish::endless(&status)
            };
            if outcome != Outcome::Running {
                return outcome;
            }
        }
    }

    /// What is stopped but may heal is waited for as long as anything moves, and `give_up_after` longer.
    fn caught_up(&mut self, status: &ReplicatorStatus) -> Outcome {
        let outcome = finish::until_caught_up(status, Patience::Waiting);
        let remaining = Totals::of(status).remaining;
        if self.moved.is_none_or(|(before, _)| before != remaining) {
            self.moved = Some((remaining, Instant::now()));
        }
        let stands_still = self.moved.is_some_and(|(_, since)| since.elapsed() >= self.give_up_after);
        if outcome == Outcome::Running && stands_still {
            return finish::until_caught_up(status, Patience::Exhausted);
        }
        outcome
    }

    fn show(&mut self, status: &ReplicatorStatus) {
        let progress = self.meter.note(status);
        match self.output {
            Output::Nothing => {}
            Output::Bar => {
                logging::set_bar(true);
                // A terminal that went away is no failure of the load.
                let _ = write!(io::stderr().lock(), "\r\x1b[K{}", progress.bar());
            }
            Output::Lines if self.logged.elapsed() >= PROGRESS_LOG_INTERVAL => {
                self.logged = Instant::now();
                tracing::info!("{}", progress.line());
            }
            Output::Lines => {}
        }
    }

    fn clear(&self) {
        if self.output == Output::Bar {
            logging::set_bar(false);
            let _ = writeln!(io::stderr().lock());
        }
    }
}
