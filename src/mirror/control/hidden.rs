//! Topics that the source does not let us see: named in `topics`, or copied until now.
//!
//! A cluster leaves a topic that we may not describe out of the list of all topics, as if it were not there. Asked for it by
//! name, it tells the two apart (`KafkaApis.handleTopicMetadataRequest`). So what is missed is asked for: once, and again
//! every [`AGAIN_AFTER`], so that a right that is given back is noticed before the next refresh of all topics. Topics that only
//! an expression covers, and that were never seen, nobody can ask for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::ControlEvent;
use super::reign::Reign;
use crate::mirror::rights::literals;
use crate::mirror::selects;

const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A round does not wait longer for that.
const ASK_WITHIN: Duration = Duration::from_secs(3);
/// What is asked for at once.
const ASKED_MAX: usize = 1_000;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    missed: BTreeSet<Arc<str>>,
    asked_at: Option<Instant>,
    found: BTreeSet<Arc<str>>,
}

impl Hidden {
    /// When they are asked for again.
    pub(super) fn again_at(&self) -> Option<Instant> {
        let asked_at = self.asked_at.filter(|_| !self.found.is_empty())?;
        Some(asked_at + AGAIN_AFTER)
    }

    /// Whether these are to be asked for now.
    fn is_due(&self, missed: &BTreeSet<Arc<str>>, now: Instant) -> bool {
        *missed != self.missed || self.again_at().is_some_and(|at| at <= now)
    }
}

impl Reign {
    /// Asks for what is missed; answers with what the flow's owner has to hear.
    pub(super) async fn learn_hidden(&mut self) -> Vec<ControlEvent> {
        let (missed, now) = (self.missed(), Instant::now());
        if !self.hidden.is_due(&missed, now) {
            return Vec::new();
        }
        let names: Vec<Arc<str>> = missed.iter().take(ASKED_MAX).cloned().collect();
        let hidden = match timeout(ASK_WITHIN, self.flow.source.hidden_topics(&names)).await {
            Ok(Ok(hidden)) => hidden,
            // The round after the next answer asks again.
            Ok(Err(_)) | Err(_) => return Vec::new(),
        };
        if self.hidden.found.iter().any(|topic| !hidden.contains(topic)) {
            // What may be seen again is in the next answer about all topics.
            self.flow.source.request_refresh();
        }
        let source = &self.flow.settings.source;
        let events = self.registry.hide(&self.hidden.found, &hidden, |topic| {
            format!("{source} does not let us see topic {topic}; READ on the topic is needed (kmirror acls prints all)")
        });
        self.hidden = Hidden { missed, asked_at: Some(now), found: hidden };
        events
    }

    /// Topics that are to be copied and that the source does not list.
    fn missed(&self) -> BTreeSet<Arc<str>> {
        let (settings, view) = (&self.flow.settings, self.flow.source.view());
        let named = literals(&settings.topics).into_iter().map(Arc::from);
        let named = named.filter(|topic: &Arc<str>| {
            view.topic(topic).is_none() && selects(settings, topic).is_replicated()
        });
        let known = self.registry.names().chain(&self.hidden.found);
        named.chain(known.filter(|topic| view.topic(topic).is_none()).cloned()).collect()
    }
}
