#!/usr/bin/env bash
# Builds all fuzz targets and runs each for so many seconds (60), with what fuzz/corpus holds to begin with.
#   fuzz/run.sh [SECONDS] [TARGET...]
# What a run finds stays in fuzz/artifacts; what it learns goes to target/, so that fuzz/corpus stays small.
# Needs a nightly compiler and cargo-fuzz (cargo install cargo-fuzz --locked).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked" >&2; exit 2; }
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
cargo +nightly fuzz build
for target in "${targets[@]}"; do
  learned=fuzz/target/corpus/$target
  mkdir -p "$learned"
  echo "== $target, $seconds s"
  cargo +nightly fuzz run "$target" "$learned" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=10 -print_final_stats=0 \
    -verbosity=0
done
echo "all ${#targets[@]} targets held"
