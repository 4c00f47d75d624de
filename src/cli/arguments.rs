//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum};

use super::{acls, demo_command, exit, mirror_maker_1, plan, positions};
use crate::mirror::state::TopicPartition;

const EXAMPLES: &str = "\
Examples:
  kmirror demo                                       see it work: two embedded clusters and a mirror between them
  kmirror check mm2.properties                       everything that is wrong with a file, and what it resolves to
  kmirror plan mm2.properties                        what would be created and changed on the targets
  kmirror acls mm2.properties                        the least rights that it needs, as lines of kafka-acls
  kmirror positions mm2.properties                   how far each partition is, and moving what stands still
  kmirror run mm2.properties                         replicate until SIGTERM or SIGINT
  kmirror run mm2.properties --until-caught-up       a full load: exits when everything is there
  kmirror run mm2.properties --clusters B            only the flows into B, as with MirrorMaker";

/// Copies Kafka topics from one cluster to another, batch by batch and byte by byte. Takes MirrorMaker 2's files.
#[derive(Debug, Parser)]
#[command(name = "kmirror", version, after_help = EXAMPLES, after_long_help = concat_help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

fn concat_help() -> String {
    format!("{EXAMPLES}\n\n{}", exit::HELP)
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replicate as a MirrorMaker 2 file says, until SIGTERM or SIGINT.
    #[command(after_help = exit::HELP)]
    Run(Run),
    /// Replicate as MirrorMaker 1's command line and files say, until SIGTERM or SIGINT.
    #[command(after_help = mirror_maker_1::HELP, after_long_help = mirror_maker_1::long_help())]
    MirrorMaker(mirror_maker_1::MirrorMaker),
    /// Report every problem of a file at once, and print what it resolves to.
    #[command(after_help = exit::HELP)]
    Check(Check),
    /// Print what each flow would do to its target now, and change nothing.
    #[command(after_help = plan::EXIT_CODES)]
    Plan(Plan),
    /// Print the least rights that the flows of a file need, as lines of kafka-acls for each cluster. Asks no cluster.
    #[command(after_help = acls::HELP)]
    Acls(Acls),
    /// Show how far the flows of a file are, and move those that stand still.
    #[command(after_help = positions::HELP)]
    Positions(Positions),
    /// Start two embedded clusters with traffic, mirror one to the other and compare both.
    #[command(after_help = exit::HELP)]
    Demo(demo_command::Demo),
}

/// Logs go to stderr.
#[derive(Clone, Debug, Args)]
pub(crate) struct Logging {
    /// Log and show only what goes wrong, and how it ended.
    #[arg(long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Log more; twice for everything.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `kmirror run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Run {
    /// A MirrorMaker 2 file; - for standard input.
    pub(crate) file: PathBuf,
    /// Only flows into these clusters, as MirrorMaker's option of the same name.
    #[arg(long, num_args = 1.., value_name = "ALIAS")]
    pub(crate) clusters: Vec<String>,
    /// Copy what is there at the start, then exit: 0 when all of it is on the target, else 1 with a list.
    #[arg(long)]
    pub(crate) until_caught_up: bool,
    /// With --until-caught-up: how long to wait, while nothing moves, for partitions and topics that are stopped, for
    /// clusters that have not answered yet, and for another kmirror that writes the same flow.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "TIME", requires = "until_caught_up")]
    pub(crate) give_up_after: Duration,
    /// How long to wait for a MirrorMaker that still runs the same flow, before giving up.
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub(crate) takeover_timeout: Duration,
}

/// `kmirror check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Check {
    /// Take warnings for errors, and say what MirrorMaker itself would do.
    #[arg(long)]
    pub(crate) strict: bool,
    /// A MirrorMaker 2 file; - for standard input.
    pub(crate) file: PathBuf,
    /// Only flows into these clusters.
    #[arg(long, num_args = 1.., value_name = "ALIAS")]
    pub(crate) clusters: Vec<String>,
}

/// `kmirror plan`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// A MirrorMaker 2 file; - for standard input.
    pub(crate) file: PathBuf,
    /// Only flows into these clusters.
    #[arg(long, num_args = 1.., value_name = "ALIAS")]
    pub(crate) clusters: Vec<String>,
    /// For programs: one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for a cluster that does not answer.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "TIME")]
    pub(crate) give_up_after: Duration,
}

/// `kmirror acls`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Acls {
    /// A MirrorMaker 2 file; - for standard input.
    pub(crate) file: PathBuf,
    /// Only flows into these clusters.
    #[arg(long, num_args = 1.., value_name = "ALIAS")]
    pub(crate) clusters: Vec<String>,
    /// Who gets the rights, as User:kmirror; otherwise whom the file's credentials name.
    #[arg(long, value_name = "PRINCIPAL")]
    pub(crate) principal: Option<String>,
    /// Put --command-config FILE into each line: whoever gives rights has to be known to the cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) command_config: Option<String>,
}

