#!/usr/bin/env bash
# install-templates.sh   Chat templates of widely used open models, as their authors publish them or nearly so, for the tests that compare renderings.
# They come with the sources of a Python package and stay outside of the checkout: their licences differ. They go to
# $CONTINUUM_CACHE/chat-templates; prints that path. Safe to run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

package=llama-cpp-python==0.3.36
home=$CONTINUUM_CACHE/chat-templates
echo "$home"
[ "$(cat "$home/.ok" 2>/dev/null)" != "$package" ] || exit 0
mkdir -p "$CONTINUUM_CACHE"
exec 8>"$CONTINUUM_CACHE/.templates.lock"
flock 8
[ "$(cat "$home/.ok" 2>/dev/null)" != "$package" ] || exit 0
say "fetching chat templates"
python=$(find_python) || die "no Python 3.10 to 3.13 with venv found (set PYTHON, or run scripts/install-test-deps.sh --e2e)"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$python" -m venv "$tmp/venv"
"$tmp/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-python -d "$tmp" "$package" >&2
rm -rf "$home"
mkdir -p "$home"
tar xzf "$tmp"/llama_cpp_python-*.tar.gz -C "$home" --strip-components 5 --wildcards '*/vendor/llama.cpp/models/templates/*.jinja'
echo "$package" >"$home/.ok"
