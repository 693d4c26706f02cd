#!/usr/bin/env bash
# e2e.sh [--versions "1.4.2 1.6.1"] [pytest arguments]   The router against real Dynamo processes, one version after the other.
#
# Versions before 1.6 advertise the machine's outward address in their discovery records, so their fleets, and the router and pytest with
# them, run in a network namespace that has the loopback device alone. That needs root (or the right to make user namespaces). Where
# neither is there, the run fails with a message, unless E2E_WITHOUT_NETNS=skip leaves those versions out.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

versions="${E2E_VERSIONS:-1.6.1 1.5.1 1.4.2}"
if [ "${1:-}" = --versions ]; then
  versions=$2
  shift 2
fi

"$here/install-test-deps.sh" --e2e
# shellcheck disable=SC2086
"$here/install-dynamo.sh" $versions
cargo build -p continuum-router
E2E_ROUTER=${E2E_ROUTER:-$(target_dir)/debug/continuum-router}
E2E_DYNAMO_HOME=$CONTINUUM_CACHE/dynamo
export E2E_ROUTER E2E_DYNAMO_HOME

failed=''
for version in $versions; do
  say "Dynamo $version"
  prefix=()
  if needs_isolation "$version"; then
    read -r -a prefix <<<"$(isolate)"
    if [ ${#prefix[@]} = 0 ]; then
      [ "${E2E_WITHOUT_NETNS:-}" = skip ] ||
        die "Dynamo $version needs a network namespace and this user may not make one. Run as root, or set E2E_WITHOUT_NETNS=skip"
      say "NOT TESTED: Dynamo $version (no right to make a network namespace)"
      continue
    fi
  fi
  "${prefix[@]}" "$E2E_DYNAMO_HOME/client/bin/python" -m pytest -p no:cacheprovider e2e --ignore e2e/kube --dynamo "$version" "$@" ||
    failed+=" $version"
done
[ -z "$failed" ] || die "failed against Dynamo:$failed"