/// `kmirror positions`.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("change").args(["set", "to_earliest", "to_latest", "to_timestamp"])))]
pub(crate) struct Positions {
    /// A MirrorMaker 2 file.
    pub(crate) file: PathBuf,
    /// Only flows into these clusters.
    #[arg(long, num_args = 1.., value_name = "ALIAS")]
    pub(crate) clusters: Vec<String>,
    /// Only this flow, as A->B.
    #[arg(long, value_name = "SOURCE->TARGET")]
    pub(crate) flow: Option<String>,
    /// Only topics of the source whose whole name matches this Java regular expression; one that matches none is an error.
    #[arg(long, value_name = "REGEX", conflicts_with = "set")]
    pub(crate) topics: Option<String>,
    /// Copy a partition from this source offset on; can be given several times. Of a topic that the flow copies, and
    /// within what the partition holds.
    #[arg(long, value_parser = partition_offset, value_name = "TOPIC:PARTITION=OFFSET")]
    pub(crate) set: Vec<(TopicPartition, i64)>,
    /// Copy everything again that the source still has.
    #[arg(long)]
    pub(crate) to_earliest: bool,
    /// Leave out everything that is not copied yet.
    #[arg(long)]
    pub(crate) to_latest: bool,
    /// Copy from the first record on that is as new as this time, in milliseconds since the epoch.
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..), value_name = "MILLISECONDS")]
    pub(crate) to_timestamp: Option<i64>,
    /// Do it. Without this nothing is changed.
    #[arg(long, requires = "change")]
    pub(crate) execute: bool,
    /// For programs: one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for a cluster that does not answer.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "TIME")]
    pub(crate) give_up_after: Duration,
}

/// `TOPIC:PARTITION=OFFSET`.
fn partition_offset(text: &str) -> Result<(TopicPartition, i64), String> {
    let parsed = || {
        let (partition, offset) = text.rsplit_once('=')?;
        let (topic, partition) = partition.rsplit_once(':')?;
        let (partition, offset): (i32, i64) = (partition.parse().ok()?, offset.parse().ok()?);
        let is_valid = !topic.is_empty() && partition >= 0 && offset >= 0;
        is_valid.then(|| (TopicPartition::new(topic, partition), offset))
    };
    parsed().ok_or_else(|| format!("{text:?} is not TOPIC:PARTITION=OFFSET, as orders:0=1234"))
}

/// A time with a unit: `500ms`, `10s`, `2m`, `1h`; seconds without one.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| format!("{text:?} is no time, as 10s or 2m"))?;
    let millis = match &text[digits..] {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" | "min" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err(format!("{text:?} is no time, as 10s or 2m")),
    };
    millis.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn arguments_are_read_as_mirrormaker_reads_them() {
        let arguments = Arguments::try_parse_from([
            "kmirror",
            "run",
            "f",
            "--clusters",
            "A",
            "B",
            "--until-caught-up",
            "-vv",
        ]);
        let arguments = arguments.unwrap();
        assert_eq!(arguments.logging.verbose, 2);
        let Command::Run(run) = arguments.command else { panic!("not run") };
        assert_eq!(run.clusters, ["A", "B"]);
        assert!(run.until_caught_up);
        assert_eq!(run.takeover_timeout, Duration::from_secs(60));
        for wrong in [
            &["kmirror", "run"][..],
            &["kmirror", "run", "f", "--clusters"],
            &["kmirror", "run", "f", "--quiet", "-v"],
            &["kmirror", "run", "f", "--log-format", "xml"],
            &["kmirror", "run", "f", "--takeover-timeout", "soon"],
            &["kmirror"],
        ] {
            assert!(Arguments::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn positions_are_moved_one_way_at_a_time() {
        let parse = |more: &[&str]| {
            Arguments::try_parse_from([&["kmirror", "positions", "f"], more].concat()).map(|arguments| {
                let Command::Positions(positions) = arguments.command else { panic!("not positions") };
                positions
            })
        };
        let set = parse(&["--set", "a:b:0=7", "--set", "t:3=0", "--execute"]).unwrap().set;
        assert_eq!(set, [(TopicPartition::new("a:b", 0), 7), (TopicPartition::new("t", 3), 0)]);
        for wrong in [
            &["--set", "t:0"][..],
            &["--set", "t:0=-1"],
            &["--set", ":0=1"],
            &["--set", "t=1"],
            &["--set", "t:0=1", "--to-latest"],
            &["--to-earliest", "--to-latest"],
            &["--to-timestamp", "-5"],
            &["--execute"],
            &["--set", "t:0=1", "--topics", "t"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("10", 10_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        }
        for wrong in ["", "s", "1d", "-1s", "1.5s", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_names_the_exit_codes_and_examples() {
        let help = Arguments::command().render_long_help().to_string();
        for part in ["kmirror run mm2.properties --until-caught-up", "Exit codes:", "129, 130, 143"] {
            assert!(help.contains(part), "{help}");
        }
    }
}
