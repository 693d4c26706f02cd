#!/usr/bin/env bash
# What `cargo build` needs beside Rust itself: protoc (etcd's protocol is compiled from its .proto files) and a C compiler
# (the cryptography of `ring`). Safe to run again: says nothing when nothing is missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v cargo >/dev/null ||
  die "no cargo on PATH. Install Rust (1.95 or newer) with rustup first: your system's own package is usually too old"

packages=()
command -v protoc >/dev/null || packages+=(protobuf-compiler)
command -v cc >/dev/null || packages+=(build-essential)
[ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"
