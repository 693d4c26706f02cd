#!/usr/bin/env bash
# `make run`: builds the router and a simulated fleet (two prefill and two decode workers behind a direct-mode frontend, found through a
# file store), starts both, asks once and shows which workers answered. Both stay up until Ctrl-C.
# The ports are 8080 (router), 9090 (its admin interface) and 8001 (the frontend), or the next ones that are free.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-build-deps.sh"
command -v curl >/dev/null || "$here/install-test-deps.sh"

cargo build -p continuum-router -p continuum-fleet-sim
bin=$(target_dir)/debug
run=$(mktemp -d "${TMPDIR:-/tmp}/continuum-demo.XXXXXX")
pids=()

# The first port from $1 on that nobody listens on.
free_port() {
  local candidate=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null; do candidate=$((candidate + 1)); done
  echo "$candidate"
}
port=$(free_port "${DEMO_PORT:-8080}")
admin=$(free_port "${DEMO_ADMIN_PORT:-9090}")
frontend=$(free_port "${DEMO_FRONTEND_PORT:-8001}")

# Ends what this script started, the router first so that it can finish its streams.
finish() {
  trap '' INT TERM
  trap - EXIT
  local pid
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$run"
}
trap finish EXIT
trap 'echo; say "stopping"; exit 0' INT TERM

# Waits for a URL to answer with 200, as long as the process behind it lives.
await() {
  local name=$1 pid=$2 url=$3 tries
  for ((tries = 0; tries < 300; tries++)); do
    if curl -fs -o /dev/null "$url"; then return 0; fi
    if ! kill -0 "$pid" 2>/dev/null; then
      cat "$run/$name.log" >&2
      die "$name ended"
    fi
    sleep 0.1
  done
  tail -20 "$run/$name.log" >&2
  die "$name did not get ready"
}

say "starting the simulated fleet"
# In sessions of their own, so that Ctrl-C reaches this script alone and the router can end before its fleet does.
setsid "$bin/fleet-sim" --store "$run/store" --frontend "127.0.0.1:$frontend" >"$run/fleet.log" 2>&1 </dev/null &
fleet=$!
pids=("$fleet")
await fleet "$fleet" "http://127.0.0.1:$frontend/health"

cat >"$run/router.yaml" <<YAML
server:
  bind_address: 127.0.0.1:$port
admin:
  bind_address: 127.0.0.1:$admin
backends:
  - name: frontend
    url: http://127.0.0.1:$frontend
dynamo:
  enabled: true
  discovery:
    source: file
    file:
      path: $run/store
  load:
    direct_allow_cidrs: [127.0.0.1/32]
  shim:
    backends: [frontend]
YAML
say "starting the router"
setsid "$bin/continuum-router" --config "$run/router.yaml" >"$run/router.log" 2>&1 </dev/null &
router=$!
pids=("$router" "$fleet")
await router "$router" "http://127.0.0.1:$port/ready"

model=$(curl -fs "http://127.0.0.1:$port/v1/models" | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -1)
body="{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"stream\":true,\"max_tokens\":16}"
cat <<TEXT

The router listens on http://127.0.0.1:$port and its admin interface on http://127.0.0.1:$admin. Ask it:

  curl -N http://127.0.0.1:$port/v1/chat/completions -H 'content-type: application/json' -H 'x-backend;' -d '$body'

TEXT
# The words of the answer as they arrive, without the events around them; then who has made it.
curl -fsSN -D "$run/head" "http://127.0.0.1:$port/v1/chat/completions" -H 'content-type: application/json' -H 'x-backend;' -d "$body" |
  sed -u -n 's/.*"content":"\([^"]*\)".*/\1/p' | tr -d '\n'
printf '\n\n'
tr -d '\r' <"$run/head" | grep -i '^x-continuum-'
echo
say "both stay up; Ctrl-C ends them"
wait "$router"
