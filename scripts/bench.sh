#!/usr/bin/env bash
# bench.sh [relay|micro]   Runs the benches of bench/ in release builds: all of them, or the relay's comparison with other proxies alone.
# Further arguments go to bench/relay/run.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"

group=${1:-all}
[ $# = 0 ] || shift

relay() {
  cargo build --release -p continuum-router -p continuum-fleet-sim
  (cd bench/relay && cargo build --release && ./peers/install.sh && ./run.py "$@")
}

micro() {
  (cd bench/micro && cargo run --release --bin routing && cargo run --release --bin wire)
}

case $group in
all) micro && relay "$@" ;;
relay) relay "$@" ;;
micro) micro ;;
*) die "unknown group $group: relay, micro, or nothing for all" ;;
esac
