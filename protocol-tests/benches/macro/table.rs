//! Medians and ratios as text.

use crate::measure::{Copier, Copy};
use protocol_tests::kafka::{Codec, Load};

/// Prints what the mirrors took for one load.
pub(crate) fn print_load(load: &Load<'_>, stored: u64, copies: &[(Copier, Vec<Copy>)], relays: &mut [f64]) {
    println!("\n{} ({:.0} MB stored, {} records)", load.name, stored as f64 / 1e6, load.records);
    println!(
        "  {:<22}{:>11}{:>9}{:>10}{:>16}{:>16}{:>12}{:>14}",
        "",
        "MB/CPU-s",
        "MB/s",
        "peak MB",
        "source CPU s/GB",
        "target CPU s/GB",
        "first rec s",
        "first rec CPU s"
    );
    let per_cpu = |copies: &[Copy]| median(copies, |copy| copy.megabytes / copy.cpu.as_secs_f64().max(0.01));
    let per_wall =
        |copies: &[Copy]| median(copies, |copy| copy.megabytes / copy.wall.as_secs_f64().max(0.001));
    for (mirror, copies) in copies {
        println!(
            "  {:<22}{:>11.0}{:>9.0}{:>10.1}{:>16.2}{:>16.2}{:>12.3}{:>14.2}",
            mirror.name(),
            per_cpu(copies),
            per_wall(copies),
            median(copies, |copy| copy.resident_bytes_max as f64 / 1e6),
            median(copies, |copy| copy.source_cpu.as_secs_f64() / copy.megabytes * 1000.0),
            median(copies, |copy| copy.target_cpu.as_secs_f64() / copy.megabytes * 1000.0),
            median(copies, |copy| copy.first_record.as_secs_f64()),
            median(copies, |copy| copy.first_record_cpu.as_secs_f64()),
        );
    }
    relays.sort_by(f64::total_cmp);
    let relay = relays[relays.len() / 2];
    println!("  {:<22}{relay:>11.0}", "plain relay");
    let Some((_, ours)) = copies.iter().find(|(mirror, _)| *mirror == Copier::Kmirror) else { return };
    let uncompressed = load.codec == Codec::None;
    for (mirror, theirs) in copies.iter().filter(|(mirror, _)| *mirror != Copier::Kmirror) {
        let defaults = *mirror == Copier::MirrorMaker;
        let per_cpu_bar = match (defaults, load.record_bytes) {
            (true, 100) => 40.0,
            (true, _) => 20.0,
            (false, _) => 15.0,
        };
        let first = |copies: &[Copy]| median(copies, |copy| copy.first_record.as_secs_f64());
        let target_cpu = |copies: &[Copy]| median(copies, |copy| copy.target_cpu.as_secs_f64());
        println!("  kmirror beside {}:", mirror.name());
        print_bar("MB per CPU-second, times", per_cpu(ours) / per_cpu(theirs), Some(per_cpu_bar));
        print_bar("MB/s, times", per_wall(ours) / per_wall(theirs), Some(if defaults { 4.0 } else { 3.0 }));
        print_bar("first record, times sooner", first(theirs) / first(ours), Some(50.0));
        print_bar(
            "target broker's MB per CPU-second, times",
            target_cpu(theirs) / target_cpu(ours),
            uncompressed.then_some(1.0),
        );
    }
    let relay_bar = if load.batch_bytes >= 256 << 10 { 0.65 } else { 0.55 };
    println!("  kmirror beside the plain relay:");
    print_bar("MB per CPU-second, times", per_cpu(ours) / relay, uncompressed.then_some(relay_bar));
    let peak = median(ours, |copy| copy.resident_bytes_max as f64 / 1e6);
    print_bar("24 MB / peak MB, times", 24.0 / peak, Some(1.0));
}

/// A ratio, and the one that is asked for.
fn print_bar(what: &str, ratio: f64, bar: Option<f64>) {
    let verdict = match bar {
        None => String::new(),
        Some(bar) if ratio >= bar => format!("  (asked for {bar}: met)"),
        Some(bar) => format!("  (asked for {bar}: MISSED)"),
    };
    println!("    {what:<42}{ratio:>8.2}{verdict}");
}

fn median(copies: &[Copy], of: impl Fn(&Copy) -> f64) -> f64 {
    let mut values: Vec<f64> = copies.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
