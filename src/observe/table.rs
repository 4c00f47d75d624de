//! A live table of topics for a terminal, and the drawing of it over itself.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::units;
use crate::mirror::status::{FlowStatus, ReplicatorStatus};

/// A flow and one of its topics.
type Key = (Arc<str>, Arc<str>, Arc<str>);

/// Columns: title and width, numbers to the right.
const COLUMNS: [(&str, usize); 7] = [
    ("records", 11),
    ("bytes", 9),
    ("records/s", 9),
    ("lag", 7),
    ("verbatim", 8),
    ("merged", 6),
    ("rewritten", 9),
];
/// What all of them take, with the blank before each.
const COLUMNS_WIDTH: usize = 66;
const TOPIC_WIDTH_MIN: usize = 14;
const TOPIC_WIDTH_MAX: usize = 40;

/// Makes the table, and remembers the last one for its rates.
#[derive(Debug)]
pub struct Table {
    topic_width: usize,
    before_ms: i64,
    before: BTreeMap<Key, u64>,
}

#[derive(Default)]
struct Row {
    records: u64,
    bytes: u64,
    lag: i64,
    verbatim: u64,
    merged: u64,
    rewritten: u64,
    stopped: usize,
}

impl Table {
    /// A table for a terminal so many characters wide; it is 80 at least.
    pub fn new(width: usize) -> Table {
        let topic_width = width.saturating_sub(COLUMNS_WIDTH).clamp(TOPIC_WIDTH_MIN, TOPIC_WIDTH_MAX);
        Table { topic_width, before_ms: 0, before: BTreeMap::new() }
    }

    /// The table of a state: a line for its head and one for each topic, at most `rows_max` of them.
    pub fn render(&mut self, status: &ReplicatorStatus, rows_max: usize) -> Vec<String> {
        let rows = rows(status);
        let seconds = (status.now_ms - self.before_ms).max(1) as f64 / 1_000.0;
        let mut lines = vec![head(self.topic_width)];
        for (key, row) in rows.iter().take(rows_max) {
            // Before the first table lies all time, which makes the first rates zero.
            let before = self.before.get(key).copied().unwrap_or(0);
            let rate = row.records.saturating_sub(before) as f64 / seconds;
            lines.push(line(self.topic_width, key, row, rate));
        }
        if rows.len() > rows_max {
            lines.push(format!("… and {} more", rows.len() - rows_max));
        }
        self.before_ms = status.now_ms;
        self.before = rows.into_iter().map(|(key, row)| (key, row.records)).collect();
        lines
    }
}

fn rows(status: &ReplicatorStatus) -> BTreeMap<Key, Row> {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for flow in &status.flows {
        add_rows(&mut rows, flow);
    }
    rows
}

fn add_rows(rows: &mut BTreeMap<Key, Row>, flow: &FlowStatus) {
    for ((topic, _), partition) in &flow.partitions {
        let row = rows.entry((flow.source.clone(), flow.target.clone(), topic.clone())).or_default();
        let counters = &partition.counters;
        row.records += counters.records;
        row.bytes += counters.bytes;
        row.lag += partition.lag().unwrap_or(0);
        row.verbatim += counters.batches_verbatim;
        row.merged += counters.batches_merged;
        row.rewritten += counters.batches_rewritten.iter().sum::<u64>();
        row.stopped += usize::from(partition.stopped.is_some());
    }
}

fn head(topic_width: usize) -> String {
    let mut head = format!("{:topic_width$}", "topic");
    COLUMNS.iter().for_each(|(title, width)| head.push_str(&format!(" {title:>width$}")));
    head
}

fn line(topic_width: usize, (source, target, topic): &Key, row: &Row, rate: f64) -> String {
    let name = shortened(&format!("{source}->{target} {topic}"), topic_width);
    let batches = row.verbatim + row.merged + row.rewritten;
    let share = |part: u64| {
        (part * 100 + batches / 2).checked_div(batches).map_or("-".to_owned(), |share| format!("{share} %"))
    };
    let cells = [
        units::count(row.records),
        units::bytes(row.bytes),
        units::count(units::per_second(rate)),
        units::count(row.lag.unsigned_abs()),
        share(row.verbatim),
        share(row.merged),
        share(row.rewritten),
    ];
    let mut line = format!("{name:topic_width$}");
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        line.push_str(&format!(" {cell:>width$}"));
    }
    if row.stopped > 0 {
        line.push_str(&format!("  {} stopped", row.stopped));
    }
    line
}

fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(std::iter::once('…')).collect()
}

/// Draws lines over those that it drew before.
#[derive(Debug, Default)]
pub struct Screen {
    drawn: usize,
}

impl Screen {
    /// Replaces what was drawn.
    pub fn draw(&mut self, out: &mut impl Write, lines: &[String]) -> io::Result<()> {
        self.clear(out)?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        self.drawn = lines.len();
        out.flush()
    }

    /// Removes what was drawn.
    pub fn clear(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.drawn > 0 {
            write!(out, "\x1b[{}F\x1b[J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn each_topic_has_a_line() {
        let mut status = example::status();
        let mut table = Table::new(80);
        table.render(&status, 10);
        status.now_ms += 1_000;
        let orders = status.flows[0].partitions.values_mut().next().unwrap();
        orders.counters.records += 1_500;
        let lines = table.render(&status, 10);
        assert_eq!(
            lines,
            [
                "topic              records     bytes records/s     lag verbatim merged rewritten",
                "A->B orders          1,570    7.0 kB     1,500      10     50 %   17 %      33 %",
                "A->B payments            0       0 B         0       0        -      -         -  1 stopped",
            ]
        );
        assert_eq!(table.render(&status, 1)[2], "… and 1 more");
        assert_eq!(shortened(&"x".repeat(40), 14).chars().count(), 14);
        assert_eq!(lines[0].len(), 80);
        assert_eq!(COLUMNS.iter().map(|(_, width)| width + 1).sum::<usize>(), COLUMNS_WIDTH);
    }

    #[test]
    fn a_screen_draws_over_itself() {
        let mut out = Vec::new();
        let mut screen = Screen::default();
        screen.draw(&mut out, &["a".to_owned(), "b".to_owned()]).unwrap();
        screen.draw(&mut out, &["c".to_owned()]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\nb\n\x1b[2F\x1b[Jc\n");
    }
}
