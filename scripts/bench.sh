#!/usr/bin/env bash
# bench.sh [relay|micro|push|kv|routing]   Runs the benches of bench/ in release builds: all of them, or one group: the relay against other
# proxies, the model alone, fleet views pushed to many routers, the KV index against the fastest one of Dynamo (fails below its gates),
# the choices beside Dynamo's own KV router in front of real workers (fails where they are worse; not among all of them: minutes).
# Further arguments go to bench/relay/run.py or bench/routing/run.py.
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
  # One thread, from bytes of the network to the index.
  cargo run --release --target-dir "$CONTINUUM_CACHE/bench/ingest" -p continuum-events --example ingest || failed=1
  return $failed
}

routing() {
  cargo build --release -p continuum-router
  E2E_ROUTER=$(target_dir)/release/continuum-router
  E2E_DYNAMO_HOME=$CONTINUUM_CACHE/dynamo
  export E2E_ROUTER E2E_DYNAMO_HOME
  local version=1.6.1 prefix=() previous=''
  for argument in "$@"; do
    [ "$previous" != --version ] || version=$argument
    previous=$argument
  done
  "$here/install-test-deps.sh" --e2e
  "$here/install-dynamo.sh" "$version"
  "$E2E_DYNAMO_HOME/uv/bin/uv" pip install -q --python "$E2E_DYNAMO_HOME/client/bin/python" -r bench/routing/requirements.txt
  ! needs_isolation "$version" || read -r -a prefix <<<"$(isolate)"
  "${prefix[@]}" "$E2E_DYNAMO_HOME/client/bin/python" bench/routing/run.py "$@"
}

case $group in
all) micro && push && kv && relay "$@" ;;
relay) relay "$@" ;;
micro) micro ;;
push) push ;;
kv) kv "$@" ;;
routing) routing "$@" ;;
*) die "unknown group $group: relay, micro, push, kv, routing, or nothing for all" ;;
esac
