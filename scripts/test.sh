#!/usr/bin/env bash
# Every test that needs no Dynamo: unit, property and corpus tests, and the tests against a real etcd and a real
# Kubernetes API server. Arguments go to `cargo test`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-test-deps.sh"

# Most of the time is spent waiting for an API server, an etcd or a deadline: on two cores, four tests at a time take half as long.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
exec cargo test --workspace --features continuum-testkit/kube "$@"
