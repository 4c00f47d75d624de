//! `kmirror demo`: two embedded clusters, traffic of every kind, the mirror between them, and a comparison at the end.
//!
//! The mirror is the one of `kmirror run`: the same file format, code and sockets. Only the clusters are special: they live
//! in this process, in memory.

mod certificate;
pub mod compare;
mod content;
mod error;
mod plan;
mod producer;
mod show;
mod stage;
mod traffic;
mod verdict;

use std::io::Write;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

pub use error::Error;
pub use show::Display;
pub use verdict::{Occasion, TopicVerdict, Verdict};

use crate::mirror::Replicator;
use crate::mirror::status::ReplicatorStatus;
use crate::seam::Seam;
use show::Show;
use stage::{BROKERS, Stage};
use traffic::{Traffic, TrafficSettings};

/// How often it is looked whether everything is copied.
const COPIED_POLL: Duration = Duration::from_millis(20);
/// A mirror that gets no further for so long will not.
const STANDSTILL_MAX: Duration = Duration::from_secs(20);

/// Whether the clusters stay when the traffic has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The demo ends with its verdict.
    End,
    /// Clusters and mirror stay up until an interrupt; then both sides are compared again.
    Keep,
}

/// How everybody speaks to the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// As it is.
    Plaintext,
    /// With TLS.
    Tls,
}

/// What `kmirror demo` is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long there is traffic.
    pub duration: Duration,
    /// Records per second.
    pub rate: u32,
    /// What happens then.
    pub afterwards: Afterwards,
    /// Seed of all that is written.
    pub seed: u64,
    /// How everybody speaks to the clusters.
    pub transport: Transport,
    /// What the output is.
    pub display: Display,
}

/// Runs the demo. `interrupt` ends traffic, and a stay, early when it turns true; what was written is compared all the same.
///
/// # Errors
/// What kept it from a verdict. That both sides differ is a verdict.
pub async fn run(
    seam: Seam,
    options: Options,
    interrupt: watch::Receiver<bool>,
    out: &mut (dyn Write + Send),
) -> Result<Verdict, Error> {
    let mut show = Show::new(out, options.display);
    let (stage, settings) = Stage::start(&seam, options.seed, options.transport).await?;
    show.opening(&stage)?;
    let traffic = TrafficSettings {
        rate: options.rate,
        half_way: options.duration / 2,
        replication_factor: BROKERS as i16,
        seed: options.seed,
    };
    let prepared = Traffic::prepare(&stage.source_client, &stage.source, traffic).await?;
    let replicator = Replicator::start(seam.clone(), settings);
    let traffic = prepared.start(&seam, &stage.source_client, stage.source.clone());
    let mut demo = Demo { stage, replicator, traffic, interrupt, show };
    let verdict = demo.play(options).await;
    demo.replicator.stop().await;
    verdict
}

struct Demo<'a> {
    stage: Stage,
    replicator: Replicator,
    traffic: Traffic,
    interrupt: watch::Receiver<bool>,
    show: Show<'a>,
}

impl Demo<'_> {
    async fn play(&mut self, options: Options) -> Result<Verdict, Error> {
        self.watch_traffic(options).await?;
        self.traffic.stop().await?;
        let verdict = self.judge(Occasion::TrafficEnded).await?;
        if options.afterwards == Afterwards::End || *self.interrupt.borrow() {
            return Ok(verdict);
        }
        self.stay().await?;
        self.judge(Occasion::StayEnded).await
    }

    async fn watch_traffic(&mut self, options: Options) -> Result<(), Error> {
        self.show.begin(&self.replicator.status().await);
        let started = Instant::now();
        let end = started + options.duration;
        let duration = options.duration.as_secs_f64();
        loop {
            let next = (Instant::now() + self.show.interval()).min(end);
            if self.is_interrupted_before(next).await || self.traffic.has_ended() {
                return Ok(());
            }
            let status = self.replicator.status().await;
            self.show.state(
                &status,
                &format!("{:.1} of {duration} s", started.elapsed().as_secs_f64().min(duration)),
            )?;
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Clusters and mirror are the user's until an interrupt.
    async fn stay(&mut self) -> Result<(), Error> {
        let (source, target) = (self.stage.source.bootstrap(), self.stage.target.bootstrap());
        self.show.tell(&format!(
            "\nClusters and mirror stay up until Ctrl-C. Any Kafka client can use them, for example kcat:\n  \
             kcat -P -b {source} -t orders\n  \
             kcat -C -b {target} -t A.orders -o -5 -e -f '%p %o %k %h %s\\n'\n"
        ))?;
        while !*self.interrupt.borrow() {
            if matches!(self.show.display(), Display::Terminal { .. }) {
                let status = self.replicator.status().await;
                self.show.state(&status, "until Ctrl-C")?;
            }
            self.is_interrupted_before(Instant::now() + self.show.interval()).await;
        }
        Ok(())
    }

    /// Waits until everything is copied, then compares.
    async fn judge(&mut self, occasion: Occasion) -> Result<Verdict, Error> {
        let since = Instant::now();
        let (behind, status) = self.copied().await?;
        self.show.last_state(&status)?;
        let written = self.traffic.written();
        let aborted = written.iter().map(|(_, written)| written.aborted()).sum();
        let records = written.iter().map(|(_, written)| written.records()).sum();
        self.show.say(&format!("{}\n", occasion.words(records, aborted, behind.len(), since.elapsed())))?;
        let topics = self.stage.compare().await?.into_iter().map(|(topic, rule, comparison)| {
            let own = self.traffic.written().iter().find(|(plan, _)| plan.name == &*topic);
            let written = own.and_then(|(_, written)| occasion.written(written.records()));
            TopicVerdict { topic, written, rule, comparison }
        });
        let verdict = Verdict { topics: topics.collect(), behind, aborted, occasion };
        for line in verdict.lines() {
            self.show.tell(&line)?;
        }
        Ok(verdict)
    }

    /// Waits until the mirror has copied everything; gives what it has not when it stands still.
    async fn copied(&mut self) -> Result<(Vec<String>, ReplicatorStatus), Error> {
        let (mut sum, mut moved_at) = (0, Instant::now());
        let mut shown_at = Instant::now();
        loop {
            let status = self.replicator.status().await;
            let behind = self.stage.behind(&status)?;
            let positions = positions_sum(&status);
            if positions != sum {
                (sum, moved_at) = (positions, Instant::now());
            }
            if behind.is_empty() || moved_at.elapsed() >= STANDSTILL_MAX {
                return Ok((behind, status));
            }
            if shown_at.elapsed() >= self.show.interval() {
                shown_at = Instant::now();
                self.show.state(&status, "the rest is copied")?;
            }
            sleep(COPIED_POLL).await;
        }
    }

    async fn is_interrupted_before(&mut self, time: Instant) -> bool {
        let interrupt = &mut self.interrupt;
        let interrupted = async { interrupt.wait_for(|&interrupted| interrupted).await.is_ok() };
        let heard = tokio::select! {
            biased;
            interrupted = interrupted => interrupted,
            () = sleep_until(time) => return false,
        };
        if !heard {
            // Nobody is left who could interrupt.
            sleep_until(time).await;
        }
        heard
    }
}

fn positions_sum(status: &ReplicatorStatus) -> i64 {
    let partitions = status.flows.iter().flat_map(|flow| flow.partitions.values());
    partitions.filter_map(|partition| partition.position).fold(0, i64::wrapping_add)
}

#[cfg(test)]
mod tests;
