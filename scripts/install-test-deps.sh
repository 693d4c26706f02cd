#!/usr/bin/env bash
# What `make test` needs: the build's needs, etcd and etcdctl (the daemon is not started: tests start their own on free ports).
# With `--e2e` also what the real-Dynamo tests need: Python, npm (a tokenizer comes from there) and the tools for network namespaces.
# Safe to run again: says nothing when nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

"$here/install-build-deps.sh"

packages=()
command -v etcd >/dev/null || packages+=(etcd-server)
command -v etcdctl >/dev/null || packages+=(etcd-client)
command -v curl >/dev/null || packages+=(curl ca-certificates)
if [ "${1:-}" = --e2e ]; then
  command -v ip >/dev/null || packages+=(iproute2)
  command -v unshare >/dev/null || packages+=(util-linux)
  command -v npm >/dev/null || packages+=(npm)
  find_python >/dev/null || packages+=(python3 python3-venv)
fi
[ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"
