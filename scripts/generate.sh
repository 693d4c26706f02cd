#!/usr/bin/env bash
# Writes the files that are generated and committed: the configuration reference and its JSON Schema.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"

cargo run --quiet -p continuum-config --example reference
