#!/usr/bin/env bash
# Every test that needs no Dynamo: unit, property and corpus tests, and the tests against a real etcd and a real
# Kubernetes API server. Arguments go to `cargo test`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
"$here/install-test-deps.sh"

exec cargo test --workspace --features continuum-testkit/kube "$@"
