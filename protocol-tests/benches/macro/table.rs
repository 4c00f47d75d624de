//! Medians and ratios as text.

use crate::measure::{Copier, Copy};
use protocol_tests::kafka::Load;

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
    for (mirror, theirs) in copies.iter().filter(|(mirror, _)| *mirror != Copier::Kmirror) {
        println!(
            "  kmirror / {}: {:.1} × per CPU-second, {:.1} × in wall time, first record after 1/{:.0} of its time",
            mirror.name(),
            per_cpu(ours) / per_cpu(theirs),
            per_wall(ours) / per_wall(theirs),
            median(theirs, |copy| copy.first_record.as_secs_f64())
                / median(ours, |copy| copy.first_record.as_secs_f64()),
        );
    }
    println!("  kmirror / plain relay: {:.2} × per CPU-second", per_cpu(ours) / relay);
}

fn median(copies: &[Copy], of: impl Fn(&Copy) -> f64) -> f64 {
    let mut values: Vec<f64> = copies.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
