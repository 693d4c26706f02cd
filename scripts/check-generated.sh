#!/usr/bin/env bash
# Fails when a generated file is not what `make generate` writes now. Compares with the files as they were, committed or not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
mkdir -p "$before/docs/reference"
[ ! -d docs/reference ] || cp -R docs/reference/. "$before/docs/reference/"
"$here/generate.sh"
diff -ru "$before/docs/reference" docs/reference ||
  die "docs/reference is not current: the new files are in place now, review and commit them"
