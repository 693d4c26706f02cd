#!/bin/sh
# in-loopback.sh COMMAND [ARGUMENT ...]   Runs a command in a fresh network namespace, once its loopback device is up.
set -eu
ip link set lo up
exec "$@"
