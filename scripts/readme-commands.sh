#!/usr/bin/env bash
# Runs the commands that README.md promises. A fenced shell block is run when the line before it is an HTML comment that starts with
# `<!-- ci`; the block must succeed as it stands, from the top of the checkout, within `ci seconds=N` (default 300). `ci until="TEXT"`
# is for commands that stay up: the block passes when TEXT was printed, and is then ended as Ctrl-C would end it. Blocks marked
# `ci cluster` want a Kubernetes cluster with a Dynamo fleet: they are run by `make e2e-kube`, and left out here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"
exec python3 "$here/readme_commands.py" "${1:-README.md}"
