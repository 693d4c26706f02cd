#!/usr/bin/env bash
# make-prompt-goldens.sh [VERSION [TEMPLATE ...]]   Writes what transformers and a real frontend of that version (default 1.6.1) make of widely used chat
# templates, for the tests of crates/io/prompt. Needs no GPU; takes some minutes. See e2e/goldens/prompts.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

version=${1:-1.6.1}
"$here/install-test-deps.sh" --e2e
"$here/install-dynamo.sh" "$version"
templates=$("$here/install-templates.sh")
venv=$CONTINUUM_CACHE/dynamo/transformers
wanted=(transformers==4.57.3 jinja2==3.1.6)
if [ "$(cat "$venv/.ok" 2>/dev/null)" != "${wanted[*]}" ]; then
  say "installing transformers"
  rm -rf "$venv"
  "$(find_python)" -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "${wanted[@]}" >&2
  echo "${wanted[*]}" >"$venv/.ok"
fi
out=$(repo_root)/crates/io/prompt/tests/fixtures/templates
mkdir -p "$out"
TZ=UTC "$CONTINUUM_CACHE/dynamo/client/bin/python" "$(repo_root)/e2e/goldens/prompts.py" "$version" "$venv/bin/python" "$templates" "$out" "${@:2}"
