#!/usr/bin/env bash
# fuzz.sh [TARGET [SECONDS]]   Fuzzes one target, or each of them in turn, with cargo-fuzz on the nightly toolchain.
# `make test` replays the committed corpora without any of this.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

cargo fuzz --version >/dev/null 2>&1 || die "cargo-fuzz is missing: cargo install cargo-fuzz"
targets=("${1:-}")
[ -n "${targets[0]}" ] || mapfile -t targets < <(cargo +nightly fuzz list)
for target in "${targets[@]}"; do
  say "fuzzing $target"
  cargo +nightly fuzz run "$target" -- -max_total_time="${2:-60}"
done
