# Shared by the scripts of this folder: source it, do not run it.
# shellcheck shell=bash

# Everything that is installed or built outside the checkout lives here, so that a fresh clone on a warm machine is fast.
: "${CONTINUUM_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/continuum-router}"
export CONTINUUM_CACHE

repo_root() { (cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd); }

say() { printf '[%s] %s\n' "$(basename "$0" .sh)" "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# The folder that cargo builds into: what CARGO_TARGET_DIR says, else the checkout's own target/.
target_dir() { echo "${CARGO_TARGET_DIR:-$(repo_root)/target}"; }

# Runs a command as root: as it is when we are root, through sudo otherwise.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "need root for: $* (run it as root, or install sudo)"
  fi
}

# Installs Debian packages, quietly. Services that a package would start stay down: tests start their own.
apt_install() {
  command -v apt-get >/dev/null ||
    die "missing: $*. This script knows Debian and Ubuntu only; install the same tools with your system's package manager"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "missing: $*. Run this as root once, or install them yourself"
  say "installing: $*"
  local made='' log
  log=$(mktemp)
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
    as_root chmod +x /usr/sbin/policy-rc.d
  fi
  local ok=0
  as_root apt-get update -qq >"$log" 2>&1 || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1 </dev/null || ok=1
  [ -z "$made" ] || as_root rm -f /usr/sbin/policy-rc.d
  if [ $ok != 0 ]; then
    tail -20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: $*"
  fi
  rm -f "$log"
}

# Debian and Ubuntu keep administrators' tools (ip, etcd on some) where ordinary users' PATH does not look.
PATH="$PATH:/usr/sbin:/sbin"
export PATH

# Prints the first Python between 3.10 and 3.13 that runs and can make virtual environments.
find_python() {
  local p
  for p in ${PYTHON:-python3.11 python3.12 python3.13 python3.10 python3}; do
    if "$p" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
      echo "$p"
      return 0
    fi
  done
  return 1
}

# Makes `go` usable: fails when there is none that can bring the version which a go.mod asks for (1.21 learned to).
use_go() {
  [ ! -x /usr/local/go/bin/go ] || PATH="$PATH:/usr/local/go/bin"
  local version major minor
  version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
  version=${version#go}
  IFS=. read -r major minor _ <<<"$version"
  minor=${minor%%[!0-9]*}
  [ "$major" = 1 ] && [ "$minor" -ge 21 ] || return 1
  [ "$minor" -ge 26 ] || export GOTOOLCHAIN=auto
}

# Whether this user may run a Kubernetes node here: root that may make namespaces, and cgroup v1.
may_run_a_node() { [ "$(id -u)" = 0 ] && [ -d /sys/fs/cgroup/memory ] && unshare --mount --net --pid --fork true 2>/dev/null; }

# needs_isolation VERSION: versions of Dynamo before 1.6 advertise the machine's outward address, so their fleets run where the loopback
# device is all there is.
needs_isolation() {
  case $1 in 1.[0-5].*) return 0 ;; *) return 1 ;; esac
}

# isolate: prints the command that starts another one in a network namespace of its own; nothing when the machine does not allow it.
isolate() {
  local way
  for way in "unshare -n" "unshare -rn"; do
    # shellcheck disable=SC2086
    if $way true 2>/dev/null; then
      echo "$way $here/in-loopback.sh"
      return
    fi
  done
}
