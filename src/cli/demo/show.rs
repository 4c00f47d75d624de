//! What the demo shows: a table that is drawn over itself on a terminal, plain lines elsewhere.

use std::io::Write;
use std::time::Duration;

use super::Error;
use super::stage::{BROKERS, Stage};
use crate::mirror::status::{ReplicatorStatus, RewriteReason};
use crate::observe::{Meter, Screen, Table, units};

/// Of what is not a terminal.
const WIDTH: usize = 96;
/// Topics in the table.
const ROWS_MAX: usize = 20;
/// Between two tables.
const TABLE_INTERVAL: Duration = Duration::from_millis(250);
/// Between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Where the output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// Nothing but the verdict, and where the clusters are that stay.
    Verdict,
    /// Plain lines.
    Lines,
    /// A terminal so many columns wide.
    Terminal {
        /// Its width.
        columns: usize,
    },
}

impl Display {
    /// What standard output is.
    pub fn of_stdout() -> Display {
        use std::io::IsTerminal;
        if !std::io::stdout().is_terminal() {
            return Display::Lines;
        }
        let columns = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0));
        Display::Terminal { columns }
    }
}

/// Writes everything that the demo says.
pub(super) struct Show<'a> {
    out: &'a mut (dyn Write + Send),
    display: Display,
    screen: Screen,
    table: Table,
    /// Rates over the whole run.
    whole: Table,
    meter: Meter,
}

impl Show<'_> {
    pub(super) fn new(out: &mut (dyn Write + Send), display: Display) -> Show<'_> {
        let width = match display {
            Display::Verdict | Display::Lines => WIDTH,
            Display::Terminal { columns } => columns,
        };
        Show {
            out,
            display,
            screen: Screen::default(),
            table: Table::new(width),
            whole: Table::new(width),
            meter: Meter::default(),
        }
    }

    pub(super) fn display(&self) -> Display {
        self.display
    }

    /// How long a picture stays.
    pub(super) fn interval(&self) -> Duration {
        match self.display {
            Display::Verdict | Display::Lines => LINE_INTERVAL,
            Display::Terminal { .. } => TABLE_INTERVAL,
        }
    }

    /// From here on there is traffic.
    pub(super) fn begin(&mut self, status: &ReplicatorStatus) {
        self.whole.render(status, 0);
    }

    pub(super) fn opening(&mut self, stage: &Stage) -> Result<(), Error> {
        self.say(&format!(
            "Two embedded clusters of {BROKERS} brokers each, in this process, on loopback TCP:\n  \
             A  {}\n  B  {}\nThe mirror A->B runs by this file, as `kmirror run FILE` would:\n",
            stage.source.bootstrap(),
            stage.target.bootstrap()
        ))?;
        for line in stage.file.lines() {
            self.say(&format!("    {line}"))?;
        }
        self.say("")
    }

    /// A line that stays, on the way to the verdict.
    pub(super) fn say(&mut self, line: &str) -> Result<(), Error> {
        if self.display == Display::Verdict { Ok(()) } else { self.tell(line) }
    }

    /// A line that stays, also where only the verdict is wanted.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Error> {
        self.screen.clear(&mut self.out)?;
        writeln!(self.out, "{line}")?;
        self.out.flush()?;
        Ok(())
    }

    /// The state of the moment, in place of the one before; `head` says what goes on.
    pub(super) fn state(&mut self, status: &ReplicatorStatus, head: &str) -> Result<(), Error> {
        let progress = self.meter.note(status).line();
        let Display::Terminal { columns } = self.display else {
            return self.say(&format!("{head}: {progress}"));
        };
        let mut lines = self.table.render(status, ROWS_MAX);
        lines.push(format!("{head}: {progress}"));
        let fitting: Vec<String> = lines.iter().map(|line| line.chars().take(columns).collect()).collect();
        self.screen.draw(&mut self.out, &fitting)?;
        Ok(())
    }

    /// The last state, which stays: the table, with rates over all the time since the last one, and how batches went.
    pub(super) fn last_state(&mut self, status: &ReplicatorStatus) -> Result<(), Error> {
        for line in self.whole.render(status, ROWS_MAX) {
            self.say(&line)?;
        }
        self.say(&batches(status))
    }
}

/// How the source's batches went over.
fn batches(status: &ReplicatorStatus) -> String {
    let (mut verbatim, mut merged, mut skipped) = (0, 0, 0);
    let mut rewritten = [0; RewriteReason::ALL.len()];
    for partition in status.flows.iter().flat_map(|flow| flow.partitions.values()) {
        verbatim += partition.counters.batches_verbatim;
        merged += partition.counters.batches_merged;
        skipped += partition.counters.batches_skipped;
        for (sum, count) in rewritten.iter_mut().zip(partition.counters.batches_rewritten) {
            *sum += count;
        }
    }
    let reasons = RewriteReason::ALL.iter().zip(rewritten).filter(|(_, count)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{} {}", units::count(count), reason.name())).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    format!(
        "batches of A: {} verbatim, {} merged with neighbours, {} rewritten{reasons}; {} aborted ones and markers left out",
        units::count(verbatim),
        units::count(merged),
        units::count(rewritten.iter().sum()),
        units::count(skipped)
    )
}
