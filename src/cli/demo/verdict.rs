//! What the demo found at its end, and the words for it.

use std::sync::Arc;
use std::time::Duration;

use super::compare::{Comparison, Rule};
use crate::observe::units;

/// Differences that are shown.
const DIFFERENCES_SHOWN_MAX: usize = 10;
const TOPIC_WIDTH: usize = 16;

/// When both sides were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// When the demo's own traffic had ended.
    #[default]
    TrafficEnded,
    /// After a stay, in which anybody may have written, deleted or compacted.
    StayEnded,
}

impl Occasion {
    /// What a topic must hold at least, if the demo has written so many records to it.
    pub(super) fn written(self, records: u64) -> Option<u64> {
        (self == Occasion::TrafficEnded).then_some(records)
    }

    /// What led to the comparison. `behind` is the number of partitions that are not copied to their end.
    pub(super) fn words(self, records: u64, aborted: u64, behind: usize, waited: Duration) -> String {
        let (records, aborted) = (units::count(records), units::count(aborted));
        let is_all = behind == 0;
        match self {
            Occasion::TrafficEnded => {
                let how = if is_all { "everything was copied" } else { "no more was copied" };
                let waited_ms = waited.as_millis();
                format!(
                    "{records} records were committed and {aborted} aborted; {how} {waited_ms} ms after the last."
                )
            }
            Occasion::StayEnded => {
                let how = if is_all { "Everything is copied" } else { "Not everything is copied" };
                format!(
                    "{how} now. Compared again, with what was written in the meantime; before it, the demo had committed \
                     {records} records and aborted {aborted}."
                )
            }
        }
    }
}

/// How one topic and its mirror compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicVerdict {
    /// The source topic.
    pub topic: Arc<str>,
    /// Records that the demo's producers had committed; `None` for a topic that is not theirs alone.
    pub written: Option<u64>,
    /// By which rule it was compared.
    pub rule: Rule,
    /// What reading both sides gave.
    pub comparison: Comparison,
}

/// What the demo found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Topic by topic.
    pub topics: Vec<TopicVerdict>,
    /// What was not copied in time.
    pub behind: Vec<String>,
    /// Records of aborted transactions, which no reader of either side may see.
    pub aborted: u64,
    /// When both sides were compared.
    pub occasion: Occasion,
}

impl TopicVerdict {
    /// What is not as it must be. The producers' own count guards against a reader that leaves records out on both sides.
    fn problems(&self) -> impl Iterator<Item = String> + '_ {
        let read = self.comparison.records;
        let lost = self.written.filter(|&written| self.rule == Rule::Exact && read < written);
        let lost = lost.filter(|_| self.comparison.is_equal()).map(|written| {
            format!("{}: its producers had {written} records acknowledged, {read} can be read", self.topic)
        });
        self.comparison.differences.iter().cloned().chain(lost)
    }

    fn line(&self) -> String {
        let Comparison { records, superseded, .. } = self.comparison;
        let equal = if self.problems().next().is_none() { "equal" } else { "NOT EQUAL" };
        let mut line =
            format!("  {:TOPIC_WIDTH$} {:>12} records  {equal}", self.topic, units::count(records));
        if let (Rule::Compacted, Some(written)) = (self.rule, self.written) {
            line.push_str(&format!(
                "; A compacted {} others away, {} of them after they were copied",
                units::count(written.saturating_sub(records)),
                units::count(superseded)
            ));
        }
        line
    }
}

impl Verdict {
    /// Whether both sides are equal.
    pub fn is_equal(&self) -> bool {
        self.problems().is_empty()
    }

    /// All that is not as it must be.
    pub fn problems(&self) -> Vec<String> {
        let topics = self.topics.iter().flat_map(TopicVerdict::problems);
        self.behind.iter().cloned().chain(topics).collect()
    }

