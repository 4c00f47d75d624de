//! The command line of `kafka-mirror-maker.sh`: `kmirror mirror-maker`, and the binary called by that name.
//!
//! Flags are those of `kafka.tools.MirrorMaker`, of 3.9 and of the releases before it that runbooks still have, with their
//! meaning or a refusal that says what to do instead. `-daemon` is the script's.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser};

use super::arguments::{LogFormat, Logging, Run};
use super::as_mirror_maker::{detach, file_name_is, without_daemon};
use super::exit::{self, Exit};
use super::{logging, output, plan, render, run};
use crate::config::{MirrorMaker1, OnSendFailure, Outside, load_mirror_maker_1};

const NAMES: [&str; 2] = ["kafka-mirror-maker", "kafka-mirror-maker.sh"];

/// How `--help` ends.
pub(crate) const HELP: &str = "\
The process is a member of the source's consumer group (group.id of --consumer.config): several of them share the
partitions, also with MirrorMaker 1 and other consumers, and the group's committed offsets are the positions.
Topics that are missing on the target are created with the source's partitions and settings.

Examples:
  kmirror mirror-maker --consumer.config consumer.properties --producer.config producer.properties --include 'orders|payments.*'
  kmirror mirror-maker --consumer.config c.properties --producer.config p.properties --blacklist 'internal-.*'
  kmirror mirror-maker --consumer.config c.properties --producer.config p.properties --whitelist orders --rewrite.topics orders:orders-copy

Keys of kmirror may stand in the consumer's file, such as kmirror.admin.listen, kmirror.memory.budget and kmirror.batching.";

/// Copies topics as MirrorMaker 1 does: flags and files of kafka-mirror-maker.sh.
#[derive(Clone, Debug, Args)]
pub(crate) struct MirrorMaker {
    /// The consumer's file: brokers of the source, and group.id. Several for several sources.
    #[arg(long = "consumer.config", required = true, value_name = "FILE")]
    consumer_config: Vec<PathBuf>,
    /// The producer's file: brokers of the target.
    #[arg(long = "producer.config", required = true, value_name = "FILE")]
    producer_config: PathBuf,
    /// A Java regular expression for the topics to copy; commas separate several.
    #[arg(long, value_name = "REGEX")]
    include: Option<String>,
    /// The same under its old name; --include counts if both are given.
    #[arg(long, value_name = "REGEX")]
    whitelist: Option<String>,
    /// Copy all topics but those that match.
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["include", "whitelist"])]
    blacklist: Option<String>,
    /// What topics are called on the target: FROM:TO between commas; FROM is a name or a regular expression.
    #[arg(long = "rewrite.topics", value_name = "FROM:TO,…")]
    rewrite_topics: Vec<String>,
    /// How often offsets are committed, in milliseconds. MirrorMaker's default is 60000, kmirror's 5000.
    #[arg(long = "offset.commit.interval.ms", value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    offset_commit_interval_ms: Option<u64>,
    /// true: a partition stops at a record that the target refuses for good. false: such records are left out and counted.
    #[arg(
        long = "abort.on.send.failure",
        value_name = "BOOLEAN",
        default_value = "true",
        value_parser = BoolishValueParser::new(),
        num_args = 1
    )]
    abort_on_send_failure: bool,
    /// Print what would be created and changed on the target now, and change nothing: exit 0 when nothing would be, 2 when
    /// something would, 1 when it cannot be told.
    #[arg(long)]
    plan: bool,
    /// No effect: all partitions are copied at the same time.
    #[arg(long = "num.streams", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    num_streams: Option<u32>,
    /// Of older releases, no effect.
    #[arg(long = "num.producers", value_name = "N", hide = true)]
    num_producers: Option<u32>,
    /// Of older releases, no effect: kmirror.memory.budget bounds what is on its way.
    #[arg(long = "queue.size", value_name = "N", hide = true)]
    queue_size: Option<u64>,
    /// Of older releases, no effect.
    #[arg(long = "new.consumer", hide = true)]
    new_consumer: bool,
    /// Of older releases, no effect.
    #[arg(long = "new.producer", hide = true)]
    new_producer: bool,
    /// A Java class, which cannot run here.
    #[arg(long = "message.handler", value_name = "CLASS", hide = true)]
    message_handler: Option<String>,
    /// For --message.handler.
    #[arg(long = "message.handler.args", value_name = "ARGS", hide = true)]
    message_handler_args: Option<String>,
    /// A Java class, which cannot run here.
    #[arg(long = "consumer.rebalance.listener", value_name = "CLASS", hide = true)]
    consumer_rebalance_listener: Option<String>,
    /// For --consumer.rebalance.listener.
    #[arg(long = "rebalance.listener.args", value_name = "ARGS", hide = true)]
    rebalance_listener_args: Option<String>,
}

