//! The clusters of a command that asks and ends: opened, waited for, and given up in time, with a word on which one and why.
//!
//! A flow that runs waits for its clusters for ever; whoever sits before a terminal does not. So a cluster that does not
//! answer is named with its addresses after seconds, and after the command's time it counts as down. A call that begins
//! later has that time as well, instead of `default.api.timeout.ms`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::client::{self, Cluster};
use crate::seam::Seam;

/// Clusters that answer sooner are not worth a word.
const FIRST_WORD_AFTER: Duration = Duration::from_secs(2);
/// Between two words.
const WORDS_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked who has answered, so that one cluster's answer does not wait for another's.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The clusters of a file, each of which has answered or was given up.
pub(super) struct Clusters {
    open: BTreeMap<Arc<str>, Cluster>,
    down: BTreeMap<Arc<str>, String>,
}

impl Clusters {
    /// Opens all of them, and waits for each `give_up_after` at most.
    pub(super) async fn reach(
        seam: &Seam,
        settings: BTreeMap<Arc<str>, client::Settings>,
        give_up_after: Duration,
    ) -> Clusters {
        let open = settings.into_iter().map(|(alias, mut settings)| {
            // A little longer, so that who is given up is given up for what its brokers did, not for a call that ran out.
            settings.default_api_timeout =
                settings.default_api_timeout.min(give_up_after + LOOK_INTERVAL * 2);
            (alias, Cluster::new(seam.clone(), settings))
        });
        let open: BTreeMap<Arc<str>, Cluster> = open.collect();
        let silent = wait(&open, give_up_after).await;
        let down = silent.into_iter().map(|cluster| {
            let words =
                format!("{} did not answer within {give_up_after:?}{}", title(&cluster), because(&cluster));
            (cluster.alias().clone(), words)
        });
        let down = down.collect();
        Clusters { open, down }
    }

    /// Both clusters of a flow.
    ///
    /// # Errors
    /// In words, when one of them was given up.
    pub(super) fn pair(&self, source: &str, target: &str) -> Result<(&Cluster, &Cluster), String> {
        Ok((self.one(source)?, self.one(target)?))
    }

    /// One of them.
    ///
    /// # Errors
    /// In words, when it was given up.
    pub(super) fn one(&self, alias: &str) -> Result<&Cluster, String> {
        match self.down.get(alias) {
            Some(words) => Err(words.clone()),
            None => self.open.get(alias).ok_or_else(|| format!("cluster {alias} has no settings")),
        }
    }
}

/// Waits until all have answered; those that have not are left over.
async fn wait(clusters: &BTreeMap<Arc<str>, Cluster>, give_up_after: Duration) -> Vec<Cluster> {
    let started = Instant::now();
    let mut word_at = FIRST_WORD_AFTER;
    loop {
        let has_answered = |cluster: &&Cluster| cluster.view().generation > 0;
        let silent: Vec<Cluster> = clusters.values().filter(|one| !has_answered(one)).cloned().collect();
        let waited = started.elapsed();
        let Some(first) = silent.first().filter(|_| waited < give_up_after) else { return silent };
        if waited >= word_at {
            word_at = waited + WORDS_INTERVAL;
            for cluster in &silent {
                let (title, why) = (title(cluster), because(cluster));
                tracing::warn!("waits for {title} to answer, {give_up_after:?} at most{why}");
            }
        }
        let _ = timeout(LOOK_INTERVAL, first.watch().wait_for(|view| view.generation > 0)).await;
    }
}

/// Does `work`, and says that it takes its time, and what keeps these clusters from answering.
pub(super) async fn patiently<T>(what: &str, clusters: &[&Cluster], work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut pause = FIRST_WORD_AFTER;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(pause) => {}
        }
        pause = WORDS_INTERVAL;
        let asked: Vec<String> = clusters.iter().map(|cluster| title(cluster)).collect();
        let why: String = clusters.iter().map(|cluster| because(cluster)).collect();
        tracing::info!("{what}: waits for answers of {}{why}", asked.join(" and "));
    }
}

fn title(cluster: &Cluster) -> String {
    cluster.settings().title()
}

fn because(cluster: &Cluster) -> String {
    cluster.trouble().map_or_else(String::new, |error| format!(": {}", error.chain()))
}