    /// The words for people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec!["Both sides, read over the wire by read_committed consumers:".to_owned()];
        lines.extend(self.topics.iter().map(TopicVerdict::line));
        let records = units::count(self.topics.iter().map(|topic| topic.comparison.records).sum());
        let problems = self.problems();
        if problems.is_empty() {
            let whose = if self.occasion == Occasion::StayEnded { " of the demo" } else { "" };
            lines.push(format!(
                "EQUAL: {records} records have the same key, value, headers, timestamp, partition and order on A and \
                 B; {} aborted ones{whose} are on neither.",
                units::count(self.aborted)
            ));
            return lines;
        }
        lines.push(format!("NOT EQUAL: {} problems.", problems.len()));
        lines.extend(problems.iter().take(DIFFERENCES_SHOWN_MAX).map(|problem| format!("  {problem}")));
        if problems.len() > DIFFERENCES_SHOWN_MAX {
            lines.push(format!("  … and {} more", problems.len() - DIFFERENCES_SHOWN_MAX));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(written: u64, rule: Rule, records: u64, differences: &[&str]) -> TopicVerdict {
        let differences = differences.iter().map(|&text| text.to_owned()).collect();
        let comparison = Comparison { records, superseded: 0, differences };
        TopicVerdict { topic: "t".into(), written: Some(written), rule, comparison }
    }

    #[test]
    fn sides_are_equal_when_nothing_differs_is_behind_or_unread() {
        let cases = [
            (topic(5, Rule::Exact, 5, &[]), true),
            (topic(5, Rule::Exact, 6, &[]), true),
            (topic(5, Rule::Exact, 4, &[]), false),
            (topic(5, Rule::Compacted, 4, &[]), true),
            (topic(5, Rule::Exact, 5, &["t-0: differs"]), false),
        ];
        for (topic, equal) in cases {
            let mut verdict = Verdict { topics: vec![topic], ..Verdict::default() };
            assert_eq!(verdict.is_equal(), equal, "{verdict:?}");
            assert_eq!(verdict.lines().last().unwrap().starts_with("EQUAL"), equal);
            verdict.behind.push("t-0".to_owned());
            assert!(!verdict.is_equal());
        }
    }

    #[test]
    fn after_a_stay_nothing_is_counted_that_others_may_have_changed() {
        for (occasion, counts) in [(Occasion::TrafficEnded, true), (Occasion::StayEnded, false)] {
            let mut compacted = topic(900, Rule::Compacted, 400, &[]);
            compacted.written = occasion.written(900);
            let mut deleted = topic(900, Rule::Exact, 400, &[]);
            deleted.written = occasion.written(900);
            let verdict = Verdict { topics: vec![compacted], aborted: 7, occasion, ..Verdict::default() };
            assert_eq!(verdict.lines()[1].contains("A compacted 500 others away"), counts);
            assert_eq!(verdict.lines()[2].contains("7 aborted ones of the demo are on neither"), !counts);
            let verdict = Verdict { topics: vec![deleted], ..verdict };
            assert_eq!(verdict.is_equal(), !counts, "records may be deleted in a stay, not by the demo");
            let words = occasion.words(900, 7, 0, Duration::from_millis(12));
            assert_eq!(words.contains("everything was copied 12 ms after the last"), counts, "{words}");
            assert_eq!(words.contains("with what was written in the meantime"), !counts, "{words}");
            assert!(!occasion.words(900, 7, 1, Duration::ZERO).contains("verything was copied"));
        }
    }

    #[test]
    fn the_words_name_what_differs_but_not_without_end() {
        let differences = ["d"; 20];
        let lines =
            Verdict { topics: vec![topic(1, Rule::Exact, 1, &differences)], ..Verdict::default() }.lines();
        assert_eq!(lines[1], "  t                           1 records  NOT EQUAL");
        assert_eq!(lines[2], "NOT EQUAL: 20 problems.");
        assert_eq!((lines.len(), lines[13].as_str()), (14, "  … and 10 more"));
    }
}
