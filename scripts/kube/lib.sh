# Settings and functions of the one-node cluster's scripts: source it, do not run it.
# shellcheck shell=bash disable=SC2034
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../lib.sh
. "$here/../lib.sh"
cache=$CONTINUUM_CACHE/kube
work=${KUBE_WORK:-/tmp/continuum-e2e}   # keep it short: it holds a unix socket
ns=${KUBE_NETNS:-continuum-e2e}         # network namespace, and name of our cgroups
bin=$cache/bin
node_name=$ns-node
node_ip=10.200.0.1
node_cidr=10.200.0.0/24
pod_cidr=10.201.0.0/24
service_cidr=10.202.0.0/24
api_service_ip=10.202.0.1
dns_service_ip=10.202.0.10
api_port=6443
pause_image=localhost/continuum/pause:1
cni_bin=${KUBE_CNI_BIN:-/usr/lib/cni}

# Host pid of the cluster's pid 1, or nothing. A pid file left by a crash or a
# reboot cannot name a stranger: the process must be in our network namespace.
holder() {
  local pid
  pid=$(cat "$work/holder.pid" 2>/dev/null) || return 1
  [ -n "$pid" ] && [ -e "/run/netns/$ns" ] || return 1
  [ "$(stat -Lc %i "/proc/$pid/ns/net" 2>/dev/null)" = "$(stat -Lc %i "/run/netns/$ns")" ] || return 1
  echo "$pid"
}

# "controller-directory cgroup-of-this-cluster" per cgroup v1 hierarchy. Ours lie
# below the caller's, so nothing escapes the limits or accounting it runs under.
cgroups() {
  local ctrl path dir
  while IFS=: read -r _ ctrl path; do
    [ -n "$ctrl" ] || continue
    dir=/sys/fs/cgroup/${ctrl#name=}
    [ -d "$dir" ] && echo "$ctrl $dir${path%/}/$ns"
  done </proc/self/cgroup
}

# Runs a command in the cluster's network namespace only.
in_net() { nsenter --net="/run/netns/$ns" -- "$@"; }

# Runs a command in all of the cluster's namespaces, foreground.
in_node() { nsenter -t "$(holder)" -m -u -i -n -p -C -- "$@"; }

# spawn NAME COMMAND...: starts a daemon inside all of the cluster's namespaces and
# cgroups. run/NAME.pid holds its pid as seen inside; run/NAME.cmd lets ctl.sh restart it.
# setsid --fork makes it a child of the namespaces' pid 1: an nsenter left waiting outside
# would stop when the daemon is stopped, and then hold up the teardown.
spawn() {
  local name=$1 h dir
  shift
  h=$(holder) || die "the cluster is not up"
  printf '%q ' "$@" >"$work/run/$name.cmd"
  rm -f "$work/run/$name.pid"
  (
    while read -r dir; do echo "$BASHPID" >"$dir/cgroup.procs"; done <"$work/cgroups"
    # shellcheck disable=SC2016
    exec nsenter -t "$h" -m -u -i -n -p -C -- setsid --fork \
      /bin/bash -c 'echo $$ >"$1"; shift; exec "$@"' _ "$work/run/$name.pid" "$@"
  ) >>"$work/log/$name.log" 2>&1 </dev/null
}

alive() { local p; p=$(cat "$work/run/$1.pid" 2>/dev/null) && [ -n "$p" ] && in_node kill -0 "$p" 2>/dev/null; }

# wait_for SECONDS WHAT COMMAND...: polls quietly; on timeout says what did not come.
wait_for() {
  local end=$((SECONDS + $1)) what=$2 f name
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "$(basename "$0"): timed out waiting for $what (logs: $work/log)" >&2
      for f in "$work"/run/*.cmd; do
        name=$(basename "$f" .cmd)
        [ ! -e "$f" ] || alive "$name" || { echo "  $name is not running; its last words:"; tail -n 2 "$work/log/$name.log" | cut -c1-300; } >&2
      done
      return 1
    fi
    sleep 0.1
  done
}