#[derive(Debug, Parser)]
#[command(name = "kafka-mirror-maker", version, after_help = HELP, after_long_help = long_help())]
struct Script {
    #[command(flatten)]
    arguments: MirrorMaker,
}

pub(crate) fn long_help() -> String {
    format!("{HELP}\n\n{}", exit::HELP)
}

/// Whether the process was called by MirrorMaker 1's name.
pub(crate) fn is_meant(program: &OsStr) -> bool {
    file_name_is(program, &NAMES)
}

/// Runs the script's command line.
pub(crate) fn script(arguments: &[OsString]) -> ExitCode {
    let (is_daemon, plain) = without_daemon(arguments);
    let parsed = match Script::try_parse_from(&plain) {
        Ok(parsed) => parsed,
        Err(error) => return output::print_clap(&error).into(),
    };
    let logging = Logging { quiet: false, verbose: 0, log_format: LogFormat::Text };
    logging::start(&logging);
    if is_daemon {
        return match detach(&plain) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => run::failed(&format!("cannot go on in the background: {error}")).into(),
        };
    }
    main(&parsed.arguments, &logging)
}

/// Copies until a signal.
pub(crate) fn main(arguments: &MirrorMaker, logging: &Logging) -> ExitCode {
    if let Some(refusal) = arguments.refusal() {
        tracing::error!("{refusal}");
        return Exit::Usage.into();
    }
    arguments.without_effect().into_iter().for_each(|remark| tracing::info!("{remark}"));
    let report = load_mirror_maker_1(&arguments.command(), Outside::real());
    let Some(settings) = report.settings.clone() else {
        render::say_why_not(&report);
        return if arguments.plan { ExitCode::FAILURE } else { Exit::Usage.into() };
    };
    if arguments.plan {
        return plan::show(settings, plan::Form::Text, plan::GIVE_UP_AFTER);
    }
    let run = Run {
        file: arguments.producer_config.clone(),
        clusters: Vec::new(),
        until_caught_up: false,
        give_up_after: Duration::ZERO,
        takeover_timeout: Duration::ZERO,
    };
    run::start(&report, settings, &run, logging).into()
}

impl MirrorMaker {
    fn command(&self) -> MirrorMaker1 {
        let include = self.include.clone().map(|regex| ("--include", regex));
        MirrorMaker1 {
            consumer_configs: self.consumer_config.clone(),
            producer_config: self.producer_config.clone(),
            include: include.or_else(|| self.whitelist.clone().map(|regex| ("--whitelist", regex))),
            exclude: self.blacklist.clone(),
            offset_commit_interval: self.offset_commit_interval_ms.map(Duration::from_millis),
            on_send_failure: match self.abort_on_send_failure {
                true => OnSendFailure::Stop,
                false => OnSendFailure::Skip,
            },
            rewrite_topics: self.rewrite_topics.clone(),
        }
    }

