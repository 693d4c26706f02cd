#!/usr/bin/env bash
# bench.sh [relay|micro|push|kv]   Runs the benches of bench/ in release builds: all of them, or one group: the relay against other
# proxies, the model alone, fleet views pushed to many routers, the KV index against the fastest one of Dynamo (fails below its gates).
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
  CONTINUUM_BIN=$(target_dir)/release
  export CONTINUUM_BIN
  for peer in nginx haproxy; do
    command -v "$peer" >/dev/null || apt_install "$peer"
  done
  BENCH_HOME=$CONTINUUM_CACHE/bench
  BENCH_BIN=$BENCH_HOME/target/release
  export BENCH_HOME BENCH_BIN
  (cd bench/relay && cargo build --release --target-dir "$BENCH_HOME/target" && ./peers/install.sh && ./run.py "$@")
}

micro() {
  for bench in kubernetes reducer routing wire; do
    (cd bench/micro && cargo run --release --target-dir "$CONTINUUM_CACHE/bench/micro" --bin "$bench")
  done
}

push() {
  (cd bench/push && cargo run --release --target-dir "$CONTINUUM_CACHE/bench/push")
}

kv() {
  local target=$CONTINUUM_CACHE/bench/kv failed=0
  (cd bench/kv && cargo build --release --target-dir "$target")
  "$target/release/memory" || failed=1
  "$target/release/bench-kv" "$@" || failed=1
  return $failed
}

case $group in
all) micro && push && kv && relay "$@" ;;
relay) relay "$@" ;;
micro) micro ;;
push) push ;;
kv) kv "$@" ;;
*) die "unknown group $group: relay, micro, push, kv, or nothing for all" ;;
esac
