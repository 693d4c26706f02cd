#!/usr/bin/env bash
# bench.sh [relay|micro]   Runs the benches of bench/: all of them, or one group.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"
exec bench/run.sh "$@"