    /// What cannot be had here, and what to do instead.
    fn refusal(&self) -> Option<String> {
        if let Some(class) = &self.message_handler {
            return Some(format!(
                "--message.handler {class}: Java classes cannot run here. If it renames topics, write --rewrite.topics FROM:TO; if it \
                 chooses topics, --include; if it changes records, keep MirrorMaker 1 for these topics"
            ));
        }
        if let Some(class) = &self.consumer_rebalance_listener {
            return Some(format!(
                "--consumer.rebalance.listener {class}: Java classes cannot run here. Leave it out: offsets are committed before \
                 partitions go to another member, and missing topics are created by kmirror itself"
            ));
        }
        None
    }

    fn without_effect(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut note = |is_there: bool, flag: &str, why: &str| {
            if is_there {
                remarks.push(format!("{flag} has no effect: {why}"));
            }
        };
        let streams = "all partitions are copied at the same time; for more than one processor, start more processes with this group";
        note(self.num_streams.is_some_and(|streams| streams > 1), "--num.streams", streams);
        note(
            self.num_producers.is_some(),
            "--num.producers",
            "each broker of the target has a connection of its own",
        );
        note(self.queue_size.is_some(), "--queue.size", "kmirror.memory.budget bounds what is on its way");
        note(self.whitelist.is_some() && self.include.is_some(), "--whitelist", "--include is given");
        note(self.message_handler_args.is_some(), "--message.handler.args", "there is no handler");
        note(self.rebalance_listener_args.is_some(), "--rebalance.listener.args", "there is no listener");
        remarks
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(more: &[&str]) -> Result<MirrorMaker, clap::Error> {
        let line = [&["x", "--consumer.config", "c", "--producer.config", "p"], more].concat();
        Script::try_parse_from(line).map(|script| script.arguments)
    }

    #[test]
    fn the_name_decides() {
        Script::command().debug_assert();
        for (name, meant) in [
            ("kafka-mirror-maker", true),
            ("/opt/kafka/bin/kafka-mirror-maker.sh", true),
            ("connect-mirror-maker.sh", false),
            ("kmirror", false),
        ] {
            assert_eq!(is_meant(OsStr::new(name)), meant, "{name}");
        }
    }

    #[test]
    fn flags_are_those_of_the_script() {
        let all = parse(&[
            "--consumer.config",
            "d",
            "--whitelist",
            "a|b",
            "--num.streams=3",
            "--offset.commit.interval.ms",
            "1000",
            "--abort.on.send.failure",
            "false",
            "--rewrite.topics",
            "a:b",
            "--new.consumer",
        ]);
        let command = all.unwrap().command();
        assert_eq!(command.consumer_configs, [PathBuf::from("c"), PathBuf::from("d")]);
        assert_eq!(command.include, Some(("--whitelist", "a|b".to_owned())));
        assert_eq!(command.offset_commit_interval, Some(Duration::from_secs(1)));
        assert_eq!(command.on_send_failure, OnSendFailure::Skip);
        assert_eq!(command.rewrite_topics, ["a:b"]);
        let both = parse(&["--include", "new", "--whitelist", "old"]).unwrap();
        assert_eq!(both.command().include, Some(("--include", "new".to_owned())));
        assert_eq!(both.without_effect().len(), 1);
        for wrong in [
            &["--blacklist", "a", "--whitelist", "b"][..],
            &["--blacklist", "a", "--include", "b"],
            &["--num.streams", "0"],
            &["--abort.on.send.failure"],
            &["--offset.commit.interval.ms", "0"],
            &["positional"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Script::try_parse_from(["x", "--consumer.config", "c", "--include", "a"]).is_err());
    }

    #[test]
    fn java_classes_are_refused_with_what_to_do_instead() {
        let handler = parse(&["--include", "a", "--message.handler", "com.example.Rename"]).unwrap();
        assert!(handler.refusal().unwrap().contains("--rewrite.topics"));
        let listener = parse(&["--include", "a", "--consumer.rebalance.listener", "com.example.L"]).unwrap();
        assert!(listener.refusal().unwrap().contains("com.example.L"));
        assert_eq!(parse(&["--include", "a"]).unwrap().refusal(), None);
    }
}
