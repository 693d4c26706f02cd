#!/usr/bin/env bash
# Fails when a generated file is not what `make generate` writes now. Compares with the files as they were, committed or not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
cd "$(repo_root)"

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
generated=(docs/reference crds/yaml charts/continuum-router/files kustomize/overlays/operator)
for folder in "${generated[@]}"; do
  mkdir -p "$before/$folder"
  [ ! -d "$folder" ] || cp -R "$folder/." "$before/$folder/"
done
"$here/generate.sh"
for folder in "${generated[@]}"; do
  [ ! -d "$folder" ] || diff -ru "$before/$folder" "$folder" ||
    die "$folder is not current: the new files are in place now, review and commit them"
done
