//! Replicator and both clusters in one process, on paused time and a network in memory, under faults drawn by a seed.
//!
//! Even seeds let one process live through everything: each record of the source is on the target, once and in order
//! (promises A and B). Odd seeds kill the process without a word, or cut it off until another has taken its lease, with
//! requests of its own still under way: nothing is lost, the order of first copies is kept, and only what was copied since
//! the positions that the successor found may be there twice. After every run: the budget was never overdrawn by more than
//! what one read can bring (E), a topic that cannot be copied and a broker that is away stopped no other partition (F).
//!
//! `SIMULATION_SEEDS=from..to` chooses other seeds, `RUST_LOG=…` shows what the replicator says.

mod broken;
mod checks;
mod processes;
mod trouble;
mod world;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use broken::Variant;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, FaultRule, When};
use kmirror::seam::Link;
use processes::all_brokers;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use world::World;

/// Seeds within which each broken variant is caught.
const CAUGHT_WITHIN: u64 = 48;

/// What a run leaves: the same for the same seed.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    trace: Vec<String>,
    records: usize,
    /// Copies beyond the first.
    repeated: usize,
    takeovers: usize,
}

/// Runs one seed; what a check has to say is the error.
async fn run(seed: u64, variant: Variant) -> Result<Report, String> {
    STARTED.set(Some(Instant::now()));
    let mut world = World::new(seed, variant).await;
    let crashes = seed % 2 == 1;
    world.create_topic(0);
    world.create_bad_topic();
    world.start_process();
    let steps = 10 + world.pick(40);
    for step in 0..steps {
        for _ in 0..world.pick(6) {
            world.append_somewhere();
        }
        if world.pick(3) == 0 {
            world.trouble().await;
        }
        if crashes && world.pick(6) == 0 {
            world.crash_or_cut_off();
        }
        if step == steps / 2 {
            world.create_topic(1);
        }
        let pause = [1, 20, 300, 2_000, 35_000][world.pick(5) as usize];
        sleep(Duration::from_millis(pause)).await;
        world.check_budget().await?;
    }
    world.settle().await?;
    world.check_that_one_broker_stops_no_other().await?;
    world.settle().await?;
    world.check_bad_topic().await?;
    let repeated = world.check_contents().await?;
    let report =
        Report { trace: world.trace(), records: world.records(), repeated, takeovers: world.takeovers() };
    world.stop().await;
    Ok(report)
}

fn simulate(seed: u64, variant: Variant) -> Result<Report, String> {
    on_paused_time(run(seed, variant)).map_err(|problem| format!("seed {seed}: {problem}"))
}

fn on_paused_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(run)
}

/// Runs seeds on all cores, until one of them is `enough`.
fn simulate_each(
    seeds: Range<u64>,
    variant: Variant,
    enough: fn(&Result<Report, String>) -> bool,
) -> Vec<Result<Report, String>> {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = simulate(seed, variant);
            if enough(&result) {
                next.store(seeds.end, Ordering::Relaxed);
            }
            results.lock().unwrap().push((seed, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(seed, _)| *seed);
    results.into_iter().map(|(_, result)| result).collect()
}

fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return default };
    let (from, to) = text.split_once("..").expect("SIMULATION_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Logs say how far their run is.
struct VirtualTime;

thread_local! {
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl FormatTime for VirtualTime {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        let elapsed =
            STARTED.get().filter(|_| Handle::try_current().is_ok()).map(|started| started.elapsed());
        write!(out, "{:?}", elapsed.unwrap_or_default())
    }
}

fn log_if_asked() {
    if let Ok(level) = std::env::var("RUST_LOG").unwrap_or_default().parse::<LevelFilter>() {
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_timer(VirtualTime);
        let _ = subscriber.with_ansi(false).with_test_writer().try_init();
    }
}

#[test]
fn promises_hold_whatever_fails() {
    log_if_asked();
    let (mut failures, mut records, mut repeated, mut takeovers, mut runs) = (Vec::new(), 0, 0, 0, 0);
    for result in simulate_each(seeds(0..200), Variant::Whole, |_| false) {
        runs += 1;
        match result {
            Ok(report) => {
                records += report.records;
                repeated += report.repeated;
                takeovers += report.takeovers;
            }
            Err(problem) => failures.push(problem),
        }
    }
    println!(
        "{runs} runs: {records} records, {takeovers} takeovers, {repeated} records written again after them"
    );
    let count = failures.len();
    failures.truncate(3);
    assert!(failures.is_empty(), "{count} of {runs} runs failed, such as\n{}", failures.join("\n\n"));
}

#[test]
fn the_same_seed_replays_the_same_trace() {
    for seed in [3, 16, 17, 21] {
        assert_eq!(
            simulate(seed, Variant::Whole).unwrap(),
            simulate(seed, Variant::Whole).unwrap(),
            "seed {seed}"
        );
    }
}

/// Brokers forget producers by the timestamps of their records, so those of old records within minutes: what was sent and
/// never answered is looked up in the target's log.
#[test]
fn what_the_target_has_forgotten_is_neither_lost_nor_doubled() {
    log_if_asked();
    for effect in [Effect::ReplyLostAfterEffect, Effect::Close, Effect::Drop] {
        let forgotten = async {
            let mut world = World::new(1, Variant::Whole).await;
            world.create_topic_of(0, 3);
            world.start_process();
            world.append_everywhere();
            world.settle().await?;
            world.b.fault(FaultRule {
                key: Some(ApiKey::Produce),
                broker: None,
                when: When::After(0),
                times: 3,
                effect,
            });
            world.append_everywhere();
            sleep(Duration::from_millis(5)).await;
            for (_, broker) in all_brokers().filter(|(side, _)| *side == 'B') {
                world.set_link('B', broker, Link::Silent);
            }
            sleep(Duration::from_secs(660)).await;
            world.b.expire_producers(86_400_000);
            world.append_everywhere();
            world.settle().await?;
            world.check_contents().await
        };
        assert_eq!(on_paused_time(forgotten), Ok(0), "{effect:?}");
    }
}

/// The check of the checks: programs with a known fault fail, and the same traffic without the fault does not.
#[test]
fn broken_variants_are_caught() {
    for variant in [Variant::ResendUnderNewSequence, Variant::PositionBeforeAck] {
        let results = simulate_each(0..CAUGHT_WITHIN, variant, Result::is_err);
        let story = results.iter().find_map(|result| result.as_ref().err());
        let story = story.unwrap_or_else(|| panic!("{variant:?} is not caught within {CAUGHT_WITHIN} seeds"));
        println!(
            "{variant:?} is caught within {} seeds: {}",
            results.len(),
            story.lines().next().unwrap_or_default()
        );
    }
    for result in simulate_each(0..CAUGHT_WITHIN / 4, Variant::Unchanged, Result::is_err) {
        result.unwrap();
    }
}
