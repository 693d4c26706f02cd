#!/usr/bin/env bash
# Writes the files that are generated and committed: the configuration reference, its JSON Schema, and the pages of limits and metrics.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"

cargo run --quiet -p continuum-config --example reference
cargo run --quiet -p continuum-crds --example crdgen
cargo run --quiet -p continuum-tests --example limits
cargo run --quiet -p continuum-tests --example metrics
"$here/render-operator.sh"
