#!/usr/bin/env bash
# Formatting and lints, with the features that a build may have: all, none, and each step between. Any warning is an error.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"

cargo fmt --all -- --check
cargo clippy --quiet --workspace --all-targets -- -D warnings
cargo clippy --quiet -p continuum-router --all-targets --no-default-features -- -D warnings
for script in scripts/*.sh scripts/kube/*.sh .ci/run; do bash -n "$script"; done
