#!/usr/bin/env bash
# install-dynamo.sh [VERSION ...]   Real NVIDIA Dynamo without a GPU, for the end-to-end tests: the published wheels of each version in
# a virtual environment of its own, a model directory, and one environment with pytest and the official API clients.
#
# Everything goes to $CONTINUUM_CACHE/dynamo (default ~/.cache/continuum-router/dynamo):
#   <version>/bin/python   dynamo.mocker and dynamo.frontend of that version
#   client/bin/python      pytest, openai, anthropic, httpx
#   model/                 tokenizer, chat template and configuration of a small chat model; no weights
# Safe to run again; a second run takes no time. PYTHON chooses the interpreter (3.10 to 3.13).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(1.4.2 1.5.1 1.6.1)
home=$CONTINUUM_CACHE/dynamo
mkdir -p "$home"
# Two runs at a time would tread on each other's half-made environments.
exec 9>"$home/.lock"
flock 9

python=$(find_python) || die "no Python 3.10 to 3.13 with venv found (set PYTHON, or run scripts/install-test-deps.sh --e2e)"

# uv installs the same wheels as pip, many times faster.
uv() {
  if [ ! -f "$home/uv/.ok" ]; then
    rm -rf "$home/uv"
    "$python" -m venv "$home/uv"
    "$home/uv/bin/pip" install -q --disable-pip-version-check uv
    touch "$home/uv/.ok"
  fi
  "$home/uv/bin/uv" "$@"
}

# What mocker and frontend import, as seen by importing them. The metadata of `ai-dynamo` also asks for placeholder packages that try to
# download from elsewhere and are never imported, which is why the two wheels themselves are installed without dependencies.
imports=('uvloop>=0.21' 'pydantic>=2.10.6,<2.14' 'msgspec>=0.19.0' 'pyzmq>=26' 'prometheus-client>=0.23.1,<1' 'aiohttp>=3.14,<4'
  'typing-extensions>=4.10' 'zstandard>=0.23,<1' msgpack pyyaml packaging tqdm)

install_version() {
  local version=$1 venv=$home/$1 wanted=("${imports[@]}")
  [ ! -f "$venv/.ok" ] || return 0
  say "installing Dynamo $version"
  rm -rf "$venv"
  "$python" -m venv --without-pip "$venv"
  # Before 1.6 the mocker reads the model's configuration through transformers.
  case $version in 1.[0-5].*) wanted+=('transformers>=4.56') ;; esac
  uv pip install -q --python "$venv/bin/python" "${wanted[@]}"
  uv pip install -q --python "$venv/bin/python" --no-deps "ai-dynamo==$version" "ai-dynamo-runtime==$version"
  local out
  for out in mocker frontend; do
    out=$("$venv/bin/python" -m "dynamo.$out" --version 2>&1) || die "Dynamo $version does not start: $out"
  done
  touch "$venv/.ok"
}

install_client() {
  local venv=$home/client requirements mark
  requirements=$(repo_root)/e2e/requirements.txt
  mark=$(cksum <"$requirements")
  [ "$(cat "$venv/.ok" 2>/dev/null)" != "$mark" ] || return 0
  say "installing pytest and the API clients"
  rm -rf "$venv"
  "$python" -m venv --without-pip "$venv"
  uv pip install -q --python "$venv/bin/python" -r "$requirements"
  echo "$mark" >"$venv/.ok"
}

install_client
"$here/install-model.sh" >/dev/null
for version in "${versions[@]}"; do install_version "$version"; done
